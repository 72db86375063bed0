"""The mask of impl "flex": what it shows, which blocks it names, and what building it costs."""

from __future__ import annotations

import pytest
import torch
from attend_directly import layouts
from hypothesis import given, settings
from hypothesis import strategies as st
from parity import Largest
from sinkflex.kernels import flex
from sinkflex.kernels.api import Layout, Segment
from sinkflex.kernels.reference import visibility
from torch.nn.attention.flex_attention import create_block_mask

KINDS = ("kv", "full_kv", "q", "full_q")
TABLES = [f"{kind}_{part}" for kind in KINDS for part in ("num_blocks", "indices")]
CPU = torch.device("cpu")
windows = st.sampled_from((None, 1, 2, 17, 128, 129, 200, 700))


def pairs(layout: Layout, window: int | None) -> torch.Tensor:
    """mask_mod on every pair of the padded rows and keys."""
    blocks = flex.mask_of(layout, window, CPU).blocks
    rows, keys = (torch.arange(width) for width in blocks.seq_lengths)
    zero = torch.zeros((), dtype=torch.int64)
    return blocks.mask_mod(zero, zero, rows[:, None], keys[None, :])


def check(layout: Layout, window: int | None) -> None:
    got = pairs(layout, window)
    assert torch.equal(got[: layout.num_queries, : layout.num_keys], visibility(layout, window))
    assert not bool(got[layout.num_queries :].any()) and not bool(got[:, layout.num_keys :].any())
    ours = flex.mask_of(layout, window, CPU).blocks
    theirs = create_block_mask(ours.mask_mod, None, None, *ours.seq_lengths, device="cpu")
    for name in TABLES:
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name


@given(layouts(), windows)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_mask_shows_what_the_specification_shows(layout: Layout, window: int | None) -> None:
    check(layout, window)


@given(layouts(longest=400, most=4), windows)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_blocks_are_those_of_create_block_mask(layout: Layout, window: int | None) -> None:
    check(layout, window)


@pytest.mark.parametrize("window", [None, 1, 127, 128, 129, 255, 256, 257, 300])
@pytest.mark.parametrize(
    "layout",
    [
        Layout.single(512),
        Layout.single(200, 640),
        Layout.from_lengths([128, 256, 1, 127]),
        Layout.from_lengths([256, 130, 126, 256], parents=[-1, 0, 0, 2]),
        Layout((Segment(0, 140, 0, 3), Segment(140, 2, 3, 400)), 142, 403),
        Layout((), 0, 0),
        Layout((), 5, 300),
    ],
)
def test_blocks_at_the_edges(layout: Layout, window: int | None) -> None:
    check(layout, window)


def test_a_full_block_may_lie_in_two_segments_of_one_path() -> None:
    layout = Layout.from_lengths([100, 156, 128], parents=[-1, 0, 1])
    blocks = flex.mask_of(layout, None, CPU).blocks
    assert blocks.full_kv_num_blocks.flatten().tolist() == [0, 1, 2]
    assert blocks.full_kv_indices[0, 0, 1, 0] == 0


def test_positions_count_from_the_root_so_large_first_positions_do_not_overflow() -> None:
    far = Layout((Segment(0, 3, 0, 3, 2**40), Segment(3, 2, 3, 2, 2**40 + 3, 0)), 5, 5)
    near = Layout.from_lengths([3, 2], parents=[-1, 0])
    assert torch.equal(pairs(far, 2), pairs(near, 2))


def test_trap_16_building_a_mask_needs_no_tensor_over_all_pairs() -> None:
    length = 65536
    for layout in (
        Layout.single(length),
        Layout.from_lengths([length // 2, *[length // 16] * 8], parents=[-1, *[0] * 8]),
    ):
        for window in (None, 128):
            with Largest() as largest:
                flex.mask_of(layout, window, CPU)
                # Six numbers a row and one entry per pair of blocks.
                assert largest.elements <= max(6 * length, (length // 128) ** 2) < length**2 / 10000


def test_windows_leave_two_blocks_a_row_and_wide_ones_are_no_window() -> None:
    layout = Layout.single(4096)
    narrow = flex.mask_of(layout, 128, CPU).blocks
    assert int(narrow.kv_num_blocks.sum()) + int(narrow.full_kv_num_blocks.sum()) == 32 + 31
    assert flex.mask_of(layout, 4096, CPU) is flex.mask_of(layout, None, CPU)
    assert flex.mask_of(layout, 4095, CPU) is not flex.mask_of(layout, None, CPU)


def test_masks_are_built_once() -> None:
    layout = Layout.single(300)
    assert flex.mask_of(layout, 64, CPU) is flex.mask_of(layout, 64, CPU)


def test_widths_are_few_and_close() -> None:
    assert [flex.bucket(n) for n in (0, 1, 127, 128, 129, 1024, 1025, 4096, 4097)] == [
        *(128, 128, 128, 128, 256, 1024, 1280, 4096, 5120)
    ]
    widths = {flex.bucket(n) for n in range(1, 131073)}
    assert len(widths) == 36 and all(width % 128 == 0 for width in widths)
    assert all(n <= flex.bucket(n) <= max(n + 127, 1.25 * n) for n in range(1, 131073, 7))
