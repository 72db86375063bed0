"""The numbers of a training step, by the names of docs/metrics.md."""

from __future__ import annotations

from collections.abc import Sequence

from sinkflex.algorithms.advantages import AdvantageResult
from sinkflex.rollout.trajectory import Trajectory

from .guards import Update
from .update import Totals


def rollout_metrics(trajectories: Sequence[Trajectory], result: AdvantageResult) -> dict[str, float | None]:
    """Means over scored episodes for what a reward says, over all episodes for what happened. None: no episodes."""
    scored = [t for t in trajectories if t.reward is not None]
    calls = [c for t in trajectories for c in t.calls]
    turns = sum(t.turns for t in trajectories)
    count = len(trajectories)
    return {
        "reward": _mean([t.reward or 0.0 for t in scored]),
        "graded": _mean([t.graded or 0.0 for t in scored]),
        "success": _mean([float(t.reward == 1.0) for t in scored]),
        "reward_std": result.reward_std if scored else None,
        "frac_reward_zero_std": result.zero_variance_fraction,
        "completion_length": _mean([float(t.sampled_tokens) for t in trajectories]),
        "turns_per_episode": turns / count,
        "tool_calls_per_episode": len(calls) / count,
        "tool_error_rate": sum(not c.valid or c.error is not None for c in calls) / len(calls) if calls else 0.0,
        "parse_fail_rate": sum(t.parse_failures for t in trajectories) / turns if turns else 0.0,
        "infra_rate": sum(t.outcome == "infra_error" for t in trajectories) / count,
        "truncated_rate": sum(t.truncated for t in trajectories) / count,
        "episodes": count,
    }


def update_metrics(
    updates: Sequence[Update], totals: Totals, gap: float | None, with_kl: bool
) -> dict[str, float | None]:
    """Token means over the trained tokens. `loss` and `grad_norm` are means over the optimiser steps that were applied;
    `skipped` is 1 when none was."""
    applied = [u for u in updates if not u.skipped]
    n = totals.tokens
    metrics: dict[str, float | None] = {
        "loss": totals.loss / len(updates) if updates else 0.0,
        "entropy": totals.entropy / n if n else None,
        "clip_ratio": totals.clipped / n if n else 0.0,
        "grad_norm": _mean([u.grad_norm for u in applied]),
        "logprob_gap": gap,
        "skipped": 0 if applied else 1,
    }
    return metrics | ({"kl": totals.kl / n if n else 0.0} if with_kl else {})


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
