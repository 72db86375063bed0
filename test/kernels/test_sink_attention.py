"""sink_attention: flash against the eager specification, and the specification against the formula."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from parity import Largest, Problem, every_path, gap, problem, run
from sinkflex.kernels.api import Layout, Segment, choose, sink_attention
from sinkflex.kernels.reference import visibility

AWKWARD = (1, 63, 96, 130)


def test_eager_is_the_formula() -> None:
    given_problem = problem(Layout.from_lengths([3, 4]), head_dim=8)
    window, scale = 2, 0.3
    got = run(given_problem, "eager", window, scale)
    assert given_problem.sinks is not None
    for start, length in ((0, 3), (3, 4)):
        for row in range(length):
            for head in range(4):
                query = given_problem.q[start + row, head]
                seen = [start + j for j in range(length) if j <= row and row - j < window]
                scores = [scale * float(query @ given_problem.k[j, head // 2]) for j in seen]
                sink = float(given_problem.sinks[head])
                lse = math.log(math.exp(sink) + sum(math.exp(s) for s in scores))
                out = sum(math.exp(s - lse) * given_problem.v[j, head // 2] for s, j in zip(scores, seen, strict=True))
                assert abs(float(got["lse"][start + row, head]) - lse) < 1e-12
                assert torch.allclose(got["out"][start + row, head], out, rtol=0, atol=1e-12)


def test_eager_gradients_are_those_of_the_function() -> None:
    layout = Layout.from_lengths([3, 2, 2], parents=[-1, 0, 0])
    given_problem = problem(layout, 2, 1, 4)
    leaves = [x.requires_grad_() for x in (given_problem.q, given_problem.k, given_problem.v, given_problem.sinks)]

    def attend(*x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return sink_attention(*x, layout=layout, window=3, impl="eager", return_lse=True)

    assert torch.autograd.gradcheck(attend, leaves)


def test_eager_over_trees_is_the_mask_over_all_rows() -> None:
    """Trees are computed one by one; the whole mask at once must say the same, padding rows included."""
    segments = (
        Segment(1, 3, 0, 3),
        Segment(4, 2, 4, 2, 7),
        Segment(6, 2, 6, 4, 3, 0),
        Segment(9, 1, 10, 1, 9, 1),
        Segment(10, 2, 11, 2, 7, 2),
    )
    given_problem = problem(Layout(segments, 13, 14))
    got = run(given_problem, "eager", 4)
    assert given_problem.sinks is not None
    keys, values = (x.repeat_interleave(2, 1) for x in (given_problem.k, given_problem.v))
    scores = torch.einsum("qhd,khd->hqk", given_problem.q, keys) * 24**-0.5
    scores = scores.masked_fill(~visibility(given_problem.layout, 4), -torch.inf)
    column = given_problem.sinks[:, None, None].expand(-1, 13, 1)
    weights = torch.cat([scores, column], dim=-1).softmax(-1)[..., :-1]
    assert torch.allclose(got["out"], torch.einsum("hqk,khd->qhd", weights, values), rtol=0, atol=1e-13)
    lse = torch.logsumexp(torch.cat([scores, column], dim=-1), dim=-1).T
    assert torch.allclose(got["lse"], lse, rtol=0, atol=1e-13)


def packed(draw: Callable[..., object]) -> Layout:
    """Random segments: self-attention, or queries at the end of more keys, with padding between."""
    lengths = draw(st.lists(st.one_of(st.sampled_from((0, *AWKWARD)), st.integers(1, 90)), min_size=0, max_size=5))
    extra = draw(st.lists(st.integers(-3, 40), min_size=len(lengths), max_size=len(lengths)))
    segments, q_end, k_end = [], 0, 0
    cached = draw(st.booleans())
    for length, more in zip(lengths, extra, strict=True):
        space = draw(st.integers(0, 3))
        keys = max(0, length + more) if cached else length
        segments.append(Segment(q_end + space, length, k_end + space, keys))
        q_end, k_end = q_end + space + length, k_end + space + keys
    return Layout(tuple(segments), q_end + 2, k_end + 2)


@given(st.data())
@settings(max_examples=70, deadline=None, derandomize=True)
def test_flash_equals_eager_in_float64_whatever_the_layout(data: st.DataObject) -> None:
    layout = packed(data.draw)
    window = data.draw(st.sampled_from((None, 1, 2, 16, 33, 128, 400)))
    kv_heads, repeat = data.draw(st.sampled_from((1, 2))), data.draw(st.sampled_from((1, 2, 3, 8)))
    given_problem = problem(
        layout,
        kv_heads * repeat,
        kv_heads,
        data.draw(st.sampled_from((8, 20))),
        sinks=data.draw(st.booleans()),
        d_lse=data.draw(st.booleans()),
    )
    want = run(given_problem, "eager", window)
    assert gap(run(given_problem, "flash", window), want) < 1e-12
    layout.derived.clear()
    with every_path():
        assert gap(run(given_problem, "flash", window), want) < 1e-12


@pytest.mark.parametrize("head_dim", [24, 80, 96])
@pytest.mark.parametrize("window", [None, 4, 128, 129])
def test_awkward_lengths_and_head_dims(head_dim: int, window: int | None) -> None:
    given_problem = problem(Layout.from_lengths(AWKWARD), 4, 2, head_dim)
    assert gap(run(given_problem, "flash", window), run(given_problem, "eager", window)) < 1e-12


@pytest.mark.parametrize(("length", "window"), [(4096, None), (700, 128), (600, 5)])
def test_long_segments_at_the_real_thresholds(length: int, window: int | None) -> None:
    given_problem = problem(Layout.from_lengths([length, 17]), 1, 1, 8)
    assert gap(run(given_problem, "flash", window), run(given_problem, "eager", window)) < 1e-12


def error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return float((got.double() - exact).norm() / exact.norm())


def sink_gradient_size(given_problem: Problem, exact: dict[str, torch.Tensor]) -> torch.Tensor:
    """||p * delta||_2 over the rows, per head: the size of the terms that da sums, some of which cancel."""
    assert given_problem.sinks is not None
    delta = (given_problem.d_out.double() * exact["out"]).sum(-1)
    return (torch.exp(given_problem.sinks.double() - exact["lse"]) * delta).norm(dim=0)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("dtype", "out_error", "gradient_error", "sink_error"),
    [(torch.float32, 1e-6, 1e-5, 1e-5), (torch.bfloat16, 5e-3, 1e-2, 6e-3)],
)
@pytest.mark.parametrize("window", [None, 128])
def test_low_precision_stays_close_to_float64(
    dtype: torch.dtype, out_error: float, gradient_error: float, sink_error: float, window: int | None, whole: bool
) -> None:
    rounded = problem(Layout.from_lengths([300, 130, 63]), 4, 2, 64, d_lse=False, dtype=dtype)
    exact = run(rounded.to(torch.float64), "eager", window)
    if whole:
        with every_path():
            got = run(rounded, "flash", window)
    else:
        got = run(rounded, "flash", window)
    assert got["out"].dtype == dtype and got["lse"].dtype == torch.float32
    assert error(got["out"], exact["out"]) < out_error
    assert max(error(got[name], exact[name]) for name in ("dq", "dk", "dv")) < gradient_error
    difference = (got["da"].double() - exact["da"]).abs()
    assert float((difference / sink_gradient_size(rounded, exact)).max()) < sink_error


def test_one_key_case_of_the_log_sum_exp_gradient() -> None:
    """q = k = 1, v = 2, sink 0, scale 1, dO = 1: without the gradient through the log-sum-exp dq would be 0."""
    for impl in ("eager", "flash"):
        q, k, v = (torch.tensor([[[x]]], dtype=torch.float64, requires_grad=True) for x in (1.0, 1.0, 2.0))
        out = sink_attention(q, k, v, q.new_zeros(1), layout=Layout.single(1), scale=1.0, impl=impl)
        assert torch.autograd.grad(out.sum(), q)[0].item() == pytest.approx(0.393224, abs=1e-6)


@pytest.mark.parametrize("impl", ["eager", "flash"])
@pytest.mark.parametrize("window", [None, 5])
def test_a_sink_of_minus_infinity_is_no_sink_exactly(impl: str, window: int | None) -> None:
    with_sinks = problem(Layout(tuple([Segment(1, 40, 0, 40), Segment(43, 3, 44, 1)]), 47, 47))
    with_sinks.sinks = torch.full((4,), -torch.inf, dtype=torch.float64)
    plain = Problem(**{**vars(with_sinks), "sinks": None})
    got, want = run(with_sinks, impl, window), run(plain, impl, window)
    assert torch.equal(got.pop("da"), torch.zeros(4, dtype=torch.float64))
    assert all(torch.equal(got[name], want[name]) for name in want)


@pytest.mark.parametrize("impl", ["eager", "flash"])
def test_sink_gradient_is_bitwise_repeatable(impl: str) -> None:
    given_problem = problem(Layout.from_lengths(AWKWARD), dtype=torch.float32)
    assert torch.equal(run(given_problem, impl, 32)["da"], run(given_problem, impl, 32)["da"])


def test_packed_documents_do_not_touch_one_another() -> None:
    given_problem = problem(Layout.from_lengths([40, 7, 130]))
    before = run(given_problem, "flash", 32)
    for tensor in (given_problem.q, given_problem.k, given_problem.v, given_problem.d_out):
        tensor[40:47] += 3.0
    after = run(given_problem, "flash", 32)
    for name in ("out", "lse", "dq", "dk", "dv"):
        assert torch.equal(before[name][:40], after[name][:40]) and torch.equal(before[name][47:], after[name][47:])
        assert not torch.equal(before[name][40:47], after[name][40:47])


def test_segments_equal_separate_calls() -> None:
    lengths = [130, 1, 63]
    together = problem(Layout.from_lengths(lengths))
    got = run(together, "flash", 32)
    start = 0
    for length in lengths:
        rows = slice(start, start + length)
        alone = Problem(
            together.q[rows],
            together.k[rows],
            together.v[rows],
            together.sinks,
            Layout.single(length),
            together.d_out[rows],
            None if together.d_lse is None else together.d_lse[rows],
        )
        want = run(alone, "flash", 32)
        assert (
            gap({n: got[n][rows] for n in ("out", "dq", "dk", "dv")}, {n: want[n] for n in ("out", "dq", "dk", "dv")})
            < 1e-13
        )
        start += length


@pytest.mark.parametrize("window", [None, 64])
def test_no_tensor_grows_with_the_square_of_the_length(window: int | None) -> None:
    largest = []
    for length in (1500, 3000):
        given_problem = problem(Layout.single(length), 2, 1, 16, dtype=torch.float32)
        with torch.autograd.set_multithreading_enabled(False), Largest() as seen:
            run(given_problem, "flash", window)
        largest.append(seen.elements)
    assert largest[1] <= 2.2 * max(largest[0], 1 << 17)
    assert largest[1] < 3000 * 3000 / 8


def test_auto_says_what_it_chose_and_why() -> None:
    assert choose("cpu", torch.float32, Layout.single(3)).impl == "flash"
    tree = Layout.from_lengths([3, 2], parents=[-1, 0])
    assert choose("cpu", torch.float32, tree) == ("flash", "linear memory on the CPU, every mask")
    given_problem = problem(tree)
    assert gap(run(given_problem, "auto"), run(given_problem, "flash")) == 0.0


def test_what_an_implementation_cannot_do_it_refuses_naming_who_can() -> None:
    with pytest.raises(ValueError, match=r"impl is 'flex', but flex has no backward pass on a CPU; impl='flash'"):
        run(problem(Layout.from_lengths([3, 2], parents=[-1, 0])), "flex")


@given(st.data())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_flash_equals_eager_in_float64_over_random_trees(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.one_of(st.sampled_from((0, *AWKWARD)), st.integers(1, 90)), min_size=1, max_size=8))
    parents = [-1, *(data.draw(st.integers(-1, index - 1)) for index in range(1, len(lengths)))]
    layout = Layout.from_lengths(lengths, parents=parents)
    window = data.draw(st.sampled_from((None, 1, 3, 16, 40, 128)))
    kv_heads, repeat = data.draw(st.sampled_from((1, 2))), data.draw(st.sampled_from((1, 2, 3)))
    sinks, d_lse = data.draw(st.booleans()), data.draw(st.booleans())
    given_problem = problem(layout, kv_heads * repeat, kv_heads, 8, sinks=sinks, d_lse=d_lse)
    want = run(given_problem, "eager", window)
    assert gap(run(given_problem, "flash", window), want) < 1e-12
    layout.derived.clear()
    with every_path():
        assert gap(run(given_problem, "flash", window), want) < 1e-12


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"impl": "sdpa"}, "impl is 'sdpa'; allowed are auto, eager, flash"),
        ({"window": 0}, "window is 0; allowed are None and whole numbers from 1 on"),
        ({"window": 2.5}, "window is 2.5"),
        ({"sinks": torch.zeros(3)}, r"sinks has shape \(3,\); it needs one logit per query head, \(4,\)"),
        ({"sinks": torch.zeros(4, dtype=torch.int64)}, "sinks is torch.int64"),
        ({"q": torch.zeros(5, 4)}, r"q has shape \(5, 4\); it needs \[tokens, heads, head_dim\]"),
        ({"q": torch.zeros(5, 3, 8)}, "q has 3 heads; that must be a multiple of k's 2"),
        ({"q": torch.zeros(5, 4, 6)}, "k has head_dim 8; q has 6"),
        ({"q": torch.zeros(5, 4, 8, dtype=torch.int32)}, "q is torch.int32; allowed are"),
        ({"k": torch.zeros(5, 2, 8, dtype=torch.float64)}, "k is torch.float64 on cpu; it must match q"),
        ({"v": torch.zeros(4, 2, 8)}, r"v has shape \(4, 2, 8\); it must match k, \(5, 2, 8\)"),
        ({"q": torch.zeros(6, 4, 8)}, "q has 6 rows; layout.num_queries is 5"),
        ({"layout": Layout.single(5, 6)}, "k has 5 rows; layout.num_keys is 6"),
        ({"sinks": torch.zeros(4, device="meta")}, "sinks is torch.float32 on meta"),
    ],
)
def test_bad_arguments_are_named_with_their_value(change: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {
        "q": torch.zeros(5, 4, 8),
        "k": torch.zeros(5, 2, 8),
        "v": torch.zeros(5, 2, 8),
        "sinks": torch.zeros(4),
        "layout": Layout.single(5),
    }
    with pytest.raises(ValueError, match=message):
        sink_attention(**{**arguments, **change})  # type: ignore[arg-type]
