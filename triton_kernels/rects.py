"""The rects of a plan, forward and backward: keys that many rows see in full, one product without a mask.

A row has its own strip and a rect for each run of keys above it. Forward, the pieces merge by their log-sum-exp, in
base 2 as in tiles.py; backward, with the log-sum-exp and delta of the whole row, pieces just add.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from .plan import TILE_ELEMENTS, Rect, Rows
from .tiles import LOG2E

BLOCK_ELEMENTS = 1 << 17  # queries gathered at a time
LEAST_ROWS = 128  # of a product: fewer are slow


def _take(x: torch.Tensor, rows: Rows, kv_heads: int, exact: torch.dtype) -> torch.Tensor:
    """Rows of x [tokens, heads, dim] as [kv_heads, rows * group size, dim], a copy."""
    part = x[rows] if isinstance(rows, slice) else x.index_select(0, rows)
    n, heads, dim = part.shape
    copy = torch.empty(kv_heads, n, heads // kv_heads, dim, dtype=exact, device=x.device)
    copy.copy_(part.view(n, kv_heads, heads // kv_heads, dim).transpose(0, 1))
    return copy.view(kv_heads, -1, dim)


def _by_token(piece: torch.Tensor, n: int) -> torch.Tensor:
    """[kv_heads, n * group size, dim] as [n, kv_heads, group size, dim], a view."""
    return piece.unflatten(1, (n, -1)).transpose(0, 1)


def _add(into: torch.Tensor, rows: Rows, piece: torch.Tensor, factor: float) -> None:
    """into[rows] += factor * piece; into [tokens, heads, dim], piece as _take gives it."""
    kv_heads, _, dim = piece.shape
    if isinstance(rows, slice):
        part = into[rows]
        part.view(len(part), kv_heads, -1, dim).add_(_by_token(piece, len(part)), alpha=factor)
    else:
        into.index_add_(0, rows, _by_token(piece, len(rows)).reshape(len(rows), -1, dim), alpha=factor)


def _merge(
    out: torch.Tensor, lse: torch.Tensor, rows: Rows, piece: torch.Tensor, top: torch.Tensor, total: torch.Tensor
) -> None:
    """Adds keys to finished rows: piece holds sums of values weighted with exp2(score - top), total those weights."""
    kv_heads, _, dim = piece.shape
    old = out[rows] if isinstance(rows, slice) else out.index_select(0, rows)
    n = len(old)
    before = (lse[rows] if isinstance(rows, slice) else lse.index_select(0, rows)).view(n, kv_heads, -1, 1)
    after = torch.logaddexp2(before, _by_token(torch.add(top, total.log2()), n))
    by_head = old.view(n, kv_heads, -1, dim)
    by_head.mul_(torch.exp2(before - after)).addcmul_(_by_token(piece, n), torch.exp2(_by_token(top, n) - after))
    after = after.view(n, -1)
    if isinstance(rows, slice):
        lse[rows] = after
    else:
        out.index_copy_(0, rows, old)
        lse.index_copy_(0, rows, after)


def _blocks(rect: Rect, heads: int, dim: int) -> Iterator[tuple[Rows, int]]:
    """The queries of a rect in blocks, with the number of rows in each."""
    size = max(1, BLOCK_ELEMENTS // (heads * dim))
    for rows in rect.q_rows:
        begin, end = (rows.start, rows.stop) if isinstance(rows, slice) else (0, len(rows))
        for first in range(begin, end, size):
            last = min(first + size, end)
            yield slice(first, last) if isinstance(rows, slice) else rows[first:last], last - first


def _tiles(rect: Rect, count: int, kv_heads: int) -> Iterator[slice]:
    """[0, count) products rows in tiles near TILE_ELEMENTS."""
    size = max(LEAST_ROWS, TILE_ELEMENTS // (kv_heads * rect.num_keys))
    pieces = -(-count // size)
    for piece in range(pieces):
        yield slice(count * piece // pieces, count * (piece + 1) // pieces)


def forward(
    rect: Rect,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> None:
    """Merges the rect's keys into the rows of out [num_queries, num_q_heads, dim] and lse that see them."""
    kv_heads, exact = k.shape[1], out.dtype
    keys, values = (_take(x, rect.k_rows, kv_heads, exact) for x in (k, v))
    keys *= scale * LOG2E
    for rows, _ in _blocks(rect, *q.shape[1:]):
        qs = _take(q, rows, kv_heads, exact)
        tops, totals = (qs.new_empty(*qs.shape[:2], 1) for _ in range(2))
        for tile in _tiles(rect, qs.shape[1], kv_heads):
            scores = torch.bmm(qs[:, tile], keys.transpose(1, 2))
            tops[:, tile] = top = scores.amax(-1, keepdim=True)
            totals[:, tile] = scores.sub_(top).exp2_().sum(-1, keepdim=True)
            # These queries are done with: their place takes the sums. (With out= a slice is computed head by head.)
            qs[:, tile] = torch.bmm(scores, values)
        _merge(out, lse, rows, qs, tops, totals)


def backward(
    rect: Rect,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    d_out: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    scale: float,
    gradients: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    """Adds the rect's share to dq, dk and dv. lse and delta [num_queries, num_q_heads] are final."""
    kv_heads, exact = k.shape[1], lse.dtype
    dq, dk, dv = gradients
    keys, values = (_take(x, rect.k_rows, kv_heads, exact) for x in (k, v))
    keys *= scale * LOG2E
    # Their gradients are kept transposed: [dim, queries] @ [queries, keys] takes a tenth less than its transpose.
    d_keys, d_values = (keys.new_zeros(kv_heads, x.shape[2], rect.num_keys) for x in (k, v))
    for rows, _ in _blocks(rect, *q.shape[1:]):
        qs, gs = (_take(x, rows, kv_heads, exact) for x in (q, d_out))
        ls, ds = (_take(x.unsqueeze(-1), rows, kv_heads, exact) for x in (lse, delta))
        qs_t, gs_t = (x.transpose(1, 2).contiguous() for x in (qs, gs))
        for tile in _tiles(rect, qs.shape[1], kv_heads):
            p = torch.bmm(qs[:, tile], keys.transpose(1, 2)).sub_(ls[:, tile]).exp2_()
            d_values.baddbmm_(gs_t[:, :, tile], p)
            d_scores = torch.bmm(gs[:, tile], values.transpose(1, 2)).sub_(ds[:, tile]).mul_(p)
            d_keys.baddbmm_(qs_t[:, :, tile], d_scores)
            qs[:, tile] = torch.bmm(d_scores, keys)
            del p, d_scores  # before the next tile asks for as much
        _add(dq, rows, qs, 1 / LOG2E)  # the keys held the scale
    _add(dk, rect.k_rows, d_keys.transpose(1, 2), scale)
    _add(dv, rect.k_rows, d_values.transpose(1, 2), 1.0)
