"""KL estimators: values, direction, finiteness, and which of them teach anything."""

from __future__ import annotations

import math

import pytest
import torch
from sinkflex.algorithms.kl import LOG_RATIO_BOUND, bounded_exp, kl_estimate, kl_penalty
from sinkflex.algorithms.losses import policy_loss


def _one(logprob: float, reference: float, estimator: str) -> tuple[float, float]:
    """(value, derivative by the policy's log-prob), in float64."""
    policy = torch.tensor([logprob], dtype=torch.float64, requires_grad=True)
    value = kl_estimate(policy, torch.tensor([reference], dtype=torch.float64), estimator)  # type: ignore[arg-type]
    value.sum().backward()
    assert policy.grad is not None
    return value.item(), policy.grad.item()


def test_B17_values_and_direction_of_the_estimators() -> None:
    assert _one(-1.0, -2.0, "k1")[0] == 1.0
    assert _one(-1.0, -2.0, "k2")[0] == 0.5
    assert _one(-1.0, -2.0, "k3") == pytest.approx((0.367879, 0.632121), abs=1e-6)
    assert _one(-2.0, -1.0, "k3") == pytest.approx((0.718282, -1.718282), abs=1e-6)


def test_B17_the_penalty_is_added_to_the_policy_loss() -> None:
    logprobs = torch.tensor([-1.0], requires_grad=True)
    behaviour, reference, weight = torch.tensor([-1.0]), torch.tensor([-2.0]), torch.ones(1)
    loss = policy_loss(
        logprobs, behaviour, torch.zeros(1), weight,
        clip_low=0.2, clip_high=0.2, reference_T=reference, kl_coef=0.1,
    )  # fmt: skip
    loss.total.backward()  # type: ignore[no-untyped-call]
    assert loss.total.item() == pytest.approx(0.0367879, abs=1e-7)
    assert loss.kl == pytest.approx(0.367879, abs=1e-6)
    assert logprobs.grad is not None
    assert logprobs.grad.item() == pytest.approx(0.0632121, abs=1e-7)  # descent lowers a log-prob above the reference


def test_B17_k3_is_never_negative() -> None:
    d = torch.linspace(-30, 30, 601, dtype=torch.float64)
    assert kl_estimate(torch.zeros_like(d), d, "k3").min().item() >= 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_B18_a_huge_log_ratio_leaves_value_and_gradient_finite(dtype: torch.dtype, estimator: str) -> None:
    logprobs = torch.tensor([-200.0, -1.0], dtype=dtype, requires_grad=True)
    value = kl_penalty(logprobs, torch.tensor([-0.5, -200.0], dtype=dtype), estimator)  # type: ignore[arg-type]
    value.sum().backward()  # type: ignore[no-untyped-call]
    assert value.dtype == torch.float32
    assert value.isfinite().all()
    assert logprobs.grad is not None
    assert logprobs.grad.isfinite().all()
    assert logprobs.grad[0] < 0 < logprobs.grad[1]  # both are pulled towards the reference


def test_B18_inside_the_bound_nothing_changes() -> None:
    x = torch.linspace(-60.0, LOG_RATIO_BOUND, 401, dtype=torch.float64, requires_grad=True)
    y = bounded_exp(x)
    y.sum().backward()
    assert torch.equal(y, x.exp())
    assert torch.equal(x.grad, x.exp())  # type: ignore[arg-type]


def test_B18_beyond_the_bound_the_value_goes_on_along_the_tangent() -> None:
    x = torch.tensor([LOG_RATIO_BOUND + 1.0, 199.5], dtype=torch.float64, requires_grad=True)
    y = bounded_exp(x)
    y.sum().backward()
    edge = math.exp(LOG_RATIO_BOUND)
    assert y.tolist() == pytest.approx([2 * edge, edge * (1 + 199.5 - LOG_RATIO_BOUND)])
    assert x.grad.tolist() == pytest.approx([edge, edge])  # type: ignore[union-attr]


@pytest.mark.parametrize(("estimator", "expected"), [("k1", 0.0), ("k2", 0.17793), ("k3", 0.2000)])
def test_B19_the_average_gradient_of_each_estimator_in_the_loss(estimator: str, expected: float) -> None:
    probabilities = torch.tensor([0.7, 0.3], dtype=torch.float64)
    reference = torch.tensor([0.5, 0.5], dtype=torch.float64).log()
    logits = probabilities.log().requires_grad_()
    per_action = kl_estimate(torch.log_softmax(logits, -1), reference, estimator)  # type: ignore[arg-type]
    (probabilities * per_action).sum().backward()
    assert logits.grad is not None
    assert logits.grad[0].item() == pytest.approx(expected, abs=1e-5)


def test_B19_k1_is_refused_in_the_loss() -> None:
    with pytest.raises(ValueError, match="zero on average"):
        kl_penalty(torch.zeros(1), torch.zeros(1), "k1")  # type: ignore[arg-type]


def test_the_reference_takes_no_gradient() -> None:
    policy, reference = torch.zeros(2, requires_grad=True), torch.full((2,), -1.0, requires_grad=True)
    kl_penalty(policy, reference, "k3").sum().backward()  # type: ignore[no-untyped-call]
    assert reference.grad is None
