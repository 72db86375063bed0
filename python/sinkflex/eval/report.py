"""From trials to a report: a function of the trials and of nothing else, whatever order they finished in.

pass^k = mean over tasks of C(c, k) / C(n, k), c the successes among the n scored trials of a task: the chance that k
trials of a task all succeed (arXiv 2406.12045). A task enters at k only when it has at least k scored trials; those
that do not are named. Intervals are 95 %, a bootstrap over tasks (intervals.py): trials of one task are not
independent. A fault (`infra_error`) is not a failure: it is in no mean, and lowers the coverage.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sinkflex.intervals import mean_interval

from .results import Trial

PASS_HAT = "pass^k = mean over tasks of C(c, k) / C(n, k); c successes in n scored trials of a task"
INTERVAL = "95 %, bootstrap over tasks; Wilson where every task's mean is 0 or 1"
SUCCESS = 1.0


def pass_hat(successes: int, trials: int, k: int) -> float:
    """C(successes, k) / C(trials, k). ValueError for k outside 1..trials."""
    if not 1 <= k <= trials:
        raise ValueError(f"k is {k}; pass^k needs 1 to {trials} trials")
    return math.comb(successes, k) / math.comb(trials, k)


def pass_at(successes: int, trials: int, k: int) -> float:
    """1 - C(failures, k) / C(trials, k): the chance that at least one of k trials succeeds."""
    if not 1 <= k <= trials:
        raise ValueError(f"k is {k}; pass@k needs 1 to {trials} trials")
    return 1.0 - math.comb(trials - successes, k) / math.comb(trials, k)


def by_task(trials: Iterable[Trial]) -> dict[str, list[float]]:
    """Rewards of the scored trials of each task, tasks and trials in a fixed order."""
    rewards: dict[str, list[float]] = {}
    for trial in sorted(trials, key=lambda t: t.key):
        if trial.reward is not None:
            rewards.setdefault(trial.task_id, []).append(trial.reward)
    return rewards


def report(identity: Mapping[str, Any], plan: Mapping[str, Any], trials: Sequence[Trial]) -> dict[str, Any]:
    """`identity`: what the scores mean (request.py). `plan`: tasks, trials, total and the facts of the suite."""
    trials = sorted(trials, key=lambda t: t.key)
    scored = [t for t in trials if t.reward is not None]
    rewards = by_task(scored)
    means = [math.fsum(values) / len(values) for values in rewards.values()]
    low, high = (None if math.isnan(bound) else bound for bound in mean_interval(means))
    hats, intervals, short = _pass_hats(rewards, plan["trials"])
    faults: dict[str, int] = {}
    for trial in trials:
        if trial.reward is None:
            faults[trial.owner or "infra"] = faults.get(trial.owner or "infra", 0) + 1
    costs = [t.cost for t in trials]
    return {
        "type": "eval",
        **{name: identity[name] for name in ("suite", "split")},
        "levels": plan.get("levels"),
        "agent": identity["agent"]["label"],
        "agent_kind": identity["agent"]["kind"],
        "user": identity["user"]["kind"],
        "scripted_user": identity["user"]["kind"] == "scripted",
        "score_mode": identity.get("score_mode"),
        "tasks": plan["tasks"],
        "trials": plan["trials"],
        "mean": _mean(means) if means else None,
        "ci_low": low,
        "ci_high": high,
        "pass_hat": hats,
        "pass_hat_ci": intervals,
        "tasks_with_too_few_trials": short,
        "coverage": len(scored) / plan["total"] if plan["total"] else 0.0,
        "complete": len(trials) == plan["total"],
        "infra_errors": faults,
        "graded_mean": _mean([t.graded or 0.0 for t in scored]),
        "components": _components(scored),
        "dropped_components": plan.get("dropped_components", {}),
        "truncated": _counts(t.reason or "unknown" for t in scored if t.truncated),
        "turns_mean": _mean([float(t.turns) for t in scored]),
        "tool_calls": sum(t.tool_calls for t in trials),
        "tool_errors": sum(t.tool_errors for t in trials),
        "parse_failures": sum(t.parse_failures for t in trials),
        "user_owned_calls": sum(t.user_owned_calls for t in trials),
        "coerced_arguments": sum(t.coerced_arguments for t in trials),
        "length_finishes": sum(t.length_finishes for t in trials),
        "tokens": _sums(t.tokens for t in trials),
        "cost": None if not costs or any(c is None for c in costs) else math.fsum(c or 0.0 for c in costs),
        "noop_mean": plan.get("noop_mean"),
        "noop_ids": plan.get("noop_ids", []),
        "known_odd": plan.get("known_odd", {}),
        **{name: identity.get(name) for name in ("package", "version", "data_sha256", "prompt_sha256")},
        "seed": identity["seed"],
        "formulas": {"pass_hat": PASS_HAT, "interval": INTERVAL},
    }


def _pass_hats(rewards: Mapping[str, list[float]], trials: int) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    hats: dict[str, Any] = {}
    intervals: dict[str, Any] = {}
    for k in range(1, trials + 1):
        values = [pass_hat(sum(r == SUCCESS for r in rs), len(rs), k) for rs in rewards.values() if len(rs) >= k]
        hats[str(k)] = _mean(values) if values else None
        intervals[str(k)] = list(mean_interval(values)) if values else None
    return hats, intervals, sorted(task for task, values in rewards.items() if len(values) < trials)


def _components(scored: Sequence[Trial]) -> dict[str, float]:
    names = sorted({name for trial in scored for name in trial.reward_parts})
    return {name: _mean([t.reward_parts[name] for t in scored if name in t.reward_parts]) for name in names}


def _counts(words: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return dict(sorted(counts.items()))


def _sums(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return dict(sorted(total.items()))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0
