"""Two evaluations side by side: the difference on the trials that both have, with an interval, and who flipped.

Paired by task: each task enters with the difference of its mean rewards, over the tasks that both evaluations scored;
tasks missing on one side are named, never silently averaged over. The interval is a 95 % bootstrap over tasks. With
nothing in common there are no figures (None).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sinkflex.refusal import Refusal

from .report import by_task
from .results import Key, Trial, read_trials

COMPARABLE = ("suite", "data_sha256", "score_mode")
_DRAWS = 4000


def compare_folders(base: Path, candidate: Path) -> dict[str, Any]:
    """Refusal when the two do not measure the same thing (another suite, data, split or scoring mode)."""
    (first, a), (second, b) = read_trials(base), read_trials(candidate)
    for name in COMPARABLE:
        if first.get(name) != second.get(name):
            raise Refusal(
                "SF-EVAL-COMPARE",
                f"{base} and {candidate} cannot be compared.",
                why=f"{name} is {first.get(name)!r} in one and {second.get(name)!r} in the other.",
                fix="Compare two evaluations of one suite on the same data.",
                exit_code=2,
            )
    warnings = [
        f"{name} differs: {first.get(name)!r} and {second.get(name)!r}"
        for name in ("user", "seed", "split")
        if first.get(name) != second.get(name)
    ]
    labels = {"base": first["agent"]["label"], "candidate": second["agent"]["label"]}
    return {"type": "eval_compare", **labels, "suite": first["suite"], "warnings": warnings, **compare(a, b)}


def compare(base: Mapping[Key, Trial], candidate: Mapping[Key, Trial]) -> dict[str, Any]:
    """Means, difference and interval on the common tasks; `gained` and `lost` are tasks whose mean rose or fell."""
    a, b = by_task(base.values()), by_task(candidate.values())
    common = sorted(a.keys() & b.keys())
    before = [math.fsum(a[task]) / len(a[task]) for task in common]
    after = [math.fsum(b[task]) / len(b[task]) for task in common]
    differences = [y - x for x, y in zip(before, after, strict=True)]
    low, high = _interval(differences)
    return {
        "tasks": len(common),
        "base_mean": _mean(before),
        "candidate_mean": _mean(after),
        "difference": _mean(differences),
        "ci_low": low,
        "ci_high": high,
        "gained": [task for task, d in zip(common, differences, strict=True) if d > 0],
        "lost": [task for task, d in zip(common, differences, strict=True) if d < 0],
        "only_base": sorted(a.keys() - b.keys()),
        "only_candidate": sorted(b.keys() - a.keys()),
    }


def _interval(values: list[float]) -> tuple[float | None, float | None]:
    if not values:
        return None, None
    dice = random.Random(0)
    draws = sorted(math.fsum(dice.choices(values, k=len(values))) / len(values) for _ in range(_DRAWS))
    return draws[round(0.025 * (_DRAWS - 1))], draws[round(0.975 * (_DRAWS - 1))]


def _mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
