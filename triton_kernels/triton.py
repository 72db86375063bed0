"""Sink attention in Triton: our own kernels, forward and backward, for CUDA; on a CPU under Triton's interpreter only.

Linear memory, every layout, grouped heads without copies of keys or of their gradients, no atomics, so all results are
bitwise repeatable. triton_forward.py and triton_backward.py hold the kernels, triton_schedule.py what each tile visits,
triton_launch.py the tile sizes. Kept for the backward: q, k, v, out in their dtype and the log-sum-exp; the backward
adds the three gradients, delta [num_q_heads, num_queries] and one number per tile and head for the sinks.

Operands may have any row and head strides; where the last stride is not 1 a contiguous copy is made (of q, k, v it is
what the backward keeps). Offsets are 64-bit. delta is computed from the rounded output, as everybody's GPU kernels do:
test_triton_attention.py measures what that costs in float16.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from .layout import Layout
from .triton_backward import backward_keys, backward_queries
from .triton_forward import forward
from .triton_launch import Config, choose, device_limits, padded_width, precision
from .triton_schedule import UNBOUNDED, key_schedule, query_schedule

LOG2E = 1.4426950408889634


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
    if scale <= 0:  # the kernels take the maximum before they scale
        q, scale = (-q, -scale) if scale < 0 else (q * 0.0, 1.0)
    out, lse = _SinkTriton.apply(q, k, v, sinks, layout, window, scale)  # type: ignore[no-untyped-call]
    return out, lse


class _SinkTriton(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        sinks: torch.Tensor | None,
        layout: Layout,
        window: int | None,
        scale: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v = (_rows_contiguous(x) for x in (q, k, v))
        num_queries, heads, head_dim = q.shape
        config, constants = _launch("forward", q)
        tiles, ranges, edges = query_schedule(layout, window, config.block_q, config.block_k, q.device)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        lse, lse2 = (torch.empty(heads, num_queries, dtype=torch.float32, device=q.device) for _ in range(2))
        with _on(q.device):
            if programs := len(tiles) * heads:
                forward[(programs,)](
                    q,
                    k,
                    v,
                    sinks,
                    out,
                    lse,
                    lse2,
                    tiles,
                    ranges,
                    edges,
                    *_strides(q, k, v),
                    heads * head_dim,
                    num_queries,
                    len(tiles),
                    heads // k.shape[1],
                    min(window or UNBOUNDED, UNBOUNDED),
                    scale * LOG2E,
                    **constants,
                )
        ctx.save_for_backward(q, k, v, sinks, out, lse2)
        ctx.layout, ctx.window, ctx.scale = layout, window, scale
        ctx.set_materialize_grads(False)
        return out, lse.transpose(0, 1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: torch.Tensor | None, d_lse: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        q, k, v, sinks, out, lse2 = ctx.saved_tensors
        if d_out is None and d_lse is None:
            return None, None, None, None, None, None, None
        d_out = torch.zeros_like(out) if d_out is None else _rows_contiguous(d_out)
        window = min(ctx.window or UNBOUNDED, UNBOUNDED)
        num_queries, heads, head_dim = q.shape
        group = heads // k.shape[1]
        delta = torch.empty_like(lse2)

        config, constants = _launch("backward_queries", q)
        tiles, ranges, edges = query_schedule(ctx.layout, ctx.window, config.block_q, config.block_k, q.device)
        dq = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        d_sinks = None if sinks is None else torch.empty(heads, len(tiles), dtype=torch.float32, device=q.device)
        with _on(q.device):
            if programs := len(tiles) * heads:
                backward_queries[(programs,)](
                    q,
                    k,
                    v,
                    sinks,
                    out,
                    lse2,
                    d_out,
                    d_lse,
                    dq,
                    delta,
                    d_sinks,
                    tiles,
                    ranges,
                    edges,
                    *_strides(q, k, v),
                    heads * head_dim,
                    d_out.stride(0),
                    d_out.stride(1),
                    0 if d_lse is None else d_lse.stride(0),
                    0 if d_lse is None else d_lse.stride(1),
                    num_queries,
                    len(tiles),
                    group,
                    window,
                    ctx.scale * LOG2E,
                    **constants,
                )
            da = None if sinks is None or d_sinks is None else d_sinks.sum(1).to(sinks.dtype)
            if not any(ctx.needs_input_grad[1:3]):
                return dq, None, None, da, None, None, None
            config, constants = _launch("backward_keys", q)
            tiles, ranges, edges = key_schedule(ctx.layout, ctx.window, config.block_q, config.block_k, q.device)
            dk, dv = (torch.empty(k.shape, dtype=k.dtype, device=k.device) for _ in range(2))
            if programs := len(tiles) * k.shape[1]:
                backward_keys[(programs,)](
                    q,
                    k,
                    v,
                    lse2,
                    d_out,
                    delta,
                    dk,
                    dv,
                    tiles,
                    ranges,
                    edges,
                    *_strides(q, k, v),
                    k.shape[1] * head_dim,
                    d_out.stride(0),
                    d_out.stride(1),
                    num_queries,
                    len(tiles),
                    group,
                    window,
                    ctx.scale * LOG2E,
                    **constants,
                )
        return dq, dk, dv, da, None, None, None


def _rows_contiguous(x: torch.Tensor) -> torch.Tensor:
    """x, or a copy of it whose last stride is 1."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _strides(*tensors: torch.Tensor) -> list[int]:
    """Row and head strides of each tensor."""
    return [stride for x in tensors for stride in x.stride()[:2]]


def _launch(kernel: str, q: torch.Tensor) -> tuple[Config, dict[str, Any]]:
    """Tile sizes for a kernel on q's device, and the launch's constants."""
    family, limit = device_limits(q.device)
    config = choose(kernel, family, q.shape[-1], q.element_size(), limit)
    return config, {
        "HEAD_DIM": q.shape[-1],
        "WIDTH": padded_width(q.shape[-1]),
        "BLOCK_Q": config.block_q,
        "BLOCK_K": config.block_k,
        "PRECISION": precision(q.element_size()),
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
        "enable_fp_fusion": True,  # its default, but Triton 3.9 warns where nobody says so
    }


def _on(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Triton launches on the current device."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
