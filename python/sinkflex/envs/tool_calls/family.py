"""What a tool family is: a few tools that belong together, and the ways people ask for each of them.

A phrase is a sentence with slots, `Cancel order {order}.`; a slot is named like the tool's argument. Each tool has
phrases per part of the data: those of train, tune and report share no wording, see `generator`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..domain import ToolSpec


@dataclass(frozen=True, slots=True)
class Phrases:
    """Ways to ask for one tool: in plain words, and without naming the deed."""

    direct: tuple[str, ...]
    indirect: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One tool with what its slots hold (`kinds`: argument to a kind of `entities.draw`) and its phrases by split."""

    tool: ToolSpec
    kinds: Mapping[str, str]
    phrases: Mapping[str, Phrases]


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    name: str
    requests: tuple[Request, ...]

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        return tuple(request.tool for request in self.requests)


def request(name: str, description: str, kinds: Mapping[str, str], **phrases: Phrases) -> Request:
    """A tool whose arguments are all required. Kinds that count are integers, all others strings."""
    properties: dict[str, Any] = {
        argument: {"type": "integer" if kind in COUNTS else "string"} for argument, kind in kinds.items()
    }
    schema = {"type": "object", "properties": properties, "required": list(kinds)}
    return Request(ToolSpec(name, description, schema, "write"), kinds, phrases)


COUNTS = {"few": (2, 9), "minutes": (10, 90), "degrees": (16, 27)}
"""Kinds of small whole numbers with their smallest and largest value; no split has numbers of its own."""
