"""Float32 products with a weight on a CPU, by the other of the two libraries that torch was built with.

torch multiplies float32 matrices with MKL. Where MKL does not use the processor's widest vectors (AMD's, as measured:
Zen 5, one thread, 2.0 to 2.3 times slower than oneDNN at 16 to 2000 rows), oneDNN computes the same product in the same
precision, in another order. torch has no setting for it: the operator is the one that its compiler uses for frozen
models. Whether it pays here is for the caller to find out.

A weight that stays the same for many products can be packed: oneDNN otherwise puts it into its own order each time,
which few rows cannot pay for.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F


def _onednn(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    out: torch.Tensor = torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")
    return out


@functools.cache
def available() -> bool:
    """Whether this torch has the operators, and they compute what torch does."""
    if not torch.backends.mkldnn.is_available():
        return False
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        x, weight = torch.randn(8, 24), torch.randn(16, 24)
        try:
            found = _onednn(x, weight, None), _onednn(x, pack(weight), None)
        except (AttributeError, NotImplementedError, RuntimeError, TypeError):
            return False
        return all(torch.allclose(one, F.linear(x, weight), rtol=1e-4, atol=1e-3) for one in found)


def pack(weight: torch.Tensor) -> torch.Tensor:
    """A copy of a float32 weight [outputs, inputs] in oneDNN's own order, for `linear` without gradient only."""
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight.default(weight.detach(), None)
    return packed


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x [..., inputs] times weight [outputs, inputs] transposed, plus bias [outputs]; float32 on a CPU, through oneDNN.

    Differentiable in all three.
    """
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        # Rows of a matrix, so that the result is no view that autograd would not let a caller write into.
        out: torch.Tensor = _Linear.apply(x.flatten(0, -2), weight, bias)  # type: ignore[no-untyped-call]
        return out.view(*x.shape[:-1], -1)
    return _onednn(x, weight, bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """x [rows, inputs] -> [rows, outputs]."""
        ctx.save_for_backward(x if weight.requires_grad else None, weight if x.requires_grad else None)
        return _onednn(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        want_x, want_weight, want_bias = ctx.needs_input_grad
        d_x = _onednn(d_out, weight.T, None) if want_x else None
        d_weight = _onednn(d_out.T, x.T, None) if want_weight else None
        return d_x, d_weight, d_out.sum(0) if want_bias else None
