"""Telecom of tau2-bench as two domains: with a phone operator as the user, and solo.

Solo: the agent holds its own tools and the user's, reads a ticket in place of talking to anybody, and ends the episode
by the tool `done`, as the package's own solo agent does. Words are an error there: nobody hears them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from ...conversation import Message, ToolCall
from ...domain import Agent, Score, Task, ToolSpec, User
from ..scoring import dropped, judged
from ..tables import GREETING
from ..tools import run, tool_specs
from .agents import GoldAgent, NoopAgent, RandomAgent
from .corpus import corpus
from .expert import ExpertAgent
from .generated import COUNT, generate, issues
from .operator import Operator, caller
from .package import TelecomPackage, load_package
from .scoring import Goal, goal, score
from .solo import DONE, Ticket
from .state import TelecomState, duplicate, fresh

GENERATED = "generated"
MADE = "[CUSTOMER:"
"""In the id of every generated task, and of no other."""


class Telecom:
    """What the two domains share. Splits: train 74, test 40, base 114, small 20, full 2285 as the data has them, and
    `generated`, for training."""

    name: ClassVar[str]
    solo: ClassVar[bool]
    user_kinds: ClassVar[tuple[str, ...]]

    def __init__(self, package: TelecomPackage | None = None) -> None:
        self.package = package or load_package()
        self.version = self.package.version
        self.score_mode = "offline" if self.dropped_components() else "official"
        self._goals: dict[str, Goal] = {}
        self._generated: Mapping[str, Any] | None = None
        probe = self.package.environment(self.package.database, self.package.user_database, self.package.vpn_details)
        self._agent_tools = tool_specs(probe)
        self._user_tools = tool_specs(probe, "user")

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as its name: the data is the package's, wherever it is loaded."""
        return type(self), ()

    def splits(self) -> Mapping[str, int]:
        return {name: len(ids) for name, ids in self.package.splits.items()} | {GENERATED: COUNT}

    def task_ids(self, split: str) -> Sequence[str]:
        return tuple(self._made()) if split == GENERATED else self.package.splits[split]

    def task(self, task_id: str) -> Task:
        """`data` and `gold` are the package's own task, or a generated one of its type. The level is the number of
        things that are wrong."""
        known = self.package.tasks
        task = known[task_id] if task_id in known or MADE not in task_id else self._made()[task_id]
        return Task(
            id=task_id, level=f"issues-{len(issues(task_id))}", data=task, gold=task.evaluation_criteria.actions
        )

    def start(self, task: Task) -> TelecomState:
        return fresh(self.package, task.data, solo=self.solo)

    def call(self, state: TelecomState, requestor: Literal["agent", "user"], call: ToolCall) -> str:
        return run(state, requestor, call)

    def score(self, task: Task, state: TelecomState, transcript: Sequence[Message]) -> Score:
        if task.id not in self._goals:
            self._goals[task.id] = goal(task.data, fresh(self.package, task.data))
        return score(task.data, self._goals[task.id], state, transcript)

    def copy_state(self, state: TelecomState) -> TelecomState:
        return duplicate(state)

    def closed_vocabulary(self) -> Sequence[str] | None:
        return None

    def data_sha256(self) -> str:
        return self.package.data_sha256

    def dropped_components(self, task_ids: Iterable[str] | None = None) -> Mapping[str, int]:
        """Components of a reward basis that need a judge, and for how many of these tasks (without any: of all that the
        data has) they are left out."""
        ids = self.package.tasks if task_ids is None else task_ids
        missing = [name for task_id in ids for name in dropped(self.task(task_id).data)]
        return {name: missing.count(name) for name in dict.fromkeys(missing)}

    def assertions(self, task: Task) -> tuple[str, ...]:
        """What a judge has to decide for the reward of a task, in natural language; nothing in the package's data."""
        return judged(task.data)

    def _made(self) -> Mapping[str, Any]:
        """The generated tasks, made when they are first asked for (a second or two)."""
        if self._generated is None:
            self._generated = generate(self.package)
        return self._generated

    def _agent(self, name: str, task: Task, seed: int, tools: Sequence[ToolSpec]) -> Agent:
        match name:
            case "noop":
                return NoopAgent(self.solo)
            case "random":
                return RandomAgent(tools, f"{seed}/{task.id}", self.solo)
            case "gold":
                return GoldAgent(task.data, self.solo)
            case "expert":
                return ExpertAgent(self.solo)
            case _:
                raise KeyError(f"{self.name} has no agent {name!r}; it has: noop, random, gold, expert")


class TelecomDomain(Telecom):
    """Implements `Domain`: the user operates the phone."""

    name = "tau2-telecom"
    solo = False
    user_kinds = ("scripted",)

    @property
    def policy_text(self) -> str:
        return self.package.policy

    @property
    def agent_tools(self) -> Sequence[ToolSpec]:
        return self._agent_tools

    @property
    def user_tools(self) -> Sequence[ToolSpec]:
        return self._user_tools

    def user(self, task: Task, kind: str, seed: int) -> User:
        if kind not in self.user_kinds:
            raise ValueError(f"{self.name} has no user {kind!r}; it has: {', '.join(self.user_kinds)}")
        return Operator(caller(task.data), f"{seed}/{task.id}")

    def scenario(self, task: Task) -> str:
        """The package's own words to a simulated user, persona included; nothing of gold."""
        return str(task.data.user_scenario)

    def greeting(self) -> str | None:
        return GREETING

    def ends_episode(self, call: ToolCall) -> bool:
        """Never: also after transfer_to_human_agents the agent still says so, and the user hangs up."""
        return False

    def agent(self, name: str, task: Task, seed: int) -> Agent:
        """`noop`, `random`, `gold` and `expert`. Unknown name: KeyError."""
        return self._agent(name, task, seed, self.agent_tools)

    def corpus(self) -> Iterable[str]:
        tools = (*self.agent_tools, *self.user_tools)
        return corpus(self.package, self.policy_text, tools, list(self._made().values()))


class SoloDomain(Telecom):
    """Implements `Domain`: the agent is alone with a ticket. `full_tickets`: those about MMS name the refuel too."""

    name = "tau2-telecom-solo"
    solo = True
    user_kinds = ("scripted", "solo")

    def __init__(self, package: TelecomPackage | None = None, *, full_tickets: bool = False) -> None:
        super().__init__(package)
        self.full_tickets = full_tickets
        self.score_mode = "offline" if full_tickets else self.score_mode
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

    def agent(self, name: str, task: Task, seed: int) -> Agent:
        """`noop`, `random`, `gold` and `expert`. Unknown name: KeyError."""
        return self._agent(name, task, seed, self.agent_tools)

    def corpus(self) -> Iterable[str]:
        return corpus(self.package, self.policy_text, self.agent_tools, list(self._made().values()))


def _solo(full_tickets: bool) -> SoloDomain:
    return SoloDomain(full_tickets=full_tickets)
