"""Eager sink attention: the specification that every other implementation is tested against.

The sink is one more logit of the softmax, one per query head, without scale, rotation or value: all it adds is its term
of the denominator. All masks: causal, window, segments, parents, fewer queries than keys. Computes in float32, or in
float64 when the inputs are float64; plain autograd differentiates it. Segments that share no parent are computed one
after another, each with the square of its length in memory, about as much of it as transformers' eager attention takes.
"""

from __future__ import annotations

import torch

from .layout import Layout, Segment


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
    column = q.new_full((q.shape[1],), -torch.inf, dtype=exact) if sinks is None else sinks.to(exact)
    covered = torch.zeros(layout.num_queries, dtype=torch.bool)
    rows, outs, lses = [], [], []
    for tree, q_rows, k_rows in _trees(layout):
        covered[q_rows] = True
        hidden = ~visibility(tree, window, q.device)
        rows.append(q_rows)
        out, lse = _dense(q[q_rows].to(exact), k[k_rows].to(exact), v[k_rows].to(exact), column, hidden, scale)
        outs.append(out)
        lses.append(lse)
    rest = (~covered).nonzero().squeeze(1)  # padding: sees nothing
    outs.append(q.new_zeros(len(rest), *q.shape[1:], dtype=exact))
    lses.append(column.expand(len(rest), -1))
    back = torch.cat([*rows, rest]).argsort().to(q.device)
    return torch.cat(outs)[back].to(q.dtype), torch.cat(lses)[back]


def _trees(layout: Layout) -> list[tuple[Layout, torch.Tensor, torch.Tensor]]:
    """The segments under each root as a layout of their own, with the query rows and key rows it stands for."""
    members: dict[int, list[int]] = {}
    roots: list[int] = []
    for index, segment in enumerate(layout.segments):
        roots.append(index if segment.parent == -1 else roots[segment.parent])
        members.setdefault(roots[index], []).append(index)
    none = torch.arange(0)
    trees = [(Layout((), 0, 0), none, none)]  # so that even an empty layout has gradients (of 0)
    for tree in members.values():
        segments: list[Segment] = []
        q_rows, k_rows = [none], [none]
        q_end = k_end = 0
        for index in tree:
            segment = layout.segments[index]
            q_rows.append(torch.arange(segment.q_start, segment.q_start + segment.q_len))
            k_rows.append(torch.arange(segment.k_start, segment.k_start + segment.k_len))
            parent = -1 if segment.parent == -1 else tree.index(segment.parent)
            segments.append(segment._replace(q_start=q_end, k_start=k_end, parent=parent))
            q_end, k_end = q_end + segment.q_len, k_end + segment.k_len
        trees.append((Layout(tuple(segments), q_end, k_end), torch.cat(q_rows), torch.cat(k_rows)))
    return trees


def _dense(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, column: torch.Tensor, hidden: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, lse) of rows [queries, heads, dim] over keys, all scores at once; column [heads] holds the sinks."""
    group = q.shape[1] // k.shape[1]
    keys, values = (x.repeat_interleave(group, dim=1).transpose(0, 1) for x in (k, v))
    sink = column[:, None, None]
    # In place where autograd allows it: of all scores one matrix stays, the weights.
    scores = torch.bmm((q * scale).transpose(0, 1), keys.transpose(1, 2)).masked_fill_(hidden, -torch.inf)
    top = torch.maximum(scores.detach().amax(-1, keepdim=True) if scores.shape[-1] else sink, sink).detach()
    # A row that sees nothing and has no sink has only -inf; its maximum must not enter a difference.
    top = top.masked_fill(top == -torch.inf, 0.0)
    weights = scores.sub_(top).exp_()
    total = weights.sum(-1, keepdim=True) + (sink - top).exp()
    empty = total == 0
    total = total.masked_fill(empty, 1.0)
    lse = (total.log() + top).masked_fill(empty, -torch.inf)
    return (torch.bmm(weights, values) / total).transpose(0, 1), lse.squeeze(-1).transpose(0, 1)
