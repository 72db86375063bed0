"""Gymnasium spaces of conversations.

Elements are the frozen dataclasses of `conversation.py`. Gymnasium batches such custom spaces as tuples, one element
an environment; its shared-memory transport does not know them, hence `AsyncVectorEnv(..., shared_memory=False)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from gymnasium.spaces import Space

from .conversation import AgentAction, Message, Observation, Role, ToolCall
from .domain import ToolSpec

_ROLES = frozenset(get_args(Role))
_WORDS = ("yes", "no", "please", "order", "help", "thanks")


def _is_call(x: Any) -> bool:
    return isinstance(x, ToolCall) and isinstance(x.name, str) and isinstance(x.id, str)


def _call_to_json(call: ToolCall) -> dict[str, Any]:
    return {"name": call.name, "arguments": call.arguments, "id": call.id}


class ActionSpace(Space[AgentAction]):
    """Everything a policy can do, right or wrong: the space checks types, the environment checks sense.

    `sample` draws well-formed actions: with equal chance a few `words`, or one call of a tool with arguments
    that fit its schema.
    """

    def __init__(self, tools: Sequence[ToolSpec], words: Sequence[str] | None = None, seed: int | None = None) -> None:
        self.tools = tuple(tools)
        self.words = tuple(words or _WORDS)
        super().__init__(seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def contains(self, x: Any) -> bool:
        return (
            isinstance(x, AgentAction)
            and isinstance(x.text, str)
            and isinstance(x.thinking, str)
            and (x.error is None or isinstance(x.error, str))
            and isinstance(x.tool_calls, tuple)
            and all(map(_is_call, x.tool_calls))
        )

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> AgentAction:
        if mask is not None or probability is not None:
            raise ValueError("ActionSpace.sample has no masks: there is no fixed list of actions to mask")
        rng = self.np_random
        if not self.tools or rng.random() < 0.5:
            return AgentAction(text=" ".join(self._word() for _ in range(int(rng.integers(1, 6)))))
        spec = self.tools[int(rng.integers(len(self.tools)))]
        return AgentAction(tool_calls=(ToolCall(spec.name, self._value(spec.parameters)),))

    def _word(self) -> str:
        return self.words[int(self.np_random.integers(len(self.words)))]

    def _value(self, schema: Mapping[str, Any]) -> Any:
        if "enum" in schema:
            return schema["enum"][int(self.np_random.integers(len(schema["enum"])))]
        match schema.get("type"):
            case "integer":
                return int(self.np_random.integers(100))
            case "number":
                return float(self.np_random.integers(100)) / 4
            case "boolean":
                return bool(self.np_random.integers(2))
            case "array":
                return [self._value(schema.get("items", {})) for _ in range(int(self.np_random.integers(1, 3)))]
            case "object":
                properties = schema.get("properties", {})
                return {key: self._value(properties.get(key, {})) for key in schema.get("required", properties)}
            case _:
                return self._word()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActionSpace) and self.tools == other.tools and self.words == other.words

    def __repr__(self) -> str:
        return f"ActionSpace({', '.join(tool.name for tool in self.tools)})"

    def to_jsonable(self, sample_n: Iterable[AgentAction]) -> list[Any]:
        return [
            {
                "text": a.text,
                "tool_calls": [_call_to_json(call) for call in a.tool_calls],
                "error": a.error,
                "thinking": a.thinking,
            }
            for a in sample_n
        ]

    def from_jsonable(self, sample_n: list[Any]) -> list[AgentAction]:
        return [
            AgentAction(d["text"], tuple(ToolCall(**c) for c in d["tool_calls"]), d["error"], d["thinking"])
            for d in sample_n
        ]


class ObservationSpace(Space[Observation]):
    """Non-empty tuples of messages."""

    def __init__(self, words: Sequence[str] | None = None, seed: int | None = None) -> None:
        self.words = tuple(words or _WORDS)
        super().__init__(seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def contains(self, x: Any) -> bool:
        return isinstance(x, tuple) and len(x) > 0 and all(map(self._is_message, x))

    @staticmethod
    def _is_message(m: Any) -> bool:
        return (
            isinstance(m, Message)
            and m.role in _ROLES
            and isinstance(m.content, str)
            and (m.name is None or isinstance(m.name, str))
            and (m.tool_call_id is None or isinstance(m.tool_call_id, str))
            and isinstance(m.tool_calls, tuple)
            and all(map(_is_call, m.tool_calls))
            and isinstance(m.is_error, bool)
        )

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> Observation:
        if mask is not None or probability is not None:
            raise ValueError("ObservationSpace.sample has no masks: there is no fixed list of messages to mask")
        rng = self.np_random
        texts = [
            " ".join(self.words[int(i)] for i in rng.integers(len(self.words), size=int(rng.integers(1, 6))))
            for _ in range(int(rng.integers(1, 3)))
        ]
        return tuple(Message("user", text) for text in texts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObservationSpace) and self.words == other.words

    def __repr__(self) -> str:
        return "ObservationSpace()"

    def to_jsonable(self, sample_n: Iterable[Observation]) -> list[Any]:
        return [
            [
                {
                    "role": m.role,
                    "content": m.content,
                    "name": m.name,
                    "tool_call_id": m.tool_call_id,
                    "tool_calls": [_call_to_json(call) for call in m.tool_calls],
                    "is_error": m.is_error,
                }
                for m in observation
            ]
            for observation in sample_n
        ]

    def from_jsonable(self, sample_n: list[Any]) -> list[Observation]:
        return [
            tuple(Message(**{**d, "tool_calls": tuple(ToolCall(**c) for c in d["tool_calls"])}) for d in observation)
            for observation in sample_n
        ]
