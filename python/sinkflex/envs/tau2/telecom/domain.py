"""Telecom of tau2-bench as two domains: with a phone operator as the user, and solo.

Solo: the agent holds its own tools and the user's, reads a ticket in place of talking to anybody, and ends the episode
by the tool `done`, as the package's own solo agent does. Words are an error there: nobody hears them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from ...conversation import Message, ToolCall
from ...domain import Agent, Score, Task, ToolSpec, User
from ..scoring import dropped
from ..tables import GREETING
from ..tools import run, tool_specs
from .agents import agent
from .operator import Operator, caller
from .package import TelecomPackage, load_package
from .scoring import Goal, goal, score
from .solo import DONE, Ticket
from .state import TelecomState, duplicate, fresh


class TelecomDomain:
    """Implements `Domain`. Splits: train 74, test 40, base 114, small 20, full 2285."""

    name = "tau2-telecom"
    solo: ClassVar[bool] = False
    user_kinds: ClassVar[tuple[str, ...]] = ("scripted",)
    score_mode = "official"

    def __init__(self, package: TelecomPackage | None = None) -> None:
        self.package = package or load_package()
        self.version = self.package.version
        self._goals: dict[str, Goal] = {}
        probe = self.package.environment(self.package.database, self.package.user_database, self.package.vpn_details)
        self._agent_tools = tool_specs(probe)
        self._user_tools = tool_specs(probe, "user")

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as its name: the data is the package's, wherever it is loaded."""
        return type(self), ()

    @property
    def policy_text(self) -> str:
        return self.package.policy

    @property
    def agent_tools(self) -> Sequence[ToolSpec]:
        return self._agent_tools

    @property
    def user_tools(self) -> Sequence[ToolSpec]:
        return self._user_tools

    def splits(self) -> Mapping[str, int]:
        return {name: len(ids) for name, ids in self.package.splits.items()}

    def task_ids(self, split: str) -> Sequence[str]:
        return self.package.splits[split]

    def task(self, task_id: str) -> Task:
        """`data` and `gold` are the package's own task. The level is the number of things that are wrong."""
        task = self.package.tasks[task_id]
        return Task(
            id=task_id, level=f"issues-{len(issues(task_id))}", data=task, gold=task.evaluation_criteria.actions
        )

    def start(self, task: Task) -> TelecomState:
        return fresh(self.package, task.data, solo=self.solo)

    def call(self, state: TelecomState, requestor: Literal["agent", "user"], call: ToolCall) -> str:
        return run(state, requestor, call)

    def user(self, task: Task, kind: str, seed: int) -> User:
        if kind not in self.user_kinds:
            raise ValueError(f"{self.name} has no user {kind!r}; it has: {', '.join(self.user_kinds)}")
        return Operator(caller(task.data), f"{seed}/{task.id}")

    def greeting(self) -> str | None:
        return GREETING

    def ends_episode(self, call: ToolCall) -> bool:
        """Never: also after transfer_to_human_agents the agent still says so, and the user hangs up."""
        return False

    def score(self, task: Task, state: TelecomState, transcript: Sequence[Message]) -> Score:
        if task.id not in self._goals:
            self._goals[task.id] = goal(self.package, task.data)
        return score(task.data, self._goals[task.id], state, transcript)

    def copy_state(self, state: TelecomState) -> TelecomState:
        return duplicate(state)

    def agent(self, name: str, task: Task, seed: int) -> Agent:
        """`noop`, `random` and `gold`. Unknown name: KeyError."""
        return agent(name, task.data, self.agent_tools, f"{seed}/{task.id}", self.solo)

    def closed_vocabulary(self) -> Sequence[str] | None:
        return None

    def corpus(self) -> Iterable[str]:
        return ()

    def data_sha256(self) -> str:
        return self.package.data_sha256

    def dropped_components(self) -> Mapping[str, int]:
        """Components of a reward basis that need a judge, and for how many tasks they are left out: none here."""
        missing = [name for task in self.package.tasks.values() for name in dropped(task)]
        return {name: missing.count(name) for name in dict.fromkeys(missing)}


class SoloDomain(TelecomDomain):
    name = "tau2-telecom-solo"
    solo = True
    user_kinds = ("scripted", "solo")

    def __init__(self, package: TelecomPackage | None = None, *, full_tickets: bool = False) -> None:
        super().__init__(package)
        self.full_tickets = full_tickets
        self.score_mode = "offline" if full_tickets else "official"
        self._all_tools = (*self._agent_tools, *self._user_tools, DONE)

    def __reduce__(self) -> tuple[Any, ...]:
        return _solo, (self.full_tickets,)

    @property
    def policy_text(self) -> str:
        return self.package.solo_policy

    @property
    def agent_tools(self) -> Sequence[ToolSpec]:
        return self._all_tools

    @property
    def user_tools(self) -> Sequence[ToolSpec]:
        return ()

    def call(self, state: TelecomState, requestor: Literal["agent", "user"], call: ToolCall) -> str:
        return "" if call.name == DONE.name else super().call(state, requestor, call)

    def user(self, task: Task, kind: str, seed: int) -> User:
        return Ticket(task.data, self.full_tickets)

    def greeting(self) -> str | None:
        return None

    def ends_episode(self, call: ToolCall) -> bool:
        return call.name == DONE.name


def issues(task_id: str) -> tuple[str, ...]:
    """What is wrong in a task, from its id: `[intent]issue|issue[PERSONA:name]`."""
    return tuple(task_id.partition("]")[2].partition("[")[0].split("|"))


def _solo(full_tickets: bool) -> SoloDomain:
    return SoloDomain(full_tickets=full_tickets)
