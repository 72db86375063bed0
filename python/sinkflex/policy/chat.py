"""Chat formats: how messages become token ids, and how sampled ids become an action.

Idea: the rollout never renders a conversation twice. It asks a format for the ids of the opening (once), for the ids
that follow a finished agent turn (each turn), and for the reading of the ids that were sampled. Ids that the policy
sampled are never re-tokenised, so what is trained on is what was sampled (B29, B30, B35).

A turn ends with one of `stop_ids`, sampled by the policy. A turn that was cut gets its end token from `following`,
as context without loss (B42).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from sinkflex.envs.conversation import AgentAction, Message, ToolCall


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of ids of one kind (see rollout.trajectory.SpanKind)."""

    kind: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """A sampled turn, read: the action, and (kind, start, stop) sub-spans over its ids, the stop token included."""

    action: AgentAction
    spans: tuple[tuple[str, int, int], ...]


class ChatFormat(Protocol):
    """The four questions that rollout and warm start ask."""

    stop_ids: frozenset[int]

    def opening(
        self, policy_text: str | None, tools: Sequence[Mapping[str, Any]], messages: Sequence[Message]
    ) -> list[Piece]:
        """Ids up to and including the header after which the policy speaks. `policy_text` None: no system message."""
        ...

    def following(self, last_id: int, messages: Sequence[Message]) -> list[Piece]:
        """Ids between a finished agent turn, whose last id is `last_id`, and the next one (its header included)."""
        ...

    def read(self, ids: Sequence[int]) -> Reading: ...

    def write(self, action: AgentAction) -> list[int]:
        """The ids of an agent turn as the policy is meant to say it, stop token included (for demonstrations)."""
        ...

    def text(self, ids: Sequence[int]) -> str: ...


SPECIALS = (
    "<|pad|>",
    "<|unk|>",
    "<|end|>",
    "<|call|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|tool|>",
    "<|env|>",
    "<|tool_call|>",
)
"""Special tokens of our own tokenizers; an id is the position in this tuple. <|pad|> is never an end token (B37)."""

# Our own template: role token, content, <|end|>; a turn of calls ends with <|call|>. {ARGUMENTS} differs by tokenizer.
_TEMPLATE = (
    "{%- if messages and messages[0]['role'] == 'system' -%}"
    "<|system|>{{ messages[0]['content'] }}{% if tools %}{{ '\n' }}{{ tools | tojson }}{% endif %}<|end|>"
    "{%- endif -%}"
    "{%- for m in messages if m['role'] != 'system' -%}"
    "{%- if m['role'] == 'assistant' and m.get('tool_calls') -%}<|assistant|>"
    "{%- for c in m['tool_calls'] -%}<|tool_call|>{ARGUMENTS}{%- endfor -%}<|call|>"
    "{%- else -%}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)
WORD_TEMPLATE = _TEMPLATE.replace(
    "{ARGUMENTS}",
    "{{ c['function']['name'] }}{% for k, v in c['function']['arguments'].items() %} {{ k }}: {{ v }}{% endfor %}",
)
JSON_TEMPLATE = _TEMPLATE.replace(
    "{ARGUMENTS}",
    "{\"name\": {{ c['function']['name'] | tojson }}, \"arguments\": {{ c['function']['arguments'] | tojson }}}",
)


class WordFormat:
    """The format of the tiny policy on a closed vocabulary: one blank-separated word, one id.

    Renders exactly what WORD_TEMPLATE renders (a test compares them) without running a template: a supervised stage
    writes twenty thousand episodes. A call is `<|tool_call|> name key: value ... <|call|>`.
    """

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._ids = dict(vocabulary)
        self._words = {i: w for w, i in self._ids.items()}
        self._special = {s: self._ids[s] for s in SPECIALS}
        self._special_ids = frozenset(self._special.values())
        self._end, self._call = self._special["<|end|>"], self._special["<|call|>"]
        self._tool_call, self._assistant = self._special["<|tool_call|>"], self._special["<|assistant|>"]
        self.stop_ids = frozenset({self._end, self._call})

    def _encode(self, text: str) -> tuple[int, ...]:
        try:
            return tuple(self._ids[w] for w in text.split())
        except KeyError as e:
            raise ValueError(
                f"the word {e.args[0]!r} is not in the closed vocabulary of this suite: {text!r}"
            ) from None

    def _piece(self, message: Message) -> Piece:
        if message.role == "assistant":
            return Piece("env", (self._assistant, *self._encode(message.content), self._end))
        return Piece(message.role, (self._special[f"<|{message.role}|>"], *self._encode(message.content), self._end))

    def opening(
        self, policy_text: str | None, tools: Sequence[Mapping[str, Any]], messages: Sequence[Message]
    ) -> list[Piece]:
        if policy_text is not None:
            raise ValueError("a closed vocabulary cannot spell the policy text: set env.system_prompt to none")
        return [*map(self._piece, messages), Piece("header", (self._assistant,))]

    def following(self, last_id: int, messages: Sequence[Message]) -> list[Piece]:
        closing = [] if last_id in self.stop_ids else [Piece("control", (self._end,))]
        return [*closing, *map(self._piece, messages), Piece("header", (self._assistant,))]

    def write(self, action: AgentAction) -> list[int]:
        if not action.tool_calls:
            return [*self._encode(action.text), self._end]
        ids: list[int] = []
        for call in action.tool_calls:
            ids += [self._tool_call, self._ids[call.name]]
            for key, value in call.arguments.items():
                ids += [self._ids[f"{key}:"], *self._encode(str(value))]
        return [*ids, self._call]

    def read(self, ids: Sequence[int]) -> Reading:
        n = len(ids)
        if n == 0 or ids[-1] not in self.stop_ids:
            return Reading(AgentAction(error="the turn was cut before its end token"), (("text", 0, n),) if n else ())
        body, stop = ids[:-1], ids[-1]
        control = ("control", n - 1, n)
        if not body:
            return Reading(AgentAction(error="the turn is empty"), (control,))
        if body[0] == self._tool_call:
            return self._read_calls(body, stop, control)
        spans = (("text", 0, n - 1), control)
        if stop != self._end:
            return Reading(AgentAction(error="<|call|> ends a turn that holds no call"), spans)
        if not self._special_ids.isdisjoint(body):
            return Reading(AgentAction(error="a control token inside a message"), spans)
        return Reading(AgentAction(text=self.text(body)), spans)

    def _read_calls(self, body: Sequence[int], stop: int, control: tuple[str, int, int]) -> Reading:
        starts = [i for i, t in enumerate(body) if t == self._tool_call] + [len(body)]
        spans: list[tuple[str, int, int]] = []
        calls: list[ToolCall] = []
        error = None if stop == self._call else "a turn of calls must end with <|call|>"
        for start, after in pairwise(starts):
            spans.append(("control", start, start + 1))
            if after - start >= 2:
                spans.append(("tool_name", start + 1, start + 2))
            if after - start >= 3:
                spans.append(("tool_args", start + 2, after))
            words = [self._words[i] for i in body[start + 1 : after]]
            if not words or not self._special_ids.isdisjoint(body[start + 1 : after]):
                error = error or "a call without a name, or with a control token inside"
                continue
            arguments, problem = _keyed(words[1:])
            calls.append(ToolCall(words[0], arguments if problem is None else " ".join(words[1:])))
        spans.append(control)
        action = AgentAction(error=error) if error else AgentAction(tool_calls=tuple(calls))
        return Reading(action, tuple(spans))

    def text(self, ids: Sequence[int]) -> str:
        return " ".join(self._words[i] for i in ids)


def _keyed(words: Sequence[str]) -> tuple[dict[str, str], str | None]:
    """`key: value value key: value` to an object, or a problem: a value before any key, none after one, a key twice."""
    arguments: dict[str, list[str]] = {}
    key = None
    for word in words:
        if word.endswith(":"):
            key = word[:-1]
            if key in arguments:
                return {}, f"the argument {key} is given twice"
            arguments[key] = []
        elif key is None:
            return {}, "a value before any argument name"
        else:
            arguments[key].append(word)
    empty = next((k for k, v in arguments.items() if not v), None)
    return {k: " ".join(v) for k, v in arguments.items()}, None if empty is None else f"the argument {empty} is empty"


def message_dict(message: Message) -> dict[str, Any]:
    """A message as chat templates expect it."""
    entry: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        entry["tool_calls"] = [
            {"type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in message.tool_calls
        ]
    if message.name is not None:
        entry["name"] = message.name
    if message.tool_call_id is not None:
        entry["tool_call_id"] = message.tool_call_id
    return entry


def parse_call_json(raw: str) -> ToolCall | str:
    """One call as JSON text: `{"name": ..., "arguments": {...}}`. Returns the call, or why it is none.

    A name that can be read beside arguments that cannot gives a call whose `arguments` is the raw text: the
    environment answers it as that tool's error and counts it (B71), the parser guesses nothing.
    """
    try:
        value = json.loads(raw)
    except ValueError:
        name = _quoted_after(raw, '"name"')
        return ToolCall(name, raw.strip()) if name else "the tool call is not JSON and names no tool"
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return "the tool call is not an object with a name"
    arguments = value.get("arguments", {})
    if isinstance(arguments, str):
        with suppress(ValueError):
            arguments = json.loads(arguments)
    return ToolCall(value["name"], arguments)


def _quoted_after(text: str, key: str) -> str | None:
    _, found, tail = text.partition(key)
    if not found:
        return None
    parts = tail.split('"')
    return parts[1] if len(parts) >= 3 and parts[0].strip() == ":" and parts[1] else None
