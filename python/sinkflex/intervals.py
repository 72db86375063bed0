"""Intervals for evaluation scores: how far a mean over tasks can be from what the policy would score on all tasks.

Idea: tasks are the independent draws, trials of one task are not, so intervals are over tasks. 95 % throughout.
Standard library only, deterministic.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

Z_95 = 1.959963984540054
_DRAWS = 2000


@dataclass(frozen=True, slots=True)
class Interval:
    mean: float
    low: float
    high: float


def wilson(mean: float, count: int) -> Interval:
    """Wilson's score interval of a proportion (E. B. Wilson, 1927): has a width also at 0 and 1, stays in [0, 1]."""
    if count < 1:
        raise ValueError("an interval needs at least one task")
    shrink = 1.0 + Z_95**2 / count
    centre = (mean + Z_95**2 / (2 * count)) / shrink
    half = Z_95 / shrink * math.sqrt(mean * (1.0 - mean) / count + Z_95**2 / (4 * count**2))
    return Interval(mean, max(0.0, min(mean, centre - half)), min(1.0, max(mean, centre + half)))


def mean_interval(scores_by_task: Sequence[Sequence[float]], seed: int = 0) -> Interval:
    """Mean over tasks of the mean over trials, with its interval. Scores are in [0, 1]; tasks without one are left out.

    Task means that are all 0 or 1 (one trial of a pass-or-fail task) get Wilson's interval. Others get the percentile
    bootstrap over tasks; where that has no width because all task means are equal, Wilson's, which is the wider.
    """
    means = [math.fsum(scores) / len(scores) for scores in scores_by_task if scores]
    count = len(means)
    if count < 1:
        raise ValueError("an interval needs at least one task with a score")
    mean = math.fsum(means) / count
    if all(m in (0.0, 1.0) for m in means) or max(means) == min(means):
        return wilson(mean, count)
    dice = random.Random(seed)
    draws = sorted(math.fsum(dice.choices(means, k=count)) / count for _ in range(_DRAWS))
    return Interval(mean, draws[round(0.025 * (_DRAWS - 1))], draws[round(0.975 * (_DRAWS - 1))])
