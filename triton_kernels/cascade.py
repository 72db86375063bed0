"""Attention of packed new tokens over keys in several places: a beginning that all rows share, and each row's own.

Idea: softmax over the union of two sets of keys follows from the softmax over each (output, largest score, sum of
weights). So the keys that many tokens see are stored once and read by one product for all of these tokens, where a copy
per row would be read row by row: with 16 rows behind 650 shared tokens that was a third of a decode step. No gradient.

A part is G caches of n slots and the queries that look at them, m to a cache; `bias` hides what a query does not see.
Every query sees at least one key in some part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

LOG2E = 1.4426950408889634
PIECE = 1 << 24  # scores computed at once


class Part(NamedTuple):
    """keys and values [G, num_kv_heads, n, head_dim]; `queries` picks G * m rows of q, cache by cache: a slice, int64
    rows, or None for all; bias [G, m, n] of 0 and -inf in the dtype of the scores, or None where all is seen. `real`
    int64: which of the picked queries count (None: all); the others fill up a cache's m."""

    keys: torch.Tensor
    values: torch.Tensor
    queries: slice | torch.Tensor | None
    bias: torch.Tensor | None
    real: torch.Tensor | None = None


def attend(q: torch.Tensor, parts: Sequence[Part], sinks: torch.Tensor | None, scale: float) -> torch.Tensor:
    """q [tokens, num_q_heads, head_dim] -> the same shape and dtype. Softmax over all parts and the sink [heads]."""
    exact = torch.float64 if q.dtype == torch.float64 else torch.float32
    scaled = q.to(exact) * (scale * LOG2E)
    if parts and parts[0].queries is None:
        out, top, total = _weigh(scaled, parts[0])
        parts = parts[1:]
    else:
        out = torch.zeros_like(scaled)
        top = scaled.new_full((*scaled.shape[:2], 1), torch.finfo(exact).min)
        total = torch.zeros_like(top)
    for part in parts:
        _merge(_weigh(scaled if part.queries is None else scaled[part.queries], part), part, out, top, total)
    if sinks is not None:
        logits = (sinks.to(exact) * LOG2E).unsqueeze(-1)
        most = torch.maximum(top, logits)
        shrink = torch.exp2(top - most)
        out.mul_(shrink)
        total = total * shrink + torch.exp2(logits - most)
    return out.div_(total).to(q.dtype)


def _merge(
    more: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    part: Part,
    out: torch.Tensor,
    top: torch.Tensor,
    total: torch.Tensor,
) -> None:
    """Take a further part into the sums out [tokens, heads, dim], top and total [tokens, heads, 1], in place."""
    where: slice | torch.Tensor = slice(None) if part.queries is None else part.queries
    if part.real is not None:
        assert isinstance(where, torch.Tensor), "queries that fill up are picked by index"
        where = where[part.real]
        more = (more[0][part.real], more[1][part.real], more[2][part.real])
    before = top[where]
    most = torch.maximum(before, more[1])
    old, new = torch.exp2(before - most), torch.exp2(more[1] - most)
    out[where] = torch.addcmul(out[where] * old, more[0], new)
    total[where] = torch.addcmul(total[where] * old, more[2], new)
    top[where] = most


def _weigh(q: torch.Tensor, part: Part) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """For queries q [G * m, num_q_heads, dim], scaled to base 2: the sum of weight times value [G * m, heads, dim], the
    largest score and the sum of weights [G * m, heads, 1], weights being exp2(score - largest)."""
    groups, num_kv_heads, count, dim = part.keys.shape
    m, heads = q.shape[0] // groups, q.shape[1]
    repeat = heads // num_kv_heads
    keys, values = (x.to(q.dtype).flatten(0, 1) for x in (part.keys, part.values))
    # One product per cache and key head, over m * repeat queries.
    grouped = q.view(groups, m, num_kv_heads, repeat, dim).transpose(1, 2).reshape(-1, m * repeat, dim)
    piece = max(1, PIECE // (groups * heads * count))
    done = []
    for start in range(0, m, piece):
        stop = min(start + piece, m)
        scores = torch.bmm(grouped[:, start * repeat : stop * repeat], keys.transpose(1, 2))
        if part.bias is not None:
            view = scores.view(groups, num_kv_heads, stop - start, repeat, count)
            view.add_(part.bias[:, None, start:stop, None])
        top = scores.amax(-1, keepdim=True)
        if part.bias is not None:
            top.clamp_(min=torch.finfo(q.dtype).min)  # a query that sees nothing here: weights of 0, no -inf - -inf
        weights = scores.sub_(top).exp2_()
        done.append((torch.bmm(weights, values), top, weights.sum(-1, keepdim=True)))
    joined = done[0] if len(done) == 1 else tuple(torch.cat(each, dim=1) for each in zip(*done, strict=True))
    out, top, total = (
        x.view(groups, num_kv_heads, m, repeat, -1).transpose(1, 2).reshape(groups * m, heads, -1) for x in joined
    )
    return out, top, total
