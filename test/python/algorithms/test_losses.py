"""Log-probs of sampled tokens and the clipped loss, on every path there is."""

from __future__ import annotations

import math
from unittest import mock

import pytest
import torch
from sinkflex.algorithms.aggregate import StepCounts, token_weights
from sinkflex.algorithms.losses import (
    check_offsets,
    chunked_log_probs,
    clip_loss,
    policy_loss,
    token_log_probs,
)
from sinkflex.kernels import log_prob
from sinkflex.kernels.api import linear_log_prob
from torch import Tensor, nn


def test_B13_the_temperature_is_applied() -> None:
    logits, target = torch.tensor([[2.0, 0.0]]), torch.tensor([0])
    assert token_log_probs(logits, target, 0.5)[0].item() == pytest.approx(-0.018150, abs=1e-6)
    assert token_log_probs(logits, target, 1.0)[0].item() == pytest.approx(-0.126928, abs=1e-6)


def test_temperature_zero_has_no_log_probs() -> None:
    with pytest.raises(ValueError, match="greedy"):
        token_log_probs(torch.zeros(1, 2), torch.tensor([0]), 0.0)


def test_B24_bfloat16_logits_are_normalised_in_float32() -> None:
    logits = torch.tensor([[9.0, 6.75, 0.0]], dtype=torch.bfloat16)
    logprob, entropy = token_log_probs(logits, torch.tensor([2]))
    assert logprob.dtype == entropy.dtype == torch.float32
    assert logprob.item() == pytest.approx(-9.100318, abs=1e-4)


def test_entropy_is_of_the_tempered_distribution_and_carries_no_gradient() -> None:
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, -math.inf, -math.inf, -math.inf]], requires_grad=True)
    _, entropy = token_log_probs(logits, torch.tensor([0, 0]), 0.5)
    assert entropy.tolist() == pytest.approx([math.log(4), 0.0])
    assert not entropy.requires_grad


def test_B22_asymmetric_bounds_clip_on_the_right_side() -> None:
    ratios, signs = [0.7, 0.7, 1.25, 1.3, 1.3], [-1.0, 1.0, 1.0, 1.0, -1.0]
    # The bounds act on the ratio; the gradient by the ratio is the gradient by its logarithm over the ratio.
    logprobs = torch.tensor(ratios, dtype=torch.float64).log().requires_grad_()
    loss = clip_loss(
        logprobs, torch.zeros(5, dtype=torch.float64), torch.tensor(signs).double(), clip_low=0.2, clip_high=0.28
    )
    loss.per_token.sum().backward()
    assert loss.per_token.tolist() == pytest.approx([0.8, -0.7, -1.25, -1.28, 1.3])
    assert logprobs.grad is not None
    assert (logprobs.grad / torch.tensor(ratios)).tolist() == pytest.approx([0.0, -1.0, -1.0, 0.0, 1.0])
    assert loss.clipped.tolist() == [True, False, False, True, False]


def test_B23_the_ends_of_an_interval_are_refused_with_the_offsets_that_were_meant() -> None:
    with pytest.raises(ValueError, match=r"did you mean 0\.2 and 0\.28"):
        clip_loss(torch.zeros(1), torch.zeros(1), torch.ones(1), clip_low=0.8, clip_high=1.28)


def test_B23_a_missing_high_bound_is_the_low_one() -> None:
    loss = clip_loss(torch.tensor([2.0]), torch.zeros(1), torch.ones(1), clip_low=0.2)
    assert loss.per_token.item() == pytest.approx(-1.2)


def test_B23_a_low_bound_above_the_high_one_is_legal_and_a_negative_one_is_not() -> None:
    check_offsets(0.28, 0.2)
    for low, high in [(-0.1, 0.2), (1.0, 0.2), (0.2, -0.1)]:
        with pytest.raises(ValueError, match="offsets from 1"):
            check_offsets(low, high)


def test_B26_metrics_are_over_trained_tokens_only() -> None:
    rollout, trainer = torch.tensor([-1.0, 0.0, -2.0]), torch.tensor([-1.1, -5.0, -2.0])
    mask = torch.tensor([True, False, True])
    loss = clip_loss(trainer, rollout, torch.ones(3), mask, clip_low=0.2)
    assert loss.per_token[1].item() == 0.0
    assert loss.ratio[1].item() == 1.0
    assert not loss.clipped[1]
    # The packed path never holds the dummy at all.
    kept = policy_loss(trainer[mask], rollout[mask], torch.ones(2), torch.full((2,), 0.5), clip_low=0.2, clip_high=0.2)
    assert kept.gap / kept.tokens == pytest.approx(0.05)


def test_B26_what_is_masked_may_be_anything() -> None:
    bad = torch.tensor([math.nan, math.inf, -1.0])
    mask = torch.tensor([False, False, True])
    logprobs = bad.clone().requires_grad_()
    loss = clip_loss(logprobs, bad, bad, mask, clip_low=0.2)
    loss.per_token.sum().backward()  # type: ignore[no-untyped-call]
    assert loss.per_token.isfinite().all()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [0.0, 0.0, 1.0]


def test_a_huge_ratio_keeps_the_loss_and_its_gradient_finite() -> None:
    logprobs = torch.tensor([-0.5, -0.5], requires_grad=True)
    loss = clip_loss(logprobs, torch.tensor([-200.0, -200.0]), torch.tensor([1.0, -1.0]), clip_low=0.2)
    loss.per_token.sum().backward()  # type: ignore[no-untyped-call]
    assert loss.per_token.isfinite().all()
    assert logprobs.grad is not None
    assert logprobs.grad[0].item() == 0.0  # a likely good token is clipped
    assert 0.0 < logprobs.grad[1].item() < math.inf  # a likely bad one is pushed down


def test_kl_needs_the_reference_exactly_when_it_counts() -> None:
    zero, one = torch.zeros(1), torch.ones(1)
    for reference, coef in [(None, 0.1), (zero, 0.0)]:
        with pytest.raises(ValueError, match="reference"):
            policy_loss(zero, zero, one, one, clip_low=0.2, clip_high=0.2, reference_T=reference, kl_coef=coef)


class _Policy(nn.Module):
    """Hidden states from a table, then a head: what lies between does not matter to the loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 11, bias=False)


def _loss(path: str, accumulation: int, head: str) -> tuple[float, Tensor]:
    """Loss and flat gradient of two sequences of 3 and 7 trained tokens, by one way of computing log-probs."""
    dice = torch.Generator().manual_seed(5)
    policy = _Policy()
    policy.head.requires_grad_(head == "trained")
    lengths = torch.tensor([3, 7])
    ids, targets = torch.randint(11, (10,), generator=dice), torch.randint(11, (10,), generator=dice)
    behaviour = -2.0 - torch.rand(10, generator=dice)
    reference = -2.0 - torch.rand(10, generator=dice)
    advantages = torch.tensor([0.7] * 3 + [-1.2] * 7)
    per_sequence = token_weights(lengths, StepCounts(10, 2), "token_mean").float()
    weights = per_sequence.repeat_interleave(lengths)
    total = 0.0
    for part in [slice(0, 3), slice(3, 10)] if accumulation == 2 else [slice(0, 10)]:
        hidden = policy.table(ids[part])
        if path == "plain":
            logprobs, _ = token_log_probs(policy.head(hidden), targets[part], 0.7)
        elif path == "fused":
            logprobs = linear_log_prob(hidden, policy.head.weight, targets[part], temperature=0.7).log_prob
        else:
            logprobs, _ = chunked_log_probs(hidden, policy.head, targets[part], 0.7, chunk=2)
        loss = policy_loss(
            logprobs, behaviour[part], advantages[part], weights[part],
            clip_low=0.2, clip_high=0.28, reference_T=reference[part], kl_coef=0.04,
        )  # fmt: skip
        loss.total.backward()  # type: ignore[no-untyped-call]
        total += loss.total.item()
    return total, torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])


@pytest.mark.parametrize("path", ["plain", "chunked", "fused"])
@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("head", ["trained", "frozen"])
def test_B27_every_loss_path_gives_the_same_loss_and_gradient(path: str, accumulation: int, head: str) -> None:
    """With importance ratios, the normaliser of the step and a KL penalty."""
    expected, gradient = _loss("plain", 1, head)
    with mock.patch.dict(log_prob.TILES, {"cpu": (2, 4)}):
        got, other = _loss(path, accumulation, head)
    assert got == pytest.approx(expected, rel=1e-4)
    assert other.shape == gradient.shape
    assert torch.cosine_similarity(gradient, other, dim=0).item() > 0.9999
    assert (other.norm() / gradient.norm()).item() == pytest.approx(1.0, abs=1e-3)


def test_the_chunked_path_never_holds_more_rows_of_logits_than_a_chunk() -> None:
    seen: list[int] = []

    def head(hidden: Tensor) -> Tensor:
        seen.append(hidden.shape[0])
        return hidden @ torch.eye(4)

    hidden = torch.randn(7, 4, requires_grad=True)
    chunked_log_probs(hidden, head, torch.zeros(7, dtype=torch.int64), chunk=3)[0].sum().backward()  # type: ignore[no-untyped-call]
    assert sorted(seen) == [1, 1, 3, 3, 3, 3]  # once in the forward, once again in the backward
