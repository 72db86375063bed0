"""Log-probs of sampled tokens and the clipped policy loss (PPO, arXiv 1707.06347, with separate bounds as in DAPO).

Conventions: T trained tokens in a row, already picked out of the packed sequences; log-probs are natural, of the
distribution that was sampled from, so the temperature is applied to the policy, the behaviour and the reference alike.
Everything here is float32 or wider whatever the model's dtype: in bfloat16 a log-prob is wrong by up to 0.1.
Clip bounds are offsets: low 0.2 and high 0.28 clip the ratio to [0.8, 1.28].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .kl import bounded_exp, kl_penalty


def token_log_probs(logits_TV: Tensor, targets_T: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """(log-prob of each target [T], entropy of each distribution [T], the latter without gradient)."""
    if temperature <= 0:
        raise ValueError(f"temperature {temperature} has no log-probs; greedy choice is not a distribution")
    wide = logits_TV if logits_TV.dtype == torch.float64 else logits_TV.float()
    log_TV = torch.log_softmax(wide / temperature, dim=-1)
    with torch.no_grad():
        # A token with probability 0 adds 0, also where its log-prob is -inf.
        entropy_T = -torch.where(log_TV == -torch.inf, 0.0, log_TV.exp() * log_TV).sum(-1)
    return log_TV.gather(-1, targets_T.unsqueeze(-1)).squeeze(-1), entropy_T


def chunked_log_probs(
    hidden_TD: Tensor,
    head: Callable[[Tensor], Tensor],
    targets_T: Tensor,
    temperature: float = 1.0,
    chunk: int = 1024,
) -> tuple[Tensor, Tensor]:
    """The same from hidden states: `head` maps [t, D] to logits [t, V], `chunk` rows at a time.

    Logits of a chunk are dropped after the forward and computed again in the backward, so at most chunk x V of them
    exist at once. One chunk or less is the plain path.
    """
    if hidden_TD.shape[0] <= chunk:
        return token_log_probs(head(hidden_TD), targets_T, temperature)

    def score(hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return token_log_probs(head(hidden), targets, temperature)

    parts = [
        checkpoint(score, hidden, targets, use_reentrant=False, preserve_rng_state=False)
        for hidden, targets in zip(torch.split(hidden_TD, chunk), torch.split(targets_T, chunk), strict=True)
    ]
    return torch.cat([logprobs for logprobs, _ in parts]), torch.cat([entropy for _, entropy in parts])


@dataclass(frozen=True, slots=True)
class ClipLoss:
    """`per_token` [T] with gradient; `ratio` [T] and `clipped` [T] (the bound took the gradient away) without."""

    per_token: Tensor
    ratio: Tensor
    clipped: Tensor


def clip_loss(
    logprobs_T: Tensor,
    behaviour_T: Tensor,
    advantages_T: Tensor,
    mask_T: Tensor | None = None,
    *,
    clip_low: float = 0.2,
    clip_high: float | None = None,
) -> ClipLoss:
    """-min(r A, clamp(r, 1 - clip_low, 1 + clip_high) A) with r = policy / behaviour. `clip_high` None: as clip_low.

    Where `mask_T` is False the inputs mean nothing (dummies, NaN): loss 0, ratio 1, not clipped, no gradient.
    """
    high = clip_low if clip_high is None else clip_high
    check_offsets(clip_low, high)
    difference = logprobs_T - behaviour_T
    if mask_T is not None:
        difference = torch.where(mask_T, logprobs_T, 0.0) - torch.where(mask_T, behaviour_T, 0.0)
        advantages_T = torch.where(mask_T, advantages_T, 0.0)
    ratio = bounded_exp(difference)
    free = ratio * advantages_T
    bounded = ratio.clamp(1.0 - clip_low, 1.0 + high) * advantages_T
    return ClipLoss(-torch.minimum(free, bounded), ratio.detach(), (bounded < free).detach())


def check_offsets(clip_low: float, clip_high: float) -> None:
    """ValueError unless the bounds are offsets. A low bound above the high one is legal."""
    if clip_low >= 0.5 and clip_high >= 1.0:
        raise ValueError(
            f"clip_low {clip_low} and clip_high {clip_high} look like the ends of an interval; they are offsets "
            f"from 1: did you mean {1 - clip_low:.2g} and {clip_high - 1:.2g}?"
        )
    if not 0.0 <= clip_low < 1.0 or clip_high < 0.0:
        raise ValueError(f"clip_low {clip_low} must be in [0, 1) and clip_high {clip_high} at least 0: offsets from 1")


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """`total` is this micro-batch's share of the step's loss, with gradient. The others are sums over its T tokens,
    without: add them over micro-batches and divide by the tokens of the step."""

    total: Tensor
    tokens: int
    clipped: float
    gap: float
    kl: float


def policy_loss(
    logprobs_T: Tensor,
    behaviour_T: Tensor,
    advantages_T: Tensor,
    weights_T: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    reference_T: Tensor | None = None,
    kl_coef: float = 0.0,
    kl_estimator: Literal["k2", "k3"] = "k3",
) -> PolicyLoss:
    """sum of weight * (clip loss + kl_coef * KL estimate). `reference_T` is needed exactly when kl_coef > 0.

    `gap` sums |policy - behaviour|: the metric logprob_gap, which is 0 but for rounding while the weights are those
    that sampled.
    """
    if (reference_T is None) == (kl_coef > 0):
        raise ValueError(f"kl_coef is {kl_coef}: reference log-probs are needed exactly when it is above 0")
    terms = clip_loss(logprobs_T, behaviour_T, advantages_T, clip_low=clip_low, clip_high=clip_high)
    per_token, kl = terms.per_token, 0.0
    if reference_T is not None:
        penalty = kl_penalty(logprobs_T, reference_T, kl_estimator)
        per_token, kl = per_token + kl_coef * penalty, float(penalty.detach().sum())
    return PolicyLoss(
        total=(weights_T * per_token).sum(),
        tokens=logprobs_T.numel(),
        clipped=float(terms.clipped.sum()),
        gap=float((logprobs_T.detach() - behaviour_T).abs().sum()),
        kl=kl,
    )
