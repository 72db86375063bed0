"""Exact and graded score of the first turn; nothing that comes later counts.

Exact: 1 if the turn is one call, of the right tool, with exactly the right arguments. Equal means equal: "4821" is not
"#4821". Only a value of the wrong JSON type whose meaning is certain is repaired first, as the environment does it.
Graded: a third for a turn that is one call, a third for the right tool, and the last for the share of right arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..arguments import check_arguments
from ..conversation import Message, ToolCall
from ..domain import Score, ToolSpec
from ..problems import BadArguments


def score(gold: ToolCall, tools: Mapping[str, ToolSpec], transcript: Sequence[Message]) -> Score:
    first = next((message for message in transcript if message.role == "assistant"), None)
    calls = first.tool_calls if first is not None else ()
    one = len(calls) == 1 and calls[0].name in tools
    right = one and calls[0].name == gold.name
    share, exact = _arguments(gold, tools[gold.name], calls[0].arguments) if right else (0.0, False)
    parts = {"call": float(one), "tool": float(right), "arguments": share}
    return Score(reward=float(exact), graded=sum(parts.values()) / len(parts), parts=parts)


def _arguments(gold: ToolCall, tool: ToolSpec, given: Any) -> tuple[float, bool]:
    """(share of the right arguments that are given rightly, whether that is all that is given)."""
    try:
        given, _ = check_arguments(tool, given)
    except BadArguments:
        given = given if isinstance(given, Mapping) else {}
    met = sum(_same(given.get(name), value) for name, value in gold.arguments.items())
    return met / len(gold.arguments), met == len(gold.arguments) == len(given)


def _same(given: Any, wanted: str | int) -> bool:
    return type(given) is type(wanted) and given == wanted
