"""The tables of triton_schedule.py against the mask they stand for. No Triton is needed here."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_strategies import layouts
from sinkflex.kernels.layout import Layout, Segment
from sinkflex.kernels.reference import visibility
from sinkflex.kernels.triton_schedule import Schedule, key_schedule, query_schedule


def seen(layout: Layout, window: int | None, block_q: int, block_k: int, side: str) -> tuple[Schedule, torch.Tensor]:
    """The tables, and how often they let each query meet each key, with the mask of an edge applied."""
    build = query_schedule if side == "queries" else key_schedule
    schedule = build(layout, window, block_q, block_k, "cpu")
    tiles, ranges, edges = schedule
    total = layout.num_queries if side == "queries" else layout.num_keys
    other = layout.num_keys if side == "queries" else layout.num_queries
    met = torch.zeros(total, other, dtype=torch.int64)
    covered = torch.zeros(total, dtype=torch.int64)
    block, tile_block = (block_k, block_q) if side == "queries" else (block_q, block_k)
    for row, rows, range_first, range_end, edge_first, edge_end in tiles.tolist():
        covered[row : row + rows] += 1
        assert 1 <= rows <= tile_block
        for begin, length in ranges[range_first:range_end].tolist():
            assert length % block == 0 and length > 0
            met[row : row + rows, begin : begin + length] += 1
        for begin, length, behind in edges[edge_first:edge_end].tolist():
            assert 1 <= length <= block
            mine, theirs = torch.arange(rows)[:, None], torch.arange(length)[None, :]
            distance = behind + (mine - theirs if side == "queries" else theirs - mine)
            visible = (distance >= 0) & (distance < (window or 1 << 30))
            assert bool(visible.any()), "a block that nobody sees"
            met[row : row + rows, begin : begin + length] += visible
    assert bool((covered == 1).all()), "a row without a tile, or with two"
    return schedule, met if side == "queries" else met.T


SIDES = ("queries", "keys")


@pytest.mark.parametrize("side", SIDES)
@given(
    layouts(longest=60),
    st.one_of(st.none(), st.integers(1, 90)),
    st.sampled_from((8, 16)),
    st.sampled_from((8, 32)),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_every_visible_pair_is_met_once_and_no_other(
    side: str, layout: Layout, window: int | None, block_q: int, block_k: int
) -> None:
    _, met = seen(layout, window, block_q, block_k, side)
    assert torch.equal(met, visibility(layout, window).long())


@pytest.mark.parametrize("side", SIDES)
def test_a_tree_with_padding_caches_and_empty_segments(side: str) -> None:
    segments = (
        Segment(1, 30, 0, 40),
        Segment(31, 0, 41, 5, 7),
        Segment(35, 20, 46, 25, 40, 0),
        Segment(55, 9, 71, 9, 65, 2),
        Segment(64, 12, 80, 4),
        Segment(76, 3, 84, 0),
    )
    layout = Layout(segments, 81, 90)
    for window in (None, 1, 16, 33):
        _, met = seen(layout, window, 16, 8, side)
        assert torch.equal(met, visibility(layout, window).long())


@pytest.mark.parametrize("side", SIDES)
def test_tiles_with_most_work_come_first(side: str) -> None:
    (tiles, ranges, edges), _ = seen(Layout.from_lengths([100, 300, 20]), None, 16, 16, side)
    work = [sum(ranges[a:b, 1].tolist()) // 16 + 2 * (d - c) for _, _, a, b, c, d in tiles.tolist()]
    assert work == sorted(work, reverse=True) and len(edges) > 0


@pytest.mark.parametrize("side", SIDES)
def test_full_attention_masks_the_diagonal_only(side: str) -> None:
    (tiles, ranges, edges), _ = seen(Layout.single(256), None, 32, 32, side)
    assert len(tiles) == 8 and len(edges) == 8 and len(ranges) == 7
    assert int(ranges[:, 1].sum()) == 32 * (7 * 8 // 2)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("window", [16, 200])
def test_the_work_of_a_window_is_linear_in_the_length(side: str, window: int) -> None:
    blocks = []
    for length in (2048, 4096, 8192):
        build = query_schedule if side == "queries" else key_schedule
        _, ranges, edges = build(Layout.single(length), window, 32, 32, "cpu")
        blocks.append(int(ranges[:, 1].sum()) // 32 + len(edges))
    assert blocks[2] - blocks[1] == 2 * (blocks[1] - blocks[0])


@pytest.mark.parametrize("side", SIDES)
def test_thousands_of_segments_and_a_deep_chain(side: str) -> None:
    build = query_schedule if side == "queries" else key_schedule
    tiles, _, edges = build(Layout.from_lengths([7] * 5000), None, 64, 64, "cpu")
    assert len(tiles) == len(edges) == 5000
    chain = Layout.from_lengths([9] * 300, parents=list(range(-1, 299)))
    _, _, edges = build(chain, 20, 16, 16, "cpu")
    # With a window of 20 a segment of 9 tokens sees itself and the three segments before it (27 - 20 < 8).
    assert len(edges) == 300 + 299 + 298 + 297


def test_tables_are_kept_in_the_layout_as_one_int32_buffer() -> None:
    layout = Layout.from_lengths([40, 30])
    schedule = query_schedule(layout, 9, 16, 16, "cpu")
    assert query_schedule(layout, 9, 16, 16, "cpu") is schedule
    assert query_schedule(layout, 8, 16, 16, "cpu") is not schedule
    assert key_schedule(layout, 9, 16, 16, "cpu") is not schedule
    assert all(table.dtype == torch.int32 and table.is_contiguous() for table in schedule)
    assert len({table.untyped_storage().data_ptr() for table in schedule}) == 1
    assert all(table.data_ptr() % 16 == 0 for table in schedule)


@pytest.mark.parametrize("side", SIDES)
def test_an_empty_layout_has_no_tiles(side: str) -> None:
    (tiles, ranges, edges), _ = seen(Layout((), 0, 0), None, 16, 16, side)
    assert (len(tiles), len(ranges), len(edges)) == (0, 0, 0)
