"""A ChatML template with tools, for a model that knows ChatML and whose own template drops the tools it is given.

System turn: the system text, then one line of JSON for each tool; nothing is inserted when there is neither. A call is
`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`. What a tool answers is a `user` turn of its own between
`<tool_response>` and `</tool_response>`: such models saw no `tool` role. Every message is a turn that ends with
`<|im_end|>` and a newline, whatever comes before or after it, so a longer conversation starts with the shorter one.
"""

from __future__ import annotations

CHATML_TEMPLATE = r"""
{%- set first = messages[0] if messages and messages[0]['role'] == 'system' else none -%}
{%- if first or tools -%}
{{- '<|im_start|>system\n' -}}
{%- if first -%}{{- first['content'] -}}{%- endif -%}
{%- if tools -%}
{{- '\n\n' if first else '' -}}
{{- 'Tools, one a line:' -}}
{%- for tool in tools -%}{{- '\n' + (tool['function'] if 'function' in tool else tool) | tojson -}}{%- endfor -%}
{{- '\nTo use one, answer <tool_call>{"name": "its name", "arguments": {its arguments}}</tool_call>' -}}
{%- endif -%}
{{- '<|im_end|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
{%- if message['role'] == 'tool' -%}
{{- '<|im_start|>user\n<tool_response>\n' + message['content'] + '\n</tool_response><|im_end|>\n' -}}
{%- elif not (loop.first and first) -%}
{{- '<|im_start|>' + message['role'] + '\n' + (message['content'] or '') -}}
{%- for call in message['tool_calls'] or [] -%}
{%- set called = call['function'] if 'function' in call else call -%}
{{- '\n' if message['content'] or not loop.first else '' -}}
{{- '<tool_call>{"name": ' + called['name'] | tojson -}}
{{- ', "arguments": ' + called['arguments'] | tojson + '}</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
""".strip()
