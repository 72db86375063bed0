"""One optimiser step on packed micro-batches: supervised (`supervised_update`) or GRPO (`policy_update`).

Both run the same forward: hidden states of the packed tokens, then log-probs of the rows that predict a trained token,
and no others, straight from the hidden states: logits of all rows over the vocabulary never exist. Micro-batches only
accumulate gradients; what a token weighs was settled over the whole optimiser step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sinkflex.algorithms.losses import policy_loss
from sinkflex.config import Algorithm
from sinkflex.kernels.api import linear_log_prob
from sinkflex.policy.attention import AttentionContext
from sinkflex.policy.linear import give_back
from sinkflex.policy.model import Policy

from .batch import MicroBatch, RlMicroBatch
from .guards import Update, UpdateGuard, check_logprob_gap


@dataclass(slots=True)
class Totals:
    """Sums over the trained tokens of one or more optimiser steps; `loss` is a sum of weighted losses, one per step."""

    loss: float = 0.0
    entropy: float = 0.0
    clipped: float = 0.0
    gap: float = 0.0
    kl: float = 0.0
    tokens: int = 0

    def add(self, other: Totals) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def log_probs(policy: Policy, micro: MicroBatch, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(log-prob of each trained token [N] with gradient, entropy [N] without)."""
    context = AttentionContext(policy.impl, layout=micro.layout)
    states = policy.hidden(micro.ids_1T, micro.positions_1T, context)
    scored = linear_log_prob(
        states, policy.head, micro.targets_N, temperature=temperature, return_entropy=True, keep=micro.rows_N
    )
    return scored.log_prob, scored.entropy.detach()


def supervised_update(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    guard: UpdateGuard,
    micros: Sequence[MicroBatch],
    *,
    grad_clip: float,
    step: int,
) -> tuple[Update, Totals]:
    """Cross-entropy, mean over the trained tokens of the step."""
    totals = Totals()
    for micro in (m.to(policy.device) for m in micros):
        logprobs, entropy = log_probs(policy, micro, 1.0)
        loss = -(micro.weights_N * logprobs).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        totals.add(Totals(loss=float(loss.detach()), entropy=float(entropy.sum()), tokens=logprobs.numel()))
        give_back(policy.model)
    return _apply(policy, optimizer, guard, totals, grad_clip, step), totals


def policy_update(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    guard: UpdateGuard,
    micros: Sequence[RlMicroBatch],
    *,
    algorithm: Algorithm,
    temperature: float,
    grad_clip: float,
    step: int,
    reference: Policy | None = None,
    gap_limit: float | None = None,
) -> tuple[Update, Totals]:
    """The clipped policy loss, plus KL to `reference` when its coefficient is above 0.

    With `gap_limit` (the weights are still those that sampled) the gap to the rollout is checked before the step is
    taken: Refusal above it, weights untouched.
    """
    totals = Totals()
    for micro in (m.to(policy.device) for m in micros):
        logprobs, entropy = log_probs(policy, micro, temperature)
        against = None
        if reference is not None:
            with torch.no_grad():
                against, _ = log_probs(reference, micro, temperature)
        terms = policy_loss(
            logprobs,
            micro.behaviour_N,
            micro.advantages_N,
            micro.weights_N,
            clip_low=algorithm.clip_low,
            clip_high=algorithm.clip_high,
            reference_T=against,
            kl_coef=algorithm.kl.coef,
            kl_estimator=algorithm.kl.estimator,
        )
        terms.total.backward()  # type: ignore[no-untyped-call]
        totals.add(
            Totals(float(terms.total.detach()), float(entropy.sum()), terms.clipped, terms.gap, terms.kl, terms.tokens)
        )
        give_back(policy.model)
    if gap_limit is not None and totals.tokens:
        check_logprob_gap(totals.gap / totals.tokens, gap_limit, step=step)
    return _apply(policy, optimizer, guard, totals, grad_clip, step), totals


def _apply(
    policy: Policy, optimizer: torch.optim.Optimizer, guard: UpdateGuard, totals: Totals, grad_clip: float, step: int
) -> Update:
    update = guard.apply(
        optimizer, policy.model.parameters(), tokens=totals.tokens, loss=totals.loss, grad_clip=grad_clip, step=step
    )
    policy.version += not update.skipped
    return update
