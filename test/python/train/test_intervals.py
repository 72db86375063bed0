"""Intervals of evaluation scores, against known values and against coverage in simulation."""

from __future__ import annotations

import math
import random

import pytest
from sinkflex.intervals import mean_interval, wilson


def test_wilson_has_the_textbook_values() -> None:
    assert wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(0.87, 200) == pytest.approx((0.8163, 0.9097), abs=1e-4)


def test_no_success_and_only_successes_still_have_a_width() -> None:
    low, high = wilson(0.0, 60)
    assert (low, high) == (0.0, pytest.approx(0.0602, abs=1e-4))
    assert wilson(1.0, 60) == (pytest.approx(1 - 0.0602, abs=1e-4), 1.0)


def test_pass_or_fail_tasks_get_wilson_and_fractions_the_bootstrap_over_tasks() -> None:
    assert mean_interval([1.0, 0.0] * 5) == wilson(0.5, 10)
    means = [0.25 * (i % 5) for i in range(100)]
    low, high = mean_interval(means)
    half = 1.96 * math.sqrt(sum((m - 0.5) ** 2 for m in means) / 100) / 10
    assert (low, high) == (pytest.approx(0.5 - half, abs=0.015), pytest.approx(0.5 + half, abs=0.015))
    assert mean_interval(means) == (low, high)  # the same numbers each time
    assert mean_interval([0.5] * 8) == wilson(0.5, 8)


def test_no_task_has_no_interval() -> None:
    assert all(math.isnan(end) for end in mean_interval([]))
    with pytest.raises(ValueError, match="at least one task"):
        wilson(0.5, 0)


def test_the_interval_covers_the_truth_about_95_times_in_100() -> None:
    dice = random.Random(4)
    hits = 0
    for _ in range(2000):
        low, high = mean_interval([float(dice.random() < 0.85) for _ in range(60)])
        hits += low <= 0.85 <= high
    assert 0.93 <= hits / 2000 <= 0.975
