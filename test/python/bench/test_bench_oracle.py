"""The checks of a cell: they agree with autograd, and they see what is broken."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import cells
import pytest
import torch
from sinkflex.bench import attention_check
from sinkflex.bench.attention import LIMITS, Attention, maker
from sinkflex.bench.attention_check import Problem, compare, errors_at_length
from sinkflex.bench.cell import measure
from sinkflex.bench.log_prob import LogProbs, linear, naive
from sinkflex.bench.model import Model, Step
from sinkflex.kernels.api import Layout
from sinkflex.policy.attention import AttentionContext

Broken = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, Problem], torch.Tensor]


def draw(tokens: int, window: int | None, dtype: torch.dtype = torch.float32) -> Problem:
    torch.manual_seed(3)
    q, k, v = (torch.randn(tokens, heads, 16).to(dtype).requires_grad_() for heads in (6, 2, 2))
    sinks = torch.linspace(-3.0, 6.0, 6).to(dtype).requires_grad_()
    return Problem(q, k, v, sinks, torch.randn(tokens, 6, 16).to(dtype), window)


def run(problem: Problem, impl: str = "eager") -> list[torch.Tensor]:
    out = maker(impl)(problem)(*problem.leaves)
    return [out, *torch.autograd.grad(out, problem.leaves, problem.d_out)]


@pytest.mark.parametrize("window", [None, 1, 13, 200])
@pytest.mark.parametrize("block", [1 << 23, 4000])
def test_the_formula_at_length_is_the_specification(window: int | None, block: int, monkeypatch: Any) -> None:
    """Sampled rows and keys against eager in float64, streamed in one block and in many."""
    monkeypatch.setattr(attention_check, "BLOCK", block)
    exact = draw(150, window).to(torch.float64)
    errors = errors_at_length(exact, run(exact), seed=5)
    assert set(errors) == {"out", "dq", "dk", "dv", "da"}
    assert all(error < 1e-13 for error in errors.values()), errors


@pytest.mark.parametrize("impl", ["flash", "transformers"])
@pytest.mark.parametrize("window", [None, 13])
def test_the_errors_of_an_implementation_are_those_of_rounding(impl: str, window: int | None) -> None:
    problem = draw(150, window)
    exact = problem.to(torch.float64)
    limits = LIMITS["float32"]
    for errors in (compare(problem, run(problem, impl), run(exact)), errors_at_length(problem, run(problem, impl), 5)):
        assert all(0 < errors[name] < 2 * limits[name] for name in limits), errors


def _no_sink(q: Any, k: Any, v: Any, sinks: Any, problem: Problem) -> torch.Tensor:
    return maker("eager")(problem)(q, k, v, sinks - torch.inf)


def _wider(q: Any, k: Any, v: Any, sinks: Any, problem: Problem) -> torch.Tensor:
    return maker("eager")(problem._replace(window=14))(q, k, v, sinks)


def _late_nan(q: Any, k: Any, v: Any, sinks: Any, problem: Problem) -> torch.Tensor:
    out = maker("eager")(problem)(q, k, v, sinks)
    return torch.where(torch.arange(len(out))[:, None, None] == len(out) - 1, torch.nan, out)


def _dropped_lse_gradient(q: Any, k: Any, v: Any, sinks: Any, problem: Problem) -> torch.Tensor:
    """Trap 2: output, dv and da stay right, dq and dk do not."""
    from sinkflex.kernels.api import Layout, sink_attention

    layout = Layout.single(len(q))
    out, lse = sink_attention(q, k, v, None, layout=layout, window=problem.window, return_lse=True)
    return out * torch.sigmoid(lse.detach() - sinks).unsqueeze(-1).to(out.dtype)


BROKEN = {"no sink": _no_sink, "window of one more": _wider, "nan": _late_nan, "lse": _dropped_lse_gradient}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_attention_has_no_figures(name: str) -> None:
    broken = BROKEN[name]
    spec = cells.attention("flash", 96, window=13)
    make = lambda problem: lambda q, k, v, sinks: broken(q, k, v, sinks, problem)  # noqa: E731
    cell = measure(spec, Attention(spec, make))
    assert cell["status"] == "failed"
    assert cell["reason"].startswith("parity of a short problem: ")
    figures = ("fwd_ms", "bwd_ms", "cpu_ms", "peak_bytes", "tflops_fwd", "tflops_bwd", "floor_bytes", "flops")
    assert [cell[key] for key in figures] == [None] * len(figures)
    if name == "lse":
        assert cell["error"]["out"] < 1e-6 < 1e-2 < cell["error"]["dq"]


def test_what_breaks_only_at_length_has_none_either() -> None:
    """A fault that short problems do not meet, as where an implementation changes its way with the length."""
    spec = cells.attention("flash", 700)

    def make(problem: Problem) -> Any:
        good = maker("flash")(problem)
        if len(problem.q) < 600:
            return good
        return lambda q, k, v, sinks: torch.cat([good(q, k, v, sinks)[:-1], torch.zeros_like(q[:1])])

    cell = measure(spec, Attention(spec, make))
    assert (cell["status"], cell["fwd_ms"]) == ("failed", None)
    assert cell["reason"].startswith("parity at 700 tokens: out ")


def test_B64_a_kernel_that_asks_too_much_of_the_card_is_a_failed_row_with_its_reason() -> None:
    """The benchmark goes on with the next."""
    spec = cells.attention()

    def make(problem: Problem) -> Any:
        raise RuntimeError("out of resource: shared memory, needed: 131072, available: 101376\nmore")

    cell = measure(spec, Attention(spec, make))
    assert (cell["status"], cell["peak_bytes"]) == ("failed", None)
    assert cell["reason"] == "RuntimeError: out of resource: shared memory, needed: 131072, available: 101376"


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_running_out_of_memory_is_a_result(error: Exception) -> None:
    spec = cells.attention()

    def make(problem: Problem) -> Any:
        raise error

    cell = measure(spec, Attention(spec, make))
    assert cell["status"] == "does_not_fit" and cell["reason"].startswith("tried: ")


@pytest.mark.parametrize("head", ["frozen", "trained"])
@pytest.mark.parametrize("impl", ["naive", "linear"])
def test_log_probs_are_checked_by_the_formula(impl: str, head: str) -> None:
    spec = cells.log_prob(impl, head=head)
    cell = measure(spec, LogProbs(spec))
    assert cell["status"] == "ok", cell["reason"]
    assert (cell["error"]["dweight"] is None) == (head == "frozen")
    assert all(0 < error < 1e-5 for error in cell["error"].values() if error is not None)


@pytest.mark.parametrize("name", ["log_prob", "dhidden", "dweight"])
def test_broken_log_probs_have_no_figures(name: str) -> None:
    def broken(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if name == "log_prob":
            return linear(hidden, weight, targets) + 1e-3
        if name == "dhidden":
            return linear(hidden * 1.001 - hidden.detach() * 0.001, weight, targets)
        return linear(hidden, weight * 1.001 - weight.detach() * 0.001, targets)

    spec = cells.log_prob()
    cell = measure(spec, LogProbs(spec, broken))
    assert (cell["status"], cell["fwd_ms"]) == ("failed", None)
    assert name in cell["reason"]


def test_log_probs_that_break_at_length_have_none() -> None:
    def broken(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return naive(hidden, weight[: max(len(weight) - 1, 2051)], targets)

    geometry = {"vocabulary": 2200, "hidden": 48, "head": "frozen"}
    spec = dataclasses.replace(cells.log_prob("naive"), geometry=geometry)
    cell = measure(spec, LogProbs(spec, broken))
    assert cell["status"] == "failed" and cell["reason"].startswith("parity at 40 tokens")


def test_a_broken_side_of_a_model_has_no_figures() -> None:
    """Two sequences in place of one: half of the tokens see less than they should."""

    def side(step: Step) -> torch.Tensor:
        step.causal.config._attn_implementation = "sinkflex"
        context = AttentionContext("flash", layout=Layout.from_lengths([40, 40]))
        states = step.causal.model(
            input_ids=step.ids, position_ids=step.positions, attention_mask=None, use_cache=False, sinkflex=context
        ).last_hidden_state[0]
        return -(step.advantages * naive(states, step.causal.lm_head.weight, step.targets)).sum() / step.tokens

    spec = cells.model("ours")
    cell = measure(spec, Model(spec, side))
    assert (cell["status"], cell["fwd_ms"], cell["peak_bytes"]) == ("failed", None, None)
    assert "gradient" in cell["reason"]
