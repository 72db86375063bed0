"""Draws requests from seeds: the same split and index give the same task on every machine.

Styles, the suite's levels: 0 direct · 1 without naming the deed · 2 either, with a detail that does not matter ·
3 direct, with one value said wrong first and then corrected. Families and styles take turns, so any prefix of a split
is a fair sample; the tool is drawn evenly within the family.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from random import Random

from .asides import CORRECTIONS, DETAILS
from .entities import draw
from .families import FAMILIES, HELD_OUT
from .family import Family

STYLES = ("direct", "indirect", "detail", "corrected")
PATTERN = (0, 1, 0, 2, 0, 1, 0, 3)
"""The styles of every eight tasks of a family in a row: half are direct, a quarter indirect."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a task is: the words of the user, and the one right call."""

    family: Family
    style: int
    text: str
    tool: str
    arguments: dict[str, str | int]


def families(split: str) -> tuple[Family, ...]:
    """Those of the split: four that all have, and its held-out one, if it has one."""
    return (*FAMILIES, HELD_OUT[split]) if split in HELD_OUT else FAMILIES


def place(split: str, index: int) -> tuple[Family, int]:
    """Family and style of the task of that index."""
    chosen = families(split)
    return chosen[index % len(chosen)], PATTERN[index // len(chosen) % len(PATTERN)]


def build(split: str, index: int) -> Content:
    rng = Random(f"tool-calls {split} {index}")
    family, style = place(split, index)
    request = rng.choice(family.requests)
    phrases = request.phrases[split]
    ways = {0: phrases.direct, 1: phrases.indirect, 2: phrases.direct + phrases.indirect, 3: phrases.direct}[style]
    arguments: dict[str, str | int] = {}
    for name, kind in request.kinds.items():
        arguments[name] = _another(kind, split, rng, arguments.values())
    said, aside = dict(arguments), ""
    if style == 2:
        aside = _aside(split, rng)
    elif style == 3:
        name = rng.choice(list(request.kinds))
        said[name] = _another(request.kinds[name], split, rng, arguments.values())
        aside = rng.choice(CORRECTIONS[split]).format(wrong=said[name], right=arguments[name])
    text = rng.choice(ways).format(**said)
    if aside:
        text = f"{aside} {text}" if style == 2 and rng.random() < 0.5 else f"{text} {aside}"
    return Content(family, style, text, request.tool.name, arguments)


def _another(kind: str, split: str, rng: Random, taken: object) -> str | int:
    """A value that differs from all that are taken."""
    while (value := draw(kind, split, rng)) in taken:  # type: ignore[operator]
        pass
    return value


def _aside(split: str, rng: Random) -> str:
    detail = rng.choice(DETAILS[split])
    kinds = [kind for _, kind, _, _ in string.Formatter().parse(detail) if kind]
    return detail.format(**{kind: draw(kind, split, rng) for kind in kinds})
