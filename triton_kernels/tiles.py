"""The chunks of a plan, forward and backward: gather copies, run the steps, return results to their rows.

Scores are in base 2, with log2(e) folded into the scale of the keys: exp2 takes 0.14 ns a score here, exp 0.6 to 4
(slowest where it underflows). A log-sum-exp in this file is in base 2, [tokens, heads].

Scores lie with the keys in rows, S^T = K Q^T: the queries of a tile are a multiple of 16 where the keys are any number,
and rows of such a length are up to a third faster to multiply, and to find the largest of several times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from .plan import Chunk, Step

LOG2E = 1.4426950408889634


def _by_rows(x: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """[tokens, heads, dim] as [tokens * heads, dim] without a copy where possible; True when heads vary slowest."""
    if not x.is_contiguous() and x.transpose(0, 1).is_contiguous():
        return x.transpose(0, 1).reshape(-1, x.shape[2]), True
    return x.reshape(-1, x.shape[2]), False


class _Returns(NamedTuple):
    """From slots back to rows. Rows [start, stop) sum, over `levels`, the slot that each holds of every (row, head) or
    one past the last slot where there is none; `rest` pairs further slots with their (row, head)."""

    start: int
    stop: int
    levels: list[torch.Tensor]
    rest: tuple[torch.Tensor, torch.Tensor] | None


def _slots(chunk: Chunk, queries: bool, kv_heads: int, repeat: int) -> tuple[torch.Tensor, torch.Tensor]:
    """token * heads + head of every slot, ordered by group, strip, key head, token, and for queries by query head
    within the key head; and which of them are real."""
    heads = kv_heads * repeat
    head = torch.arange(heads).view(1, kv_heads, 1, repeat)
    pieces, reals = [], []
    for group in chunk.groups:
        token, real = (group.q_tokens, group.q_real) if queries else (group.k_tokens, group.k_real)
        piece = token[:, None, :, None] * heads + head
        pieces.append(piece.flatten())
        reals.append(real[:, None, :, None].expand_as(piece).flatten())
    return torch.cat(pieces), torch.cat(reals)


def _return(slots: torch.Tensor, real: torch.Tensor, heads: int, span: tuple[int, int] | None) -> _Returns:
    used = real.nonzero().squeeze(1)
    rows = slots[used]
    if span is None:  # keys: the rows that the slots hold most densely, the chunk's own
        span = int(rows.min()) // heads, int(rows.max()) // heads + 1
    start, stop = span
    count = (stop - start) * heads
    order = rows.argsort(stable=True)
    rows, used = rows[order], used[order]
    counts = (rows - start * heads).bincount(minlength=count)
    rank = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows - start * heads]
    levels, done = [], 0
    while done < len(rows):
        level = rank == len(levels)
        if levels and 3 * int(level.sum()) < count:
            break
        at = torch.full((count,), len(slots))
        at[rows[level] - start * heads] = used[level]
        levels.append(at)
        done += int(level.sum())
    late = rank >= len(levels)
    return _Returns(start, stop, levels, (used[late], rows[late]) if done < len(rows) else None)


class _Indices(NamedTuple):
    q_slots: torch.Tensor
    k_slots: torch.Tensor
    q_padding: torch.Tensor  # bool [slots, 1]
    q_returns: _Returns
    k_returns: _Returns


def _indices(chunk: Chunk, kv_heads: int, repeat: int) -> _Indices:
    if "slots" not in chunk.indices:
        q_slots, q_real = _slots(chunk, True, kv_heads, repeat)
        k_slots, k_real = _slots(chunk, False, kv_heads, 1)
        chunk.indices["slots"] = _Indices(
            q_slots,
            k_slots,
            ~q_real.unsqueeze(1),
            _return(q_slots, q_real, kv_heads * repeat, (chunk.start, chunk.stop)),
            _return(k_slots, k_real, kv_heads, None),
        )
    found: _Indices = chunk.indices["slots"]
    return found


def _workspace(x: torch.Tensor, slots: torch.Tensor, chunk: Chunk, queries: bool, exact: torch.dtype) -> torch.Tensor:
    """The slots of x [tokens, heads, dim], gathered: [slots + 1, dim], the last row 0."""
    rows, heads_first = _by_rows(x)
    tokens, heads, dim = x.shape
    if heads_first:
        name = (queries, tokens)
        if name not in chunk.indices:
            chunk.indices[name] = slots % heads * tokens + slots // heads
        slots = chunk.indices[name]
    copy = rows.new_empty(len(slots) + 1, dim, dtype=exact)
    if x.dtype == exact:
        torch.index_select(rows, 0, slots, out=copy[:-1])
    else:
        copy[:-1] = rows.index_select(0, slots)
    copy[-1] = 0.0
    return copy


def _bring(workspace: torch.Tensor, returns: _Returns, into: torch.Tensor, write: bool) -> None:
    """Writes (or adds) the slots of a workspace [slots + 1, dim], whose last row is neutral, to their rows."""
    target = into[returns.start : returns.stop]
    heads, dim = into.shape[1:]
    for level, at in enumerate(returns.levels):
        if level == 0 and write and target.is_contiguous() and target.dtype == workspace.dtype:
            torch.index_select(workspace, 0, at, out=target.view(-1, dim))
            continue
        found = workspace.index_select(0, at).view(-1, heads, dim)
        if level == 0 and write:
            target.copy_(found)
        else:
            target.add_(found)
    if returns.rest is not None:
        slots, rows = returns.rest
        found = workspace.index_select(0, slots)
        if into.is_contiguous():
            into.view(-1, dim).index_add_(0, rows, found)
        else:
            into.index_put_((rows // heads, rows % heads), found, accumulate=True)


def _steps(
    chunk: Chunk, kv_heads: int, repeat: int, queries: Sequence[torch.Tensor], keys: Sequence[torch.Tensor]
) -> Iterator[tuple[Step, list[torch.Tensor]]]:
    """Every step with its part of each workspace: [strips * key heads, slots of the tile, width], all views."""
    q_end = k_end = 0
    for group in chunk.groups:
        n, q_slots = group.q_tokens.shape
        k_slots = group.k_tokens.shape[1]
        batch = n * kv_heads
        q_begin, q_end = q_end, q_end + batch * q_slots * repeat
        k_begin, k_end = k_end, k_end + batch * k_slots
        q_group = [x[q_begin:q_end].view(batch, q_slots * repeat, -1) for x in queries]
        k_group = [x[k_begin:k_end].view(batch, k_slots, -1) for x in keys]
        for step in group.steps:
            entries = slice(step.n0 * kv_heads, step.n1 * kv_heads)
            rows = slice(step.q0 * repeat, step.q1 * repeat)
            yield step, [x[entries, rows] for x in q_group] + [x[entries, step.k0 : step.k1] for x in k_group]


def _hide(scores: torch.Tensor, step: Step) -> None:
    """Applies a step's mask to its scores [strips * key heads, key slots, query slots] in place."""
    if step.bias is not None:
        scores[:, -len(step.bias) :].add_(step.bias)
    if step.edge is not None:
        strips, keys = step.edge.shape
        scores.view(strips, -1, keys, scores.shape[2]).masked_fill_(step.edge[:, None, :, None], -torch.inf)


def forward(
    chunk: Chunk,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> None:
    """Writes the chunk's rows of out [num_queries, num_q_heads, dim] and lse; 0 and -inf where no strip has the row."""
    kv_heads, exact = k.shape[1], out.dtype
    repeat = q.shape[1] // kv_heads
    at = _indices(chunk, kv_heads, repeat)
    qw = _workspace(q, at.q_slots, chunk, True, exact)
    kw, vw = (_workspace(x, at.k_slots, chunk, False, exact) for x in (k, v))
    kw *= scale * LOG2E
    lw = qw.new_full((len(qw), 1), -torch.inf)
    for step, (qt, lt, kt, vt) in _steps(chunk, kv_heads, repeat, (qw, lw), (kw, vw)):
        scores = torch.bmm(kt, qt.transpose(1, 2))
        _hide(scores, step)
        top = scores.amax(1, keepdim=True)
        total = scores.sub_(top).exp2_().sum(1, keepdim=True)
        # These queries are done with: their slots take the output.
        torch.div(torch.bmm(scores.transpose(1, 2), vt), total.transpose(1, 2), out=qt)
        torch.add(top, total.log2_(), out=lt.transpose(1, 2))
    _bring(qw, at.q_returns, out, True)
    _bring(lw, at.q_returns, lse.unsqueeze(-1), True)


def backward(
    chunk: Chunk,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    d_out: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    scale: float,
    gradients: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    """Writes the chunk's rows of dq, and adds to dk and dv. lse and delta [num_queries, num_q_heads] are final."""
    kv_heads, exact = k.shape[1], lse.dtype
    repeat = q.shape[1] // kv_heads
    at = _indices(chunk, kv_heads, repeat)
    qw, gw = (_workspace(x, at.q_slots, chunk, True, exact) for x in (q, d_out))
    kw, vw = (_workspace(x, at.k_slots, chunk, False, exact) for x in (k, v))
    kw *= scale * LOG2E
    lw, deltas = (x.reshape(-1, 1).index_select(0, at.q_slots) for x in (lse, delta))
    # P = exp(S - inf) = 0 in padded slots, so they add nothing to any gradient.
    lw.masked_fill_(at.q_padding, torch.inf)
    dkw, dvw = torch.zeros_like(kw), torch.zeros_like(vw)
    views = _steps(chunk, kv_heads, repeat, (qw, gw, lw, deltas), (kw, vw, dkw, dvw))
    for step, (qt, gt, lt, dt, kt, vt, dkt, dvt) in views:
        p = torch.bmm(kt, qt.transpose(1, 2))
        _hide(p, step)
        p.sub_(lt.transpose(1, 2)).exp2_()
        dvt.add_(torch.bmm(p, gt))
        ds = torch.bmm(vt, gt.transpose(1, 2)).sub_(dt.transpose(1, 2)).mul_(p)
        dkt.add_(torch.bmm(ds, qt))
        # The keys hold the scale; the slots take the gradient.
        torch.mul(torch.bmm(ds.transpose(1, 2), kt), 1 / LOG2E, out=qt)
        del p, ds  # before the next step asks for as much
    dkw *= scale
    dq, dk, dv = gradients
    _bring(qw, at.q_returns, dq, True)
    _bring(dkw, at.k_returns, dk, False)
    _bring(dvw, at.k_returns, dv, False)
