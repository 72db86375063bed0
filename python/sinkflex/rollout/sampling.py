"""Drawing tokens: one stream of uniforms per episode, so an episode's draws depend on its own seed and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import torch


def sample(logits: torch.Tensor, temperature: float, streams: Sequence[Random]) -> tuple[list[int], list[float]]:
    """Tokens and their log-probs from float32 `logits` [rows, vocabulary].

    The log-prob is that of the distribution drawn from, temperature included (B13, B14). Temperature 0 is greedy; its
    log-prob is the one at temperature 1. Inverse of the cumulative distribution in float64: one uniform per token.
    """
    logp = torch.log_softmax(logits / temperature if temperature > 0 else logits, dim=-1)
    if temperature > 0:
        cumulative = logp.double().exp().cumsum(dim=-1)
        u = torch.tensor([[s.random()] for s in streams], dtype=torch.float64, device=logits.device)
        # Round-off can leave the total a hair from 1: scale the draw, and never land behind the last token.
        tokens = torch.searchsorted(cumulative, u * cumulative[:, -1:], right=True).clamp_(max=logits.shape[-1] - 1)
    else:
        tokens = logp.argmax(dim=-1, keepdim=True)
    return tokens[:, 0].tolist(), logp.gather(1, tokens)[:, 0].tolist()
