"""Our ChatML template: tools are in it, nothing is put in unasked, a longer conversation starts with the shorter."""

from __future__ import annotations

from typing import Any

import pytest
from chat_samples import TOOLS, chatml_tokenizer
from sinkflex.envs.conversation import AgentAction, Message, ToolCall
from sinkflex.policy.chatml import CHATML_TEMPLATE
from sinkflex.policy.template import TemplateFormat

FUNCTIONS = [tool.as_function() for tool in TOOLS]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    tokenizer = chatml_tokenizer()
    tokenizer.chat_template = CHATML_TEMPLATE
    return tokenizer


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "Serve."},
    {"role": "user", "content": "cancel W1"},
    {"role": "assistant", "content": "", "tool_calls": [call("get_order", order_id="W1"), call("get_order", n=2)]},
    {"role": "tool", "content": '{"status": "pending"}'},
    {"role": "tool", "content": "two"},
    {"role": "assistant", "content": "Zoë, now?", "tool_calls": [call("cancel_order", order_id="W1", why="é\n")]},
    {"role": "tool", "content": "ok"},
    {"role": "assistant", "content": "Done."},
    {"role": "user", "content": "thanks"},
]


def render(tokenizer: Any, messages: list[dict[str, Any]], tools: Any = None, header: bool = False) -> str:
    return str(tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=header, tokenize=False))


def test_every_turn_is_written_as_the_module_says(tokenizer: Any) -> None:
    assert render(tokenizer, CONVERSATION[1:6], header=True) == (
        "<|im_start|>user\ncancel W1<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>{"name": "get_order", "arguments": {"order_id": "W1"}}</tool_call>\n'
        '<tool_call>{"name": "get_order", "arguments": {"n": 2}}</tool_call><|im_end|>\n'
        '<|im_start|>user\n<tool_response>\n{"status": "pending"}\n</tool_response><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\ntwo\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\nZoë, now?\n"
        '<tool_call>{"name": "cancel_order", "arguments": {"order_id": "W1", "why": "é\\n"}}</tool_call><|im_end|>\n'
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("tools", [None, FUNCTIONS], ids=["no tools", "tools"])
@pytest.mark.parametrize("start", [0, 1], ids=["system", "no system"])
def test_a_longer_conversation_starts_with_the_shorter(tokenizer: Any, tools: Any, start: int) -> None:
    whole = render(tokenizer, CONVERSATION[start:], tools)
    for stop in range(start + 1, len(CONVERSATION)):
        shorter = render(tokenizer, CONVERSATION[start:stop], tools)
        assert whole.startswith(shorter)
        if CONVERSATION[stop]["role"] == "assistant":
            assert whole.startswith(render(tokenizer, CONVERSATION[start:stop], tools, header=True))


def test_tools_stand_in_the_system_turn_and_nothing_else_is_put_in(tokenizer: Any) -> None:
    user = CONVERSATION[1:2]
    assert render(tokenizer, user) == "<|im_start|>user\ncancel W1<|im_end|>\n"
    alone = render(tokenizer, user, FUNCTIONS)
    both = render(tokenizer, CONVERSATION[:2], FUNCTIONS)
    for text in (alone, both):
        system, _, rest = text.partition("<|im_end|>\n")
        assert rest == "<|im_start|>user\ncancel W1<|im_end|>\n"
        assert all(f'\n{{"name": "{tool.name}", ' in system for tool in TOOLS)
        assert "<tool_call>{" in system
    assert both.startswith("<|im_start|>system\nServe.\n\n")


def test_the_chat_format_reads_what_it_writes(tokenizer: Any) -> None:
    chat = TemplateFormat(tokenizer, "ours")
    calls = (ToolCall("get_order", {"order_id": "W1"}), ToolCall("cancel_order", {"order_id": "a 'b' \"c\" {d}"}))
    for action in (AgentAction("", calls), AgentAction("one moment", calls), AgentAction("hello")):
        read = chat.read(chat.write(action)).action
        assert (read.text, read.tool_calls, read.error) == (action.text, action.tool_calls, None)
    following = chat.following(next(iter(chat.stop_ids)), (Message("tool", "ok"),))
    assert chat.text([i for piece in following for i in piece.ids]) == (
        "\n<|im_start|>user\n<tool_response>\nok\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
