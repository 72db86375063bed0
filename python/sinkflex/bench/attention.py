"""The subject `attention`: one layer of sink attention on random rows, against the formula in float64.

Inputs, not counted in the peak: q [T, num_q_heads, head_dim], k and v [T, num_kv_heads, head_dim], sinks spread over -5
to 10 (from no weight to most of it), the gradient of the output. Counted: everything else, also what an implementation
derives from the layout and the mask of T x T that transformers' eager attention needs.

Floor: what a backward holds at once, inputs included (q, k, v, out, lse, d_out, dq, dk, dv, delta; lse and delta in
float32):   T * 4 * (num_q_heads + num_kv_heads) * head_dim * itemsize + 8 * T * num_q_heads.   At 64 / 8 heads of 64 in
bfloat16 and T = 4096 these are 146 MiB. The peak leaves the inputs out, so an implementation can be below it.

Parity is checked twice in the process that is timed: all of a short problem of the same geometry, window and dtype
against `eager` in float64, and at the cell's own length sampled rows and keys (attention_check.py). Peers:
`transformers` is the eager attention of its GptOss, `fla` flash-linear-attention's parallel attention with a sink bias.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from sinkflex.kernels.api import Layout, sink_attention

from . import flops
from .attention_check import Problem, compare, errors_at_length
from .spec import Spec

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(q, k, v, sinks) -> out, for one length and window."""
Make = Callable[[Problem], Attend]

SHORT = 333
LIMITS: Mapping[str, Mapping[str, float]] = {
    "float32": {"out": 1e-6, "dq": 1e-5, "dk": 1e-5, "dv": 1e-5, "da": 1e-5},
    "bfloat16": {"out": 5e-3, "dq": 1e-2, "dk": 1e-2, "dv": 1e-2, "da": 6e-3},
    "float16": {"out": 1e-3, "dq": 2e-3, "dk": 2e-3, "dv": 2e-3, "da": 2e-3},
}
# Peers round scores and probabilities to the dtype of the inputs; their rows must mean the same, no more.
PEER_SLACK = {"float32": 2.0, "bfloat16": 10.0, "float16": 10.0}


class Attention:
    """Measures one implementation; `make` replaces it (tests pass a broken one)."""

    def __init__(self, spec: Spec, make: Make | None = None) -> None:
        self._spec = spec
        self._device, self._dtype = torch.device(spec.device), getattr(torch, spec.dtype)
        self._make = make or maker(spec.impl)
        self._attend: Attend | None = None
        self._problem: Problem | None = None

    @property
    def limits(self) -> dict[str, float]:
        slack = PEER_SLACK[self._spec.dtype] if self._spec.impl in _PEERS else 1.0
        return {name: limit * slack for name, limit in LIMITS[self._spec.dtype].items()}

    @property
    def work(self) -> dict[str, Any]:
        seq, window = self._spec.seq, self._spec.window
        heads, kv_heads, dim = (self._spec.geometry[name] for name in ("num_q_heads", "num_kv_heads", "head_dim"))
        floor = seq * 4 * (heads + kv_heads) * dim * self._dtype.itemsize + 8 * seq * heads
        return {
            "floor_bytes": floor,
            "flops": flops.attention_forward(seq, window, heads, dim),
            "flops_exact": flops.attention_forward(seq, window, heads, dim, exact=True),
            "pairs": flops.pairs(seq, window),
        }

    def rates(self, work: Mapping[str, Any], times: Mapping[str, Any]) -> dict[str, float | None]:
        return {
            "tflops_fwd": flops.rate(work["flops"], times["fwd_ms"]),
            "tflops_bwd": flops.rate(flops.BACKWARD * work["flops"], times["bwd_ms"]),
        }

    def short_errors(self) -> dict[str, float]:
        """The whole of a short problem, all five tensors."""
        reach = min(self._spec.window or 0, 800)
        problem = self._draw(min(self._spec.seq, max(SHORT, reach + 205)), seed=self._spec.seed + 1)
        exact = problem.to(torch.float64)
        want = _run(exact, maker("eager")(exact))
        return compare(problem, _run(problem, self._make(problem)), want)

    def allocate(self) -> None:
        self._problem = self._draw(self._spec.seq, seed=self._spec.seed)

    def forward(self) -> torch.Tensor:
        problem = self._ready()
        if self._attend is None:  # what it keeps for later passes belongs to it, and to its peak
            self._attend = self._make(problem)
        return self._attend(*problem.leaves)

    def backward(self, result: torch.Tensor) -> Sequence[torch.Tensor]:
        problem = self._ready()
        return torch.autograd.grad(result, problem.leaves, problem.d_out)

    def errors(self, result: torch.Tensor, gradients: Sequence[torch.Tensor]) -> dict[str, float]:
        """Sampled rows and keys at the cell's own length."""
        return errors_at_length(self._ready(), (result.detach(), *gradients), self._spec.seed)

    def trace(self) -> dict[str, dict[str, int]] | None:
        return None

    def forget(self) -> None:
        """Drops the layout or the mask: the next pass makes it anew."""
        self._attend = None

    def _ready(self) -> Problem:
        assert self._problem is not None, "allocate() comes first"
        return self._problem

    def _draw(self, tokens: int, seed: int) -> Problem:
        random = torch.Generator(device=self._device).manual_seed(seed)
        heads, kv_heads, dim = (self._spec.geometry[name] for name in ("num_q_heads", "num_kv_heads", "head_dim"))

        def normal(count: int) -> torch.Tensor:
            shape = (tokens, count, dim)
            return torch.randn(shape, generator=random, device=self._device, dtype=torch.float32).to(self._dtype)

        q, k, v = (normal(count).requires_grad_() for count in (heads, kv_heads, kv_heads))
        spread = torch.linspace(-5.0, 10.0, heads, device=self._device).to(self._dtype)
        return Problem(q, k, v, spread.requires_grad_(), normal(heads), self._spec.window)


def maker(impl: str) -> Make:
    """How an implementation is made ready for a problem."""
    return _PEERS.get(impl) or (lambda problem: _ours(problem, impl))


def _run(problem: Problem, attend: Attend) -> tuple[torch.Tensor, ...]:
    out = attend(*problem.leaves)
    return out.detach(), *torch.autograd.grad(out, problem.leaves, problem.d_out)


def _ours(problem: Problem, impl: str) -> Attend:
    layout = Layout.single(problem.q.shape[0])
    return lambda q, k, v, sinks: sink_attention(q, k, v, sinks, layout=layout, window=problem.window, impl=impl)


def _transformers(problem: Problem) -> Attend:
    eager = importlib.import_module("transformers.models.gpt_oss.modeling_gpt_oss").eager_attention_forward
    tokens, heads, dim = problem.q.shape
    module = torch.nn.Module()
    module.num_key_value_groups = heads // problem.k.shape[1]  # type: ignore[assignment]
    at = torch.arange(tokens, device=problem.q.device)
    seen = at <= at[:, None]
    if problem.window is not None:
        seen &= at[:, None] - at < problem.window
    mask = torch.zeros(1, 1, tokens, tokens, dtype=problem.q.dtype, device=problem.q.device)
    mask.masked_fill_(~seen, torch.finfo(mask.dtype).min)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
        module.sinks = sinks
        query, key, value = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
        out: torch.Tensor = eager(module, query, key, value, mask, scaling=dim**-0.5)[0]
        return out[0]

    return attend


def _fla(problem: Problem) -> Attend:
    parallel = importlib.import_module("fla.ops.attn").parallel_attn

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
        rows = (x.unsqueeze(0) for x in (q, k, v))
        out: torch.Tensor = parallel(*rows, window_size=problem.window, sink_bias=sinks)
        return out[0]

    return attend


_PEERS: Mapping[str, Make] = {"transformers": _transformers, "fla": _fla}
