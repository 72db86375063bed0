"""How the scripted expert reads the scripted caller: the sentences of `speech`, back into what they mean.

Text in, data out; what is not understood gives None. Dates are said without a year: it is the one that the policy's
present day has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .wishes import MONTHS

_REF = r"my (?:reservation (?P<id>[A-Z0-9]{6})|trip from (?P<a>[A-Z]{3}) to (?P<b>[A-Z]{3}) on (?P<on>[A-Z]\w+ \d+))"
_FORMS: tuple[tuple[str, str], ...] = (
    ("cancel_reservation", rf"\bcancel {_REF}\."),
    ("update_reservation_flights", rf"\bchange {_REF}\."),
    ("update_reservation_baggages", rf"\bhave (?P<bags>no|\d+) checked bags? in all on {_REF}\."),
    ("update_reservation_passengers", rf"\bcorrect the name of the passenger (?P<old>.+?) to (?P<new>.+?) on {_REF}\."),
    ("update_reservation_passengers", rf"\bhave (?P<new>.+?) fly in place of (?P<old>.+?) on {_REF}\."),
    ("book_reservation", r"\bbook a (?P<kind>one-way|round) trip from (?P<a>[A-Z]{3}) to (?P<b>[A-Z]{3}) in "),
    ("send_certificate", r"\bcompensation\b"),
)
_FLY = re.compile(
    r"I want to fly from (?P<a>[A-Z]{3}) to (?P<b>[A-Z]{3}) on (?P<on>[A-Z]\w+ \d+), "
    r"(?:nonstop|with a stop in (?P<via>[A-Z]{3})), leaving at (?P<first>\d\d:\d\d)(?: and (?P<second>\d\d:\d\d))?\."
)
_CABIN = re.compile(r"\b(?:in|want) (basic economy|economy|business) class\.")
_PEOPLE = re.compile(r"It is for (.+?)\. I want (no|\d+) checked bags? and (no|the) travel insurance\.")
_PAYMENT = re.compile(
    r"my (?:(?P<id>(?:certificate|gift_card|credit_card)_\d+)|(?P<brand>\w+) card ending in (?P<last>\d{4})|"
    r"(?P<source>gift card|certificate|credit card)(?: with (?P<amount>\d+) dollars on it)?)"
)
_USER_ID = re.compile(r"\bMy user id is (\w+)\.")
_NUMBER = re.compile(r"\b(?=[A-Z0-9]*\d)[A-Z0-9]{6}\b")


@dataclass(frozen=True, slots=True)
class Fly:
    origin: str
    destination: str
    date: str
    via: str | None
    leaves: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """`reservation`, or the `trip` (origin, destination, first day) that it is about. `people`: new passengers as they
    were said; `old`: whom the first of them replaces."""

    tool: str
    text: str
    reservation: str | None = None
    trip: tuple[str, str, str] | None = None
    flights: tuple[Fly, ...] = ()
    cabin: str | None = None
    bags: int = 0
    people: tuple[str, ...] = ()
    old: str | None = None
    round_trip: bool = False
    insured: bool = False


def read_request(text: str, year: str) -> Request | None:
    for tool, form in _FORMS:
        found = re.search(form, text)
        if found is None:
            continue
        said = found.groupdict()
        flights = tuple(_fly(match, year) for match in _FLY.finditer(text))
        cabin = _CABIN.search(text)
        booked = _PEOPLE.search(text)
        bags = booked[2] if booked else said.get("bags") or "no"
        on = said.get("on")
        trip = (said["a"], said["b"], iso(on, year)) if on else (said["a"], said["b"], "") if said.get("a") else None
        return Request(
            tool=tool,
            text=text,
            reservation=said.get("id"),
            trip=trip,
            flights=flights,
            cabin=cabin[1].replace(" ", "_") if cabin else None,
            bags=0 if bags == "no" else int(bags),
            people=tuple(booked[1].split(" and ")) if booked else (said["new"],) if said.get("new") else (),
            old=said.get("old"),
            round_trip=said.get("kind") == "round",
            insured=bool(booked and booked[3] == "the"),
        )
    return None


def iso(words: str, year: str) -> str:
    """`May 24` as 2024-05-24."""
    month, number = words.split()
    return f"{year}-{MONTHS.index(month) + 1:02}-{int(number):02}"


def read_user_id(text: str) -> str | None:
    found = _USER_ID.search(text)
    return found[1] if found else None


def read_number(text: str) -> str | None:
    found = _NUMBER.search(text)
    return found[0] if found else None


def read_payments(text: str, methods: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """The ids of the payment methods that the text names, in its order; `methods` as the profile shows them."""
    ids = []
    for found in _PAYMENT.finditer(text):
        source = (found["source"] or "").replace(" ", "_")
        for method_id, method in methods.items():
            right = (
                method_id == found["id"]
                if found["id"]
                else method.get("last_four") == found["last"]
                if found["last"]
                else method["source"] == source
            )
            right = right and (found["amount"] is None or round(method.get("amount", -1)) == int(found["amount"]))
            if right and method_id not in ids:
                ids.append(method_id)
                break
    return tuple(ids)


def _fly(match: re.Match[str], year: str) -> Fly:
    leaves = tuple(time for time in (match["first"], match["second"]) if time)
    return Fly(match["a"], match["b"], iso(match["on"], year), match["via"], leaves)
