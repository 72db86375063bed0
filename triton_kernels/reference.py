"""Eager sink attention: the specification that every other implementation is tested against.

The sink is a column of its own behind the scores, one logit per query head, without scale, rotation or value. Memory is
O(num_queries * num_keys) per head. All masks: causal, window, segments, parents, fewer queries than keys. Computes in
float32, or in float64 when the inputs are float64; plain autograd differentiates it.
"""

from __future__ import annotations

import torch

from .layout import Layout


def visibility(layout: Layout, window: int | None = None, device: torch.device | str = "cpu") -> torch.Tensor:
    """Boolean [num_queries, num_keys]: which key each query sees, by path and logical position."""
    visible = torch.zeros(layout.num_queries, layout.num_keys, dtype=torch.bool)
    for index, (q_start, q_len, _, k_len, first_position, _) in enumerate(layout.segments):
        first = first_position + k_len - q_len
        q_position = torch.arange(first, first + q_len)[:, None]
        on_path = index
        while on_path != -1:
            piece = layout.segments[on_path]
            k_position = torch.arange(piece.first_position, piece.first_position + piece.k_len)[None, :]
            seen = k_position <= q_position
            if window is not None:
                seen &= q_position - k_position < window
            visible[q_start : q_start + q_len, piece.k_start : piece.k_start + piece.k_len] = seen
            on_path = piece.parent
    return visible.to(device)


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor | None,
    layout: Layout,
    window: int | None,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out [num_queries, num_q_heads, head_dim] in q's dtype, lse [num_queries, num_q_heads], sink included)."""
    exact = torch.float64 if q.dtype == torch.float64 else torch.float32
    num_q_heads, group = q.shape[1], q.shape[1] // k.shape[1]
    keys = k.to(exact).repeat_interleave(group, dim=1)
    values = v.to(exact).repeat_interleave(group, dim=1)
    hidden = ~visibility(layout, window, q.device)
    scores = torch.einsum("qhd,khd->hqk", q.to(exact), keys) * scale
    scores = scores.masked_fill(hidden, -torch.inf)
    column = q.new_full((num_q_heads,), -torch.inf, dtype=exact) if sinks is None else sinks.to(exact)
    scores = torch.cat([scores, column[:, None, None].expand(-1, q.shape[0], 1)], dim=-1)
    # A row that sees nothing and has no sink has only -inf; its maximum must not enter a difference.
    top = scores.detach().amax(dim=-1, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0.0)
    weights = (scores - top).exp()
    total = weights.sum(dim=-1, keepdim=True)
    empty = total == 0
    probabilities = weights / total.masked_fill(empty, 1.0)
    lse = (total.masked_fill(empty, 1.0).log() + top).masked_fill(empty, -torch.inf)
    out = torch.einsum("hqk,khd->qhd", probabilities[..., :-1], values)
    return out.to(q.dtype), lse.squeeze(-1).transpose(0, 1)
