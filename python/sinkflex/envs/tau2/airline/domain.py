"""Airline of tau2-bench as a `Domain`: the package's data, policy, tools and scoring, and our scripted caller."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from ...domain import Agent, Task, User
from ..package import Package
from ..reference import NoopAgent
from ..tables import TableDomain
from .agents import GoldAgent, RandomAgent
from .caller import Caller
from .expert import ExpertAgent
from .questions import topics
from .wishes import Topic

_FLOWN = "gold cancels a trip whose flights have been flown, which the policy leaves to a human"
_DELAY = "gold compensates a delay although the caller neither changes nor cancels the trip, which the policy asks for"
KNOWN_ODD: Mapping[str, str] = {
    "2": _DELAY,
    "6": "the caller may not be transferred, and the policy asks for a transfer: refusing in words is rewarded",
    "7": "gold cancels an uninsured economy trip that was booked two weeks ago",
    "9": _FLOWN,
    "14": "gold charges 1786 dollars to the Mastercard and wants the caller to be told 44",
    "27": _DELAY,
    "29": "gold changes the destination, which the policy rules out",
    "33": "gold takes two bags as paid ones for a gold member, who has three free",
    "35": "gold books for a date of birth that is not the one in the caller's profile",
    "37": _FLOWN,
    "38": _DELAY,
    "39": "gold cancels an insured economy trip for a reason that the insurance does not cover",
    "44": "gold cancels an insured economy trip without a reason that the insurance covers",
}
"""The expert keeps to the policy, so that it does not solve those whose gold breaks it; 6 and 35 it does."""


class AirlineDomain(TableDomain):
    """Splits: train 30, test 20, base 50. Doing nothing is rewarded on 19 of the 50: print it beside every score."""

    domain = "airline"
    known_odd = KNOWN_ODD

    def __init__(self, package: Package | None = None) -> None:
        super().__init__(package)
        self._topics: dict[str, tuple[Topic, ...]] = {}

    def user(self, task: Task, kind: str, seed: int) -> User:
        if kind not in self.user_kinds:
            raise ValueError(f"{self.name} has no user {kind!r}; it has: {', '.join(self.user_kinds)}")
        if task.id not in self._topics:
            self._topics[task.id] = topics(self.package, task.data)
        return Caller(task.data.user_scenario.instructions, self._topics[task.id], f"{seed}/{task.id}")

    def agent(self, name: str, task: Task, seed: int) -> Agent:
        match name:
            case "noop":
                return NoopAgent()
            case "random":
                return RandomAgent(self.package, self._tools, f"{seed}/{task.id}")
            case "gold":
                return GoldAgent(task.data)
            case "expert":
                return ExpertAgent(self.policy_text)
            case _:
                raise KeyError(f"{self.name} has no agent {name!r}; it has: noop, random, gold, expert")

    def corpus(self) -> Iterable[str]:
        """Policy, tool schemas, and a sample of the data in the form that tools show it; no customers of test tasks."""
        yield self.policy_text
        for tool in self._tools:
            yield json.dumps(tool.as_function())
        render = self.package.environment_type.to_json_str
        held_out = " ".join(
            str(self.package.tasks[task_id].user_scenario) for task_id in self.package.splits.get("test", ())
        )
        for flight in list(self.package.database.flights.values())[:20]:
            yield str(render(flight))
        users = (user for user in self.package.database.users.values() if user.user_id not in held_out)
        for user, _ in zip(users, range(60), strict=False):
            yield str(render(user))
