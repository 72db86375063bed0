"""From per-token losses to one number: the weight of every trained token.

Idea: each way to aggregate is a weight per token that depends on counts over the whole optimiser step and never on a
micro-batch, a rank or padding. So loss = sum of weight * per-token loss, summed over micro-batches, and no split of
the step can change the gradient. S sequences with at least one trained token, of n_s such tokens each, N in all:

    token_mean             1 / N                every token counts the same (DAPO)
    seq_mean_token_mean    1 / (S n_s)          every sequence counts the same (GRPO as published)
    seq_mean_token_sum     1 / S                long sequences count more
    constant_length        1 / (S L)            the same over a constant L from the config (Dr. GRPO)

A sequence without a trained token adds nothing and is not counted in S.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

Aggregate = Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant_length"]


@dataclass(frozen=True, slots=True)
class StepCounts:
    """What the normaliser needs to know of a whole optimiser step, all data-parallel ranks together."""

    tokens: int
    sequences: int


def step_counts(tokens_S: Tensor, group: dist.ProcessGroup | None = None) -> StepCounts:
    """Counts over `tokens_S` (trained tokens of each sequence), summed over the data-parallel ranks in `group`.

    Pass the data-parallel group only: ranks that hold parts or copies of the same sequences would count them twice.
    Gradients must then be summed over the ranks; where they are averaged (FSDP, DDP), scale the loss by the ranks.
    """
    counts = torch.tensor([int(tokens_S.sum()), int((tokens_S > 0).sum())], dtype=torch.int64)
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(counts, group=group)
    return StepCounts(int(counts[0]), int(counts[1]))


def token_weights(
    tokens_S: Tensor, counts: StepCounts, aggregate: Aggregate, constant_length: int | None = None
) -> Tensor:
    """[S] float64: the weight of each trained token of each sequence; 0 for a sequence without any."""
    tokens = tokens_S.double()
    trained = tokens > 0
    if aggregate == "token_mean":
        weights = torch.full_like(tokens, 1.0 / max(counts.tokens, 1))
    elif aggregate == "seq_mean_token_mean":
        weights = 1.0 / (max(counts.sequences, 1) * tokens.clamp(min=1.0))
    elif aggregate == "seq_mean_token_sum":
        weights = torch.full_like(tokens, 1.0 / max(counts.sequences, 1))
    elif constant_length is None or constant_length < 1:
        raise ValueError("constant_length needs a length of at least 1: the divisor must not come from the batch")
    else:
        weights = torch.full_like(tokens, 1.0 / (max(counts.sequences, 1) * constant_length))
    return torch.where(trained, weights, 0.0)
