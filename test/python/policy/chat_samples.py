"""Tokenizers for chat tests: the closed-vocabulary one, our BPE, and one with a ChatML template."""

from __future__ import annotations

from typing import Any

from sinkflex.envs.domain import ToolSpec
from sinkflex.policy.tokenizer import build_bpe_tokenizer
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% if tools %}<|im_start|>system\n"
    "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] }}\n{% endif %}"
    "Tools:{% for t in tools %}\n{{ t | tojson }}{% endfor %}<|im_end|>\n"
    "{% elif messages[0]['role'] == 'system' %}<|im_start|>system\n"
    "{{ messages[0]['content'] }}<|im_end|>\n{% endif %}"
    "{% for m in messages if m['role'] != 'system' %}"
    "{% if m['role'] == 'assistant' %}<|im_start|>assistant\n{{ m['content'] }}"
    "{% for c in m.get('tool_calls') or [] %}<tool_call>\n"
    "{\"name\": {{ c['function']['name'] | tojson }}, \"arguments\": {{ c['function']['arguments'] | tojson }}}"
    "\n</tool_call>{% endfor %}<|im_end|>\n"
    "{% elif m['role'] == 'tool' %}<|im_start|>user\n<tool_response>\n{{ m['content'] }}\n</tool_response><|im_end|>\n"
    "{% else %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

TOOLS = (
    ToolSpec(
        "get_order",
        "Look up an order.",
        {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]},
        "read",
    ),
    ToolSpec(
        "cancel_order",
        "Cancel an order.",
        {
            "type": "object",
            "properties": {"order_id": {"type": "string"}, "reason": {"type": "string"}},
            "required": ["order_id", "reason"],
        },
        "write",
    ),
)
WORDS = ("please cancel order W1 W2 pending mug ? yes no done ann lee longer needed now the second one hello").split()  # noqa: SIM905


def chatml_tokenizer(template: str = CHATML) -> Any:
    """A byte-level BPE with ChatML tokens; pad equals the end token, as in several public models."""
    base = build_bpe_tokenizer(
        ["cancel the order W1 please, now cancel the second one. hello hello hello"] * 20, size=400
    )
    core = base.backend_tokenizer
    core.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in ("<|im_start|>", "<|im_end|>")])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.chat_template = template
    return tokenizer
