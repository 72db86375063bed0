"""Retail of tau2-bench as a `Domain`: the package's data, policy, tools and scoring, and our scripted customer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...domain import Agent, InfraFault, Task, User
from ..package import Package
from ..reference import NoopAgent
from ..tables import TableDomain
from .agents import GoldAgent, RandomAgent
from .corpus import corpus
from .customer import Customer
from .expert import ExpertAgent
from .generate import IDS, Generator
from .identity import Credential, credentials
from .wishes import Topic, topics

GENERATED = "generated"
KNOWN_ODD: Mapping[str, str] = {
    "10": "gold only hands over to a human: returning both orders to their original payments first, as the policy "
    "allows, scores 0",
    "64": "gold tries an exchange on a pending order, which errs, before it modifies the order",
    "100": "the text names no payment method; gold pays with the credit card an order that was paid with PayPal",
    "105": "gold's only write errs (the gift card cannot cover the difference): doing nothing is rewarded",
}


class RetailDomain(TableDomain):
    """Splits: train 74, test 40, base 114, and `generated`: 400 training tasks of our own on the same shop."""

    domain = "retail"
    known_odd = KNOWN_ODD

    def __init__(self, package: Package | None = None) -> None:
        super().__init__(package)
        self._scripts: dict[str, tuple[tuple[Topic, ...], tuple[Credential, ...]]] = {}
        self._generator: Generator | None = None
        self._generated: dict[str, Any] = {}

    def splits(self) -> Mapping[str, int]:
        return {**super().splits(), GENERATED: len(IDS)}

    def task_ids(self, split: str) -> Sequence[str]:
        return IDS if split == GENERATED else super().task_ids(split)

    def data(self, task_id: str) -> Any:
        if task_id not in IDS:
            return super().data(task_id)
        if task_id not in self._generated:
            try:
                self._generator = self._generator or Generator(self.package)
                self._generated[task_id] = self._generator.task(task_id)
            except LookupError as error:
                raise InfraFault(str(error)) from error
        return self._generated[task_id]

    def user(self, task: Task, kind: str, seed: int) -> User:
        if kind not in self.user_kinds:
            raise ValueError(f"{self.name} has no user {kind!r}; it has: {', '.join(self.user_kinds)}")
        if task.id not in self._scripts:
            self._scripts[task.id] = topics(self.package, task.data), credentials(self.package, task.data)
        return Customer(*self._scripts[task.id], f"{seed}/{task.id}")

    def agent(self, name: str, task: Task, seed: int) -> Agent:
        match name:
            case "noop":
                return NoopAgent()
            case "random":
                return RandomAgent(self.package, self._tools, f"{seed}/{task.id}")
            case "gold":
                return GoldAgent(self.package, task.data)
            case "expert":
                return ExpertAgent()
            case _:
                raise KeyError(f"{self.name} has no agent {name!r}; it has: noop, random, gold, expert")

    def corpus(self) -> Iterable[str]:
        return corpus(self.package, self._tools)
