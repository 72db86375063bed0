"""One parity case: an implementation against the eager specification in float64 on the same device.

The inputs are rounded to the case's dtype first, so the exact result is that of the same numbers. Errors are relative
to the norm of the exact tensor; lse relative to the larger of 1 and its maximum; da per head, relative to the norm of
its terms p * (dL - delta) over the rows. Limits are those of the operators' specification (LIMITS). Where terms cancel
(a row with one key: dq is a difference of near equals) eager attention with every operation rounded to the dtype sets
the measure: twice its error is allowed. On one whole sequence nothing cancels, and both are limits. da must be the same
to the last bit when forward and backward are run again.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import torch
from sinkflex.bench import attention as bench
from sinkflex.kernels.api import Layout, sink_attention
from sinkflex.kernels.reference import visibility

from .cases import layout as build_layout
from .launches import Recorder, table_here

# Those of `sinkflex bench`, and of the log-sum-exp, which is float32 whatever the inputs are.
LIMITS = {
    dtype: {"lse": lse, **bench.LIMITS[str(dtype).removeprefix("torch.")]}
    for dtype, lse in ((torch.float32, 1e-6), (torch.bfloat16, 1e-4), (torch.float16, 1e-4))
}

Tensors = dict[str, torch.Tensor]


class Problem(NamedTuple):
    """q, k, v, sinks [heads] and the gradients of out and, unless it has none, lse."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    sinks: torch.Tensor
    d_out: torch.Tensor
    d_lse: torch.Tensor | None
    layout: Layout

    def double(self) -> Problem:
        return Problem(*(None if x is None else x.double() for x in self[:-1]), self.layout)


def problem(
    layout: Layout, heads: tuple[int, int], head_dim: int, dtype: torch.dtype, device: str, d_lse: bool
) -> Problem:
    """Random inputs, sinks from -5 to 20: sinks of zero would hide that they are dropped.

    Sinks are values of the dtype kept in float32, so that rounding da to the dtype does not hide its error. In float16
    they end at 8: at 20 the output, which delta is computed from, is below the smallest number there is.
    """
    random = torch.Generator().manual_seed(0)
    num_q_heads, num_kv_heads = heads

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random)

    q, d_out = (normal(layout.num_queries, num_q_heads, head_dim) for _ in range(2))
    k, v = (normal(layout.num_keys, num_kv_heads, head_dim) for _ in range(2))
    sinks = torch.linspace(-5.0, 8.0 if dtype == torch.float16 else 20.0, num_q_heads)
    q, k, v, sinks, d_out = (x.to(device, dtype) for x in (q, k, v, sinks, d_out))
    pull = normal(layout.num_queries, num_q_heads).to(device) if d_lse else None
    return Problem(q, k, v, sinks.float(), d_out, pull, layout)


def run(given: Problem, impl: str, window: int | None) -> Tensors:
    leaves = [x.detach().requires_grad_() for x in (given.q, given.k, given.v, given.sinks)]  # strides as they are
    out, lse = sink_attention(*leaves, layout=given.layout, window=window, impl=impl, return_lse=True)
    return _results(given, out, lse, leaves)


def _results(given: Problem, out: torch.Tensor, lse: torch.Tensor, leaves: list[torch.Tensor]) -> Tensors:
    ends, pulls = [out], [given.d_out]
    if given.d_lse is not None:
        ends.append(lse)
        pulls.append(given.d_lse.to(lse.dtype))
    gradients = torch.autograd.grad(ends, leaves, pulls)
    return dict(zip(("out", "lse", "dq", "dk", "dv", "da"), (out.detach(), lse.detach(), *gradients), strict=True))


def rounded_eager(given: Problem, window: int | None) -> Tensors:
    """Every operation in the dtype of the inputs, as eager attention runs in a model of that dtype."""
    leaves = [x.detach().requires_grad_() for x in (given.q, given.k, given.v, given.sinks)]
    group = leaves[0].shape[1] // leaves[1].shape[1]
    q, k, v = (x.transpose(0, 1) for x in leaves[:3])
    scores = q @ k.repeat_interleave(group, 0).transpose(1, 2) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(~visibility(given.layout, window, q.device), -torch.inf)
    scores = torch.cat([scores, leaves[3].to(q.dtype)[:, None, None].expand(-1, q.shape[1], 1)], dim=-1)
    lse = scores.logsumexp(-1).transpose(0, 1)
    out = (scores.softmax(-1)[..., :-1] @ v.repeat_interleave(group, 0)).transpose(0, 1)
    return _results(given, out, lse, leaves)


def errors(got: Tensors, exact: Tensors, given: Problem) -> dict[str, float]:
    """Of each tensor, as the module's docstring says; not a number is infinite."""
    found = {}
    pulled = 0.0 if given.d_lse is None else given.d_lse.double()
    for name, expected in exact.items():
        difference = got[name].double() - expected
        if name == "lse":
            error = difference.abs().max() / expected.abs().max().clamp(min=1.0)
        elif name == "da":
            shares = (given.sinks.double() - exact["lse"]).exp()
            terms = shares * (pulled - (given.d_out.double() * exact["out"]).sum(-1))
            error = (difference.abs() / terms.norm(dim=0).clamp(min=1e-30)).max()
        else:
            error = difference.norm() / expected.norm().clamp(min=1e-30)
        found[name] = float(error) if math.isfinite(float(error)) else math.inf
    return found


def refused(impl: str, error: ValueError) -> dict[str, Any]:
    """The result where an implementation names itself and another that can do it; else the error is one."""
    text = str(error)
    if not re.search(rf"impl (is )?'{impl}'", text) or "impl=" not in text:
        raise error
    return {"status": "refused", "reason": text.removeprefix(f"impl is '{impl}', but ").split("; impl=")[0]}


def heads_of(device: str) -> tuple[int, int]:
    return (4, 2) if device == "cpu" else (16, 2)


def check(case: dict[str, Any]) -> dict[str, Any]:
    device, window, impl = case["device"], case["window"], case["impl"]
    dtype = getattr(torch, case["dtype"])
    layout = build_layout(case["layout"], device == "cpu")
    # A model differentiates the output alone, and that is compiled apart: so half of the cases.
    given = problem(layout, heads_of(device), case["head_dim"], dtype, device, d_lse=window is not None)
    try:
        with Recorder(table_here() if impl == "triton" else ()) as recorder:
            got = run(given, impl, window)
    except ValueError as error:
        return refused(impl, error)
    exact = run(given.double(), "eager", window)
    strict = case["layout"] == "single" and window != 1
    result = verdict(given, got, exact, window, strict=strict, again=run(given, impl, window)["da"])
    return {**result, "launched": recorder.names} if recorder.names else result


def verdict(
    given: Problem, got: Tensors, exact: Tensors, window: int | None, *, strict: bool, again: torch.Tensor
) -> dict[str, Any]:
    """Errors against their limits, and da against a second run's."""
    found = errors(got, exact, given)
    eager = errors(rounded_eager(given, window), exact, given)
    limits = LIMITS[given.q.dtype]
    allowed = {name: max(limit, 2 * eager[name]) for name, limit in limits.items()}
    if strict and given.q.dtype != torch.float32:  # a quarter is about what rounding the result alone takes
        allowed = {name: max(min(limit, 2 * eager[name]), limit / 4) for name, limit in limits.items()}
    result: dict[str, Any] = {"status": "passed", "error": found, "limit": allowed}
    over = [f"{name} {found[name]:.1e} > {allowed[name]:.1e}" for name in found if not found[name] <= allowed[name]]
    if not torch.equal(got["da"], again):
        over.append("da differs between two equal runs")
    if over:
        result.update(status="failed", reason="; ".join(over))
    return result
