"""Failures seen in public, on the triton implementation (docs of origin: the IDs), under Triton's interpreter."""

from __future__ import annotations

import math
from unittest import mock

import pytest
import torch
from parity import NAMES, Problem, gap, problem, run
from sinkflex.kernels.api import Layout, Segment, padded_attention, sink_attention
from triton_cases import check, implementation

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="these shapes are for the interpreter")

NAN = float("nan")


def column(values: list[float]) -> torch.Tensor:
    """One-dimensional heads: [len(values), 1, 1]."""
    return torch.tensor(values)[:, None, None]


def test_one_key_case_of_the_log_sum_exp_gradient() -> None:
    """q = k = 1, v = 2, sink 0, scale 1, dO = 1: without the gradient through the log-sum-exp dq would be 0."""
    q, k, v = (torch.tensor([[[x]]], requires_grad=True) for x in (1.0, 1.0, 2.0))
    out, lse = sink_attention(
        q, k, v, q.new_zeros(1), layout=Layout.single(1), scale=1.0, impl="triton", return_lse=True
    )
    assert torch.autograd.grad(out.sum(), q)[0].item() == pytest.approx(0.393224, abs=1e-6)
    assert lse.item() == pytest.approx(math.log(1 + math.e), abs=1e-6)  # the natural base


def test_B48_sinks_are_not_dropped() -> None:
    given_problem = problem(Layout.single(20), 2, 1, 16, dtype=torch.float32)
    outputs = []
    for shift in (0.0, 5.0):
        given_problem.sinks = torch.zeros(2) + shift
        outputs.append(run(given_problem, "triton")["out"])
    assert float((outputs[0] - outputs[1]).abs().max()) > 0.1


def test_B49_the_sink_renormalises_the_output() -> None:
    sinks = torch.tensor([math.log(2.0)])
    out = sink_attention(
        column([0.0]), column([0.0, 0.0]), column([1.0, 3.0]), sinks, layout=Layout.single(1, 2), impl="triton"
    )
    assert out.item() == pytest.approx(1.0, abs=1e-6)


def test_B51_sinks_receive_their_gradient_and_train() -> None:
    batch, heads, length, dim = 2, 2, 5, 4
    q, k, v, pull = (torch.randn(batch, heads, length, dim) for _ in range(4))
    sinks = torch.nn.Parameter(torch.randn(heads))
    before = sinks.detach().clone()
    out = padded_attention(q, k, v, sinks, impl="triton").transpose(1, 2)
    (out * pull).sum().backward()
    scores = (q @ k.transpose(-1, -2) / 2).masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
    p_sink = torch.cat([scores, before.view(1, heads, 1, 1).expand(batch, -1, length, 1)], -1).softmax(-1)[..., -1]
    assert sinks.grad is not None
    expected = -(p_sink * (out.detach() * pull).sum(-1)).sum((0, 2))
    assert torch.allclose(sinks.grad, expected, rtol=0, atol=1e-5)
    torch.optim.SGD([sinks], lr=0.1).step()
    assert bool((sinks.detach() != before).all())


def test_B52_empty_documents_and_rows_that_see_nothing() -> None:
    given_problem = problem(Layout.from_lengths([3, 0, 2]), 2, 1, 16, dtype=torch.float32)
    given_problem.d_out = torch.ones_like(given_problem.d_out)
    given_problem.d_lse = torch.ones(5, 2)
    got = check(given_problem)
    assert all(bool(torch.isfinite(x).all()) for x in got.values())
    # Three queries, one key: the first two see nothing, and their log-sum-exp is the sink itself.
    blind = problem(Layout((Segment(0, 3, 0, 1),), 3, 1), 2, 1, 16, dtype=torch.float32)
    got = check(blind)
    assert blind.sinks is not None and blind.d_lse is not None
    assert torch.allclose(got["lse"][:2], blind.sinks.expand(2, -1), rtol=1e-6)
    assert bool((got["out"][:2] == 0).all()) and bool((got["dq"][:2] == 0).all())
    alone = problem(Layout((Segment(2, 1, 0, 1),), 3, 1), 2, 1, 16, dtype=torch.float32)
    assert alone.d_lse is not None
    alone.d_lse[:2] = 0.0
    assert torch.allclose(got["da"] - run(alone, "triton")["da"], blind.d_lse[:2].sum(0), rtol=0, atol=1e-5)


@pytest.mark.parametrize("minus_infinity", [True, False])
def test_B52_without_a_sink_a_row_that_sees_nothing_is_zero(minus_infinity: bool) -> None:
    given_problem = problem(Layout.single(40, 1), 2, 1, 16, sinks=False, d_lse=False, dtype=torch.float32)
    given_problem.sinks = torch.full((2,), -torch.inf) if minus_infinity else None
    got = run(given_problem, "triton")
    assert bool((got["out"][:39] == 0).all()) and all(bool(torch.isfinite(x).all()) for x in got.values())
    _, lse = sink_attention(
        given_problem.q, given_problem.k, given_problem.v, given_problem.sinks, layout=given_problem.layout,
        impl="triton", return_lse=True,
    )  # fmt: skip
    assert bool((lse[:39] == -torch.inf).all()) and bool(torch.isfinite(lse[39:]).all())


@pytest.mark.parametrize("window", [None, 5])
def test_a_sink_of_minus_infinity_is_no_sink_exactly(window: int | None) -> None:
    layout = Layout((Segment(1, 40, 0, 40), Segment(43, 3, 44, 1)), 47, 47)
    with_sinks = problem(layout, 2, 1, 16, dtype=torch.float32)
    with_sinks.sinks = torch.full((2,), -torch.inf)
    plain = Problem(**{**vars(with_sinks), "sinks": None})
    got, want = run(with_sinks, "triton", window), run(plain, "triton", window)
    assert torch.equal(got.pop("da"), torch.zeros(2))
    assert all(torch.equal(got[name], want[name]) for name in want)


def test_B56_a_key_both_in_the_future_and_padding() -> None:
    q, k, v = (torch.randn(2, h, 6, 16, dtype=torch.float16, requires_grad=True) for h in (2, 1, 1))
    sinks = torch.tensor([-5.0, 20.0], dtype=torch.float16, requires_grad=True)
    out = padded_attention(q, k, v, sinks, lengths=[3, 6], window=2, impl="triton")
    gradients = torch.autograd.grad(out.float().sum(), (q, k, v, sinks))
    assert all(bool(torch.isfinite(x).all()) for x in (out, *gradients))
    assert bool((out[0, 3:] == 0).all()) and bool((gradients[1][0, :, 3:] == 0).all())


@pytest.mark.parametrize(
    ("length", "window"),
    [(n, None) for n in (1, 2, 63, 96, 127, 128, 129)] + [(129, 128), pytest.param(255, 128, marks=pytest.mark.slow)],
)
def test_B57_lengths_around_a_block_in_half_precision(length: int, window: int | None) -> None:
    """float16, because the interpreter multiplies no bfloat16; 1000 and 1025 tokens are for the device."""
    check(problem(Layout.single(length), 1, 1, 16, d_lse=False, dtype=torch.float16), window)


def test_B59_key_length_that_is_no_multiple_of_a_block() -> None:
    check(problem(Layout.single(64, 200), 1, 1, 16, dtype=torch.float32))


@pytest.mark.parametrize(
    ("num_q_heads", "num_kv_heads", "length"),
    [(6, 2, 16), (6, 2, 100), (64, 8, 16), pytest.param(6, 2, 300, marks=pytest.mark.slow)],
)
def test_B61_head_groups_of_any_size(num_q_heads: int, num_kv_heads: int, length: int) -> None:
    check(problem(Layout.single(length), num_q_heads, num_kv_heads, 16, dtype=torch.float32))


def test_B62_query_head_h_uses_key_head_h_div_group() -> None:
    q, k = torch.zeros(1, 4, 1), torch.zeros(1, 2, 1)
    v = torch.tensor([1.0, 2.0]).view(1, 2, 1)
    sinks = torch.tensor([0.0, math.log(3.0), 0.0, math.log(3.0)])
    out = sink_attention(q, k, v, sinks, layout=Layout.single(1), impl="triton")
    assert out.flatten().tolist() == pytest.approx([0.5, 0.25, 1.0, 0.5], abs=1e-6)


def gradients_of(leaves: list[torch.Tensor], given_problem: Problem, d_out: torch.Tensor) -> dict[str, torch.Tensor]:
    out, lse = sink_attention(*leaves, layout=given_problem.layout, impl="triton", return_lse=True)
    gradients = torch.autograd.grad([out, lse], leaves, [d_out, given_problem.d_lse])
    return dict(zip(NAMES, (out.detach(), lse.detach(), *gradients), strict=True))


def test_B63_strided_tensors_equal_contiguous_ones() -> None:
    """q as a view with wide rows, k and v from one fused projection, a permuted dO and a transposed dL."""
    plain = problem(Layout.single(80), 2, 2, 24, dtype=torch.float32)
    wide = torch.full((80, 1000), NAN)
    q = wide[:, 100:148].view(80, 2, 24)
    q.copy_(plain.q)
    fused = torch.cat([plain.k.flatten(1), plain.v.flatten(1)], dim=1)
    k, v = (x.view(80, 2, 24) for x in fused.split(48, dim=1))
    d_out = torch.empty(24, 2, 80).permute(2, 1, 0)
    d_out.copy_(plain.d_out)
    assert plain.sinks is not None and plain.d_lse is not None
    plain.d_lse = plain.d_lse.T.contiguous().T
    leaves = [x.detach().requires_grad_() for x in (q, k, v, plain.sinks)]
    assert gap(gradients_of(leaves, plain, d_out), run(plain, "triton")) == 0.0


def test_B63_tensors_whose_last_dimension_is_strided() -> None:
    plain = problem(Layout.single(40), 2, 1, 16, dtype=torch.float32)
    leaves = [
        torch.empty(16, x.shape[1], 40).permute(2, 1, 0).copy_(x).requires_grad_() for x in (plain.q, plain.k, plain.v)
    ]
    assert plain.sinks is not None
    leaves.append(plain.sinks.clone().requires_grad_())
    assert gap(gradients_of(leaves, plain, plain.d_out), run(plain, "triton")) == 0.0


def test_B63_a_row_offset_beyond_32_bits() -> None:
    """The cheap form: 40 rows of q a stride of 70 million apart, so that offsets pass 2^31 within a tile and beyond it.

    Of the 5.5 GB only the pages that are touched exist. The interpreter copies every storage back onto itself at the
    end of a launch, which would touch them all; on a CPU that copy is idle, so it is left out.
    """
    stride = 70_000_000
    plain = problem(Layout.single(40), 1, 1, 16, dtype=torch.float16)
    assert 31 * stride > 1 << 31  # the last row of a tile of 32
    try:
        storage = torch.empty(39 * stride + 16, dtype=torch.float16)
    except RuntimeError as error:
        pytest.skip(f"no address space for 5.5 GB: {error}")
    q = storage.as_strided((40, 1, 16), (stride, stride, 1))
    q.copy_(plain.q)
    from triton.runtime.interpreter import GridExecutor

    assert plain.sinks is not None
    leaves = [x.detach().requires_grad_() for x in (q, plain.k, plain.v, plain.sinks)]
    with mock.patch.object(GridExecutor, "_restore_args_dev", lambda *_: None):
        got = gradients_of(leaves, plain, plain.d_out)
    assert gap(got, run(plain, "triton")) == 0.0


def test_a_gradient_of_one_expanded_number() -> None:
    """`out.sum().backward()` sends one number with strides of 0."""
    given_problem = problem(Layout.single(40), 2, 1, 16, d_lse=False, dtype=torch.float32)
    given_problem.d_out = torch.ones(()).expand_as(given_problem.d_out)
    check(given_problem)


@pytest.mark.parametrize("head_dim", [80, 96])
def test_B65_head_dims_that_are_no_power_of_two(head_dim: int) -> None:
    given_problem = problem(Layout.single(200), 1, 1, head_dim, dtype=torch.float32)
    check(given_problem, 32)
    assert gap(run(given_problem, "triton", 32), run(given_problem, "triton", 32, head_dim**-0.5)) == 0.0


@pytest.mark.parametrize("head_dim", [1, 8, 48, 64, 128])
def test_head_dims_up_to_128(head_dim: int) -> None:
    check(problem(Layout.single(40), 1, 1, head_dim, dtype=torch.float32), 20)


@pytest.mark.parametrize(
    ("scores", "sink", "weights"),
    [([100.0, 100.0], 100.0, [1 / 3, 1 / 3]), ([-100.0, -100.0], 100.0, [0.0, 0.0]), ([200.0], -200.0, [1.0])],
)
def test_B67_scores_and_sinks_far_from_zero(scores: list[float], sink: float, weights: list[float]) -> None:
    count = len(scores)
    q = torch.tensor([[[1.0, 0.0]]], requires_grad=True)
    k = torch.tensor([[[score, 0.0]] for score in scores], requires_grad=True)
    for position, weight in enumerate(weights):
        v = torch.zeros(count, 1, 2)
        v[position] = 1.0
        v.requires_grad_()
        sinks = torch.tensor([sink], requires_grad=True)
        out = sink_attention(q, k, v, sinks, layout=Layout.single(1, count), scale=1.0, impl="triton")
        assert out.flatten().tolist() == pytest.approx([weight, weight], abs=1e-6)
        gradients = torch.autograd.grad(out.sum(), (q, k, v, sinks))
        assert all(bool(torch.isfinite(x).all()) for x in gradients)


def test_the_window_counts_the_token_itself() -> None:
    """Window 1 sees the own key only; 4 is neither 3 nor 5."""
    given_problem = problem(Layout.single(40), 1, 1, 16, sinks=False, d_lse=False, dtype=torch.float32)
    assert torch.allclose(run(given_problem, "triton", 1)["out"], given_problem.v, rtol=0, atol=1e-6)
    outputs = {window: run(given_problem, "triton", window)["out"] for window in (3, 4, 5)}
    assert gap({"out": outputs[4]}, {"out": run(given_problem, "eager", 4)["out"]}) < 1e-6
    assert all(gap({"out": outputs[4]}, {"out": outputs[other]}) > 1e-2 for other in (3, 5))


def test_packed_documents_do_not_touch_one_another() -> None:
    given_problem = problem(Layout.from_lengths([40, 7, 50]), 2, 1, 16, dtype=torch.float32)
    before = run(given_problem, "triton", 32)
    for tensor in (given_problem.q, given_problem.k, given_problem.v, given_problem.d_out):
        tensor[40:47] += 3.0
    after = run(given_problem, "triton", 32)
    for name in ("out", "lse", "dq", "dk", "dv"):
        assert torch.equal(before[name][:40], after[name][:40]) and torch.equal(before[name][47:], after[name][47:])
        assert not torch.equal(before[name][40:47], after[name][40:47])


@pytest.mark.parametrize("window", [None, 16])
def test_padding_is_never_read(window: int | None) -> None:
    """B47's kind: what stands at positions that no document owns changes nothing, not even as NaN."""
    layout = Layout.padded([50, 3, 0], 60, key_lengths=[50, 40, 0], key_width=55)
    clean = problem(layout, 2, 1, 16, dtype=torch.float32)
    want = run(clean, "triton", window)
    dirty = problem(layout, 2, 1, 16, dtype=torch.float32)
    for row, (length, key_length) in enumerate([(50, 50), (3, 40), (0, 0)]):
        for tensor in (dirty.q, dirty.d_out):
            tensor[row * 60 + length : (row + 1) * 60] = NAN
        for tensor in (dirty.k, dirty.v):
            tensor[row * 55 + key_length : (row + 1) * 55] = NAN
    got = run(dirty, "triton", window)
    assert all(torch.equal(got[name], want[name]) for name in NAMES)


@pytest.mark.parametrize("at", [0, 10])
def test_a_key_that_is_not_finite_reaches_those_who_see_it(at: int) -> None:
    """A masked score times NaN is NaN: api.sink_attention computes again without the bad rows, and so it does here."""
    window = 16
    clean, dirty = (problem(Layout.single(60), 2, 2, 16, dtype=torch.float32) for _ in range(2))
    dirty.v[at, 0] = NAN
    dirty.k[at + 1, 1, 3] = torch.inf
    want, got = run(clean, "triton", window), run(dirty, "triton", window)
    rows = torch.arange(60)
    for head, first in ((0, at), (1, at + 1)):
        sees = (rows >= first) & (rows < first + window)
        assert bool(torch.isnan(got["out"][sees][:, head]).all())
        assert torch.equal(got["out"][~sees][:, head], want["out"][~sees][:, head])
        assert bool(torch.isfinite(got["dq"][~sees][:, head]).all())


def test_left_padded_rows_are_described_as_segments() -> None:
    segments = tuple(Segment(end - length, length, end - length, length) for end, length in ((9, 5), (18, 9), (27, 2)))
    left = problem(Layout(segments, 27, 27), 2, 1, 16, dtype=torch.float32)
    for tensor in (left.q, left.k, left.v, left.d_out):
        tensor[:4] = tensor[18:25] = NAN
    got = run(left, "triton", 4)
    for segment in segments:
        rows = slice(segment.q_start, segment.q_start + segment.q_len)
        assert left.d_lse is not None
        alone = Problem(
            left.q[rows], left.k[rows], left.v[rows], left.sinks, Layout.single(segment.q_len), left.d_out[rows],
            left.d_lse[rows],
        )  # fmt: skip
        want = run(alone, "eager", 4)
        for name in ("out", "dq", "dk", "dv"):
            assert torch.allclose(got[name][rows], want[name], rtol=0, atol=1e-5)


def test_B58_layouts_used_in_turn_equal_fresh_ones() -> None:
    kept = {length: Layout.single(length) for length in (70, 40)}
    for length in (70, 40, 70):
        fresh = run(problem(Layout.single(length), 1, 1, 16, dtype=torch.float32), "triton", 20)
        again = run(problem(kept[length], 1, 1, 16, dtype=torch.float32), "triton", 20)
        assert all(torch.equal(fresh[name], again[name]) for name in NAMES)


def test_float32_products_are_not_rounded_to_tf32() -> None:
    """NVIDIA GPUs would by default; the interpreter ignores the setting, so it is looked up."""
    config, constants = implementation._launch("forward", torch.zeros(1, 1, 64))
    assert constants["PRECISION"] == "ieee" and config.num_warps > 0
