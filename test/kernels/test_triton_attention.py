"""The triton implementation against eager float64, under Triton's interpreter (compiled where there is a GPU)."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_strategies import layouts
from module_path import module_path
from parity import Largest, Problem, gap, problem, run
from sinkflex.kernels.api import Layout, Segment, choose, sink_attention
from triton_cases import check, implementation, tiles

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="these shapes are for the interpreter")

TREE = Layout.from_lengths([33, 20, 7, 40], parents=[-1, 0, 1, 0])
SCATTERED = Layout(
    (
        Segment(1, 20, 0, 40),
        Segment(21, 0, 41, 5, 7),
        Segment(24, 18, 46, 23, 40, 0),
        Segment(42, 9, 70, 9, 63, 2),
        Segment(51, 12, 80, 4),
        Segment(63, 3, 84, 0),
    ),
    68,
    90,
)
LAYOUTS = {
    "single": Layout.single(70),
    "packed": Layout.from_lengths([1, 45, 32, 3]),
    "cache": Layout.single(21, 80),
    "padded": Layout.padded([30, 0, 7], 34, key_lengths=[30, 2, 40], key_width=41),
    "tree": TREE,
    "scattered": SCATTERED,
}


@pytest.mark.parametrize("window", [None, 9, 40])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_in_float32(name: str, window: int | None) -> None:
    check(problem(LAYOUTS[name], 2, 1, 16, dtype=torch.float32), window)


@pytest.mark.parametrize("window", [None, 9])
@pytest.mark.parametrize("name", ["single", "tree", "padded"])
def test_every_layout_in_float16(name: str, window: int | None) -> None:
    check(problem(LAYOUTS[name], 2, 1, 32, d_lse=False, dtype=torch.float16), window)


@pytest.mark.parametrize(("block_q", "block_k"), [(16, 16), (16, 32), (64, 16), (16, 64), (64, 64)])
def test_tile_sizes_do_not_matter(block_q: int, block_k: int) -> None:
    with tiles(block_q, block_k):
        check(problem(TREE, 2, 1, 16, dtype=torch.float32), 30)
        check(problem(SCATTERED, 2, 1, 16, dtype=torch.float32))


@pytest.mark.parametrize("sinks", [True, False])
@pytest.mark.parametrize("d_lse", [True, False])
def test_with_and_without_sinks_and_a_gradient_of_the_log_sum_exp(sinks: bool, d_lse: bool) -> None:
    check(problem(LAYOUTS["packed"], 2, 1, 16, sinks=sinks, d_lse=d_lse, dtype=torch.float32), 16)


@given(
    layouts(longest=30, most=4),
    st.sampled_from((None, 1, 2, 12, 25)),
    st.sampled_from(((1, 1), (2, 1), (2, 2), (3, 1), (6, 2))),
    st.booleans(),
)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_random_layouts_windows_and_head_groups(
    layout: Layout, window: int | None, heads: tuple[int, int], sinks: bool
) -> None:
    check(problem(layout, *heads, 16, sinks=sinks, dtype=torch.float32), window)


@pytest.mark.slow
@given(
    layouts(longest=90, most=5),
    st.sampled_from((None, 1, 16, 33, 128)),
    st.sampled_from(((1, 1), (3, 1), (4, 2))),
    st.sampled_from((16, 24, 80)),
    st.sampled_from((torch.float32, torch.float16)),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_larger_random_layouts(
    layout: Layout, window: int | None, heads: tuple[int, int], head_dim: int, dtype: torch.dtype
) -> None:
    check(problem(layout, *heads, head_dim, d_lse=dtype == torch.float32, dtype=dtype), window)


def test_every_element_of_every_output_is_written() -> None:
    """torch.empty hands out NaN here; padding rows, empty segments and keys nobody sees must come out as 0."""
    given_problem = problem(SCATTERED, 2, 1, 16, dtype=torch.float32)
    want = run(given_problem, "eager", 9)

    def poisoned(*shape: Any, **options: Any) -> torch.Tensor:
        return torch.full(shape[0] if isinstance(shape[0], tuple | torch.Size) else shape, float("nan"), **options)

    with mock.patch.object(implementation.torch, "empty", poisoned):
        got = run(given_problem, "triton", 9)
    assert gap(got, want) < 1e-5
    covered = torch.zeros(SCATTERED.num_queries, dtype=torch.bool)
    for segment in SCATTERED.segments:
        covered[segment.q_start : segment.q_start + segment.q_len] = True
    assert bool((got["out"][~covered] == 0).all()) and bool((got["dq"][~covered] == 0).all())
    assert given_problem.sinks is not None
    assert torch.allclose(got["lse"][~covered], given_problem.sinks.expand(int((~covered).sum()), -1), rtol=1e-6)


def test_rows_that_see_few_keys_keep_their_digits_in_float16() -> None:
    """delta from the rounded output would leave dq and dk an error of their own size: dS is a difference of equals."""
    for layout, window in ((Layout.from_lengths([1] * 9), None), (Layout.single(40), 1), (Layout.single(2), None)):
        low = problem(layout, 2, 1, 32, d_lse=False, dtype=torch.float16)
        low.sinks = torch.full((2,), -6.0, dtype=torch.float16)
        check(low, window)


def test_the_sink_gradient_of_low_sinks_keeps_its_digits_in_float16() -> None:
    """Low sinks take their gradient from the first rows, which see few keys."""
    low = problem(Layout.single(150), 2, 1, 32, d_lse=False, dtype=torch.float16)
    low.sinks = torch.full((2,), -8.0, dtype=torch.float16)
    check(low)


@pytest.mark.parametrize("scale", [0.3, -0.3, 0.0])
def test_any_scale(scale: float) -> None:
    check(problem(LAYOUTS["packed"], 2, 1, 16, dtype=torch.float32), 16, scale)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_sinks_of_any_float_dtype(dtype: torch.dtype) -> None:
    given_problem = problem(Layout.single(20), 2, 1, 16, dtype=torch.float32)
    sinks = torch.tensor([-1.5, 3.25])
    results = []
    for kept in (sinks, sinks.to(dtype)):
        given_problem.sinks = kept
        results.append(run(given_problem, "triton"))
    assert results[1]["da"].dtype == dtype
    assert torch.allclose(results[0]["da"].to(dtype), results[1]["da"], rtol=1e-2)
    assert all(torch.equal(results[0][name], results[1][name]) for name in ("out", "lse", "dq", "dk", "dv"))


def test_results_are_bitwise_repeatable() -> None:
    given_problem = problem(TREE, 4, 2, 16, dtype=torch.float32)
    first, second = run(given_problem, "triton", 20), run(given_problem, "triton", 20)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_gradient_of_the_log_sum_exp_alone_and_of_nothing() -> None:
    given_problem = problem(Layout.single(20), 2, 1, 16, dtype=torch.float32)
    wide = given_problem.to(torch.float64)

    def gradients(case: Problem, impl: str) -> list[torch.Tensor]:
        leaves = [x.clone().requires_grad_() for x in (case.q, case.k, case.sinks) if x is not None]
        _, lse = sink_attention(leaves[0], leaves[1], case.v, leaves[2], layout=case.layout, impl=impl, return_lse=True)
        return list(torch.autograd.grad(lse, leaves, case.d_lse))

    for got, want in zip(gradients(given_problem, "triton"), gradients(wide, "eager"), strict=True):
        assert torch.allclose(got.double(), want, rtol=0, atol=1e-5)
    q = given_problem.q.clone().requires_grad_()
    out = sink_attention(q, given_problem.k, given_problem.v, layout=given_problem.layout, impl="triton")
    assert float(torch.autograd.grad(out.sum() * 0.0, q)[0].abs().max()) == 0.0


def test_only_the_gradients_that_are_asked_for() -> None:
    given_problem = problem(Layout.single(20), 2, 1, 16, dtype=torch.float32)
    want = run(given_problem, "triton")
    q = given_problem.q.clone().requires_grad_()
    out, lse = sink_attention(
        q, given_problem.k, given_problem.v, given_problem.sinks, layout=given_problem.layout, impl="triton",
        return_lse=True,
    )  # fmt: skip
    with mock.patch.object(implementation, "backward_keys", None):  # calling it would fail
        (dq,) = torch.autograd.grad([out, lse], q, [given_problem.d_out, given_problem.d_lse])
    assert torch.equal(dq, want["dq"])


def test_memory_of_a_step_is_what_the_floor_counts() -> None:
    """Saved: q, k, v, out, lse. Beyond them the backward makes dq, dk, dv, delta and numbers per tile; nothing else."""
    tokens, heads, kv_heads, head_dim = 130, 4, 2, 16
    leaves = [torch.randn(tokens, count, head_dim, requires_grad=True) for count in (heads, kv_heads, kv_heads)] + [
        torch.randn(heads, requires_grad=True)
    ]
    saved: dict[int, int] = {}

    def pack(x: torch.Tensor) -> torch.Tensor:
        saved[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        out, _ = implementation.attend(*leaves, Layout.single(tokens), None, 0.25)
    rows = 4 * head_dim * tokens
    assert sum(saved.values()) == rows * (2 * heads + 2 * kv_heads) + 4 * heads * tokens + 4 * heads
    with torch.autograd.set_multithreading_enabled(False), Largest() as seen:
        torch.autograd.grad(out, leaves, torch.randn_like(out))
    assert seen.elements <= tokens * heads * head_dim


def test_on_a_cpu_it_runs_under_the_interpreter_only() -> None:
    program = (
        "import torch\nfrom sinkflex.kernels.api import Layout, choose, sink_attention\n"
        "q = torch.zeros(3, 1, 16)\n"
        "assert choose('cpu', torch.float32).impl == 'flash'\n"
        "try:\n    sink_attention(q, q, q, layout=Layout.single(3), impl='triton')\n"
        "except ValueError as error:\n    print(error)\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = module_path()
    done = subprocess.run([sys.executable, "-P", "-c", program], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == (
        "impl is 'triton', but triton runs on a CPU only under its interpreter, for tests (TRITON_INTERPRET=1); "
        "impl='flash' supports this request"
    ), done.stderr


@pytest.mark.parametrize(
    ("dtype", "head_dim", "message"),
    [
        (torch.bfloat16, 16, "triton's interpreter multiplies float32 and float16, not torch.bfloat16; impl='flash'"),
        (torch.float64, 16, "triton's interpreter multiplies float32 and float16, not torch.float64; impl='flash'"),
        (torch.float32, 192, "triton needs a head_dim of 1 to 128, not 192; impl='flash'"),
    ],
)
def test_what_it_cannot_do_it_refuses_naming_who_can(dtype: torch.dtype, head_dim: int, message: str) -> None:
    q = torch.zeros(3, 2, head_dim, dtype=dtype)
    with pytest.raises(ValueError, match=message):
        sink_attention(q, q, q, layout=Layout.single(3), impl="triton")


def test_auto_prefers_it_on_a_gpu_and_never_on_a_cpu() -> None:
    assert choose("cuda", torch.bfloat16, head_dim=64).impl == "triton"
    assert choose("cuda", torch.float64, head_dim=64).impl != "triton"
    assert choose("cpu", torch.float32, head_dim=64).impl == "flash"


def test_no_transposed_accumulator_is_an_operand() -> None:
    """Triton 3.4 to 3.7.0 miscompiles dot(trans(x), y) on Hopper where x is computed: we transpose loads only."""
    from sinkflex.kernels import triton_backward, triton_forward

    loaded = {"keys", "values", "queries", "pulls"}
    transposed, assigned = [], {}
    for module in (triton_forward, triton_backward):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("tl.trans", "tl.permute"):
                transposed.append(ast.unparse(node.args[0]))
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                assigned.setdefault(ast.unparse(node.targets[0]), set()).add(ast.unparse(node.value.func))
            assert not (isinstance(node, ast.Call) and "atomic" in ast.unparse(node.func))
    assert transposed and set(transposed) <= loaded
    assert all(assigned[name] == {"load_rows"} for name in loaded)
