"""Attention over keys in several places against the same keys in one place; products through oneDNN against torch's."""

from __future__ import annotations

import pytest
import torch
from sinkflex.kernels import api
from sinkflex.kernels.cascade import attend


def whole(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor, sinks: torch.Tensor | None
) -> torch.Tensor:
    """q [T, H, D] over k, v [T, keys, Hkv, D] of its own, `seen` [T, keys]; plain softmax."""
    repeat = q.shape[1] // k.shape[2]
    scores = torch.einsum("thd,tkhd->thk", q, k.repeat_interleave(repeat, 2)) * q.shape[2] ** -0.5
    scores = scores.masked_fill(~seen[:, None], -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks[None, :, None].expand(len(q), -1, 1)], -1)
    weights = scores.softmax(-1)[..., : k.shape[1]]
    return torch.einsum("thk,tkhd->thd", weights, v.repeat_interleave(repeat, 2))


@pytest.mark.parametrize("with_sinks", [False, True])
@pytest.mark.parametrize("piece", [1 << 24, 100])
def test_keys_in_two_places_are_attended_as_if_in_one(
    with_sinks: bool, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trunk that all five tokens see (one of them in part), and behind it rows of their own: three tokens look at one
    cache each, two at a fourth one, whose first query fills up."""
    monkeypatch.setattr("sinkflex.kernels.cascade.PIECE", piece)
    torch.manual_seed(0)
    heads, kv, dim, trunk, own = 6, 2, 8, 11, 4
    q = torch.randn(5, heads, dim, dtype=torch.float64)
    tk, tv = torch.randn(2, 1, kv, trunk, dim, dtype=torch.float64)
    ok, ov = torch.randn(2, 4, kv, own, dim, dtype=torch.float64)
    sinks = torch.randn(heads, dtype=torch.float64) * 3 if with_sinks else None
    seen_trunk = torch.ones(5, trunk, dtype=torch.bool)
    seen_trunk[1, :7] = False
    seen_trunk[2] = False  # nothing at all of the trunk: a short window
    lengths = torch.tensor([1, 4, 2])
    seen_own = torch.cat([torch.arange(own) < lengths[:, None], torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0]]).bool()])

    def bias(seen: torch.Tensor) -> torch.Tensor:
        return torch.zeros(seen.shape, dtype=torch.float64).masked_fill_(~seen, -torch.inf)

    parts = [
        api.Part(tk, tv, None, bias(seen_trunk)[None]),
        api.Part(ok[:3], ov[:3], slice(0, 3), bias(seen_own[:3])[:, None]),
        api.Part(ok[3:], ov[3:], torch.tensor([3, 3, 4]), bias(seen_own[[3, 3, 4]])[None], torch.tensor([1, 2])),
    ]
    got = api.cascade_attention(q, parts, sinks)
    torch.testing.assert_close(api.cascade_attention(q, parts[::-1], sinks), got)
    cache = torch.tensor([0, 1, 2, 3, 3])
    k = torch.cat([tk.expand(5, -1, -1, -1), ok[cache]], 2).transpose(1, 2)
    v = torch.cat([tv.expand(5, -1, -1, -1), ov[cache]], 2).transpose(1, 2)
    torch.testing.assert_close(got, whole(q, k, v, torch.cat([seen_trunk, seen_own], 1), sinks))


def test_a_sink_far_above_the_scores_takes_all_the_weight() -> None:
    q, k, v = torch.randn(3, 2, 2, 4).unbind()
    sinks = torch.tensor([1e4, -torch.inf])
    part = api.Part(k.transpose(0, 1)[None], v.transpose(0, 1)[None], None, None)
    out = attend(q, [part], sinks, 1.0)
    assert torch.equal(out[:, 0], torch.zeros(2, 4))
    torch.testing.assert_close(out[:, 1], attend(q, [part], None, 1.0)[:, 1])


def test_parts_that_do_not_fit_are_refused() -> None:
    q, k = torch.randn(3, 4, 8), torch.randn(1, 2, 5, 8)
    with pytest.raises(ValueError, match=r"parts\[1\] has 3 queries; that must be a multiple of its 2 caches"):
        two = torch.randn(2, 2, 5, 8)
        api.cascade_attention(q, [api.Part(k, k, None, None), api.Part(two, two, slice(0, 3), None)])
    with pytest.raises(ValueError, match=r"bias has shape \(1, 2, 5\); it needs .* \(1, 3, 5\)"):
        api.cascade_attention(q, [api.Part(k, k, None, torch.zeros(1, 2, 5))])


needs_onednn = pytest.mark.skipif(not api.linear_available(), reason="this torch has no oneDNN")


@needs_onednn
@pytest.mark.parametrize("with_bias", [False, True])
def test_linear_is_torchs_linear_forward_and_backward(with_bias: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 7, 24, requires_grad=True)
    weight = torch.randn(10, 24, requires_grad=True)
    bias = torch.randn(10, requires_grad=True) if with_bias else None
    leaves = [t for t in (x, weight, bias) if t is not None]
    pull = torch.randn(2, 7, 10)
    out = api.linear(x, weight, bias)
    wanted = torch.nn.functional.linear(x, weight, bias)
    torch.testing.assert_close(out, wanted, rtol=1e-5, atol=1e-5)
    for got, want in zip(
        torch.autograd.grad(out, leaves, pull), torch.autograd.grad(wanted, leaves, pull), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    api.linear(x, weight, bias).add_(1.0).sum().backward()  # its result may be written into, as torch's may
    assert x.grad is not None


@needs_onednn
def test_a_packed_weight_serves_any_number_of_rows() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(33, 96), torch.randn(64, 96)
    packed = api.pack_linear(weight)
    with torch.no_grad():
        for rows in (1, 2, 16, 33):
            torch.testing.assert_close(api.linear(x[:rows], packed), x[:rows] @ weight.T, rtol=1e-5, atol=1e-5)
