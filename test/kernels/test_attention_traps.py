"""Failures seen in public (docs of origin: the IDs), and padding that nobody may read."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from parity import CPU_IMPLS, NAMES, Problem, every_path, gap, problem, run
from sinkflex.kernels import flash
from sinkflex.kernels.api import Layout, Segment, decode_attention, padded_attention, sink_attention
from sinkflex.kernels.reference import visibility

NAN = float("nan")


def column(values: list[float]) -> torch.Tensor:
    """One-dimensional heads: [len(values), 1, 1]."""
    return torch.tensor(values, dtype=torch.float64)[:, None, None]


@pytest.mark.parametrize("impl", [*CPU_IMPLS, "decode"])
def test_B48_no_implementation_drops_sinks(impl: str) -> None:
    given_problem = problem(Layout.single(20), dtype=torch.float32)
    outputs = []
    for shift in (0.0, 5.0):
        sinks = torch.zeros(4) + shift
        if impl == "decode":
            q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (given_problem.q, given_problem.k, given_problem.v))
            outputs.append(decode_attention(q, k, v, sinks, lengths=torch.tensor([20])))
        else:
            outputs.append(
                sink_attention(
                    given_problem.q, given_problem.k, given_problem.v, sinks, layout=given_problem.layout, impl=impl
                )
            )
    assert float((outputs[0] - outputs[1]).abs().max()) > 0.1


def test_B48_implementations_without_sinks_are_refused_with_the_list() -> None:
    for impl in ("sdpa", "flash_attention_2", "none"):
        with pytest.raises(ValueError, match=f"impl is '{impl}'; allowed are auto, eager, flash"):
            run(problem(Layout.single(2)), impl)


@pytest.mark.parametrize("impl", CPU_IMPLS)
def test_B49_the_sink_renormalises_the_output(impl: str) -> None:
    sinks = torch.tensor([math.log(2.0)], dtype=torch.float64)
    out = sink_attention(
        column([0.0]), column([0.0, 0.0]), column([1.0, 3.0]), sinks, layout=Layout.single(1, 2), impl=impl
    )
    assert out.item() == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize("impl", CPU_IMPLS)
def test_B51_sinks_receive_their_gradient_and_train(impl: str) -> None:
    batch, heads, length, dim = 2, 2, 5, 4
    q, k, v, pull = (torch.randn(batch, heads, length, dim, dtype=torch.float64) for _ in range(4))
    sinks = torch.nn.Parameter(torch.randn(heads, dtype=torch.float64))
    before = sinks.detach().clone()
    out = padded_attention(q, k, v, sinks, impl=impl).transpose(1, 2)
    (out * pull).sum().backward()
    scores = (q @ k.transpose(-1, -2) / 2).masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
    p_sink = torch.cat([scores, before.view(1, heads, 1, 1).expand(batch, -1, length, 1)], -1).softmax(-1)[..., -1]
    assert sinks.grad is not None
    expected = -(p_sink * (out.detach() * pull).sum(-1)).sum((0, 2))
    assert torch.allclose(sinks.grad, expected, rtol=0, atol=1e-10)
    torch.optim.SGD([sinks], lr=0.1).step()
    assert bool((sinks.detach() != before).all())


@pytest.mark.parametrize("impl", CPU_IMPLS)
def test_B52_empty_documents_and_rows_that_see_nothing(impl: str) -> None:
    given_problem = problem(Layout.from_lengths([3, 0, 2]))
    given_problem.d_out, given_problem.d_lse = (
        torch.ones_like(given_problem.d_out),
        torch.ones(5, 4, dtype=torch.float64),
    )
    got = run(given_problem, impl)
    assert all(bool(torch.isfinite(x).all()) for x in got.values())
    assert gap(got, run(given_problem, "eager")) < 1e-13
    # Three queries, one key: the first two see nothing.
    blind = problem(Layout(tuple([Segment(0, 3, 0, 1)]), 3, 1))
    got = run(blind, impl)
    assert blind.sinks is not None and blind.d_lse is not None
    assert torch.equal(got["lse"][:2], blind.sinks.expand(2, -1)) and bool((got["out"][:2] == 0).all())
    assert bool((got["dq"][:2] == 0).all()) and all(bool(torch.isfinite(x).all()) for x in got.values())
    # Their log-sum-exp is the sink itself, so its gradient arrives whole.
    alone = problem(Layout(tuple([Segment(2, 1, 0, 1)]), 3, 1))
    alone.d_lse = alone.d_lse.clone() if alone.d_lse is not None else None
    assert alone.d_lse is not None
    alone.d_lse[:2] = 0.0
    assert torch.allclose(got["da"] - run(alone, impl)["da"], blind.d_lse[:2].sum(0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("impl", CPU_IMPLS)
def test_B52_without_a_sink_a_row_that_sees_nothing_is_zero(impl: str) -> None:
    given_problem = problem(Layout.single(3, 1), sinks=False, d_lse=False)
    got = run(given_problem, impl)
    assert bool((got["out"][:2] == 0).all()) and all(bool(torch.isfinite(x).all()) for x in got.values())


@pytest.mark.parametrize(("lse", "sink"), [(30.0, -5.0), (-30.0, 5.0), (-10.0, 20.0)])
def test_B53_the_factor_of_the_sink_is_not_clamped(lse: float, sink: float) -> None:
    factor, _ = flash.apply_sink(
        torch.ones(1, 1, 1, dtype=torch.float64), torch.full((1, 1), lse, dtype=torch.float64), torch.tensor([sink])
    )
    assert factor.item() == pytest.approx(1.0 / (1.0 + math.exp(sink - lse)), rel=1e-12)
    narrow, _ = flash.apply_sink(torch.ones(1, 1, 1), torch.full((1, 1), lse), torch.tensor([sink]))
    assert narrow.item() == pytest.approx(factor.item(), rel=1e-5)


def test_B53_the_published_values() -> None:
    factor = [float(torch.sigmoid(torch.tensor(x, dtype=torch.float64))) for x in (-35.0, -30.0)]
    assert factor == pytest.approx([6.305e-16, 9.358e-14], rel=1e-3)


@pytest.mark.parametrize("impl", CPU_IMPLS)
def test_B56_a_key_both_in_the_future_and_padding(impl: str) -> None:
    q, k, v = (torch.randn(2, h, 6, 16, dtype=torch.bfloat16, requires_grad=True) for h in (4, 2, 2))
    sinks = torch.tensor([-5.0, 0.0, 5.0, 20.0], dtype=torch.bfloat16, requires_grad=True)
    out = padded_attention(q, k, v, sinks, lengths=[3, 6], window=2, impl=impl)
    gradients = torch.autograd.grad(out.float().sum(), (q, k, v, sinks))
    assert all(bool(torch.isfinite(x).all()) for x in (out, *gradients))
    assert bool((out[0, 3:] == 0).all()) and bool((gradients[1][0, :, 3:] == 0).all())


@pytest.mark.parametrize("length", [1, 2, 127, 128, 129, 255, 1000, 1025])
@pytest.mark.parametrize("window", [None, 128])
def test_B57_lengths_around_a_block_in_bfloat16(length: int, window: int | None) -> None:
    given_problem = problem(Layout.single(length), 2, 1, 16, d_lse=False, dtype=torch.bfloat16)
    got, eager = run(given_problem, "flash", window), eager_in_bfloat16(given_problem, window)
    exact = run(given_problem.to(torch.float64), "eager", window)
    for name in ("out", "dq", "dk", "dv", "da"):
        # Where terms cancel (one token: dq is a difference of near equals) eager bfloat16 sets the measure.
        allowed = max(1e-2 * float(exact[name].norm()), 2 * float((eager[name].double() - exact[name]).norm()))
        assert float((got[name].double() - exact[name]).norm()) <= allowed


def eager_in_bfloat16(given_problem: Problem, window: int | None) -> dict[str, torch.Tensor]:
    """Every operation rounded to bfloat16, as eager attention runs in a bfloat16 model."""
    leaves = [x.clone().requires_grad_() for x in (given_problem.q, given_problem.k, given_problem.v)]
    sinks = given_problem.sinks.clone().requires_grad_() if given_problem.sinks is not None else None
    assert sinks is not None
    q, k, v = (x.transpose(0, 1) for x in leaves)
    scores = q @ k.repeat_interleave(2, 0).transpose(1, 2) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(~visibility(given_problem.layout, window), -torch.inf)
    scores = torch.cat([scores, sinks[:, None, None].expand(-1, q.shape[1], 1)], dim=-1)
    out = (scores.softmax(-1)[..., :-1] @ v.repeat_interleave(2, 0)).transpose(0, 1)
    gradients = torch.autograd.grad(out, (*leaves, sinks), given_problem.d_out)
    return dict(zip(("out", "dq", "dk", "dv", "da"), (out.detach(), *gradients), strict=True))


def test_B58_layouts_used_in_turn_equal_fresh_ones() -> None:
    kept = {length: Layout.single(length) for length in (300, 200, 7)}
    for length in (300, 200, 300, 7, 300):
        fresh = run(problem(Layout.single(length)), "flash", 64)
        again = run(problem(kept[length]), "flash", 64)
        assert all(torch.equal(fresh[name], again[name]) for name in NAMES)


@pytest.mark.parametrize("impl", CPU_IMPLS)
def test_B59_key_length_that_is_no_multiple_of_a_block(impl: str) -> None:
    given_problem = problem(Layout.single(64, 200), dtype=torch.float32)
    exact = run(given_problem.to(torch.float64), "eager")
    assert float((run(given_problem, impl)["out"].double() - exact["out"]).abs().max()) <= 1e-5


@pytest.mark.parametrize(("num_q_heads", "num_kv_heads"), [(6, 2), (64, 8)])
@pytest.mark.parametrize("length", [16, 300])
def test_B61_head_groups_of_any_size(num_q_heads: int, num_kv_heads: int, length: int) -> None:
    given_problem = problem(Layout.single(length), num_q_heads, num_kv_heads, 8)
    assert gap(run(given_problem, "flash"), run(given_problem, "eager")) < 1e-12


@pytest.mark.parametrize("impl", [*CPU_IMPLS, "decode"])
def test_B62_query_head_h_uses_key_head_h_div_group(impl: str) -> None:
    q, k = torch.zeros(1, 4, 1), torch.zeros(1, 2, 1)
    v = torch.tensor([1.0, 2.0]).view(1, 2, 1)
    sinks = torch.tensor([0.0, math.log(3.0), 0.0, math.log(3.0)])
    if impl == "decode":
        out = decode_attention(
            q.view(1, 4, 1, 1), k.view(1, 2, 1, 1), v.view(1, 2, 1, 1), sinks, lengths=torch.tensor([1])
        )
    else:
        out = sink_attention(q, k, v, sinks, layout=Layout.single(1), impl=impl)
    assert out.flatten().tolist() == pytest.approx([0.5, 0.25, 1.0, 0.5], abs=1e-6)


@pytest.mark.parametrize("whole", [False, True])
def test_B63_strided_tensors_equal_contiguous_ones(whole: bool) -> None:
    """The cheap form at a small size: q as a view with wide rows, k and v from one fused projection, a strided dO."""
    contiguous = problem(Layout.single(80), dtype=torch.float32)
    wide = torch.full((80, 1000), NAN)
    q = wide[:, 100:196].view(80, 4, 24)
    q.copy_(contiguous.q)
    fused = torch.cat([contiguous.k.flatten(1), contiguous.v.flatten(1)], dim=1)
    k, v = (x.view(80, 2, 24) for x in fused.split(48, dim=1))
    d_out = torch.empty(24, 4, 80).permute(2, 1, 0)
    d_out.copy_(contiguous.d_out)
    strided = Problem(q, k, v, contiguous.sinks, contiguous.layout, d_out, contiguous.d_lse)

    def run_strided() -> dict[str, torch.Tensor]:
        leaves = [x.detach().requires_grad_() for x in (q, k, v)] + [contiguous.sinks.clone().requires_grad_()]
        out, lse = sink_attention(*leaves, layout=strided.layout, window=None, impl="flash", return_lse=True)
        gradients = torch.autograd.grad([out, lse], leaves, [d_out, strided.d_lse])
        return dict(zip(NAMES, (out.detach(), lse.detach(), *gradients), strict=True))

    if whole:
        with every_path():
            assert gap(run_strided(), run(contiguous, "flash")) < 1e-6
    else:
        assert gap(run_strided(), run(contiguous, "flash")) < 1e-6


def test_B63_tensors_whose_last_dimension_is_strided() -> None:
    given_problem = problem(Layout.single(80))
    want = run(given_problem, "eager")
    leaves = []
    for tensor in (given_problem.q, given_problem.k, given_problem.v):
        scattered = torch.empty(24, tensor.shape[1], 80, dtype=torch.float64).permute(2, 1, 0)
        leaves.append(scattered.copy_(tensor).requires_grad_())
    assert given_problem.sinks is not None
    leaves.append(given_problem.sinks.clone().requires_grad_())

    def run_scattered() -> dict[str, torch.Tensor]:
        out, lse = sink_attention(*leaves, layout=given_problem.layout, impl="flash", return_lse=True)
        gradients = torch.autograd.grad([out, lse], leaves, [given_problem.d_out, given_problem.d_lse])
        return dict(zip(NAMES, (out.detach(), lse.detach(), *gradients), strict=True))

    assert gap(run_scattered(), want) < 1e-12
    given_problem.layout.derived.clear()
    with every_path():
        assert gap(run_scattered(), want) < 1e-12


@pytest.mark.parametrize("whole", [False, True])
def test_a_gradient_of_one_expanded_number(whole: bool) -> None:
    """`out.sum().backward()` sends one number with strides of 0."""
    given_problem = problem(Layout.single(80), d_lse=False)
    given_problem.d_out = torch.ones((), dtype=torch.float64).expand_as(given_problem.d_out)
    want = run(given_problem, "eager")
    if whole:
        with every_path():
            assert gap(run(given_problem, "flash"), want) < 1e-12
    else:
        assert gap(run(given_problem, "flash"), want) < 1e-12


@pytest.mark.parametrize("head_dim", [80, 96])
def test_B65_head_dims_that_are_no_power_of_two(head_dim: int) -> None:
    given_problem = problem(Layout.single(200), 4, 2, head_dim)
    assert gap(run(given_problem, "flash", 32), run(given_problem, "eager", 32)) < 1e-12
    assert gap(run(given_problem, "flash", 32), run(given_problem, "flash", 32, head_dim**-0.5)) == 0.0


@pytest.mark.parametrize("impl", CPU_IMPLS)
@pytest.mark.parametrize(
    ("scores", "sink", "weights"),
    [([100.0, 100.0], 100.0, [1 / 3, 1 / 3]), ([-100.0, -100.0], 100.0, [0.0, 0.0]), ([200.0], -200.0, [1.0])],
)
def test_B67_scores_and_sinks_far_from_zero(impl: str, scores: list[float], sink: float, weights: list[float]) -> None:
    count = len(scores)
    q = torch.tensor([[[1.0, 0.0]]], requires_grad=True)
    k = torch.tensor([[[score, 0.0]] for score in scores], requires_grad=True)
    for position, weight in enumerate(weights):
        v = torch.zeros(count, 1, 2)
        v[position] = 1.0
        v.requires_grad_()
        sinks = torch.tensor([sink], requires_grad=True)
        out = sink_attention(q, k, v, sinks, layout=Layout.single(1, count), scale=1.0, impl=impl)
        assert out.flatten().tolist() == pytest.approx([weight, weight], abs=1e-6)
        gradients = torch.autograd.grad(out.sum(), (q, k, v, sinks))
        assert all(bool(torch.isfinite(x).all()) for x in gradients)


@pytest.mark.parametrize("impl", CPU_IMPLS)
@pytest.mark.parametrize("window", [None, 16])
def test_padding_is_never_read(impl: str, window: int | None) -> None:
    """B47's kind: what stands at positions that no document owns changes nothing, not even as NaN, on any path."""
    clean = problem(Layout.padded([130, 3, 0, 64], 140, key_lengths=[130, 60, 0, 64], key_width=150))
    want = run(clean, impl, window)
    dirty = problem(clean.layout)
    for row, (length, key_length) in enumerate([(130, 130), (3, 60), (0, 0), (64, 64)]):
        for tensor in (dirty.q, dirty.d_out):
            tensor[row * 140 + length : (row + 1) * 140] = NAN
        for tensor in (dirty.k, dirty.v):
            tensor[row * 150 + key_length : (row + 1) * 150] = NAN
    if impl == "eager":
        dirty.q, dirty.d_out = clean.q, clean.d_out  # the specification computes padding rows too
    got = run(dirty, impl, window)
    assert torch.equal(got["out"], want["out"]) and torch.equal(got["lse"], want["lse"])
    covered = torch.zeros(clean.layout.num_queries, dtype=torch.bool)
    for segment in clean.layout.segments:
        covered[segment.q_start : segment.q_start + segment.q_len] = True
    for name in ("dk", "dv"):
        assert gap({name: got[name]}, {name: want[name]}) < 1e-13
    assert gap({"dq": got["dq"][covered]}, {"dq": want["dq"][covered]}) < 1e-13


@pytest.mark.parametrize("impl", CPU_IMPLS)
@pytest.mark.parametrize(("length", "at"), [(60, 10), (60, 0), (700, 300)])
def test_a_key_that_is_not_finite_reaches_those_who_see_it(impl: str, length: int, at: int) -> None:
    window = 16
    clean, dirty = problem(Layout.single(length)), problem(Layout.single(length))
    dirty.v[at, 0] = NAN
    dirty.k[at + 1, 1, 3] = torch.inf
    want, got = run(clean, impl, window), run(dirty, impl, window)
    rows = torch.arange(length)
    for heads, first in ((slice(0, 2), at), (slice(2, 4), at + 1)):
        sees = (rows >= first) & (rows < first + window)
        assert bool(torch.isnan(got["out"][sees][:, heads]).all())
        assert gap({"out": got["out"][~sees][:, heads]}, {"out": want["out"][~sees][:, heads]}) < 1e-13
        assert bool(torch.isfinite(got["dq"][~sees][:, heads]).all())


@pytest.mark.parametrize("impl", CPU_IMPLS)
def test_left_padded_rows_are_described_as_segments(impl: str) -> None:
    lengths, width = [5, 9, 2], 9
    right = problem(Layout.padded(lengths, width), d_lse=False)
    segments = tuple(
        Segment(row * width + width - length, length, row * width + width - length, length)
        for row, length in enumerate(lengths)
    )
    left = problem(Layout(segments, 27, 27), d_lse=False)
    for row, length in enumerate(lengths):
        begin, end = row * width, (row + 1) * width
        for name in ("q", "k", "v", "d_out"):
            getattr(left, name)[end - length : end] = getattr(right, name)[begin : begin + length]
            getattr(left, name)[begin : end - length] = 0.0
    want, got = run(right, impl, 4), run(left, impl, 4)
    for row, length in enumerate(lengths):
        begin, end = row * width, (row + 1) * width
        for name in ("out", "dq", "dk", "dv"):
            assert torch.allclose(got[name][end - length : end], want[name][begin : begin + length], rtol=0, atol=1e-13)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=4), st.sampled_from((None, 1, 8)), st.booleans())
@settings(max_examples=25, deadline=None, derandomize=True)
def test_padded_attention_is_sink_attention_of_its_rows(lengths: list[int], window: int | None, cached: bool) -> None:
    width, extra = max(lengths) + 2, 7 if cached else 0
    q = torch.randn(len(lengths), 4, width, 8, dtype=torch.float64)
    k, v = (torch.randn(len(lengths), 2, width + extra, 8, dtype=torch.float64) for _ in range(2))
    sinks = torch.tensor([-5.0, 0.0, 5.0, 20.0], dtype=torch.float64)
    keys = [length + extra for length in lengths]
    out = padded_attention(q, k, v, sinks, lengths=lengths, key_lengths=keys, window=window, impl="flash")
    for row, (length, key_length) in enumerate(zip(lengths, keys, strict=True)):
        alone = sink_attention(
            q[row, :, :length].transpose(0, 1),
            k[row, :, :key_length].transpose(0, 1),
            v[row, :, :key_length].transpose(0, 1),
            sinks,
            layout=Layout.single(length, key_length),
            window=window,
            impl="eager",
        )
        assert torch.allclose(out[row, :length], alone, rtol=0, atol=1e-12)
        assert bool((out[row, length:] == 0).all())


def test_padded_attention_refuses_what_does_not_fit() -> None:
    q, k = torch.zeros(2, 4, 3, 8), torch.zeros(2, 2, 3, 8)
    with pytest.raises(ValueError, match="lengths or key_lengths is given together with layout"):
        padded_attention(q, k, k, layout=Layout.padded([3, 3], 3), lengths=[3, 3])
    with pytest.raises(ValueError, match="key has 1 rows; query has 2"):
        padded_attention(q, k[:1], k[:1])
    with pytest.raises(ValueError, match=r"lengths\[0\] is 4; allowed are 0 to 3"):
        padded_attention(q, k, k, lengths=[4, 1])
