"""What can be wrong with an agent's action, as data, and how the agent is told.

Idea: the environment finds the problem, the wording is a matter of the domain. A domain whose text is a closed
vocabulary supplies `phrase_problem(problem) -> str`; every other gets `sentence`. Whatever the agent wrote is
quoted at most `PREVIEW` characters long, with the full length beside it, so a bad output cannot flood the context.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

PREVIEW = 200

Kind = Literal[
    "unreadable",  # the output was neither words nor a call
    "silent",  # no words for the user and no call
    "alone",  # words where no user is there to hear them
    "unknown_tool",
    "users_tool",  # exists, but only the user can operate it
    "bad_json",  # arguments are not a JSON object
    "missing",  # a required argument is absent
    "unexpected",  # an argument the tool does not have
    "mistyped",  # an argument of the wrong type or outside its enumeration
    "not_run",  # an earlier call of the same turn ended the episode
]


@dataclass(frozen=True, slots=True)
class Problem:
    """`tool` and `field` name the place, `wanted` what would have been right, `got` a preview of what came."""

    kind: Kind
    tool: str = ""
    field: str = ""
    wanted: str = ""
    got: str = ""


class BadArguments(Exception):
    """A call's arguments do not fit its schema."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(sentence(problem))
        self.problem = problem


@runtime_checkable
class PhrasesProblems(Protocol):
    """A domain that words its error observations itself."""

    def phrase_problem(self, problem: Problem) -> str: ...


def preview(value: Any, limit: int = PREVIEW) -> str:
    """`value` as text of at most about `limit` characters; a cut one says how long it was."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except RecursionError:
        return "a value nested too deeply to show"
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def sentence(p: Problem) -> str:
    """The default wording: what is wrong, where, and what would be right."""
    match p.kind:
        case "unreadable":
            return f"Error: the output could not be read as a message or a tool call: {p.got}"
        case "silent":
            return "Error: the turn holds neither a message for the user nor a tool call."
        case "alone":
            return "Error: there is no user to talk to; the turn must be a tool call."
        case "unknown_tool":
            return f"Error: there is no tool named {p.got!r}. The tools are: {p.wanted}."
        case "users_tool":
            return f"Error: {p.tool} belongs to the user; the agent cannot run it. Ask the user to do it."
        case "bad_json":
            return f"Error: the arguments of {p.tool} must be a JSON object, got: {p.got}"
        case "missing":
            return f"Error: {p.tool} needs the argument {p.field!r} ({p.wanted})."
        case "unexpected":
            return f"Error: {p.tool} has no argument {p.field!r}. It takes: {p.wanted}."
        case "mistyped":
            return f"Error: the argument {p.field!r} of {p.tool} must be {p.wanted}, got: {p.got}"
        case "not_run":
            return f"Error: {p.tool} was not run: an earlier call of this turn ended the conversation."
