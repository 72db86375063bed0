"""Runs one implementation forward and backward and compares it with another, tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

import torch
from sinkflex.kernels import plan
from sinkflex.kernels.api import Layout, sink_attention
from torch.utils._python_dispatch import TorchDispatchMode

CPU_IMPLS = ("eager", "flash")  # those that compute on a CPU in every dtype
NAMES = ("out", "lse", "dq", "dk", "dv", "da")


@dataclass
class Problem:
    """Inputs of sink_attention and the gradients that flow into it."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    sinks: torch.Tensor | None
    layout: Layout
    d_out: torch.Tensor
    d_lse: torch.Tensor | None

    def to(self, dtype: torch.dtype) -> Problem:
        """The same numbers, rounded to another dtype; sinks and d_lse as a model would keep them."""
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        return Problem(
            *(x.to(dtype) for x in (self.q, self.k, self.v)),
            None if self.sinks is None else self.sinks.to(dtype),
            self.layout,
            self.d_out.to(dtype),
            None if self.d_lse is None else self.d_lse.to(wide),
        )


def problem(
    layout: Layout,
    num_q_heads: int = 4,
    num_kv_heads: int = 2,
    head_dim: int = 24,
    *,
    sinks: bool = True,
    d_lse: bool = True,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> Problem:
    """Random inputs. Sinks spread over -5 to 20: sinks of zero would hide that an implementation drops them."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64).to(dtype)

    spread = torch.linspace(-5.0, 20.0 if num_q_heads > 3 else 5.0, num_q_heads, dtype=torch.float64).to(dtype)
    return Problem(
        normal(layout.num_queries, num_q_heads, head_dim),
        normal(layout.num_keys, num_kv_heads, head_dim),
        normal(layout.num_keys, num_kv_heads, head_dim),
        spread if sinks else None,
        layout,
        normal(layout.num_queries, num_q_heads, head_dim),
        normal(layout.num_queries, num_q_heads) if d_lse else None,
    )


def run(given: Problem, impl: str, window: int | None = None, scale: float | None = None) -> dict[str, torch.Tensor]:
    """Output, log-sum-exp (rows that see nothing: 0 without a sink) and the gradients that exist."""
    leaves = [x.detach().clone().requires_grad_() for x in (given.q, given.k, given.v, given.sinks) if x is not None]
    out, lse = sink_attention(*leaves, layout=given.layout, window=window, scale=scale, impl=impl, return_lse=True)
    lse = torch.where(lse == -torch.inf, 0.0, lse)
    ends, pulls = [out], [given.d_out]
    if given.d_lse is not None:
        ends.append(lse)
        pulls.append(given.d_lse)
    gradients = torch.autograd.grad(ends, leaves, pulls)
    return dict(zip(NAMES, (out.detach(), lse.detach(), *gradients), strict=False))


def gap(got: dict[str, torch.Tensor], want: dict[str, torch.Tensor]) -> float:
    """Largest difference over all tensors, relative to the larger of 1 and the tensor's maximum; NaN is infinite."""
    assert got.keys() == want.keys()
    worst = 0.0
    for name, expected in want.items():
        if expected.numel() == 0:
            continue
        size = max(1.0, float(expected.abs().max()))
        difference = float((got[name].double() - expected.double()).abs().max()) / size
        worst = max(worst, difference if difference == difference else float("inf"))
    return worst


@contextmanager
def every_path() -> Iterator[None]:
    """Lowers the lengths at which flash changes its ways, so that short sequences take all of them."""
    lowered = {"BAND_FROM": 20, "NODE": 24, "CHUNK_ELEMENTS": 1 << 11, "RECT_SCORES": 1, "RECT_COPIES": 1}
    with mock.patch.multiple(plan, **lowered):
        yield


class Largest(TorchDispatchMode):
    """Remembers the size of the largest tensor that an operator made; views of its arguments do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        given = {x.untyped_storage().data_ptr() for x in args if isinstance(x, torch.Tensor)}
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in given:
                self.elements = max(self.elements, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result
