"""Flash sink attention on the CPU: exact, differentiable, memory linear in the sequence length.

With (O0, L0) the output and log-sum-exp without the sink a:

    L = logaddexp(L0, a)        O = O0 * sigmoid(L0 - a)

Fed with the sink-inclusive (O, L), the ordinary flash backward is the backward of sink attention:

    P = exp(S - L)   dS = P * (dO V^T - delta + dL)   delta = <dO, O>   da = sum of exp(a - L) * (dL - delta)

so one autograd.Function serves with and without sinks, windows and a gradient of the log-sum-exp. Long causal segments
go to torch's fused CPU operator, which returns and takes (out, lse). Everything else runs as the tiles of plan.py, over
gathered copies in float32 (float64 for float64 inputs), so scores are never rounded to bfloat16.

Measured, process-CPU ms of forward + backward, one thread, 8192 tokens in segments of equal length, 4 query and 2 key
heads of 24, float32, no window:
    segments of    40    80   120   200   400  1024  2048  4096
    tiles          13    18    21    28    45    99   181   363
    fused          26    24    29    37    61   124   202   367
With 16 / 2 heads of 64, one sequence of 2048 takes 360 against 405, one of 4096 takes 1536 against 1496: hence
WHOLE_FROM in plan.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .layout import Layout, Segment
from .plan import Plan, Step, build

# Tiles work in base 2, with log2(e) folded into the scale of the queries: exp2 takes 0.14 ns a score here, exp 0.6 to 4
# (slowest where it underflows). What leaves this file is in the natural base.
LOG2E = 1.4426950408889634

_fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_fused_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


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
    if q.device.type == "cuda":
        from .flash_cuda import attend as attend_cuda  # the same construction over the operators of a GPU

        return attend_cuda(q, k, v, sinks, layout, window, scale)
    key = ("flash", window, q.shape[1], k.shape[1])
    if key not in layout.derived:
        layout.derived[key] = build(layout, window, q.shape[1], k.shape[1])
    out, lse = _SinkFlash.apply(q, k, v, sinks, layout.derived[key], scale)  # type: ignore[no-untyped-call]
    return out, lse


def apply_sink(out: torch.Tensor, lse: torch.Tensor, sinks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Adds the sink to finished attention: out [rows, heads, dim] (overwritten) and lse [rows, heads], natural base."""
    factor = torch.sigmoid(lse - sinks)
    # Neither keys nor a sink (-inf - -inf): the row sees nothing, and its output is 0 already.
    factor = factor.nan_to_num_(nan=0.0) if bool((sinks == -torch.inf).any()) else factor
    return out.mul_(factor.unsqueeze(-1)), torch.logaddexp(lse, sinks.expand_as(lse))


class _SinkFlash(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        sinks: torch.Tensor | None,
        plan: Plan,
        scale: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        exact = torch.float64 if q.dtype == torch.float64 else torch.float32
        out, lse = _tiles_forward(q, k, v, plan, scale, exact)
        for segment in plan.whole:
            _whole_forward(q, k, v, segment, scale, out, lse)
        if sinks is not None:
            out, lse = apply_sink(out, lse, sinks.to(exact))
        # Kept before rounding: in bfloat16, delta from the rounded output costs dq its digits where a row sees one key.
        ctx.save_for_backward(q, k, v, sinks, out, lse)
        ctx.plan, ctx.scale = plan, scale
        ctx.set_materialize_grads(False)
        return out.to(q.dtype), lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: torch.Tensor | None, d_lse: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        q, k, v, sinks, out, lse = ctx.saved_tensors
        plan: Plan = ctx.plan
        if d_out is None and d_lse is None:
            return None, None, None, None, None, None
        d_out = torch.zeros_like(out) if d_out is None else d_out
        delta = (d_out.to(lse.dtype) * out).sum(-1)
        if d_lse is not None:
            delta = delta - d_lse
        d_sinks = None
        if sinks is not None:
            share = torch.exp(sinks.to(lse.dtype) - lse).nan_to_num_(nan=0.0)
            d_sinks = (share * delta).sum(0).neg_().to(sinks.dtype)
        dq, dk, dv = _tiles_backward(q, k, v, d_out, lse, delta, plan, ctx.scale)
        for segment in plan.whole:
            _whole_backward(q, k, v, segment, ctx.scale, out, lse, d_out, d_lse, (dq, dk, dv))
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), d_sinks, None, None


def _whole_view(x: torch.Tensor, start: int, length: int) -> torch.Tensor:
    """Rows of one segment as [1, heads, length, dim]: a view wherever the fused operator can read one."""
    x = x[start : start + length].transpose(0, 1).unsqueeze(0)
    return x if x.stride(-1) == 1 else x.contiguous()


def _whole_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    segment: Segment,
    scale: float,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> None:
    start, length, k_start = segment.q_start, segment.q_len, segment.k_start
    keys, values = _whole_view(k, k_start, length), _whole_view(v, k_start, length)
    o, m = _fused(_whole_view(q, start, length), keys, values, 0.0, True, scale=scale)
    out[start : start + length] = o[0].transpose(0, 1)
    lse[start : start + length] = m[0].transpose(0, 1)


def _whole_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    segment: Segment,
    scale: float,
    out: torch.Tensor,
    lse: torch.Tensor,
    d_out: torch.Tensor,
    d_lse: torch.Tensor | None,
    gradients: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    start, length, k_start, dim = segment.q_start, segment.q_len, segment.k_start, q.shape[-1]
    qs, os, gs = (_whole_view(x, start, length).to(q.dtype) for x in (q, out, d_out))
    ks, vs = (_whole_view(x, k_start, length) for x in (k, v))
    if d_lse is not None:
        # The operator computes delta = <dO, O> itself. One more column, O = -1 and dO = dL, turns it into delta - dL,
        # and leaves scores and dO V^T as they are when q, k and v hold 0 there.
        qs, ks, vs = (torch.nn.functional.pad(x, (0, 1)) for x in (qs, ks, vs))
        os = torch.nn.functional.pad(os, (0, 1), value=-1.0)
        d_rows = d_lse[start : start + length].to(gs.dtype)
        gs = torch.cat([gs, d_rows.transpose(0, 1)[None, ..., None]], dim=-1)
    l_rows = lse[start : start + length].transpose(0, 1).unsqueeze(0)
    pieces = _fused_backward(gs, qs, ks, vs, os, l_rows, 0.0, True, scale=scale)
    for gradient, piece, at in zip(gradients, pieces, (start, k_start, k_start), strict=True):
        gradient[at : at + length] = piece[0, ..., :dim].transpose(0, 1)


def _by_rows(x: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """[tokens, heads, dim] as [tokens * heads, dim] without a copy where possible; True when heads vary slowest."""
    if not x.is_contiguous() and x.transpose(0, 1).is_contiguous():
        return x.transpose(0, 1).reshape(-1, x.shape[2]), True
    return x.reshape(-1, x.shape[2]), False


def _indices(
    plan: Plan, queries: bool, num_q_heads: int, num_kv_heads: int, tokens: int, heads_first: bool
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """(slots, returns), int64, between the rows of a flat tensor (_by_rows) and the slots of the workspace.

    slots [slots] is the row that each slot copies; slots are ordered by group, entry, key head, token, and for queries
    by query head within the key head. Each of `returns` [rows] is a slot of each row, or one past the last slot where
    there is none: a row's gradient is the sum over them. Queries have one; a key of a band has one in every tile that
    reaches it.
    """
    name = (queries, heads_first)
    if name not in plan.indices:
        repeat = num_q_heads // num_kv_heads if queries else 1
        heads = num_kv_heads * repeat
        head = torch.arange(heads).view(1, num_kv_heads, 1, repeat)
        pieces, reals = [], []
        for group in plan.groups:
            token, real = (group.q_tokens, group.q_real) if queries else (group.k_tokens, group.k_real)
            token = token[:, None, :, None]
            piece = head * tokens + token if heads_first else token * heads + head
            pieces.append(piece.flatten())
            reals.append(real[:, None, :, None].expand_as(piece).flatten())
        slots, real_slots = torch.cat(pieces), torch.cat(reals)
        used = real_slots.nonzero().squeeze(1)
        rows = slots[used]
        counts = rows.bincount(minlength=tokens * heads)
        rank = torch.zeros_like(rows)
        if int(counts.max()) > 1:
            order = rows.argsort(stable=True)
            rank[order] = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows[order]]
        returns = []
        for level in range(int(counts.max())):
            at = torch.full((tokens * heads,), len(slots))
            at[rows[rank == level]] = used[rank == level]
            returns.append(at)
        if queries:
            plan.indices["padding"] = ~real_slots.unsqueeze(1)
        plan.indices[name] = (slots, returns)
    slots, returns = plan.indices[name]
    return slots, returns


def _workspace(x: torch.Tensor, plan: Plan, queries: bool, heads: tuple[int, int], exact: torch.dtype) -> torch.Tensor:
    """The slots of x [tokens, heads, dim], gathered: [slots, dim]."""
    rows, heads_first = _by_rows(x)
    slots, _ = _indices(plan, queries, *heads, x.shape[0], heads_first)
    return rows.index_select(0, slots).to(exact)


def _returned(
    workspace: torch.Tensor, x: torch.Tensor, plan: Plan, queries: bool, heads: tuple[int, int]
) -> torch.Tensor:
    """Gradient of x from the workspace [slots + 1, dim], whose last row is zero; laid out in memory as x is."""
    _, heads_first = _by_rows(x)
    _, returns = _indices(plan, queries, *heads, x.shape[0], heads_first)
    total = workspace.index_select(0, returns[0])
    for at in returns[1:]:
        total.add_(workspace.index_select(0, at))
    tokens, own_heads, dim = x.shape
    return total.view(own_heads, tokens, dim).transpose(0, 1) if heads_first else total.view(tokens, own_heads, dim)


def _steps(
    plan: Plan, num_kv_heads: int, repeat: int, queries: Sequence[torch.Tensor], keys: Sequence[torch.Tensor]
) -> Iterator[tuple[Step, list[torch.Tensor]]]:
    """Every step with its part of each workspace: [entries * key heads, slots of the tile, width], all views."""
    q_end = k_end = 0
    for group in plan.groups:
        n, q_slots = group.q_tokens.shape
        k_slots = group.k_tokens.shape[1]
        batch = n * num_kv_heads
        q_begin, q_end = q_end, q_end + batch * q_slots * repeat
        k_begin, k_end = k_end, k_end + batch * k_slots
        q_group = [x[q_begin:q_end].view(batch, q_slots * repeat, -1) for x in queries]
        k_group = [x[k_begin:k_end].view(batch, k_slots, -1) for x in keys]
        for step in group.steps:
            entries = slice(step.n0 * num_kv_heads, step.n1 * num_kv_heads)
            rows = slice(step.q0 * repeat, step.q1 * repeat)
            yield step, [x[entries, rows] for x in q_group] + [x[entries, step.k0 : step.k1] for x in k_group]


def _hide(scores: torch.Tensor, step: Step) -> None:
    """Applies a step's mask to its scores [entries * key heads, query slots, key slots] in place."""
    if step.bias is not None:
        scores[..., -step.bias.shape[1] :].add_(step.bias)
    if step.edge is not None:
        entries, columns = step.edge.shape
        by_entry = scores.view(entries, -1, columns)
        by_entry.masked_fill_(step.edge.unsqueeze(1), -torch.inf)


def _tiles_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, plan: Plan, scale: float, exact: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output [num_queries, num_q_heads, dim] and log-sum-exp without sinks; 0 and -inf in rows that no tile covers."""
    tokens, heads, dim = q.shape
    if not plan.groups:
        return q.new_zeros(q.shape, dtype=exact), q.new_full((tokens, heads), -torch.inf, dtype=exact)
    qw, kw, vw = (_workspace(x, plan, i == 0, (heads, k.shape[1]), exact) for i, x in enumerate((q, k, v)))
    qw *= scale * LOG2E
    ow, lw = qw.new_empty(len(qw) + 1, dim), qw.new_empty(len(qw) + 1, 1)
    ow[-1], lw[-1] = 0.0, -torch.inf
    for step, (qt, ot, lt, kt, vt) in _steps(plan, k.shape[1], heads // k.shape[1], (qw, ow, lw), (kw, vw)):
        scores = torch.bmm(qt, kt.transpose(1, 2))
        _hide(scores, step)
        top = scores.amax(-1, keepdim=True)
        total = scores.sub_(top).exp2_().sum(-1, keepdim=True)
        torch.div(torch.bmm(scores, vt), total, out=ot)
        torch.add(top, total.log2_(), out=lt)
    lw *= 1 / LOG2E
    _, (at,) = _indices(plan, True, heads, k.shape[1], tokens, False)
    return ow.index_select(0, at).view(tokens, heads, dim), lw.index_select(0, at).view(tokens, heads)


def _tiles_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    d_out: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    plan: Plan,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of q, k and v through the tiles, 0 in rows that no tile covers."""
    tokens, heads, dim = q.shape
    exact, num_kv_heads = lse.dtype, k.shape[1]
    if not plan.groups:
        return torch.zeros_like(q, dtype=exact), torch.zeros_like(k, dtype=exact), torch.zeros_like(v, dtype=exact)
    shared = (heads, num_kv_heads)
    qw, kw, vw, gw = (_workspace(x, plan, i in (0, 3), shared, exact) for i, x in enumerate((q, k, v, d_out)))
    qw *= scale * LOG2E
    slots, _ = _indices(plan, True, heads, num_kv_heads, tokens, False)
    lw, deltas = lse.reshape(-1, 1).index_select(0, slots), delta.reshape(-1, 1).index_select(0, slots)
    lw *= LOG2E
    # P = exp(S - inf) = 0 in padded slots, so they add nothing to any gradient.
    lw.masked_fill_(plan.indices["padding"], torch.inf)
    dqw, dkw, dvw = qw.new_empty(len(qw) + 1, dim), kw.new_zeros(len(kw) + 1, dim), vw.new_zeros(len(vw) + 1, dim)
    dqw[-1] = 0.0
    views = _steps(plan, num_kv_heads, heads // num_kv_heads, (qw, gw, lw, deltas, dqw), (kw, vw, dkw, dvw))
    for step, (qt, gt, lt, dt, dqt, kt, vt, dkt, dvt) in views:
        p = torch.bmm(qt, kt.transpose(1, 2))
        _hide(p, step)
        p.sub_(lt).exp2_()
        dvt.add_(torch.bmm(p.transpose(1, 2), gt))
        ds = torch.bmm(gt, vt.transpose(1, 2)).sub_(dt).mul_(p)
        dqt.copy_(torch.bmm(ds, kt))
        dkt.add_(torch.bmm(ds.transpose(1, 2), qt))
    dqw *= scale
    dkw *= 1 / LOG2E
    return (
        _returned(dqw, q, plan, True, shared),
        _returned(dkw, k, plan, False, shared),
        _returned(dvw, v, plan, False, shared),
    )
