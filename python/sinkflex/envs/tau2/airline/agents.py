"""Reference agents for airline: `noop`, `random` and `gold`; `gold` alone reads the task's gold.

`gold` makes the task's gold calls. Before each write it states the plan and waits for the caller's yes, at most a few
times; with what it reports last it tells the strings that the task requires.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from ...conversation import AgentAction, Observation, ToolCall
from ...domain import ToolSpec
from ..package import Package
from ..reference import HAND_OVER, IMPOSSIBLE
from .wishes import WRITES, facts_of

TRANSFER = "transfer_to_human_agents"
MAX_PLANS = 4
PHRASES = (
    "What is your user id?",
    "What is your reservation number?",
    "I will cancel your reservation. Do you confirm (yes/no)?",
    "Your flights have been changed.",
    "Unfortunately that is not possible.",
    "",
)


class GoldAgent:
    def __init__(self, task: Any) -> None:
        criteria = task.evaluation_criteria
        self.left: list[Any] = list(criteria.actions or ())
        self.strings = tuple(criteria.communicate_info or ())
        self.report: str | None = None
        self.plans = 0

    def act(self, observation: Observation) -> AgentAction:
        said = observation[-1].content if observation[-1].role == "user" else ""
        if self.report is not None:
            words, self.report = self.report, None
            return AgentAction(text=words)
        if self.strings and said.endswith("?") and self.plans == 0:
            return AgentAction(text=self._answer())
        if not self.left:
            return AgentAction(text=self._told(IMPOSSIBLE))
        following = self.left[0]
        if following.name not in WRITES:
            return self._call()
        if said.startswith("Yes") or self.plans >= MAX_PLANS:
            return self._call()
        self.plans += 1
        return AgentAction(text=plan(following.name, following.arguments))

    def _call(self) -> AgentAction:
        self.plans = 0
        action = self.left.pop(0)
        if action.name == TRANSFER:
            self.report = self._told(HAND_OVER)
        elif action.name in WRITES:
            self.report = self._told("It has been done.")
        return AgentAction(tool_calls=(ToolCall(action.name, dict(action.arguments)),))

    def _told(self, words: str) -> str:
        """With the last words the required strings: the caller may leave after them."""
        if any(action.name in WRITES for action in self.left) or not self.strings:
            return words
        return f"{words} {self._answer()}"

    def _answer(self) -> str:
        return f"Here is what you asked for: {', '.join(self.strings)}."


def plan(tool: str, arguments: Mapping[str, Any]) -> str:
    """A write in words that name every fact a caller checks, with a question to confirm it."""
    verb = {
        "book_reservation": "book a new reservation",
        "cancel_reservation": "cancel the reservation",
        "send_certificate": "send you a certificate as compensation, in dollars",
        "update_reservation_baggages": "change the baggage",
        "update_reservation_flights": "change the flights",
        "update_reservation_passengers": "change the passengers",
    }[tool]
    return f"I will {verb}: {', '.join(facts_of(tool, arguments))}. Do you confirm (yes/no)?"


class RandomAgent:
    """Half words, half calls whose arguments name things that exist."""

    def __init__(self, package: Package, tools: Sequence[ToolSpec], seed: str) -> None:
        self.package, self.tools, self.rng = package, tools, random.Random(seed)

    def act(self, observation: Observation) -> AgentAction:
        if self.rng.random() < 0.5:
            return AgentAction(text=self.rng.choice(PHRASES))
        return AgentAction(tool_calls=(self.call(),))

    def call(self) -> ToolCall:
        spec = self.rng.choice(self.tools)
        properties: Mapping[str, Any] = spec.parameters["properties"]
        return ToolCall(spec.name, {name: self._argument(name) for name in properties})

    def _argument(self, name: str) -> Any:
        rng, database = self.rng, self.package.database
        reservation = rng.choice(list(database.reservations.values()))
        user = database.users[reservation.user_id]
        flight = reservation.flights[0]
        pools: dict[str, Sequence[Any]] = {
            "user_id": (reservation.user_id,),
            "reservation_id": (reservation.reservation_id,),
            "origin": (reservation.origin,),
            "destination": (reservation.destination,),
            "flight_type": ("one_way", "round_trip"),
            "cabin": ("basic_economy", "economy", "business"),
            "flights": ([{"flight_number": f.flight_number, "date": f.date} for f in reservation.flights],),
            "passengers": ([p.model_dump() for p in reservation.passengers],),
            "payment_methods": ([{"payment_id": next(iter(user.payment_methods)), "amount": rng.randint(0, 500)}],),
            "payment_id": list(user.payment_methods),
            "total_baggages": (0, 1, 2),
            "nonfree_baggages": (0, 1),
            "insurance": ("yes", "no"),
            "amount": (50, 100),
            "flight_number": (flight.flight_number,),
            "date": (flight.date,),
            "expression": ("1 + 1", "2 * (3.5 - 1", "9**9**9"),
        }
        return rng.choice(pools.get(name) or ("nothing",))
