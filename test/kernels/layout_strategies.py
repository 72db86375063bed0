"""Random layouts for hypothesis: packed segments, caches, padding rows, empty segments, shared prefixes and trees."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from sinkflex.kernels.layout import Layout, Segment


@st.composite
def layouts(draw: Any, longest: int = 40, most: int = 5) -> Layout:
    """Up to `most` segments of up to `longest` tokens, with rows that belong to nobody between and behind them."""
    lengths = draw(st.lists(st.integers(0, longest), min_size=0, max_size=most))
    segments: list[Segment] = []
    q_end = k_end = 0
    for index, length in enumerate(lengths):
        parent = draw(st.integers(-1, index - 1)) if draw(st.booleans()) else -1
        more = draw(st.one_of(st.just(0), st.integers(-3, longest)))
        keys = max(length if parent >= 0 else 0, length + more)
        position = draw(st.sampled_from((0, 0, 11)))
        if parent >= 0:
            position = segments[parent].first_position + segments[parent].k_len
        q_space, k_space = draw(st.sampled_from(((0, 0), (0, 0), (2, 1), (0, 3))))
        segments.append(Segment(q_end + q_space, length, k_end + k_space, keys, position, parent))
        q_end, k_end = q_end + q_space + length, k_end + k_space + keys
    return Layout(tuple(segments), q_end + draw(st.integers(0, 2)), k_end + draw(st.integers(0, 2)))
