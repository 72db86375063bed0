"""decode_attention: new tokens over a cache whose unused slots hold NaN, against the eager specification."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from parity import Largest
from sinkflex.kernels import decode
from sinkflex.kernels.api import decode_attention, padded_attention


def poisoned(batch: int, heads: int, slots: int, dim: int, lengths: list[int]) -> torch.Tensor:
    cache = torch.full((batch, heads, slots, dim), torch.nan, dtype=torch.float64)
    for row, length in enumerate(lengths):
        cache[row, :, :length] = torch.randn(heads, length, dim, dtype=torch.float64)
    return cache


@given(st.data())
@settings(max_examples=80, deadline=None, derandomize=True)
def test_decode_equals_eager_with_poisoned_slots(data: st.DataObject) -> None:
    batch, new = data.draw(st.integers(1, 5)), data.draw(st.sampled_from((1, 1, 2, 7, 20)))
    kv_heads, repeat = data.draw(st.sampled_from((1, 2))), data.draw(st.sampled_from((1, 2, 3)))
    slots = data.draw(st.sampled_from((20, 90, 300)))
    window = data.draw(st.sampled_from((None, 1, 2, 16, 32, 400)))
    counts = (
        data.draw(st.lists(st.integers(0, new), min_size=batch, max_size=batch)) if data.draw(st.booleans()) else None
    )
    used = counts or [new] * batch
    lengths = [data.draw(st.integers(0, slots - count)) + count for count in used]
    q = torch.randn(batch, kv_heads * repeat, new, 8, dtype=torch.float64)
    k, v = (poisoned(batch, kv_heads, slots, 8, lengths) for _ in range(2))
    sinks = torch.linspace(-5, 20, kv_heads * repeat, dtype=torch.float64) if data.draw(st.booleans()) else None
    want = padded_attention(
        q, k.nan_to_num(0.0), v.nan_to_num(0.0), sinks, lengths=used, key_lengths=lengths, window=window, impl="eager"
    )
    query_lengths = None if counts is None else torch.tensor(counts)
    piece = data.draw(st.sampled_from((decode.PIECE, 500)))
    with mock.patch.object(decode, "PIECE", piece):
        got = decode_attention(
            q, k, v, sinks, lengths=torch.tensor(lengths), query_lengths=query_lengths, window=window
        )
    assert torch.allclose(got.transpose(1, 2), want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("window", [None, 4, 128, 129])
def test_the_window_counts_the_new_token(window: int | None) -> None:
    """With all scores equal and no sink the output is the share of the marked slot."""
    k, v = torch.zeros(1, 1, 300, 1), torch.zeros(1, 1, 300, 1)
    reach = 300 if window is None else window
    v[0, 0, 300 - reach] = float(reach)
    out = decode_attention(torch.zeros(1, 1, 1, 1), k, v, lengths=torch.tensor([300]), window=window)
    assert out.item() == pytest.approx(1.0, abs=1e-6)
    if window is not None:
        v[0, 0, 300 - reach], v[0, 0, 300 - reach - 1] = 0.0, 1.0
        assert decode_attention(torch.zeros(1, 1, 1, 1), k, v, lengths=torch.tensor([300]), window=window).item() == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_with_nothing_cached_give_zero(dtype: torch.dtype) -> None:
    q, cache = torch.randn(2, 4, 1, 8).to(dtype), torch.full((2, 2, 6, 8), torch.nan, dtype=dtype)
    cache[1, :, :3] = 1.0
    for sinks in (None, torch.full((4,), 3.0)):
        out = decode_attention(q, cache, cache, sinks, lengths=torch.tensor([0, 3]))
        assert out.dtype == dtype and bool((out[0] == 0).all()) and bool((out[1] > 0).all())


def test_it_builds_no_graph_and_leaves_the_cache_alone() -> None:
    q, cache = torch.randn(1, 4, 1, 8, requires_grad=True), torch.randn(1, 2, 6, 8)
    before = cache.clone()
    assert not decode_attention(q, cache, cache, torch.zeros(4), lengths=torch.tensor([4]), window=2).requires_grad
    assert torch.equal(cache, before)


def test_it_decodes_what_training_computes() -> None:
    """Token by token over the cache equals the whole sequence at once."""
    q, k, v = (torch.randn(1, h, 50, 24) for h in (4, 2, 2))
    sinks = torch.tensor([-5.0, 0.0, 5.0, 20.0])
    for window in (None, 8):
        whole = padded_attention(q, k, v, sinks, window=window, impl="flash")
        for at in range(50):
            one = decode_attention(q[:, :, at : at + 1], k, v, sinks, lengths=torch.tensor([at + 1]), window=window)
            assert torch.allclose(one[:, :, 0], whole[:, at], rtol=0, atol=1e-6)


def test_a_window_over_a_slice_of_a_large_cache_copies_only_the_keys_in_reach() -> None:
    buffer = torch.randn(8, 2, 4000, 16)
    q, cache = torch.randn(5, 4, 1, 16), buffer[1:6, :, :3000]
    lengths = torch.tensor([3000, 1, 17, 40, 2999])
    with Largest() as seen:
        got = decode_attention(q, cache, cache, torch.zeros(4), lengths=lengths, window=32)
    assert seen.elements <= 5 * 4 * 32 * 16
    want = padded_attention(q, cache, cache, torch.zeros(4), key_lengths=lengths, window=32, impl="flash")
    assert torch.allclose(got.transpose(1, 2), want, rtol=0, atol=1e-6)
    other = buffer.transpose(2, 3).contiguous().transpose(2, 3)[1:6, :, :3000]
    again = decode_attention(q, other, other, torch.zeros(4), lengths=lengths, window=32)
    assert torch.allclose(again, got, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lengths": torch.tensor([7, 2])}, "lengths goes from 2 to 7; allowed are 0 to 6, the slots of the cache"),
        ({"lengths": torch.tensor([-1, 2])}, "lengths goes from -1 to 2"),
        ({"lengths": torch.tensor([1])}, r"lengths has shape \(1,\); it needs one entry per row, \(2,\)"),
        ({"query_lengths": torch.tensor([1])}, r"query_lengths has shape \(1,\)"),
        ({"query_lengths": torch.tensor([1, 2])}, "query_lengths goes from 1 to 2; allowed are 0 to 1, the new tokens"),
        ({"window": 0}, "window is 0"),
        ({"k_cache": torch.zeros(1, 2, 6, 8), "v_cache": torch.zeros(1, 2, 6, 8)}, "k_cache has 1 rows; q has 2"),
        ({"sinks": torch.zeros(2)}, r"sinks has shape \(2,\)"),
    ],
)
def test_bad_arguments_are_named_with_their_value(change: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {
        "q": torch.zeros(2, 4, 1, 8),
        "k_cache": torch.zeros(2, 2, 6, 8),
        "v_cache": torch.zeros(2, 2, 6, 8),
        "lengths": torch.tensor([3, 2]),
    }
    with pytest.raises(ValueError, match=message):
        decode_attention(**{**arguments, **change})  # type: ignore[arg-type]
