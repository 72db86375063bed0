"""A scripted airline agent that sees only what any agent sees, and follows the policy.

As retail's: one conversation is one generator of actions. It finds out who calls, looks at the reservations,
understands the request, asks for what is missing, refuses what the policy forbids (and hands over where it says so),
states the plan, writes after a yes, reports, next. It knows the scripted caller's phrasing (`reading`) and the policy's
rules (`rules`), not the task. It does not solve the eleven tasks whose gold breaks the policy or contradicts itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ...conversation import Observation
from ..reference import HAND_OVER, IMPOSSIBLE
from ..talk import Conversation, Talk, TalkingAgent
from . import rules
from .agents import TRANSFER, plan
from .questions import BALANCES, CHARGED, REFUND, UPCOMING
from .reading import Fly, Request, read_number, read_payments, read_request, read_user_id

WHO = "Could you please tell me your user id?"
WHICH = "Could you please tell me the reservation number?"
PAY = "Which payment method should I use?"
WHY = "What is the reason for cancelling it?"
TRIES = 3
BALANCED = ("gift_card", "certificate")


class ExpertAgent(TalkingAgent):
    def __init__(self, policy: str) -> None:
        super().__init__(_Conversation(policy))


class _Refused(Exception):
    """The request cannot be granted; the caller is told so."""


class _OutOfScope(Exception):
    """The policy leaves the request to a human."""


class _Conversation(Conversation):
    """`paid`: what each payment method was charged in this conversation (negative: given back)."""

    def __init__(self, policy: str) -> None:
        self.now = rules.now(policy)
        self.user: dict[str, Any] = {}
        self.trips: dict[str, dict[str, Any]] = {}
        self.paid: list[tuple[str, int]] = []

    def run(self, observation: Observation) -> Talk:
        text = observation[-1].content
        yield from self._identify()
        for number in self.user["reservations"]:
            self.trips[number] = yield from self._read("get_reservation_details", reservation_id=number)
        while True:
            request = read_request(text, str(self.now.year))
            if request is not None:
                text = yield from self._serve(request)
            elif text.endswith("?"):
                text = yield from self._say(self._answer(text))
            else:
                text = yield from self._say(IMPOSSIBLE)

    def _read(self, tool: str, **arguments: Any) -> Talk:
        result = yield from self._call(tool, **arguments)
        if result.is_error:
            raise _Refused
        return json.loads(result.content)

    def _ask(self, question: str, read: Any) -> Talk:
        for _ in range(TRIES):
            value = read((yield from self._say(question)))
            if value:
                return value
        raise _Refused

    def _identify(self) -> Talk:
        """Asks for as long as it takes: nothing may be done for a stranger."""
        while not self.user:
            user_id = read_user_id((yield from self._say(WHO)))
            if user_id is not None:
                try:
                    yield from self._look(user_id)
                except _Refused:
                    continue

    def _look(self, user_id: str) -> Talk:
        self.user = yield from self._read("get_user_details", user_id=user_id)

    # One request

    def _serve(self, request: Request) -> Talk:
        try:
            arguments = yield from self._arguments(request)
            reply = yield from self._say(self._plan(request.tool, arguments))
            if not reply.startswith("Yes"):
                return reply
            after = yield from self._read(request.tool, **arguments)
        except _Refused:
            return (yield from self._say(IMPOSSIBLE))
        except _OutOfScope:
            yield from self._call(TRANSFER, summary=request.text)
            return (yield from self._say(HAND_OVER))
        self._note(after)
        yield from self._look(self.user["user_id"])
        return (yield from self._say("It has been done. Is there anything else I can help you with?"))

    def _arguments(self, request: Request) -> Talk:
        if request.tool == "book_reservation":
            return (yield from self._booking(request))
        if request.tool == "send_certificate":
            raise _Refused  # a delay alone is compensated only where the trip is changed or cancelled
        trip = yield from self._trip(request)
        arguments: dict[str, Any] = {"reservation_id": trip["reservation_id"]}
        if request.tool == "cancel_reservation":
            yield from self._cancelling(request, trip)
            return arguments
        if request.tool == "update_reservation_passengers":
            return arguments | {"passengers": self._replaced(request, trip)}
        if request.tool == "update_reservation_baggages":
            if request.bags < trip["total_baggages"]:
                raise _Refused
            free = rules.free_bags(self.user, trip["cabin"], len(trip["passengers"]))
            arguments |= {"total_baggages": request.bags, "nonfree_baggages": max(0, request.bags - free)}
        else:
            arguments |= yield from self._flights(request, trip)
        [payment, *_] = yield from self._payments(request)
        return arguments | {"payment_id": payment}

    def _trip(self, request: Request) -> Talk:
        number = request.reservation
        if number is None:
            fits = [n for n, trip in self.trips.items() if _ends(trip) == request.trip]
            number = fits[0] if len(fits) == 1 else (yield from self._ask(WHICH, read_number))
        if number not in self.trips:
            raise _Refused
        return self.trips[number]

    def _cancelling(self, request: Request, trip: dict[str, Any]) -> Talk:
        text = request.text
        if not re.search(r"unwell|plans have changed", text):
            text = yield from self._say(WHY)
        if rules.flown(trip, self.now):
            raise _OutOfScope
        if not rules.may_cancel(trip, self.now, "unwell" in text):
            raise _Refused

    def _replaced(self, request: Request, trip: dict[str, Any]) -> list[dict[str, str]]:
        passengers = [dict(passenger) for passenger in trip["passengers"]]
        for place, passenger in enumerate(passengers):
            if _name(passenger) == request.old:
                passengers[place] = self._person(request.people[0], passenger["dob"])
                return passengers
        raise _Refused

    def _person(self, words: str, born: str | None = None) -> dict[str, str]:
        """A passenger as the caller names them. `born`: of the passenger whose name is corrected."""
        if words == "myself":
            return {**self.user["name"], "dob": self.user["dob"]}
        name, _, more = words.partition(", ")
        saved = {_name(known): known for known in self.user["saved_passengers"]}
        if more == "who is in my profile" and name in saved:
            return dict(saved[name])
        first, _, last = name.partition(" ")
        dob = more.removeprefix("born on ") if more.startswith("born on ") else born
        if dob is None:
            raise _Refused
        return {"first_name": first, "last_name": last, "dob": dob}

    def _flights(self, request: Request, trip: dict[str, Any]) -> Talk:
        """Cabin and all flights after the change. A direction may change in its flights, not in its ends."""
        legs = list(trip["flights"])
        if rules.flown(trip, self.now) or (request.flights and trip["cabin"] == "basic_economy" and not request.cabin):
            raise _Refused
        for fly in request.flights:
            run = _run(legs, fly)
            if run is None:
                raise _Refused
            legs[run[0] : run[1]] = yield from self._search(fly)
        return {"cabin": request.cabin or trip["cabin"], "flights": [_flight(leg) for leg in legs]}

    def _search(self, fly: Fly) -> Talk:
        """The flights of a direction, by day and time of departure."""
        how = "search_onestop_flight" if fly.via else "search_direct_flight"
        found = yield from self._read(how, origin=fly.origin, destination=fly.destination, date=fly.date)
        for journey in found:
            legs = journey if fly.via else [journey]
            times = tuple(leg["scheduled_departure_time_est"][:5] for leg in legs)
            if times == fly.leaves and (fly.via is None or legs[0]["destination"] == fly.via):
                return [{**leg, "date": leg.get("date") or fly.date} for leg in legs]
        raise _Refused

    def _booking(self, request: Request) -> Talk:
        assert request.trip is not None, "a booking names its ends"
        legs: list[dict[str, Any]] = []
        for fly in request.flights:
            legs += yield from self._search(fly)
        cabin = request.cabin
        if not legs or cabin is None or not 0 < len(request.people) <= rules.PASSENGERS:
            raise _Refused
        people = [self._person(words) for words in request.people]
        paid = max(0, request.bags - rules.free_bags(self.user, cabin, len(people)))
        each = sum(leg["prices"][cabin] for leg in legs) + rules.INSURANCE * request.insured
        payments = yield from self._payments(request)
        if not rules.may_pay(payments):
            raise _Refused
        return {
            "user_id": self.user["user_id"],
            "origin": request.trip[0],
            "destination": request.trip[1],
            "flight_type": "round_trip" if request.round_trip else "one_way",
            "cabin": cabin,
            "flights": [_flight(leg) for leg in legs],
            "passengers": people,
            "payment_methods": self._shares(each * len(people) + rules.BAG * paid, payments),
            "total_baggages": request.bags,
            "nonfree_baggages": paid,
            "insurance": "yes" if request.insured else "no",
        }

    def _shares(self, price: int, payments: Sequence[str]) -> list[dict[str, Any]]:
        """Each method pays what it can, in the order named, until the price is met."""
        shares = []
        for payment_id in payments:
            amount = int(min(self.user["payment_methods"][payment_id].get("amount", price), price))
            if amount:
                shares.append({"payment_id": payment_id, "amount": amount})
                price -= amount
        if price:
            raise _Refused
        return shares

    def _payments(self, request: Request) -> Talk:
        methods = self.user["payment_methods"]
        named = read_payments(request.text, methods)
        return named or (yield from self._ask(PAY, lambda text: read_payments(text, methods)))

    def _plan(self, tool: str, arguments: dict[str, Any]) -> str:
        ids = [payment["payment_id"] for payment in arguments.get("payment_methods", ())]
        ids += [arguments["payment_id"]] if "payment_id" in arguments else []
        paid = f" The payment goes by {', '.join(ids).replace('_', ' ')}." if ids else ""
        return plan(tool, arguments).replace(" Do you", f"{paid} Do you")

    # Knowing

    def _note(self, trip: dict[str, Any]) -> None:
        before = self.trips.get(trip["reservation_id"])
        known = len(before["payment_history"]) if before is not None else 0
        self.paid += [(payment["payment_id"], payment["amount"]) for payment in trip["payment_history"][known:]]
        self.trips[trip["reservation_id"]] = trip

    def _answer(self, question: str) -> str:
        methods = self.user["payment_methods"]
        if BALANCES in question:
            sums = [sum(m["amount"] for m in methods.values() if m["source"] == kind) for kind in BALANCED]
            return f"Your gift cards hold {sums[0]:.0f} dollars and your certificates {sums[1]:.0f} dollars."
        if CHARGED in question:
            cards = {i for i, m in methods.items() if m.get("brand") == "mastercard"}
            return f"Your Mastercard is charged {sum(a for i, a in self.paid if i in cards)} dollars."
        if REFUND in question:
            return f"You get {-sum(amount for _, amount in self.paid)} dollars back."
        if UPCOMING in question:
            ahead = [t for t in self.trips.values() if t["status"] != "cancelled" and not rules.flown(t, self.now)]
            return f"They cost {sum(_price(trip) for trip in ahead)} dollars."
        trip = self.trips.get(read_number(question) or "")
        if "suitcases" not in question or trip is None:
            return IMPOSSIBLE
        free = rules.free_bags(self.user, trip["cabin"], len(trip["passengers"]))
        return f"You can take {max(free, trip['total_baggages'])} suitcases in total."


def _ends(trip: dict[str, Any]) -> tuple[str, str, str]:
    return trip["origin"], trip["destination"], trip["flights"][0]["date"]


def _name(person: dict[str, str]) -> str:
    return f"{person['first_name']} {person['last_name']}"


def _price(trip: dict[str, Any]) -> int:
    return int(sum(flight["price"] for flight in trip["flights"])) * len(trip["passengers"])


def _flight(leg: dict[str, Any]) -> dict[str, str]:
    return {"flight_number": leg["flight_number"], "date": leg["date"]}


def _run(legs: Sequence[dict[str, Any]], fly: Fly) -> tuple[int, int] | None:
    """Where among the legs the direction lies that goes from and to the same airports."""
    for first, leg in enumerate(legs):
        if leg["origin"] == fly.origin:
            for last in range(first, len(legs)):
                if legs[last]["destination"] == fly.destination:
                    return first, last + 1
    return None
