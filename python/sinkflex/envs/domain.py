"""What a domain supplies to `DualControlEnv`, and nothing more.

Idea: a domain is data and rules (tasks, policy text, tools of the agent, tools of the user, a state, a user, a
scorer). It holds no turn counting, no channels and no limits: the environment does. A third domain is one
folder that implements `Domain` and one line in `registry.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from .conversation import AgentAction, Message, Observation, ToolCall

Outcome = Literal["scored", "unscorable", "infra_error"]
Owner = Literal["env", "user", "policy", "reward", "engine", "infra"]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool: `parameters` is a JSON schema of type object. `kind` tells reads from writes for scoring and reports."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    kind: Literal["read", "write", "generic"] = "generic"

    def as_function(self) -> dict[str, Any]:
        """The OpenAI-style function schema that chat templates expect."""
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": dict(self.parameters)},
        }


class ToolError(Exception):
    """A tool refused: the caller sees the message, the episode goes on."""


class UserFault(Exception):
    """The simulated user failed (not the agent): the episode is excluded, owner `user`."""


class InfraFault(Exception):
    """Something outside the episode failed (package, disk, network): excluded, owner `infra`. `fix`: what to do about
    it, where that is known; the message ends with it."""

    def __init__(self, what: str, fix: str | None = None) -> None:
        super().__init__(what if fix is None else f"{what}; {fix}")
        self.what = what
        self.fix = fix


@dataclass(frozen=True, slots=True)
class UserTurn:
    """What the user says. `stop` ends the episode after `text` has been recorded; `reason` says why."""

    text: str
    stop: bool = False
    reason: str | None = None


class User(Protocol):
    """The simulated customer. It may act on the shared state only through the `UserTools` it is handed.

    `snapshot` returns data that later play does not change, `restore` takes it without keeping hold of it, so one
    snapshot can be restored many times. Text may carry a stop marker (`hearing.STOP_MARKERS`) instead of `stop`. A user
    that has to wait for its words (a model behind an endpoint, a person) returns an awaitable; its episodes are played
    by `areset` and `astep`. A user with a true attribute `absent` only opens: words to it are the agent's error.
    """

    def open(self) -> UserTurn | Awaitable[UserTurn]: ...

    def reply(self, agent_text: str, tools: UserTools) -> UserTurn | Awaitable[UserTurn]: ...

    def snapshot(self) -> Any: ...

    def restore(self, saved: Any) -> None: ...


class UserTools(Protocol):
    """The user's own channel: runs one of the user's tools on the shared state; raises ToolError."""

    def __call__(self, call: ToolCall) -> str: ...


class Agent(Protocol):
    """A scripted agent (expert, faulty demonstrator, baseline): sees observations only, never the task's gold,
    unless its domain says so in its name."""

    def act(self, observation: Observation) -> AgentAction: ...


MakeUser = Callable[["Task", int], User]
"""A user for a task, from a seed."""


@dataclass(frozen=True, slots=True)
class Score:
    """`reward` is exact success (0.0 or 1.0), `graded` the share of sub-goals reached in [0, 1].
    `parts` names each component. `outcome` other than "scored" carries no reward."""

    reward: float
    graded: float
    parts: Mapping[str, float] = field(default_factory=dict)
    outcome: Outcome = "scored"


@dataclass(frozen=True, slots=True)
class Task:
    """`gold` and `data` are reachable by the domain only: no prompt may be built from them (a test scans for it)."""

    id: str
    level: str
    data: Any
    gold: Any = None


class Domain(Protocol):
    """Everything `DualControlEnv` needs. All methods are pure or act on the `state` handed in; nothing is shared
    between two episodes.

    These are optional:
    - `phrase_problem(problem) -> str` words error observations in the domain's own vocabulary;
    - `user_kinds: tuple[str, ...]` names the kinds of user beside "scripted";
    - `solved_by_doing_nothing() -> tuple[str, ...]` names the tasks that reward an agent which never acts: training
      leaves them out;
    - `tools_for(task) -> Sequence[ToolSpec]` are the agent's tools in a task, where they differ between tasks;
    - `turn_limit: int` is the most turns an agent has in any task, whatever the environment allows;
    - `examples(count, task) -> Sequence[Message]` are that many example conversations for the prompt of a task, about
      things that occur in no task, each ending with words or calls of the assistant. They may depend on what the
      task's prompt says (its tools), never on the task's content. ValueError for more than there are.
    """

    name: str
    version: str
    score_mode: str

    @property
    def policy_text(self) -> str: ...

    @property
    def agent_tools(self) -> Sequence[ToolSpec]: ...

    @property
    def user_tools(self) -> Sequence[ToolSpec]: ...

    def splits(self) -> Mapping[str, int]:
        """Split name to number of tasks; the three of mini-shop are train, tune, report."""
        ...

    def task_ids(self, split: str) -> Sequence[str]: ...

    def task(self, task_id: str) -> Task: ...

    def start(self, task: Task) -> Any:
        """A fresh shared state for one episode."""
        ...

    def call(self, state: Any, requestor: Literal["agent", "user"], call: ToolCall) -> str:
        """Run a validated call (a known tool of that requestor, arguments an object that fits its schema).
        Raises ToolError."""
        ...

    def user(self, task: Task, kind: str, seed: int) -> User: ...

    def greeting(self) -> str | None:
        """Fixed first words of the assistant (never policy output), or None."""
        ...

    def ends_episode(self, call: ToolCall) -> bool:
        """True where a successful agent call ends the episode by itself (mini-shop's hand_off)."""
        ...

    def score(self, task: Task, state: Any, transcript: Sequence[Message]) -> Score: ...

    def copy_state(self, state: Any) -> Any: ...

    def agent(self, name: str, task: Task, seed: int) -> Agent:
        """A scripted agent by name: every domain has `noop`, `random`, `gold`; mini-shop adds `expert`, `faulty`,
        `hand_off`. Unknown name: KeyError."""
        ...

    def closed_vocabulary(self) -> Sequence[str] | None:
        """All words that agent, tools, user, state and error observations can ever produce, split at blanks, in a fixed
        order; None when the text is open and a byte-pair tokenizer is trained on `corpus()` instead."""
        ...

    def corpus(self) -> Iterable[str]:
        """Text typical of the domain (policy, tool schemas, tool results) for training a tokenizer."""
        ...

    def data_sha256(self) -> str: ...


def tools_for(domain: Domain, task: Task) -> dict[str, ToolSpec]:
    """The agent's tools in this task, by name."""
    tools = domain.tools_for(task) if hasattr(domain, "tools_for") else domain.agent_tools
    return {tool.name: tool for tool in tools}


def examples_of(domain: Domain, task: Task, count: int) -> tuple[Message, ...]:
    """`count` example conversations for a task's prompt. ValueError for a count below 0, or more than there are."""
    if count < 0:
        raise ValueError(f"examples must be at least 0, got {count}")
    if count == 0:
        return ()
    if not hasattr(domain, "examples"):
        raise ValueError(f"{domain.name} has no example conversations, {count} were asked for")
    return tuple(domain.examples(count, task))
