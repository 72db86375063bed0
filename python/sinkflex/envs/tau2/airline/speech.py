"""What an airline caller says.

A wish is said in fixed sentences. Where there is none, the scenario speaks: the data addresses whoever plays the
customer ("You want to cancel your flights"); turned into the first person, the sentences can be said as they are, and
those that direct the play ("You are terse", "If the agent says ...") are not said.
"""

from __future__ import annotations

import re

from .wishes import Flight, Person, Trip, Wish, day

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_DIRECTION = re.compile(
    r"^(if|unless|only after|before|ask\b|be\b|do not|don't|tell\b|insist|mention|say\b|try\b|use\b|under no|"
    r"you are (very|reactive|emotional|upset|extremely|impatient|a bit|not good|persistent|calling|contacting|busy)|"
    r"absolutely|this is (incorrect|not)|you (don't|do not) (want the agent|remember|volunteer)|in the middle|"
    r"first,|halfway)",
    re.IGNORECASE,
)
_WORDS = (
    (r"\byou are\b", "I am"),
    (r"\byou're\b", "I'm"),
    (r"\byou were\b", "I was"),
    (r"\byou've\b", "I've"),
    (r"\byou'd\b", "I'd"),
    (r"\byou'll\b", "I'll"),
    (r"\byourself\b", "myself"),
    (r"\byours\b", "mine"),
    (r"\byour\b", "my"),
    (
        r"\b(for|to|with|by|of|from|upgrade|told|tell|gives|give|that) you\b"
        r"(?! (want|are|have|can|will|were|did|do|need))",
        r"\1 me",
    ),
    (r"\byou\b", "I"),
)


def first_person(text: str) -> str:
    """`text` as the person it addresses would say it."""
    for pattern, word in _WORDS:
        text = re.sub(pattern, word, text, flags=re.IGNORECASE)
    return text[:1].upper() + text[1:]


def statements(text: str | None) -> tuple[str, ...]:
    """What of a scenario's text the caller can say, in order."""
    sentences = (" ".join(part.split()) for part in _SENTENCE.split(text or ""))
    said = (sentence.lstrip("- ") for sentence in sentences if sentence.strip("- ") and not _DIRECTION.match(sentence))
    return tuple(first_person(sentence) for sentence in said)


# The sentences of a wish


def core(wish: Wish, ref: str) -> str:
    """The wish as a phrase that follows `I want to`, with its end and what belongs to it. `ref`: how the trip is
    called."""
    flights = " ".join(flight(one) for one in wish.flights)
    match wish.tool:
        case "cancel_reservation":
            return f"cancel {ref}."
        case "send_certificate":
            return "get a compensation for it."
        case "update_reservation_baggages":
            return f"have {_bags(wish.bags)} in all on {ref}."
        case "update_reservation_passengers":
            return " ".join(_change(old, new, ref) for old, new in wish.people)
        case "update_reservation_flights":
            cabin = "" if wish.cabin is None else f"I want {wish.cabin.replace('_', ' ')} class."
            return " ".join(part for part in (f"change {ref}.", cabin, flights) if part)
        case _:
            assert wish.trip is not None and wish.cabin is not None
            kind = "round trip" if wish.round_trip else "one-way trip"
            people = " and ".join(person(new) for _, new in wish.people)
            insurance = "the" if wish.insured else "no"
            return (
                f"book a {kind} from {wish.trip.origin} to {wish.trip.destination} in {wish.cabin.replace('_', ' ')} "
                f"class. {flights} It is for {people}. I want {_bags(wish.bags)} and {insurance} travel insurance."
            )


def reference(trip: Trip, by_id: bool) -> str:
    """The trip as its owner calls it."""
    if by_id:
        return f"my reservation {trip.id}"
    return f"my trip from {trip.origin} to {trip.destination} on {day(trip.start)}"


def flight(one: Flight) -> str:
    stops = f"with a stop in {' and '.join(one.via)}" if one.via else "nonstop"
    times = " and ".join(one.leaves)
    return f"I want to fly from {one.origin} to {one.destination} on {day(one.date)}, {stops}, leaving at {times}."


def person(who: Person) -> str:
    if who.self:
        return "myself"
    if who.known:
        return f"{who.name}, who is in my profile"
    return who.name if who.born is None else f"{who.name}, born on {who.born}"


def payment(wish: Wish) -> str:
    words = [one.words for one in wish.payments]
    if wish.tool != "book_reservation":
        return f"Please use {words[0]}."
    return f"Please pay with {words[0]}{''.join(f', then with {more}' for more in words[1:])}."


def reason(wish: Wish) -> str:
    return "I feel unwell and cannot fly." if wish.unwell else "My plans have changed."


def _bags(count: int | None) -> str:
    return f"{count or 'no'} checked bag{'' if count == 1 else 's'}"


def _change(old: str | None, new: Person, ref: str) -> str:
    if new.born is None and not (new.known or new.self):
        return f"correct the name of the passenger {old} to {new.name} on {ref}."
    return f"have {person(new)} fly in place of {old} on {ref}."
