"""What an airline caller ends up wanting: the task's gold writes, each with the facts that a plan for it must name.

As in retail, gold may shape only what the caller wants: the task's text is often conditional, and the gold list has
taken the branch. 26 of the 50 tasks have writes. The other 24 ask for what the policy forbids: their callers accept
a refusal. A fact is a text that must occur in the plan (ids, names, dates, numbers), compared without case and commas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

WRITES = (
    "book_reservation",
    "cancel_reservation",
    "send_certificate",
    "update_reservation_baggages",
    "update_reservation_flights",
    "update_reservation_passengers",
)


@dataclass(frozen=True, slots=True)
class Wish:
    """One write: `verb` says what it is about, `facts` are what a plan for it must name."""

    tool: str
    verb: re.Pattern[str]
    facts: tuple[str, ...]


_VERBS = {
    "book_reservation": r"\bbook",
    "cancel_reservation": r"\bcancel",
    "send_certificate": r"\b(certificate|voucher|compensat)",
    "update_reservation_baggages": r"\b(bag|bags|baggage|baggages|suitcase|luggage)\b",
    "update_reservation_flights": r"\b(change|update|upgrade|downgrade|modif|switch|move)",
    "update_reservation_passengers": r"\b(passenger|name)",
}


def wishes(task: Any) -> tuple[Wish, ...]:
    """The gold writes in gold order."""
    actions = task.evaluation_criteria.actions or ()
    return tuple(
        Wish(action.name, re.compile(_VERBS[action.name], re.IGNORECASE), tuple(facts(action.name, action.arguments)))
        for action in actions
        if action.name in WRITES
    )


def facts(tool: str, arguments: Mapping[str, Any]) -> Iterator[str]:
    """What must be in a plan for this call; also what the scripted gold agent says in its plan."""
    for name in ("reservation_id", "cabin", "flight_type", "origin", "destination"):
        if name in arguments:
            yield str(arguments[name]).replace("_", " ")
    for flight in arguments.get("flights", ()):
        yield str(flight["flight_number"])
        yield str(flight["date"])
    for passenger in arguments.get("passengers", ()):
        yield f"{passenger['first_name']} {passenger['last_name']}"
    if "total_baggages" in arguments:
        yield f"{arguments['total_baggages']} bag"
    if tool == "send_certificate":
        yield str(arguments["amount"])


def named(wish: Wish, text: str) -> bool:
    """Whether `text` names every fact of the wish."""
    words = text.lower().replace(",", "").replace("_", " ")
    return all(fact.lower() in words for fact in wish.facts)


def contradicts(wish: Wish, text: str) -> bool:
    """Whether `text` is about this kind of write and names another reservation than the wished one."""
    ids = set(re.findall(r"\b(?=[A-Z0-9]*\d)[A-Z0-9]{6}\b", text))
    own = {fact for fact in wish.facts if re.fullmatch(r"[A-Z0-9]{6}", fact)}
    return bool(wish.verb.search(text) and ids and own and not ids & own)
