"""Layout: which rows of a packed batch belong together, and at which positions.

The operators see flat rows: queries [num_queries, heads, head_dim] and keys [num_keys, heads, head_dim]. A layout cuts
both into segments. One segment is one document (or one piece of a tree of documents that share a beginning):

    q_start, q_len     its rows among the queries
    k_start, k_len     its rows among the keys
    first_position     logical position of its first key on its own path
    parent             index of the segment it continues, or -1

The queries of a segment are its last q_len tokens: query i sits at position first_position + k_len - q_len + i. So
training has q_len == k_len, and decoding with a key/value cache has q_len < k_len. A query sees the keys of its own
segment and of all segments its parent chain names, at positions up to its own; with a window W it sees those less
than W positions back (itself included). A query with no such key (q_len > k_len), and every row outside the segments,
sees nothing: output 0, log-sum-exp equal to the sink.

Segments are listed in the order of their rows and do not overlap. Rows between them are padding, which no operator
reads. Errors: ValueError naming the argument, its value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch


class Segment(NamedTuple):
    """One document of a packed batch; rows are counted in the flat query and key tensors."""

    q_start: int
    q_len: int
    k_start: int
    k_len: int
    first_position: int = 0
    parent: int = -1


@dataclass(frozen=True)
class Layout:
    """Segments of a packed batch of num_queries query rows and num_keys key rows (see the module's docstring).

    Build one per micro-batch and share it between layers: what an implementation derives from it is kept in it.
    """

    segments: tuple[Segment, ...]
    num_queries: int
    num_keys: int
    # Index tensors that implementations derive from the segments, by key. They follow from the fields above, so they
    # take no part in equality.
    derived: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        for name, value in (("num_queries", self.num_queries), ("num_keys", self.num_keys)):
            if not isinstance(value, int):
                raise ValueError(f"layout.{name} is {value!r}; it must be a whole number")
            if value < 0:
                raise ValueError(f"layout.{name} is {value}; it must be at least 0")
        q_end = k_end = 0
        for index, segment in enumerate(self.segments):
            self._check(index, segment, q_end, k_end)
            q_end, k_end = segment.q_start + segment.q_len, segment.k_start + segment.k_len

    def _check(self, index: int, segment: Segment, q_end: int, k_end: int) -> None:
        where = f"layout.segments[{index}]"
        for name, value in zip(("q_start", "q_len", "k_start", "k_len", "first_position"), segment, strict=False):
            if not isinstance(value, int):
                raise ValueError(f"{where}.{name} is {value!r}; it must be a whole number")
            if value < 0:
                raise ValueError(f"{where}.{name} is {value}; it must be at least 0")
        for side, start, length, end, total in (
            ("q", segment.q_start, segment.q_len, q_end, self.num_queries),
            ("k", segment.k_start, segment.k_len, k_end, self.num_keys),
        ):
            if start < end:
                raise ValueError(
                    f"{where}.{side}_start is {start}, but the segment before it ends at row {end}: segments must be "
                    "in the order of their rows and must not overlap"
                )
            if start + length > total:
                raise ValueError(f"{where} ends at {side} row {start + length}; there are only {total} rows")
        if segment.parent == -1:
            return
        if not 0 <= segment.parent < index:
            raise ValueError(
                f"{where}.parent is {segment.parent}; allowed are -1 and earlier segments, 0 to {index - 1}"
            )
        parent = self.segments[segment.parent]
        if segment.first_position != parent.first_position + parent.k_len:
            raise ValueError(
                f"{where}.first_position is {segment.first_position}; its parent, segment {segment.parent}, ends at "
                f"position {parent.first_position + parent.k_len}, and a child must start there"
            )
        if segment.q_len > segment.k_len:
            raise ValueError(
                f"{where}.q_len is {segment.q_len}; with a parent it must be at most k_len, {segment.k_len}"
            )

    @classmethod
    def single(cls, length: int, key_length: int | None = None) -> Layout:
        """One sequence; with key_length, `length` queries at the end of that many keys."""
        keys = length if key_length is None else key_length
        return cls((Segment(0, length, 0, keys),), length, keys)

    @classmethod
    def from_lengths(
        cls,
        lengths: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        first_positions: Sequence[int] | None = None,
    ) -> Layout:
        """Segments one behind another, queries and keys alike.

        With `parents`, segment i continues segment parents[i] (-1: none); its first position follows from that and
        must not be given as well.
        """
        count = len(lengths)
        for name, given in (("parents", parents), ("first_positions", first_positions)):
            if given is not None and len(given) != count:
                raise ValueError(f"{name} has {len(given)} entries; it needs one per segment, {count}")
        if parents is not None and first_positions is not None:
            raise ValueError(
                "first_positions is given together with parents; a child's position follows from its parent"
            )
        segments: list[Segment] = []
        start = 0
        for index, length in enumerate(lengths):
            parent = -1 if parents is None else int(parents[index])
            position = 0 if first_positions is None else int(first_positions[index])
            if parents is not None and 0 <= parent < index:
                position = segments[parent].first_position + segments[parent].k_len
            segments.append(Segment(start, int(length), start, int(length), position, parent))
            start += int(length)
        return cls(tuple(segments), start, start)

    @classmethod
    def padded(
        cls,
        lengths: Sequence[int],
        width: int,
        *,
        key_lengths: Sequence[int] | None = None,
        key_width: int | None = None,
    ) -> Layout:
        """Right-padded rows of a [batch, width] tensor, flattened: row b holds lengths[b] tokens at b * width.

        With key_lengths and key_width the keys have rows of their own, as a cache has. Left-padded batches are not
        described here: cut them into segments instead.
        """
        if key_lengths is not None and len(key_lengths) != len(lengths):
            raise ValueError(f"key_lengths has {len(key_lengths)} entries; it needs one per row, {len(lengths)}")
        keys = lengths if key_lengths is None else key_lengths
        keys_wide = width if key_width is None else key_width
        for name, values, limit in (("lengths", lengths, width), ("key_lengths", keys, keys_wide)):
            for row, value in enumerate(values):
                if not 0 <= value <= limit:
                    raise ValueError(f"{name}[{row}] is {value}; allowed are 0 to {limit}, the width of a row")
        segments = tuple(
            Segment(row * width, int(length), row * keys_wide, int(key_length))
            for row, (length, key_length) in enumerate(zip(lengths, keys, strict=True))
        )
        return cls(segments, len(lengths) * width, len(lengths) * keys_wide)

    @property
    def has_parents(self) -> bool:
        """Whether any segment continues another."""
        return any(segment.parent != -1 for segment in self.segments)

    def positions(self, device: torch.device | str = "cpu") -> torch.Tensor:
        """Logical position of every query row, int64 [num_queries], for the rotary embedding; padding rows hold 0."""
        result = torch.zeros(self.num_queries, dtype=torch.int64)
        for q_start, q_len, _, k_len, first_position, _ in self.segments:
            first = first_position + k_len - q_len
            result[q_start : q_start + q_len] = torch.arange(first, first + q_len).clamp_(min=0)
        return result.to(device)
