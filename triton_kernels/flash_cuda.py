"""Flash sink attention on NVIDIA GPUs: torch's variable-length FlashAttention operators with the sink added outside.

The construction is flash.py's. The operator gives (O0, L0) without the sink a; then, once per row,

    L = logaddexp(L0, a)        O = O0 * sigmoid(L0 - a)

and the operator's own backward pass, fed with the sink-inclusive (O, L), is the backward pass of sink attention:

    P = exp(S - L)   dS = P * (dO V^T - delta + dL)   delta = <dO, O>   da = sum of exp(a - L) * (dL - delta)

How a layout becomes calls (`plan`). One call handles many sequences [rows, keys]; a causal one aligns them at their
last row and last key, which is how segments place fewer queries behind more keys. Queries before the first key are cut
off: they see nothing.
  no parents          one causal call, a window being the operator's own
  parents, no window  one causal call for the segments' own keys, then one call without a mask for each depth of the
                      tree that has descendants: all rows below a segment against its keys, read in place, once. The
                      pieces are merged by their log-sum-exp, O = sum of O_i exp(L_i - L); the sink comes last.
  parents, window     one causal call with keys gathered: the last W - 1 of the path, then the segment's own

The operator computes delta itself, so a gradient dL of the log-sum-exp takes a second backward call: with V = 0, and dO
= dL against O = -1 in one column, dO V^T is 0 and delta is -dL. (It is two columns: dL rounded, and what that left.)

bfloat16 and float16, head_dim a multiple of 8 up to 256, grouped heads native. The operator reads O in the inputs'
dtype, so delta is computed from a rounded O. Rows that no segment owns are never read. dK and dV of keys that several
calls or rows share are summed in float32; with parents and a window, in no fixed order.

Checked on a CPU with operators of the same signature in float64 (test_flash_cuda.py): plan, merges, sink, gradients.
What is left to a GPU is the operators themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from .layout import Layout, Segment

_forward = torch.ops.aten._flash_attention_forward
_backward = torch.ops.aten._flash_attention_backward

Rows = slice | torch.Tensor  # of a flat tensor: one run of rows, or int64 indices
CHUNK = 1 << 22  # elements of a float32 temporary


class Call(NamedTuple):
    """One call of the operator. Sequence i has rows cu_q[i] to cu_q[i + 1] of those that `q_rows` takes, and keys
    alike; int32 on the device. `shared`: whether `k_rows` names a key more than once."""

    q_rows: Rows
    k_rows: Rows
    cu_q: torch.Tensor
    cu_k: torch.Tensor
    max_q: int
    max_k: int
    causal: bool
    window: int | None
    shared: bool


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
    key = ("flash cuda", window, q.device)
    if key not in layout.derived:
        layout.derived[key] = plan(layout, window, q.device)
    out, lse = _SinkFlashCuda.apply(q, k, v, sinks, layout.derived[key], scale)  # type: ignore[no-untyped-call]
    return out, lse


def plan(layout: Layout, window: int | None, device: torch.device) -> list[Call]:
    """The calls of a layout. The first covers every row that sees anything; none where no row does."""
    sequences: list[tuple[tuple[int, int], list[tuple[int, int]]]] = []
    longest = max((_path_length(layout, s) for s in layout.segments), default=0)
    window = None if window is not None and window >= longest else window
    for segment in layout.segments:
        blind = max(0, segment.q_len - segment.k_len)
        rows = segment.q_len - blind
        if rows == 0:
            continue
        keys = [(segment.k_start, segment.k_len)]
        if window is not None:
            keys = _tail(layout, segment, rows + window - 1)
        sequences.append(((segment.q_start + blind, rows), keys))
    if not sequences:
        return []
    calls = [_call([[q_run] for q_run, _ in sequences], [k for _, k in sequences], device, True, window)]
    if window is None and layout.has_parents:
        calls += _ancestors(layout, device)
    return calls


def _path_length(layout: Layout, segment: Segment) -> int:
    """Keys on the path of a segment."""
    length = segment.k_len
    while segment.parent != -1:
        segment = layout.segments[segment.parent]
        length += segment.k_len
    return length


def _tail(layout: Layout, segment: Segment, count: int) -> list[tuple[int, int]]:
    """The runs of keys (start, length), in the order of positions, of the last `count` keys on a segment's path."""
    runs: list[tuple[int, int]] = []
    while True:
        taken = min(count, segment.k_len)
        runs.append((segment.k_start + segment.k_len - taken, taken))
        count -= taken
        if count == 0 or segment.parent == -1:
            return runs[::-1]
        segment = layout.segments[segment.parent]


def _ancestors(layout: Layout, device: torch.device) -> list[Call]:
    """For each depth, all segments there that have keys, each against all rows of the segments below it."""
    depths: list[int] = []
    below: list[list[tuple[int, int]]] = [[] for _ in layout.segments]
    for segment in layout.segments:
        depths.append(0 if segment.parent == -1 else depths[segment.parent] + 1)
        above = segment.parent
        while above != -1 and segment.q_len:
            below[above].append((segment.q_start, segment.q_len))
            above = layout.segments[above].parent
    levels: dict[int, list[int]] = {}
    for index, segment in enumerate(layout.segments):
        if below[index] and segment.k_len:
            levels.setdefault(depths[index], []).append(index)
    return [
        _call(
            [below[index] for index in level],
            [[(layout.segments[index].k_start, layout.segments[index].k_len)] for index in level],
            device,
            False,
            None,
        )
        for level in levels.values()
    ]


def _call(
    q_runs: Sequence[Sequence[tuple[int, int]]],
    k_runs: Sequence[Sequence[tuple[int, int]]],
    device: torch.device,
    causal: bool,
    window: int | None,
) -> Call:
    """A call whose sequences consist of runs of rows and runs of keys."""
    counts = [torch.tensor([sum(length for _, length in runs) for runs in side]) for side in (q_runs, k_runs)]
    cu_q, cu_k = (torch.cat([x.new_zeros(1), x.cumsum(0)]).to(device, torch.int32) for x in counts)
    k_rows = _rows([run for runs in k_runs for run in runs])
    shared = isinstance(k_rows, torch.Tensor) and len(k_rows.unique()) < len(k_rows)
    q_rows, k_rows = (
        x if isinstance(x, slice) else x.to(device) for x in (_rows([run for runs in q_runs for run in runs]), k_rows)
    )
    # With one query each the operator takes another way through grouped heads; a bound of 2 keeps it on this one.
    return Call(q_rows, k_rows, cu_q, cu_k, max(2, int(counts[0].max())), int(counts[1].max()), causal, window, shared)


def _rows(runs: Sequence[tuple[int, int]]) -> Rows:
    kept = [run for run in runs if run[1]]
    if all(start + length == after for (start, length), (after, _) in pairwise(kept)):
        return slice(kept[0][0], kept[-1][0] + kept[-1][1])
    return torch.cat([torch.arange(start, start + length) for start, length in kept])


def _all(x: torch.Tensor, rows: Rows) -> bool:
    return isinstance(rows, slice) and rows == slice(0, x.shape[0])


def _take(x: torch.Tensor, rows: Rows) -> torch.Tensor:
    """Rows of x as the operator can read them: last dimension dense, all else aligned to its 16-byte loads."""
    x = x[rows] if isinstance(rows, slice) else x.index_select(0, rows)
    aligned = all(stride * x.element_size() % 16 == 0 for stride in (*x.stride()[:-1], x.storage_offset()))
    return x if x.stride(-1) == 1 and aligned else x.contiguous()


def _add(into: torch.Tensor, rows: Rows, x: torch.Tensor) -> None:
    if isinstance(rows, slice):
        into[rows] += x
    else:
        into.index_add_(0, rows, x.to(into.dtype))


def _arguments(call: Call) -> dict[str, Any]:
    """The mask of a call, as torch's own variable-length attention passes it."""
    left = -1 if call.window is None else call.window - 1
    return {"window_size_left": left, "window_size_right": 0 if call.causal else -1}


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, call: Call, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(O [rows, heads, head_dim] in q's dtype, L [heads, rows]) of one call, without the sink."""
    taken = _take(q, call.q_rows), _take(k, call.k_rows), _take(v, call.k_rows)
    bounds = call.cu_q, call.cu_k, call.max_q, call.max_k
    causal = call.causal and call.window is None
    out, lse, *_ = _forward(*taken, *bounds, 0.0, causal, False, scale=scale, **_arguments(call))
    return out, lse


def _merged(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, calls: list[Call], scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(O [num_queries, heads, head_dim] in q's dtype, L [heads, num_queries]) without the sink; O is new memory."""
    exact = torch.float64 if q.dtype == torch.float64 else torch.float32
    if len(calls) == 1 and _all(q, calls[0].q_rows):
        return _attend(q, k, v, calls[0], scale)
    out = q.new_zeros(q.shape, dtype=q.dtype if len(calls) < 2 else exact)
    lse = q.new_full((q.shape[1], q.shape[0]), -torch.inf, dtype=exact)
    for call in calls:
        rows = call.q_rows
        o, part = _attend(q, k, v, call, scale)
        if call is calls[0]:
            out[rows], lse[:, rows] = o, part
            continue
        before = lse[:, rows]
        total = torch.logaddexp(before, part)
        old, new = ((x - total).exp_().T.unsqueeze(-1) for x in (before, part))
        out[rows] = out[rows] * old + o * new
        lse[:, rows] = total
    return out.to(q.dtype), lse


class _SinkFlashCuda(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        sinks: torch.Tensor | None,
        calls: list[Call],
        scale: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        out, lse = _merged(q, k, v, calls, scale)
        if sinks is not None:
            sink = sinks.to(lse.dtype).unsqueeze(1)
            # Neither keys nor a sink: -inf - -inf. Such a row's output is 0 already.
            out.mul_(torch.sigmoid(lse - sink).nan_to_num_(nan=0.0).T.unsqueeze(-1))
            lse = torch.logaddexp(lse, sink)
        ctx.save_for_backward(q, k, v, sinks, out, lse)
        ctx.calls, ctx.scale = calls, scale
        ctx.set_materialize_grads(False)
        return out, lse.T

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: torch.Tensor | None, d_lse: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        q, k, v, sinks, out, lse = ctx.saved_tensors
        calls: list[Call] = ctx.calls
        if d_out is None and d_lse is None:
            return None, None, None, None, None, None
        d_out = torch.zeros_like(out) if d_out is None else d_out
        d_sinks = None if sinks is None else _sink_gradient(sinks, out, lse, d_out, d_lse, calls)
        if not calls:
            return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v), d_sinks, None, None
        only = calls[0]
        if len(calls) == 1 and _all(q, only.q_rows) and _all(k, only.k_rows):
            return *_gradients(q, k, v, out, lse, d_out, d_lse, only, ctx.scale), d_sinks, None, None
        dq, dk, dv = (
            torch.zeros_like(x, dtype=x.dtype if len(calls) == 1 and not only.shared else lse.dtype) for x in (q, k, v)
        )
        for call in calls:
            parts = _gradients(q, k, v, out, lse, d_out, d_lse, call, ctx.scale)
            for into, rows, part in zip((dq, dk, dv), (call.q_rows, call.k_rows, call.k_rows), parts, strict=True):
                _add(into, rows, part)
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), d_sinks, None, None


def _gradients(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    d_out: torch.Tensor,
    d_lse: torch.Tensor | None,
    call: Call,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of one call: dQ of its rows, dK and dV of its keys."""
    queries, keys, values = _take(q, call.q_rows), _take(k, call.k_rows), _take(v, call.k_rows)
    # Without dropout the operator reads neither of its two tensors of random state.
    rest = (lse[:, call.q_rows].contiguous(), call.cu_q, call.cu_k, call.max_q, call.max_k, 0.0)
    state = torch.zeros(2, dtype=torch.uint64, device=q.device), torch.empty(0, device=q.device)
    rest = (*rest, call.causal and call.window is None, *state)
    arguments = {"scale": scale, **_arguments(call)}
    pull, o = _take(d_out, call.q_rows), _take(out, call.q_rows)
    dq, dk, dv = _backward(pull, queries, keys, values, o, *rest, **arguments)
    if d_lse is not None:
        column = d_lse[call.q_rows] if isinstance(call.q_rows, slice) else d_lse.index_select(0, call.q_rows)
        rounded = column.to(q.dtype)
        o, pull = torch.zeros_like(queries), torch.zeros_like(queries)
        o[..., :2] = -1.0
        pull[..., 0], pull[..., 1] = rounded, column - rounded
        more_dq, more_dk, _ = _backward(pull, queries, keys, torch.zeros_like(values), o, *rest, **arguments)
        dq, dk = dq.add_(more_dq), dk.add_(more_dk)
    return dq, dk, dv


def _sink_gradient(
    sinks: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    d_out: torch.Tensor,
    d_lse: torch.Tensor | None,
    calls: list[Call],
) -> torch.Tensor:
    """da [heads]: over rows, p * (dL - delta). Rows in no call have O = 0, and their dO may hold anything."""
    share = torch.exp(sinks.to(lse.dtype).unsqueeze(1) - lse).nan_to_num_(nan=0.0)
    delta = lse.new_zeros(lse.shape[1], lse.shape[0])
    step = max(1, CHUNK // (out.shape[1] * out.shape[2]))
    for start in range(0, len(out), step):
        rows = slice(start, start + step)
        delta[rows] = (d_out[rows].to(lse.dtype) * out[rows]).sum(-1)
    if not calls:
        delta.zero_()
    elif not _all(out, calls[0].q_rows):
        blind = torch.ones(len(out), 1, dtype=torch.bool, device=out.device)
        blind[calls[0].q_rows] = False
        delta.masked_fill_(blind, 0.0)
    if d_lse is not None:
        delta -= d_lse
    return (share.T * delta).sum(0).neg_().to(sinks.dtype)
