"""Flash sink attention: exact, differentiable, memory linear in the sequence length, every layout.

With (O0, L0) the output and log-sum-exp without the sink a:

    L = logaddexp(L0, a)        O = O0 * sigmoid(L0 - a)

Fed with the sink-inclusive (O, L), the ordinary flash backward is the backward of sink attention:

    P = exp(S - L)   dS = P * (dO V^T - delta + dL)   delta = <dO, O>   da = sum of exp(a - L) * (dL - delta)

so one autograd.Function serves with and without sinks, windows, shared prefixes and a gradient of the log-sum-exp. On
the CPU the work is the chunks and rects of plan.py, over gathered copies in float32 (float64 for float64 inputs), so
scores are never rounded to bfloat16.
"""

from __future__ import annotations

from typing import Any

import torch

from . import rects, tiles
from .layout import Layout
from .plan import Plan, build
from .tiles import LOG2E

BLOCK_ELEMENTS = 1 << 18  # of a temporary product


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
    key = ("flash", window, q.shape[1], k.shape[1], q.shape[2])
    if key not in layout.derived:
        layout.derived[key] = build(layout, window, q.shape[1], k.shape[1], q.shape[2])
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
        out, lse = q.new_empty(q.shape, dtype=exact), q.new_empty(q.shape[:2], dtype=exact)
        if not plan.chunks:
            out.zero_(), lse.fill_(-torch.inf)
        for chunk in plan.chunks:
            tiles.forward(chunk, q, k, v, scale, out, lse)
        for rect in plan.rects:
            rects.forward(rect, q, k, v, scale, out, lse)
        lse *= 1 / LOG2E
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
        delta = torch.zeros_like(lse) if d_out is None else _row_products(d_out, out)
        d_out = q.new_zeros(()).expand_as(q) if d_out is None else d_out
        if d_lse is not None:
            delta -= d_lse
        d_sinks = None
        if sinks is not None:
            share = torch.exp(sinks.to(lse.dtype) - lse).nan_to_num_(nan=0.0)
            d_sinks = (share * delta).sum(0).neg_().to(sinks.dtype)
        lse = lse * LOG2E
        # A row of dq is written once when there are no rects; what is added to needs its digits.
        dq = torch.empty_like(q, dtype=lse.dtype if plan.rects else q.dtype)
        dk, dv = (torch.zeros_like(x, dtype=lse.dtype) for x in (k, v))
        if not plan.chunks:
            dq.zero_()
        for chunk in plan.chunks:
            tiles.backward(chunk, q, k, v, d_out, lse, delta, ctx.scale, (dq, dk, dv))
        for rect in plan.rects:
            rects.backward(rect, q, k, v, d_out, lse, delta, ctx.scale, (dq, dk, dv))
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), d_sinks, None, None


def _row_products(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """<a, b> over the last dimension, [rows, heads], in b's dtype, without a product of all rows at once."""
    result = b.new_empty(b.shape[:2])
    size = max(1, BLOCK_ELEMENTS // max(1, b[0].numel() if len(b) else 1))
    for first in range(0, len(b), size):
        rows = slice(first, first + size)
        torch.sum(a[rows] * b[rows], -1, out=result[rows])
    return result
