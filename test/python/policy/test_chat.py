"""Chat formats: what is rendered, what is read, and that sampled ids are never re-tokenised."""

from __future__ import annotations

from typing import Any

import pytest
from chat_samples import CHATML, TOOLS, chatml_tokenizer
from sinkflex.envs.conversation import AgentAction, Message, ToolCall
from sinkflex.policy.chat import WordFormat, parse_call_json
from sinkflex.policy.template import TemplateFormat
from sinkflex.policy.tokenizer import build_bpe_tokenizer
from sinkflex.refusal import Refusal

FUNCTIONS = [t.as_function() for t in TOOLS]
CALL = AgentAction(tool_calls=(ToolCall("cancel_order", {"order_id": "W1", "reason": "no longer needed"}),))
TWO_CALLS = AgentAction(
    tool_calls=(ToolCall("get_order", {"order_id": "W1"}), ToolCall("get_order", {"order_id": "W2"}))
)
ANSWER = (Message("tool", "order W1 pending mug", name="get_order", tool_call_id="c1"),)


def ids_of(pieces: Any) -> list[int]:
    return [i for piece in pieces for i in piece.ids]


def conversation_ids(
    chat: Any, opening: tuple[Message, ...], turns: list[tuple[AgentAction, tuple[Message, ...]]]
) -> list[int]:
    ids = ids_of(chat.opening(None, (), opening))
    for action, answer in turns:
        ids += chat.write(action)
        ids += ids_of(chat.following(ids[-1], answer))
    return ids


def template_ids(tokenizer: Any, messages: list[dict[str, Any]]) -> list[int]:
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return list(tokenizer.encode(text, add_special_tokens=False))


def call_dict(action: AgentAction) -> dict[str, Any]:
    calls = [{"type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in action.tool_calls]
    return {"role": "assistant", "content": action.text, "tool_calls": calls}


@pytest.mark.parametrize("which", ["words", "bpe", "chatml"])
def test_incremental_ids_equal_one_rendering_of_the_whole(which: str, request: pytest.FixtureRequest) -> None:
    tokenizer = request.getfixturevalue(which)
    chat = WordFormat(tokenizer.get_vocab()) if which == "words" else TemplateFormat(tokenizer, which)
    user = Message("user", "please cancel order W1")
    follow = Message("user", "now cancel the second one")
    said = AgentAction(text="done ?")
    ids = conversation_ids(chat, (user,), [(TWO_CALLS, ANSWER), (CALL, ANSWER), (said, (follow,))])
    whole = [
        {"role": "user", "content": user.content}, call_dict(TWO_CALLS),
        {"role": "tool", "content": ANSWER[0].content, "name": "get_order", "tool_call_id": "c1"}, call_dict(CALL),
        {"role": "tool", "content": ANSWER[0].content, "name": "get_order", "tool_call_id": "c1"},
        {"role": "assistant", "content": "done ?"}, {"role": "user", "content": follow.content},
    ]  # fmt: skip
    assert ids == template_ids(tokenizer, whole)


@pytest.mark.parametrize("which", ["words", "bpe", "chatml"])
@pytest.mark.parametrize("action", [CALL, TWO_CALLS, AgentAction(text="order W1 done ?")])
def test_what_is_written_is_read_back(which: str, action: AgentAction, request: pytest.FixtureRequest) -> None:
    tokenizer = request.getfixturevalue(which)
    chat = WordFormat(tokenizer.get_vocab()) if which == "words" else TemplateFormat(tokenizer, which)
    ids = chat.write(action)
    assert ids[-1] in chat.stop_ids
    reading = chat.read(ids)
    assert reading.action == action
    covered = sorted(i for _, a, b in reading.spans for i in range(a, b))
    assert covered == list(range(len(ids))), "sub-spans cover the turn once"


def test_B29_newline_after_the_end_token_is_context_and_the_next_prompt_is_the_stored_ids(chatml: Any) -> None:
    chat = TemplateFormat(chatml, "chatml")
    opening = ids_of(chat.opening(None, (), (Message("user", "hello"),)))
    sampled = [*chatml.encode("hello", add_special_tokens=False), chatml.convert_tokens_to_ids("<|im_end|>")]
    pieces = chat.following(sampled[-1], (Message("user", "cancel"),))
    assert chat.text(pieces[0].ids).startswith("\n<|im_start|>user\ncancel")
    whole = template_ids(
        chatml,
        [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "hello"},
            {"role": "user", "content": "cancel"},
        ],
    )
    assert [*opening, *sampled, *ids_of(pieces)] == whole


def test_B33_a_template_that_rewrites_history_or_drops_a_message_is_refused() -> None:
    strips = CHATML.replace("{% for m in messages if", "{% for m in messages[-1:] if")
    with pytest.raises(Refusal, match="rewrites earlier turns"):
        TemplateFormat(chatml_tokenizer(strips), "stripping")
    drops = CHATML.replace("{{ m['role'] }}\n{{ m['content'] }}", "{{ m['role'] }}\n")
    with pytest.raises(Refusal, match="follow-up message does not appear"):
        TemplateFormat(chatml_tokenizer(drops), "dropping")


def test_B33_the_follow_up_text_is_in_the_ids(chatml: Any) -> None:
    chat = TemplateFormat(chatml, "chatml")
    pieces = chat.following(next(iter(chat.stop_ids)), (Message("user", "now cancel the second one"),))
    assert "now cancel the second one" in chat.text(ids_of(pieces))


def test_B34_an_odd_special_token_inside_a_turn_stays_in_the_ids_and_shifts_nothing(chatml: Any) -> None:
    chat = TemplateFormat(chatml, "chatml")
    odd = chatml.convert_tokens_to_ids("<|im_start|>")
    end = chatml.convert_tokens_to_ids("<|im_end|>")
    sampled = [
        *chatml.encode("hel", add_special_tokens=False),
        odd,
        *chatml.encode("lo", add_special_tokens=False),
        end,
    ]
    reading = chat.read(sampled)
    assert sorted(i for _, a, b in reading.spans for i in range(a, b)) == list(range(len(sampled)))
    result = Message("tool", "order W1 pending", name="get_order", tool_call_id="c1")
    text = chat.text(chat.following(end, (result,))[0].ids)
    assert text == "\n<|im_start|>user\n<tool_response>\norder W1 pending\n</tool_response><|im_end|>\n"


def test_B40_the_call_token_ends_the_turn_and_the_call_is_read(words: Any) -> None:
    chat = WordFormat(words.get_vocab())
    call = words.convert_tokens_to_ids("<|call|>")
    assert call in chat.stop_ids
    ids = chat.write(CALL)
    assert ids[-1] == call
    assert chat.read(ids).action.tool_calls == CALL.tool_calls


def test_B41_the_assistant_mask_does_not_depend_on_generation_markers(chatml: Any) -> None:
    """Masks come from what was written or sampled, so a template without {% generation %} loses nothing."""
    assert "generation %}" not in CHATML
    answer = TemplateFormat(chatml, "chatml").write(AgentAction(text="hello hello"))
    assert len(answer) > 1


def test_a_template_without_end_tokens_is_refused_by_name() -> None:
    bare = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    with pytest.raises(Refusal, match="does not end with a special token"):
        TemplateFormat(chatml_tokenizer(bare), "bare")


def test_no_template_is_refused(chatml: Any) -> None:
    tokenizer = chatml_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(Refusal, match="no chat template"):
        TemplateFormat(tokenizer, "mute")


def test_a_template_that_ignores_tools_is_refused_when_tools_are_shown() -> None:
    deaf = CHATML[CHATML.index("{% elif messages[0]") :].replace("{% elif", "{% if", 1)
    chat = TemplateFormat(chatml_tokenizer(deaf), "deaf")
    with pytest.raises(Refusal, match="leaves out the tools"):
        chat.opening("be kind", FUNCTIONS, (Message("user", "hello"),))


def test_B46_a_template_that_moves_reasoning_fails_the_round_trip() -> None:
    moved = CHATML.replace("{{ m['content'] }}\"\n", "").replace(
        "<|im_start|>assistant\n{{ m['content'] }}", "<|im_start|>assistant\n{{ m['content'] }}</think>"
    )
    with pytest.raises(Refusal):
        TemplateFormat(chatml_tokenizer(moved.replace('"arguments"', '"parameters"')), "moved")


@pytest.mark.parametrize("think", ["<think>\nbecause\n</think>\n", "<think>\n\n</think>\n"])
def test_B46_reasoning_is_kept_apart_from_what_is_said(chatml: Any, think: str) -> None:
    chat = TemplateFormat(chatml, "chatml")
    end = chatml.convert_tokens_to_ids("<|im_end|>")
    reading = chat.read([*chatml.encode(think + "hello", add_special_tokens=False), end])
    assert reading.action.text == "hello"
    assert "think" in {kind for kind, _, _ in reading.spans}


def test_B46_unfinished_reasoning_is_not_spoken(chatml: Any) -> None:
    chat = TemplateFormat(chatml, "chatml")
    end = chatml.convert_tokens_to_ids("<|im_end|>")
    reading = chat.read([*chatml.encode("<think>\nI should say ###STOP###", add_special_tokens=False), end])
    assert reading.action.text == "" and reading.action.error is not None


def test_unreadable_turns_say_why(words: Any) -> None:
    chat = WordFormat(words.get_vocab())
    to_ids = words.convert_tokens_to_ids
    cases = {
        "cut": [to_ids("yes")],
        "empty": [to_ids("<|end|>")],
        "ends a turn that holds no call": [to_ids("yes"), to_ids("<|call|>")],
        "must end with": [to_ids("<|tool_call|>"), to_ids("get_order"), to_ids("<|end|>")],
        "control token": [to_ids("yes"), to_ids("<|user|>"), to_ids("<|end|>")],
        "without a name": [to_ids("<|tool_call|>"), to_ids("<|call|>")],
    }
    for why, ids in cases.items():
        error = chat.read(ids).action.error
        assert error is not None and why in error, (why, error)


def test_arguments_that_cannot_be_read_reach_the_environment_as_text(words: Any) -> None:
    chat = WordFormat(words.get_vocab())
    to_ids = words.convert_tokens_to_ids
    ids = [to_ids(w) for w in ("<|tool_call|>", "get_order", "W1", "order_id:", "W2", "<|call|>")]
    assert chat.read(ids).action.tool_calls == (ToolCall("get_order", "W1 order_id: W2"),)


def test_an_unknown_word_is_refused_not_replaced(words: Any) -> None:
    with pytest.raises(ValueError, match="'teapot' is not in the closed vocabulary"):
        WordFormat(words.get_vocab()).opening(None, (), (Message("user", "please cancel teapot"),))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ('{"name": "f", "arguments": {"a": 1}}', ToolCall("f", {"a": 1})),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', ToolCall("f", {"a": 1})),
        ('{"name": "f", "arguments": null}', ToolCall("f", None)),
        ('{"name": "f", "arguments": {"order_id": "#W1', ToolCall("f", '{"name": "f", "arguments": {"order_id": "#W1')),
        ('{"nom": "f"}', "the tool call is not an object with a name"),
        ("[1]", "the tool call is not an object with a name"),
        ("nonsense", "the tool call is not JSON and names no tool"),
    ],
)
def test_call_json(raw: str, expected: ToolCall | str) -> None:
    assert parse_call_json(raw) == expected


def test_bpe_is_the_same_twice_and_splits_digits() -> None:
    corpus = ["order 12345 of user 678, status pending", '{"a": [1, 2]}'] * 50
    one, two = build_bpe_tokenizer(corpus, 500), build_bpe_tokenizer(corpus, 500)
    assert one.get_vocab() == two.get_vocab()
    assert len(one.encode("12345", add_special_tokens=False)) == 5
