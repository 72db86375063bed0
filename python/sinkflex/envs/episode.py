"""What an environment remembers of one episode, and a moment of it that can be kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .conversation import Message
from .domain import Domain, Owner, Task, ToolSpec, User, tools_for

COUNTERS = ("errors", "invalid_tool_json", "coerced_arguments", "user_tool_calls_by_agent")


@dataclass(slots=True)
class Episode:
    """The life of one episode. `tools` are the agent's, by name. `stage` names who is being asked right now, so that a
    fault finds its owner."""

    task: Task
    user_seed: int
    tools: Mapping[str, ToolSpec]
    stage: Owner = "env"
    state: Any = None
    user: User | None = None
    transcript: list[Message] = field(default_factory=list)
    turn: int = 0
    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    over: bool = False
    reason: str | None = None

    @staticmethod
    def at(saved: Snapshot, domain: Domain, make_user: Callable[[Task], User]) -> Episode:
        """The episode as it was then. Raises ValueError for a snapshot of another domain or version."""
        here = f"{domain.name} {domain.version}"
        if saved.domain != here:
            raise ValueError(f"the snapshot is of {saved.domain}, this environment holds {here}")
        task = domain.task(saved.task_id)
        e = Episode(task, saved.user_seed, tools_for(domain, task))
        e.state = domain.copy_state(saved.state) if saved.state is not None else None
        if saved.user is not None:
            e.user = make_user(task)
            e.user.restore(saved.user)
        e.transcript, e.turn, e.counters = list(saved.transcript), saved.turn, dict(saved.counters)
        e.over, e.reason = saved.over, saved.reason
        return e

    def moment(self, domain: Domain, rng: np.random.Generator) -> Snapshot:
        """The present, as data that later play does not change."""
        return Snapshot(
            domain=f"{domain.name} {domain.version}",
            task_id=self.task.id,
            user_seed=self.user_seed,
            state=domain.copy_state(self.state) if self.state is not None else None,
            user=self.user.snapshot() if self.user is not None else None,
            transcript=tuple(self.transcript),
            turn=self.turn,
            counters=dict(self.counters),
            over=self.over,
            reason=self.reason,
            rng=rng.bit_generator.state,
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A moment of an episode: `restore` continues exactly from it, in this environment or another of the same domain,
    as often as wanted."""

    domain: str
    task_id: str
    user_seed: int
    state: Any
    user: Any
    transcript: tuple[Message, ...]
    turn: int
    counters: Mapping[str, int]
    over: bool
    reason: str | None
    rng: Mapping[str, Any]
