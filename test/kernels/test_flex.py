"""impl "flex": the construction around FlexAttention, with torch's dense definition of it on a CPU, as it is on a GPU.

On a CPU torch compiles FlexAttention without log-sum-exp and gradient. Fixture `attend` therefore compiles the very
function that a GPU runs with Dynamo's backend "eager": Dynamo traces it, mask and grouped heads included, and torch's
own dense definition of the operator and of its backward pass computes it, in float64. What that leaves to a GPU is the
compiled kernel; the tests marked on_gpu run it where there is one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from attend_directly import Attend, layouts, run_attend
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parity import Problem, gap, problem, run
from sinkflex.kernels import flex
from sinkflex.kernels.api import Layout, Segment, choose, sink_attention
from sinkflex.kernels.choice import Request, resolve
from torch._dynamo.utils import counters
from torch.nn.attention import flex_attention as torch_flex

NAN = float("nan")
B57_LENGTHS = (1, 2, 127, 128, 129, 255, 1000, 1025)
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: FlexAttention's kernel runs only there")


@pytest.fixture
def attend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Attend]:
    """flex.attend over torch's dense definition of FlexAttention, which has no limit but that on gradients on a CPU."""
    monkeypatch.setattr(flex, "COMPILER", "eager")
    monkeypatch.setattr(flex, "_compiled_shapes", set())
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *_: None)
    yield flex.attend


def on_cuda(given_problem: Problem) -> Problem:
    moved = {n: x.cuda() if isinstance(x, torch.Tensor) else x for n, x in vars(given_problem).items()}
    return Problem(**moved)


@given(layouts(longest=40, most=5), st.data())
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_flex_equals_eager_in_float64_whatever_the_layout(attend: Attend, layout: Layout, data: st.DataObject) -> None:
    window = data.draw(st.sampled_from((None, 1, 2, 16, 33)))
    given_problem = problem(layout, 6, 2, 16, sinks=data.draw(st.booleans()), d_lse=data.draw(st.booleans()))
    assert gap(run_attend(attend, given_problem, window), run(given_problem, "eager", window)) < 1e-12


@pytest.mark.parametrize("window", [None, 128])
@pytest.mark.parametrize(
    "layout",
    [
        Layout.single(300),
        Layout.single(64, 200),  # B59: keys that are no multiple of a block
        Layout.from_lengths([130, 63, 1, 96]),
        Layout.from_lengths([140, 60, 70, 40], parents=[-1, 0, 0, 2]),
    ],
    ids=["single", "cached", "packed", "tree"],
)
def test_flex_over_several_blocks(attend: Attend, layout: Layout, window: int | None) -> None:
    given_problem = problem(layout, 4, 2, 16)
    assert gap(run_attend(attend, given_problem, window), run(given_problem, "eager", window)) < 1e-12


def test_flex_traced_ahead_of_time(attend: Attend, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Inductor receives it: forward and backward graphs made in advance. They carry the log-sum-exp in float32."""
    monkeypatch.setattr(flex, "COMPILER", "aot_eager")
    given_problem = problem(Layout.from_lengths([40, 30, 20], parents=[-1, 0, 0]), 4, 2, 16)
    assert gap(run_attend(attend, given_problem, 33), run(given_problem, "eager", 33)) < 1e-6


def test_trap_2_one_key_case_of_the_log_sum_exp_gradient(attend: Attend) -> None:
    q, k, v = (torch.tensor([[[x]]], dtype=torch.float64, requires_grad=True) for x in (1.0, 1.0, 2.0))
    out, _ = attend(q, k, v, q.new_zeros(1), Layout.single(1), None, 1.0)
    assert torch.autograd.grad(out.sum(), q)[0].item() == pytest.approx(0.393224, abs=1e-6)


def test_trap_3_the_log_sum_exp_is_in_the_natural_base(attend: Attend) -> None:
    q, v = torch.zeros(1, 1, 16, dtype=torch.float64), torch.ones(3, 1, 16, dtype=torch.float64)
    _, lse = attend(q, torch.zeros_like(v), v, None, Layout.single(1, 3), None, 1.0)
    assert lse.item() == pytest.approx(math.log(3.0), abs=1e-12)


@pytest.mark.parametrize("window", [None, 4])
def test_trap_5_rows_that_see_nothing(attend: Attend, window: int | None) -> None:
    """No key, no segment, no sink: O = 0, L = a, p = 1, and nothing that is not finite in any gradient."""
    layout = Layout((Segment(1, 9, 0, 4), Segment(12, 3, 4, 0), Segment(15, 0, 5, 6)), 17, 12)
    given_problem = problem(layout, 4, 2, 16)
    got = run_attend(attend, given_problem, window)
    assert all(bool(torch.isfinite(x).all()) for x in got.values())
    assert gap(got, run(given_problem, "eager", window)) < 1e-12
    assert given_problem.sinks is not None and given_problem.d_lse is not None
    blind = [0, *range(1, 6), *range(10, 17)]
    assert torch.equal(got["lse"][blind], given_problem.sinks.expand(len(blind), -1))
    assert bool((got["out"][blind] == 0).all()) and bool((got["dq"][blind] == 0).all())
    given_problem.sinks = torch.full((4,), -torch.inf, dtype=torch.float64)
    got = run_attend(attend, given_problem, window)
    assert all(bool(torch.isfinite(x).all()) for x in got.values())
    plain = Problem(**{**vars(given_problem), "sinks": None})
    assert bool((got.pop("da") == 0).all())
    want = run_attend(attend, plain, window)
    assert all(torch.equal(got[name], want[name]) for name in want)


def test_padding_is_never_read(attend: Attend) -> None:
    clean = problem(Layout.padded([13, 3, 0], 20, key_lengths=[13, 30, 0], key_width=40), 4, 2, 16)
    want = run_attend(attend, clean, 16)
    dirty = problem(clean.layout, 4, 2, 16)
    for row, (length, keys) in enumerate([(13, 13), (3, 30), (0, 0)]):
        for tensor in (dirty.q, dirty.d_out):
            tensor[row * 20 + length : (row + 1) * 20] = NAN
        for tensor in (dirty.k, dirty.v):
            tensor[row * 40 + keys : (row + 1) * 40] = NAN
    got = run_attend(attend, dirty, 16)
    assert all(torch.equal(got[name], want[name]) for name in want)


@pytest.mark.parametrize("length", B57_LENGTHS[:6])
@pytest.mark.parametrize("window", [None, 128])
def test_B57_lengths_around_a_block(attend: Attend, length: int, window: int | None) -> None:
    given_problem = problem(Layout.single(length), 2, 1, 16)
    got = run_attend(attend, given_problem, window)
    assert all(bool(torch.isfinite(x).all()) for x in got.values())
    assert gap(got, run(given_problem, "eager", window)) < 1e-12


def test_B58_layouts_used_in_turn_equal_fresh_ones(attend: Attend) -> None:
    kept = {length: Layout.single(length) for length in (250, 200, 7)}
    for length in (250, 200, 250, 7, 250):
        fresh = run_attend(attend, problem(Layout.single(length), 2, 1, 16), 64)
        again = run_attend(attend, problem(kept[length], 2, 1, 16), 64)
        assert all(torch.equal(fresh[name], again[name]) for name in fresh)


@pytest.mark.parametrize(("num_q_heads", "num_kv_heads"), [(6, 2), (64, 8)])
@pytest.mark.parametrize("length", [16, 300])
def test_B61_head_groups_of_any_size(attend: Attend, num_q_heads: int, num_kv_heads: int, length: int) -> None:
    given_problem = problem(Layout.single(length), num_q_heads, num_kv_heads, 16)
    assert gap(run_attend(attend, given_problem), run(given_problem, "eager")) < 1e-12


def test_B63_offsets_past_32_bits_are_refused_or_copied_away() -> None:
    rows = 2**31 // (64 * 64)
    long = torch.empty(1).expand(rows, 64, 64)
    with pytest.raises(ValueError, match=rf"q has {rows} rows, .*impl 'flex' allows at most 2147483647 elements"):
        flex._padded(long, flex.bucket(rows), None, "q")
    wide = torch.empty_strided((1024, 1, 16), (2_100_000, 16, 1), device="meta")
    assert flex._padded(wide, 1024, None, "q").stride() == (16, 16, 16, 1)
    assert flex._padded(wide[:512], 512, None, "q").stride(2) == 2_100_000
    wide = (
        torch.empty(1).as_strided((1024, 1, 1), (0, 1, 1)).as_strided((1024, 1, 1), (2_100_000, 1, 1)[0:0] or (0, 1, 1))
    )
    assert flex._padded(wide, 1024, None, "q").shape == (1, 1, 1024, 1)


def test_lengths_in_one_width_share_one_compilation(attend: Attend) -> None:
    """Layouts, windows and lengths of one width differ in data alone; each width is compiled once."""
    run_attend(attend, problem(Layout.single(100), 2, 1, 32))
    before = counters["stats"]["unique_graphs"]
    for length in (1, 64, 127, 128):
        for window in (None, 1, 50):
            run_attend(attend, problem(Layout.single(length), 2, 1, 32), window)
    run_attend(attend, problem(Layout.from_lengths([40, 30, 20], parents=[-1, 0, 0]), 2, 1, 32))
    assert counters["stats"]["unique_graphs"] == before
    run_attend(attend, problem(Layout.single(129), 2, 1, 32))
    assert counters["stats"]["unique_graphs"] == before + 1


def test_trap_16_past_the_limit_of_compiled_shapes_it_refuses(attend: Attend, monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.setattr(flex, "LIMIT", 2)
    for length in (100, 200):
        run_attend(attend, problem(Layout.single(length), 1, 1, 16))
    with pytest.raises(ValueError, match=r"q has 384 rows \(padded\).* 2 that impl 'flex' compiles.*impl='triton'"):
        run_attend(attend, problem(Layout.single(300), 1, 1, 16))
    run_attend(attend, problem(Layout.single(200), 1, 1, 16))


def test_trap_16_dynamos_own_limit_refuses_too(attend: Attend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should Dynamo recompile for a reason that our count does not know, it must not run uncompiled either."""
    torch._dynamo.reset()
    monkeypatch.setattr(flex, "LIMIT", 1)
    for length in (100, 200):
        monkeypatch.setattr(flex, "_compiled_shapes", set())
        run_attend(attend, problem(Layout.single(length), 1, 1, 16, d_lse=False))
    monkeypatch.setattr(flex, "_compiled_shapes", set())
    with pytest.raises(ValueError, match=r"q has 384 rows \(padded\)"):
        run_attend(attend, problem(Layout.single(300), 1, 1, 16, d_lse=False))
    torch._dynamo.reset()


def test_trap_16_it_never_runs_uncompiled(attend: Attend) -> None:
    given_problem = problem(Layout.single(10), 1, 1, 16)
    with torch.compiler.set_stance("force_eager"), pytest.raises(ValueError, match="switched off in this process"):
        run_attend(attend, given_problem)


def test_sinks_keep_their_dtype_and_low_precision_stays_low(attend: Attend) -> None:
    given_problem = problem(Layout.single(20), 2, 1, 16, dtype=torch.bfloat16)
    got = run_attend(attend, given_problem)
    assert {name: x.dtype for name, x in got.items()} == {
        **dict.fromkeys(("out", "dq", "dk", "dv", "da"), torch.bfloat16),
        "lse": torch.float32,
    }


def test_the_cpu_is_refused_with_the_name_of_one_that_runs_there() -> None:
    with pytest.raises(
        ValueError, match=r"impl is 'flex', but flex has no backward pass on a CPU; impl='flash' supports"
    ):
        run(problem(Layout.single(4), dtype=torch.float32), "flex")


@pytest.mark.parametrize(
    ("dtype", "head_dim", "why"),
    [
        (torch.float64, 64, "flex computes in float32 at most, not torch.float64; impl='eager'"),
        (torch.bfloat16, 8, "flex needs a head_dim of 16 to 256, not 8"),
        (torch.bfloat16, 264, "flex needs a head_dim of 16 to 256, not 264"),
    ],
)
def test_what_flex_cannot_honour_on_a_gpu_is_refused(dtype: torch.dtype, head_dim: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        resolve("flex", Request(torch.device("cuda"), dtype, head_dim, False))
    assert resolve("flex", Request(torch.device("cuda"), torch.bfloat16, 64, True)) == "flex"
    assert choose("cuda", torch.bfloat16, Layout.single(4), 64).impl in ("triton", "flex")


def test_without_triton_flex_cannot_be_compiled_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"flex needs the package triton.*; impl='flash' supports"):
        resolve("flex", Request(torch.device("cuda"), torch.bfloat16, 64, True))


@pytest.mark.slow
def test_the_compiled_forward_pass_on_a_cpu() -> None:
    """torch's C++ template, which walks the table of blocks; no log-sum-exp there, so no sinks."""
    layout, window = Layout.from_lengths([200, 100, 80], parents=[-1, 0, 0]), 150
    given_problem = problem(layout, 4, 2, 32, sinks=False, dtype=torch.float32)
    mask = flex.mask_of(layout, window, torch.device("cpu"))
    q, k, v = (flex._padded(x, 384, None, "x") for x in (given_problem.q, given_problem.k, given_problem.v))
    compiled = torch.compile(torch_flex.flex_attention, fullgraph=True, dynamic=False)
    with torch.no_grad():
        out = compiled(q, k, v, block_mask=mask.blocks, scale=0.25, enable_gqa=True)
    want = run(given_problem.to(torch.float64), "eager", window, 0.25)["out"]
    assert float((out[0].transpose(0, 1)[: layout.num_queries].double() - want).abs().max()) < 1e-5


def relative(got: torch.Tensor, exact: torch.Tensor) -> float:
    return float((got.double() - exact).norm() / exact.norm().clamp(min=1e-30))


@on_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [None, 128])
@pytest.mark.parametrize("length", B57_LENGTHS)
def test_B57_and_B58_on_a_gpu(dtype: torch.dtype, window: int | None, length: int) -> None:
    rounded = on_cuda(problem(Layout.single(length), 6, 2, 64, dtype=dtype))
    exact = run(rounded.to(torch.float64), "eager", window)
    got = run_attend(flex.attend, rounded, window)
    out_error, gradient_error = (1e-6, 1e-5) if dtype == torch.float32 else (5e-3, 1e-2)
    assert relative(got["out"], exact["out"]) < 2 * out_error
    assert max(relative(got[name], exact[name]) for name in ("dq", "dk", "dv")) < 2 * gradient_error


@on_gpu
@pytest.mark.parametrize("window", [None, 33])
def test_trees_caches_and_rows_that_see_nothing_on_a_gpu(window: int | None) -> None:
    segments = (
        Segment(0, 200, 0, 200),
        Segment(200, 150, 203, 170, 200, 0),
        Segment(352, 9, 373, 4),
        Segment(361, 1, 380, 90),
    )
    rounded = on_cuda(problem(Layout(segments, 370, 480), 8, 2, 64, dtype=torch.bfloat16))
    exact = run(rounded.to(torch.float64), "eager", window)
    got = run_attend(flex.attend, rounded, window)
    assert all(bool(torch.isfinite(x).all()) for x in got.values())
    assert relative(got["out"], exact["out"]) < 1e-2
    assert max(relative(got[name], exact[name]) for name in ("dq", "dk", "dv")) < 2e-2
    assert sink_attention(rounded.q, rounded.k, rounded.v, rounded.sinks, layout=rounded.layout, impl="flex").is_cuda
