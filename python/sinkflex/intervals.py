"""Intervals for evaluation scores: how far a mean over tasks can be from what the policy would score on all tasks.

Idea: tasks are the independent draws, trials of one task are not, so a task enters by the mean of its trials. 95 %
throughout; scores are in [0, 1]. Standard library only, deterministic.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

Z_95 = 1.959963984540054
_DRAWS = 2000


def wilson(mean: float, count: int) -> tuple[float, float]:
    """Wilson's score interval of a proportion (E. B. Wilson, 1927): has a width also at 0 and 1, stays in [0, 1].

    For task means between 0 and 1 it is too wide, never too narrow: nothing in [0, 1] varies more than a proportion.
    """
    if count < 1:
        raise ValueError("an interval needs at least one task")
    shrink = 1.0 + Z_95**2 / count
    centre = (mean + Z_95**2 / (2 * count)) / shrink
    half = Z_95 / shrink * math.sqrt(mean * (1.0 - mean) / count + Z_95**2 / (4 * count**2))
    return max(0.0, min(mean, centre - half)), min(1.0, max(mean, centre + half))


def mean_interval(task_means: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """(low, high) of the mean of `task_means`; (NaN, NaN) when there is no task.

    Task means that are all 0 or 1 (one trial of a pass-or-fail task) get Wilson's interval. Others get the percentile
    bootstrap over tasks; where that has no width because all are equal, Wilson's.
    """
    count = len(task_means)
    if count == 0:
        return math.nan, math.nan
    mean = math.fsum(task_means) / count
    if max(task_means) == min(task_means) or all(m in (0.0, 1.0) for m in task_means):
        return wilson(mean, count)
    dice = random.Random(seed)
    draws = sorted(math.fsum(dice.choices(task_means, k=count)) / count for _ in range(_DRAWS))
    return draws[round(0.025 * (_DRAWS - 1))], draws[round(0.975 * (_DRAWS - 1))]
