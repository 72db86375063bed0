"""Layouts: what they describe, and what they refuse."""

from __future__ import annotations

import pytest
import torch
from sinkflex.kernels.api import Layout, Segment
from sinkflex.kernels.reference import visibility


def test_packed_segments_see_themselves_only() -> None:
    visible = visibility(Layout.from_lengths([2, 0, 3]))
    assert visible.int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 1, 1, 1],
    ]


def test_a_window_counts_the_token_itself() -> None:
    assert visibility(Layout.single(4), window=1).int().tolist() == torch.eye(4, dtype=torch.int).tolist()
    assert visibility(Layout.single(4), window=2).sum(1).tolist() == [1, 2, 2, 2]


def test_fewer_queries_than_keys_sit_at_the_end() -> None:
    layout = Layout.single(2, 5)
    assert visibility(layout).sum(1).tolist() == [4, 5]
    assert layout.positions().tolist() == [3, 4]


def test_queries_before_the_first_key_see_nothing() -> None:
    assert visibility(Layout.single(3, 1)).sum(1).tolist() == [0, 0, 1]


def test_a_child_sees_its_path_and_no_sibling() -> None:
    layout = Layout.from_lengths([2, 2, 1, 1], parents=[-1, 0, 0, 1])
    assert visibility(layout).int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 0, 0, 1, 0],
        [1, 1, 1, 1, 0, 1],
    ]
    assert layout.positions().tolist() == [0, 1, 2, 3, 2, 4]
    # The window follows the path: the last leaf, at position 4, sees positions 3 and 4, not the two rows before it.
    assert visibility(layout, window=2)[5].int().tolist() == [0, 0, 0, 1, 0, 1]


def test_padded_rows_leave_their_padding_out() -> None:
    layout = Layout.padded([1, 2], 3)
    assert layout.segments == (Segment(0, 1, 0, 1), Segment(3, 2, 3, 2))
    assert visibility(layout).any(1).tolist() == [True, False, False, True, True, False]
    cache = Layout.padded([1, 1], 1, key_lengths=[4, 2], key_width=8)
    assert cache.segments[1] == Segment(1, 1, 8, 2) and cache.num_keys == 16


def test_first_positions_shift_positions_and_not_the_mask() -> None:
    moved = Layout.from_lengths([3, 2], first_positions=[10, 0])
    assert moved.positions().tolist() == [10, 11, 12, 0, 1]
    assert torch.equal(visibility(moved, 2), visibility(Layout.from_lengths([3, 2]), 2))


def test_equality_ignores_what_implementations_keep() -> None:
    one, other = Layout.single(3), Layout.single(3)
    one.derived["anything"] = 1
    assert one == other and hash(one) == hash(other)


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([Segment(0, 1.5, 0, 1)], r"segments\[0\]\.q_len is 1.5; it must be a whole number"),  # type: ignore[arg-type]
        ([Segment(0, -1, 0, 1)], r"segments\[0\]\.q_len is -1"),
        ([Segment(2, 2, 2, 2), Segment(0, 2, 0, 2)], r"segments\[1\]\.q_start is 0, but .* ends at row 4"),
        ([Segment(0, 2, 0, 2), Segment(2, 2, 1, 2)], r"segments\[1\]\.k_start is 1, but .* ends at row 2"),
        ([Segment(0, 9, 0, 4)], r"segments\[0\] ends at q row 9; there are only 8"),
        ([Segment(0, 2, 0, 2, 0, 0)], r"segments\[0\]\.parent is 0"),
        (
            [Segment(0, 2, 0, 2), Segment(2, 2, 2, 2, 1, 0)],
            r"first_position is 1; its parent, segment 0, ends at position 2",
        ),
        ([Segment(0, 2, 0, 2), Segment(2, 2, 2, 1, 2, 0)], r"q_len is 2; with a parent it must be at most k_len, 1"),
    ],
)
def test_invalid_segments_are_refused_with_the_reason(segments: list[Segment], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Layout(tuple(segments), 8, 8)


def test_invalid_constructor_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="parents has 1 entries; it needs one per segment, 2"):
        Layout.from_lengths([1, 2], parents=[-1])
    with pytest.raises(ValueError, match="first_positions is given together with parents"):
        Layout.from_lengths([1, 2], parents=[-1, 0], first_positions=[0, 1])
    with pytest.raises(ValueError, match=r"lengths\[1\] is 4; allowed are 0 to 3"):
        Layout.padded([1, 4], 3)
    with pytest.raises(ValueError, match="key_lengths has 1 entries"):
        Layout.padded([1, 2], 3, key_lengths=[1])
