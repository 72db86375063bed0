"""Retail of tau2-bench as a `Domain`: the package's data, policy, tools and scoring, and our scripted customer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from ...conversation import Message, ToolCall
from ...domain import Agent, Score, Task, ToolSpec, User
from ..package import Package, load_package
from ..scoring import dropped, gold_changes, score
from ..state import Changes, TableState, changes, duplicate, fresh
from ..tools import run, tool_specs
from .agents import GoldAgent, NoopAgent, RandomAgent
from .corpus import corpus
from .customer import Customer
from .expert import ExpertAgent
from .identity import Credential, credentials
from .wishes import KINDS, Topic, topics

GREETING = "Hi! How can I help you today?"
"""The assistant's first words in tau2-bench's orchestrator: not policy output."""

KNOWN_ODD: Mapping[str, str] = {
    "10": "gold only hands over to a human: returning both orders to their original payments first, as the policy "
    "allows, scores 0",
    "64": "gold tries an exchange on a pending order, which errs, before it modifies the order",
    "100": "the text names no payment method; gold pays with the credit card an order that was paid with PayPal",
    "105": "gold's only write errs (the gift card cannot cover the difference): doing nothing is rewarded",
}
"""Tasks whose gold is bad or odd. They are scored as the package scores them; a report names those it contains."""


class RetailDomain:
    """Implements `Domain`. Splits and task ids are the data's own: train 74, test 40, base 114."""

    name = "tau2-retail"
    user_kinds = ("scripted",)
    known_odd = KNOWN_ODD

    def __init__(self, package: Package | None = None) -> None:
        self.package = package or load_package("retail")
        self.version = self.package.version
        self.score_mode = "offline" if self.dropped_components() else "official"
        self._tools = tool_specs(self.package.environment(self.package.database))
        self._gold: dict[str, Changes] = {}
        self._scripts: dict[str, tuple[tuple[Topic, ...], tuple[Credential, ...]]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as its name: the data is the package's, wherever it is loaded."""
        return RetailDomain, ()

    @property
    def policy_text(self) -> str:
        return self.package.policy

    @property
    def agent_tools(self) -> Sequence[ToolSpec]:
        return self._tools

    @property
    def user_tools(self) -> Sequence[ToolSpec]:
        return ()

    def splits(self) -> Mapping[str, int]:
        return {name: len(ids) for name, ids in self.package.splits.items()}

    def task_ids(self, split: str) -> Sequence[str]:
        return self.package.splits[split]

    def task(self, task_id: str) -> Task:
        """`data` and `gold` are the package's own task. The level is the number of gold writes."""
        task = self.package.tasks[task_id]
        actions = task.evaluation_criteria.actions or ()
        writes = sum(action.name in KINDS for action in actions)
        return Task(id=task_id, level=f"writes-{writes}", data=task, gold=actions)

    def start(self, task: Task) -> TableState:
        return fresh(self.package)

    def call(self, state: TableState, requestor: Literal["agent", "user"], call: ToolCall) -> str:
        return run(state, requestor, call)

    def user(self, task: Task, kind: str, seed: int) -> User:
        if kind not in self.user_kinds:
            raise ValueError(f"{self.name} has no user {kind!r}; it has: {', '.join(self.user_kinds)}")
        if task.id not in self._scripts:
            self._scripts[task.id] = topics(self.package, task.data), credentials(self.package, task.data)
        return Customer(*self._scripts[task.id], f"{seed}/{task.id}")

    def greeting(self) -> str | None:
        return GREETING

    def ends_episode(self, call: ToolCall) -> bool:
        """Never: also after transfer_to_human_agents the agent still says so, and the customer leaves."""
        return False

    def score(self, task: Task, state: TableState, transcript: Sequence[Message]) -> Score:
        return score(task.data, self._gold_changes(task.id), changes(state), transcript)

    def copy_state(self, state: TableState) -> TableState:
        return duplicate(state)

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

    def closed_vocabulary(self) -> Sequence[str] | None:
        return None

    def corpus(self) -> Iterable[str]:
        return corpus(self.package, self._tools)

    def data_sha256(self) -> str:
        return self.package.data_sha256

    # Beyond the protocol, for reports

    def dropped_components(self) -> Mapping[str, int]:
        """Components of a reward basis that need a judge, and for how many tasks they are left out."""
        missing = [name for task in self.package.tasks.values() for name in dropped(task)]
        return {name: missing.count(name) for name in dict.fromkeys(missing)}

    def solved_by_doing_nothing(self) -> tuple[str, ...]:
        """Tasks that reward an agent which never acts: to be printed beside a score and left out of training."""
        return tuple(
            task_id
            for task_id, task in self.package.tasks.items()
            if not self._gold_changes(task_id) and not task.evaluation_criteria.communicate_info
        )

    def _gold_changes(self, task_id: str) -> Changes:
        if task_id not in self._gold:
            self._gold[task_id] = gold_changes(self.package, self.package.tasks[task_id])
        return self._gold[task_id]
