"""Guards: what must stop, what must be skipped without a trace, what must be said."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
import torch
from sinkflex.algorithms.advantages import group_advantages
from sinkflex.refusal import Refusal
from sinkflex.rollout.trajectory import Trajectory
from sinkflex.train.guards import (
    UpdateGuard,
    ZeroVarianceWatch,
    check_infra_rate,
    check_logprob_gap,
    expected_zero_variance,
)
from torch import nn

Build = Callable[..., Trajectory]


def _adamw() -> tuple[nn.Parameter, torch.optim.AdamW]:
    """A parameter with momentum behind it: the case in which a step with zero gradient moves weights."""
    weight = nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = torch.optim.AdamW([weight], lr=0.1, weight_decay=0.1)
    weight.grad = torch.tensor([0.5, 0.5])
    optimizer.step()
    optimizer.zero_grad()
    return weight, optimizer


def _apply(guard: UpdateGuard, weight: nn.Parameter, optimizer: torch.optim.Optimizer, **values: float) -> str:
    given = {"tokens": 4, "loss": 1.0, "grad_clip": 1.0, "step": 7} | values
    return guard.apply(optimizer, [weight], **given).verdict  # type: ignore[arg-type]


def _state(optimizer: torch.optim.Optimizer) -> list[list[float]]:
    return [t.flatten().tolist() for s in optimizer.state.values() for t in s.values()]


def test_B21_a_step_without_trained_tokens_leaves_weights_and_optimiser_bit_identical() -> None:
    weight, optimizer = _adamw()
    before, state = weight.detach().clone(), _state(optimizer)
    guard = UpdateGuard()
    assert _apply(guard, weight, optimizer, tokens=0, loss=0.0) == "no_tokens"
    weight.grad = torch.zeros(2)  # the same with gradients of zero lying about
    update = guard.apply(optimizer, [weight], tokens=0, loss=0.0, grad_clip=1.0, step=1)
    assert torch.equal(weight, before)
    assert _state(optimizer) == state
    assert (guard.skipped["no_tokens"], update.grad_norm, update.skipped) == (2, 0.0, True)


def test_B21_what_the_guard_prevents_is_real() -> None:
    weight = nn.Parameter(torch.tensor([1.0]))
    weight.grad = torch.zeros(1)
    torch.optim.AdamW([weight], lr=0.1, weight_decay=0.1).step()
    assert weight.item() == pytest.approx(0.99)


@pytest.mark.parametrize(("loss", "gradient"), [(math.nan, 0.5), (1.0, math.nan), (1.0, math.inf)])
def test_a_step_that_is_not_finite_is_skipped_without_a_trace(loss: float, gradient: float) -> None:
    weight, optimizer = _adamw()
    before, state = weight.detach().clone(), _state(optimizer)
    weight.grad = torch.tensor([gradient, 0.1])
    guard = UpdateGuard()
    assert _apply(guard, weight, optimizer, loss=loss) == "non_finite"
    assert torch.equal(weight, before)
    assert _state(optimizer) == state
    assert weight.grad is None  # nothing is left for the next step to accumulate onto
    assert guard.skipped["non_finite"] == 1


def test_steps_that_are_not_finite_end_the_run_only_in_a_row() -> None:
    weight, optimizer = _adamw()
    guard = UpdateGuard(limit=2)
    for _ in range(2):
        assert _apply(guard, weight, optimizer, loss=math.nan) == "non_finite"
        weight.grad = torch.tensor([0.1, 0.1])
        assert _apply(guard, weight, optimizer) == "applied"
    assert _apply(guard, weight, optimizer, loss=math.nan) == "non_finite"
    before = weight.detach().clone()
    with pytest.raises(Refusal) as caught:
        _apply(guard, weight, optimizer, loss=math.nan)
    assert caught.value.code == "SF-NON-FINITE"
    assert "Step 7" in caught.value.what
    assert torch.equal(weight, before)


def test_the_gradient_norm_is_before_clipping_and_the_step_after() -> None:
    weight = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    weight.grad = torch.tensor([3.0, 4.0])
    update = UpdateGuard().apply(optimizer, [weight], tokens=1, loss=0.0, grad_clip=1.0, step=1)
    assert update.grad_norm == pytest.approx(5.0)
    assert weight.tolist() == pytest.approx([-0.6, -0.8], abs=1e-5)


def test_B14_a_gap_between_rollout_and_training_ends_the_run() -> None:
    check_logprob_gap(0.0099, 0.01, step=1)
    # The sampler at temperature 1, the trainer at 0.5: the values of case B13.
    with pytest.raises(Refusal) as caught:
        check_logprob_gap(0.126928 - 0.018150, 0.01, step=1)
    assert (caught.value.code, caught.value.owner) == ("SF-LOGPROB-GAP", "engine")
    assert "0.1088" in caught.value.what
    with pytest.raises(Refusal):
        check_logprob_gap(math.nan, 0.01, step=1)


def test_infrastructure_faults_stop_the_run_with_their_causes(trajectory: Build) -> None:
    def fault(i: int, owner: str, error: str) -> Trajectory:
        return trajectory([1], [0], None, sample=i, owner=owner, error=error)

    fine = [trajectory([1, 2], [0, 1], 0.0, sample=i) for i in range(8)]
    two = [fault(8, "user", "no answer"), fault(9, "user", "no answer")]
    assert check_infra_rate([*fine, *two], 0.2, step=1) == pytest.approx(0.2)
    with pytest.raises(Refusal) as caught:
        check_infra_rate([*fine, *two, fault(10, "infra", "disk full")], 0.2, step=5)
    assert (caught.value.code, caught.value.owner) == ("SF-INFRA-RATE", "user")
    assert "3 of 11" in caught.value.what
    assert "2 x user: no answer; 1 x infra: disk full" in caught.value.what
    assert check_infra_rate([], 0.2, step=1) == 0.0


@pytest.mark.parametrize(("group_size", "expected"), [(2, 0.7024), (8, 0.2006)])
def test_B28_flat_groups_are_measured_and_warned_about(group_size: int, expected: float) -> None:
    assert expected_zero_variance(0.1819, group_size) == pytest.approx(expected, abs=1e-4)
    dice = random.Random(1)
    groups = torch.arange(1000).repeat_interleave(group_size)
    rewards = torch.tensor([float(dice.random() < 0.1819) for _ in range(1000 * group_size)]).double()
    share = group_advantages(rewards, groups).zero_variance_fraction
    assert share == pytest.approx(expected, abs=0.05)
    warning = ZeroVarianceWatch(0.5, group_size).observe(share, float(rewards.mean()))
    assert (warning is not None) == (group_size == 2)
    if warning is not None:
        assert f"No learning signal in {share:.0%} of the groups" in warning[0]
        assert "rollout.group_size" in warning[1]


def test_B02_a_step_without_any_signal_is_warned_about_once() -> None:
    watch = ZeroVarianceWatch(0.9, 8)
    first = watch.observe(1.0, 0.0)
    assert first is not None
    assert "No learning signal in 100% of the groups" in first[0]
    assert "no group size helps" in first[1]
    assert watch.observe(1.0, 0.0) is None
    assert watch.observe(0.5, 0.1) is None
    again = watch.observe(0.95, 0.98)
    assert again is not None
    assert "Most tasks are solved" in again[1]
