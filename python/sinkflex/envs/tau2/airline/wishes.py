"""What an airline caller brings up: the task's gold writes as wishes in a customer's terms, and questions.

As in retail, gold may shape only what the caller wants: the task's text is often conditional, and the gold list has
taken the branch. 30 of the 50 tasks have writes and one only a question; the other 19 ask for what the policy forbids,
in the words of their scenario, and doing nothing is rewarded there. A wish speaks of trips by their ends and first day,
of flights by day and time, of payment by source; flight numbers, reservation ids and payment ids stay inside: they
recognise a plan. A `fact` is what a plan must name: one of its alternatives, compared without case and commas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..package import Package
from ..state import TableState, fresh

Fact = tuple[str, ...]

WRITES = (
    "book_reservation",
    "cancel_reservation",
    "send_certificate",
    "update_reservation_baggages",
    "update_reservation_flights",
    "update_reservation_passengers",
)
_UNWELL = re.compile(r"\b(unwell|sick|ill)\b")


@dataclass(frozen=True, slots=True)
class Trip:
    """A reservation as its owner calls it. `start`: its first day, as in the data."""

    id: str
    origin: str
    destination: str
    start: str


@dataclass(frozen=True, slots=True)
class Flight:
    """One direction of a journey: `leaves` holds a departure time a leg, `via` the stops between."""

    origin: str
    destination: str
    date: str
    leaves: tuple[str, ...]
    via: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Person:
    """`born` is said only where the shop does not have it. `known`: in the caller's profile. `self`: the caller."""

    name: str
    born: str | None = None
    known: bool = False
    self: bool = False


@dataclass(frozen=True, slots=True)
class Payment:
    id: str
    source: str
    words: str
    last_four: str | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """One write. `cabin` and `bags` are None where they stay as they are. `people`: (before, after) for a change of
    passengers, (None, after) for a booking."""

    tool: str
    facts: tuple[Fact, ...]
    trip: Trip | None = None
    flights: tuple[Flight, ...] = ()
    cabin: str | None = None
    bags: int | None = None
    people: tuple[tuple[str | None, Person], ...] = ()
    payments: tuple[Payment, ...] = ()
    round_trip: bool = False
    insured: bool = False
    unwell: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    text: str


Topic = Wish | Question


def wishes(package: Package, task: Any) -> tuple[Wish, ...]:
    """The gold writes in gold order, each described by the database as it stands just before it."""
    return tuple(_wishes(package, task))


def _wishes(package: Package, task: Any) -> Iterator[Wish]:
    state = fresh(package)
    scenario = str(task.user_scenario.instructions)
    for action in task.evaluation_criteria.actions or ():
        if action.name in WRITES:
            yield _wish(state, scenario, action.name, action.arguments)
            state.environment.make_tool_call(action.name, requestor=action.requestor, **action.arguments)


def _wish(state: TableState, scenario: str, tool: str, given: Mapping[str, Any]) -> Wish:
    facts = tuple(alternatives(fact) for fact in facts_of(tool, given))
    held = state.tables["reservations"].peek(given["reservation_id"]) if "reservation_id" in given else None
    user = state.tables["users"].peek(held.user_id if held is not None else given["user_id"])
    said: dict[str, Any] = {}
    if held is not None:
        said["trip"] = Trip(held.reservation_id, held.origin, held.destination, held.flights[0].date)
    paid = [payment["payment_id"] for payment in given.get("payment_methods", ())]
    paid += [given["payment_id"]] if "payment_id" in given else []
    said["payments"] = tuple(_payment(user, payment_id, scenario) for payment_id in paid)
    if "passengers" in given:
        said["people"] = tuple(_people(user, given["passengers"], held))
    if "flights" in given:
        kept = {(f.flight_number, f.date) for f in held.flights} if held is not None else set()
        fixed = held.destination if held is not None else given["destination"]
        directions = _directions(state, given["flights"], fixed)
        said["flights"] = tuple(flight for legs, flight in directions if not legs <= kept)
        said["cabin"] = given["cabin"] if held is None or held.cabin != given["cabin"] else None
    if tool == "cancel_reservation":
        said["unwell"] = bool(_UNWELL.search(scenario))
    said["bags"] = given.get("total_baggages")
    said["insured"] = given.get("insurance") == "yes"
    said["round_trip"] = given.get("flight_type") == "round_trip"
    if tool == "book_reservation":
        said["trip"] = Trip("", given["origin"], given["destination"], given["flights"][0]["date"])
    return Wish(tool=tool, facts=facts, **said)


def _directions(
    state: TableState, flights: Sequence[Mapping[str, str]], destination: str
) -> Iterator[tuple[set[tuple[str, str]], Flight]]:
    """The journeys out and back that a list of flights makes: the first ends where it first touches the destination, or
    where the day of travel changes."""
    legs = [(state.tables["flights"].peek(f["flight_number"]), f["date"]) for f in flights]
    ends = [n for n, (flight, _) in enumerate(legs[:-1], 1) if flight.destination == destination]
    ends = ends or [n for n, (_, date) in enumerate(legs[:-1], 1) if date != legs[n][1]]
    for part in (legs[: ends[0]], legs[ends[0] :]) if ends else (legs,):
        yield (
            {(flight.flight_number, date) for flight, date in part},
            Flight(
                origin=part[0][0].origin,
                destination=part[-1][0].destination,
                date=part[0][1],
                leaves=tuple(flight.scheduled_departure_time_est[:5] for flight, _ in part),
                via=tuple(flight.destination for flight, _ in part[:-1]),
            ),
        )


def _people(user: Any, passengers: Sequence[Mapping[str, str]], held: Any) -> Iterator[tuple[str | None, Person]]:
    known = {(p.first_name, p.last_name, p.dob) for p in user.saved_passengers}
    before: Sequence[Any] = held.passengers if held is not None else (None,) * len(passengers)
    for old, new in zip(before, passengers, strict=True):
        key = (new["first_name"], new["last_name"], new["dob"])
        if old is not None and key == (old.first_name, old.last_name, old.dob):
            continue
        name = f"{new['first_name']} {new['last_name']}"
        own = name == f"{user.name.first_name} {user.name.last_name}" and new["dob"] == user.dob
        corrected = old is not None and old.dob == new["dob"]
        born = None if own or corrected or key in known else new["dob"]
        was = None if old is None else f"{old.first_name} {old.last_name}"
        yield was, Person(name, born, known=key in known and not corrected, self=own)


def _payment(user: Any, payment_id: str, scenario: str) -> Payment:
    """A payment method in words that single it out among all of the caller's, where words can."""
    method = user.payment_methods[payment_id]
    same = [other for other in user.payment_methods.values() if other.source == method.source]
    last_four = getattr(method, "last_four", None)
    words = method.source.replace("_", " ")
    if len(same) > 1 and last_four is not None:
        words = f"{method.brand.capitalize()} card ending in {last_four}"
    elif len(same) > 1 and sum(other.amount == method.amount for other in same) > 1 and payment_id in scenario:
        words = payment_id
    elif len(same) > 1:
        words = f"{words} with {method.amount:.0f} dollars on it"
    return Payment(payment_id, method.source, f"my {words}", last_four)


def facts_of(tool: str, arguments: Mapping[str, Any]) -> Iterator[str]:
    """What must be in a plan for this call; also what the scripted agents say in theirs."""
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


MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def day(date: str) -> str:
    """`May 24` for 2024-05-24."""
    return f"{MONTHS[int(date[5:7]) - 1]} {int(date[8:])}"


def alternatives(fact: str) -> Fact:
    """A fact and the other forms in which agents say it."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d", fact):
        month = day(fact)
        return fact, month, f"{month[:3]} {month.split()[1]}"
    if re.fullmatch(r"\d+ bag", fact):
        count = fact.split()[0]
        none = ("no bag", "no checked bag", "without bag", "without checked bag") if count == "0" else ()
        return (fact, f"{count} checked bag", f"{count} suitcase", f"baggage: {count}", f"bags: {count}", *none)
    return (fact,)
