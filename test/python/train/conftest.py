"""Trajectories by hand: `m` marks the sampled tokens, everything else is filled in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from sinkflex.rollout.trajectory import Trajectory

Build = Callable[..., Trajectory]


@pytest.fixture
def trajectory() -> Build:
    """ids, mask (0/1), reward (None: an infrastructure fault), log-probs of sampled tokens (default -1.0)."""

    def build(
        ids: Sequence[int],
        mask: Sequence[int],
        reward: float | None = 1.0,
        *,
        logprob: float = -1.0,
        task: int = 0,
        sample: int = 0,
        **fields: object,
    ) -> Trajectory:
        made = Trajectory(
            id=f"t{task}-g{sample}", task_id=f"task-{task}", level="0", split="train",
            task_index=task, sample=sample, seed=0,
            ids=list(ids), loss_mask=[bool(m) for m in mask], logprobs=[logprob if m else 0.0 for m in mask],
            reward=reward, outcome="infra_error" if reward is None else "scored",
        )  # fmt: skip
        for name, value in fields.items():
            setattr(made, name, value)
        made.check()
        return made

    return build
