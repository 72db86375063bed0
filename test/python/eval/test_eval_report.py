"""The arithmetic of a report, and of a comparison."""

from __future__ import annotations

import random

import pytest
from eval_samples import faulty, scored
from sinkflex.eval.compare import compare
from sinkflex.eval.report import PASS_HAT, pass_at, pass_hat, report
from sinkflex.eval.results import Trial

IDENTITY = {
    "suite": "mini-shop",
    "split": "test",
    "agent": {"kind": "scripted", "label": "expert"},
    "user": {"kind": "scripted"},
    "score_mode": "official",
    "seed": 0,
}


def made(trials: list[Trial], tasks: int, each: int) -> dict[str, object]:
    return report(IDENTITY, {"tasks": tasks, "trials": each, "total": tasks * each}, trials)


def test_B131_pass_hat_counts_without_replacement_and_means_over_tasks() -> None:
    assert [pass_hat(3, 4, k) for k in (1, 2, 3, 4)] == pytest.approx([0.75, 0.5, 0.25, 0.0])
    assert pass_at(3, 4, 2) == 1.0
    trials = [scored("a", k, 1.0) for k in range(4)] + [scored("b", k, float(k < 2)) for k in range(4)]
    got = made(trials, 2, 4)
    assert got["pass_hat"]["2"] == pytest.approx((1 + 1 / 6) / 2)  # type: ignore[index]
    assert got["formulas"]["pass_hat"] == PASS_HAT  # type: ignore[index]
    for k in (0, 5):
        with pytest.raises(ValueError, match="needs 1 to 4 trials"):
            pass_hat(3, 4, k)


def test_B134_the_report_does_not_depend_on_the_order_in_which_trials_finished() -> None:
    trials = [scored(f"t{i}", k, float((i + k) % 2), wall_s=0.0) for i in range(5) for k in range(3)]
    want = made(trials, 5, 3)
    for seed in range(5):
        shuffled = trials[:]
        random.Random(seed).shuffle(shuffled)
        assert made(shuffled, 5, 3) == want


def test_B135_a_fault_is_no_failure_and_lowers_the_coverage() -> None:
    trials = [scored(f"t{i}", 0, 1.0) for i in range(9)] + [faulty("t9", 0)]
    got = made(trials, 10, 1)
    assert got["mean"] == 1.0 and got["coverage"] == pytest.approx(0.9)
    assert got["infra_errors"] == {"user": 1} and got["complete"] is True


def test_a_task_with_too_few_scored_trials_is_named_and_left_out_of_that_k() -> None:
    trials = [scored("a", 0, 1.0), scored("a", 1, 1.0), scored("b", 0, 0.0), faulty("b", 1)]
    got = made(trials, 2, 2)
    assert got["pass_hat"] == {"1": 0.5, "2": 1.0}
    assert got["tasks_with_too_few_trials"] == ["b"]


def test_an_unknown_cost_is_unknown_and_not_nothing() -> None:
    known = [scored("a", 0, 1.0, cost=0.25), scored("b", 0, 1.0, cost=0.5)]
    assert made(known, 2, 1)["cost"] == 0.75
    assert made([*known, scored("c", 0, 1.0, cost=None)], 3, 1)["cost"] is None
    assert made([], 3, 1)["cost"] is None


def test_B138_two_evaluations_are_compared_on_what_both_have() -> None:
    base = {t.key: t for t in (scored("1", 0, 1.0), scored("2", 0, 0.0), scored("3", 0, 1.0), scored("4", 0, 0.0))}
    candidate = {t.key: t for t in (scored("1", 0, 1.0), scored("2", 0, 1.0))}
    got = compare(base, candidate)
    assert (got["base_mean"], got["candidate_mean"], got["tasks"]) == (0.5, 1.0, 2)
    assert got["only_base"] == ["3", "4"] and got["only_candidate"] == []
    assert got["gained"] == ["2"] and got["lost"] == []
    assert got["ci_low"] <= got["difference"] <= got["ci_high"]


def test_comparing_what_has_nothing_in_common_says_so_with_no_number() -> None:
    got = compare({("1", 0): scored("1", 0, 1.0)}, {("2", 0): scored("2", 0, 1.0)})
    assert got["tasks"] == 0 and got["difference"] is None and got["ci_low"] is None
