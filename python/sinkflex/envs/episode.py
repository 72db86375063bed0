"""What an environment remembers of one episode, and a moment of it that can be kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .conversation import Message
from .domain import Owner, Task, User

COUNTERS = ("errors", "invalid_tool_json", "coerced_arguments", "user_tool_calls_by_agent")


@dataclass(slots=True)
class Episode:
    """The life of one episode. `stage` names who is being asked right now, so that a fault finds its owner."""

    task: Task
    user_seed: int
    stage: Owner = "env"
    state: Any = None
    user: User | None = None
    transcript: list[Message] = field(default_factory=list)
    turn: int = 0
    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    over: bool = False
    reason: str | None = None


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
