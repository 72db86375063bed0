"""The expert: reads the request only, by knowing every way in which one is said.

That it is right on every task proves that a request says all that its call needs, and that no request can be read in
two ways (`readings` finds all of them).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from ..conversation import AgentAction, Observation, ToolCall
from .asides import CORRECTIONS, DETAILS
from .family import COUNTS, Family

_PATTERNS = {
    "person": r"[A-Z]\w+ [A-Z]\w+",
    "item": r"[a-z]+ [a-z]+",
    "event": r"[a-z]+ [a-z]+",
    "file": r"[a-z]+_\d\d\.[a-z]+",
    "order": r"#?\d{4}",
    "trip": r"(?:T-)?\d{4}",
    "date": r"[A-Z][a-z]+ \d\d?",
    "time": r"\d\d?:\d\d",
    "city": r"[A-Z][a-z]+",
    "text": r'[^"]+',
    "room": r"[a-z]+",
    "machine": r"[a-z ]+",
} | dict.fromkeys(COUNTS, r"\d\d?")
_SLOT = re.compile(r"\\\{(\w+)\\\}")


class Expert:
    def __init__(self, family: Family) -> None:
        self._family = family

    def act(self, observation: Observation) -> AgentAction:
        call = next(readings(observation[-1].content, self._family), None)
        return AgentAction(text="I do not understand.") if call is None else AgentAction(tool_calls=(call,))


def readings(text: str, family: Family) -> Iterator[ToolCall]:
    """Every call of the family that the text can be read as."""
    for request, wrong, right in _without_asides(text):
        for tool, kinds, phrase in _phrases(family):
            if (found := phrase.fullmatch(request)) is None:
                continue
            said = found.groupdict()
            if wrong:
                meant = [name for name, value in said.items() if value == wrong]
                if len(meant) != 1:
                    continue
                said[meant[0]] = right
            yield ToolCall(tool, {name: int(said[name]) if kind in COUNTS else said[name] for name, kind in kinds})


def _without_asides(text: str) -> Iterator[tuple[str, str, str]]:
    """(what may be the request, the wrong value in it, the right one instead): as it stands, without a detail before
    or behind it, and without a correction."""
    yield text, "", ""
    details, corrections = _asides()
    for detail in details:
        if found := re.match(f"{detail} ", text):
            yield text[found.end() :], "", ""
        if found := re.search(f" {detail}$", text):
            yield text[: found.start()], "", ""
    for correction in corrections:
        if found := re.search(f" {correction}$", text):
            yield text[: found.start()], found["wrong"], found["right"]


@lru_cache
def _phrases(family: Family) -> tuple[tuple[str, tuple[tuple[str, str], ...], re.Pattern[str]], ...]:
    """(tool, argument and kind of each slot, a pattern with one group for each argument), for each way to ask."""
    return tuple(
        (
            request.tool.name,
            tuple(request.kinds.items()),
            re.compile(
                _pattern(phrase, {name: f"(?P<{name}>{_PATTERNS[kind]})" for name, kind in request.kinds.items()})
            ),
        )
        for request in family.requests
        for phrases in request.phrases.values()
        for phrase in phrases.direct + phrases.indirect
    )


@lru_cache
def _asides() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Patterns of details and of corrections, of all splits."""
    values = {"wrong": "(?P<wrong>.+)", "right": "(?P<right>.+)"}
    details = tuple(_pattern(detail, _PATTERNS) for ways in DETAILS.values() for detail in ways)
    return details, tuple(_pattern(correction, values) for ways in CORRECTIONS.values() for correction in ways)


def _pattern(phrase: str, groups: Mapping[str, str]) -> str:
    return _SLOT.sub(lambda slot: groups[slot[1]], re.escape(phrase))
