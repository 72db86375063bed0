"""Airline of tau2-bench as a `Domain`: the package's data, policy, tools and scoring, and our scripted caller."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from ...domain import Agent, Task, User
from ..reference import NoopAgent
from ..tables import TableDomain
from .agents import GoldAgent, RandomAgent
from .caller import Caller
from .wishes import wishes

KNOWN_ODD: Mapping[str, str] = {
    "6": "the caller may not be transferred, and the policy asks for a transfer: refusing in words is rewarded",
    "14": "gold books at prices that the text does not single out",
    "35": "gold books although the text's first half forbids going on",
}


class AirlineDomain(TableDomain):
    """Splits: train 30, test 20, base 50. Doing nothing is rewarded on 19 of the 50: print it beside every score."""

    domain = "airline"
    known_odd = KNOWN_ODD

    def user(self, task: Task, kind: str, seed: int) -> User:
        if kind not in self.user_kinds:
            raise ValueError(f"{self.name} has no user {kind!r}; it has: {', '.join(self.user_kinds)}")
        return Caller(task.data.user_scenario.instructions, wishes(task.data), f"{seed}/{task.id}")

    def agent(self, name: str, task: Task, seed: int) -> Agent:
        match name:
            case "noop":
                return NoopAgent()
            case "random":
                return RandomAgent(self.package, self._tools, f"{seed}/{task.id}")
            case "gold":
                return GoldAgent(task.data)
            case _:
                raise KeyError(f"{self.name} has no agent {name!r}; it has: noop, random, gold")

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
