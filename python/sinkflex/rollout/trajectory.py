"""The glossary of a rollout, in code: what one episode leaves behind for scoring, training and reading.

Conventions. `ids` are the token ids in the order the model saw them, exactly as sampled (never re-tokenised).
`loss_mask[i]` is True exactly where `ids[i]` was sampled, and exactly there `logprobs[i]` is the behaviour
log-prob (natural log, of the distribution the sampler really used, temperature included); elsewhere it is 0.0 and
means nothing. All per-token lists have the length of `ids`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from sinkflex.envs.conversation import Message
from sinkflex.envs.domain import Outcome, Owner

SpanKind = Literal["system", "user", "tool", "env", "header", "think", "text", "tool_name", "tool_args", "control"]


@dataclass(slots=True)
class Span:
    """Tokens [start, stop) of `ids`. `turn` is the agent turn they belong to or follow; -1 before the first."""

    kind: SpanKind
    start: int
    stop: int
    turn: int


@dataclass(slots=True)
class CallRecord:
    """One tool call of the agent as parsed, whether it was valid, and what went wrong otherwise."""

    turn: int
    name: str
    arguments: Any
    valid: bool
    error: str | None = None


@dataclass(slots=True)
class Trajectory:
    """One episode. `reward` is None unless `outcome == "scored"`: a fault is never reward 0.

    `task_index` and `sample` place it in its group; episodes of one group share `task_id`. `policy_versions[t]` is the
    number of optimiser updates behind the weights that sampled agent turn t. `counters` are the
    environment's (envs/episode.py); `transcript` is the conversation in words, the user's own tool calls included.
    """

    id: str
    task_id: str
    level: str
    split: str
    task_index: int
    sample: int
    seed: int
    ids: list[int] = field(default_factory=list)
    loss_mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    calls: list[CallRecord] = field(default_factory=list)
    policy_versions: list[int] = field(default_factory=list)
    turns: int = 0
    parse_failures: int = 0
    reward: float | None = None
    graded: float | None = None
    reward_parts: dict[str, float] = field(default_factory=dict)
    outcome: Outcome = "unscorable"
    owner: Owner | None = None
    error: str | None = None
    terminated: bool = False
    truncated: bool = False
    reason: str | None = None
    wall_s: float = 0.0
    counters: dict[str, int] = field(default_factory=dict)
    transcript: tuple[Message, ...] = ()

    def check(self) -> None:
        """Assert the invariants that every consumer trusts (B31, B35)."""
        n = len(self.ids)
        assert len(self.loss_mask) == n and len(self.logprobs) == n, "per-token lists differ in length"
        assert all(lp == 0.0 for lp, m in zip(self.logprobs, self.loss_mask, strict=True) if not m)
        assert (self.reward is not None) == (self.outcome == "scored"), "only scored episodes carry a reward"

    @property
    def sampled_tokens(self) -> int:
        return sum(self.loss_mask)
