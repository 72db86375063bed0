"""Learning rates and the order of tasks follow from numbers alone: a resume continues where the run would have been."""

from __future__ import annotations

import pytest
from sinkflex.train.schedule import falling_rate, learning_rate, task_order


def test_B99_the_rate_after_a_resume_is_that_of_the_uninterrupted_run() -> None:
    assert learning_rate(6, 1e-3, 10) == pytest.approx(6e-4)
    assert [learning_rate(k, 1e-3, 10) for k in (1, 10, 11, 500)] == pytest.approx([1e-4, 1e-3, 1e-3, 1e-3])
    assert learning_rate(1, 1e-3, 0) == 1e-3


def test_a_linear_schedule_rises_and_then_falls_towards_zero() -> None:
    assert [learning_rate(k, 1.0, 2, 6) for k in range(1, 7)] == pytest.approx([0.5, 1.0, 0.8, 0.6, 0.4, 0.2])
    assert [learning_rate(k, 1.0, 0, 4) for k in range(1, 5)] == pytest.approx([1.0, 0.75, 0.5, 0.25])


def test_the_supervised_rate_falls_linearly_and_never_reaches_zero() -> None:
    rates = [falling_rate(k, 4e-3, 4) for k in (1, 2, 3, 4)]
    assert rates == pytest.approx([4e-3, 3e-3, 2e-3, 1e-3])


def test_B97_a_resume_in_the_second_epoch_takes_what_that_epoch_has_left() -> None:
    first, second = task_order(0, 10, 10, seed=3), task_order(10, 10, 10, seed=3)
    before = task_order(0, 13, 10, seed=3)
    after = task_order(13, 7, 10, seed=3)
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert set(after) == set(range(10)) - set(before[10:])
    assert before + after == first + second


def test_one_request_may_run_over_several_epochs() -> None:
    assert task_order(2, 9, 4, seed=1) == [i for k in range(2, 11) for i in task_order(k, 1, 4, seed=1)]


def test_another_seed_is_another_order() -> None:
    assert task_order(0, 20, 20, seed=1) != task_order(0, 20, 20, seed=2)


def test_nothing_to_order_is_an_error() -> None:
    with pytest.raises(ValueError, match="no tasks"):
        task_order(0, 1, 0, seed=0)
