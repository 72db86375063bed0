"""Plan: a layout cut into tiles of equal shape, for an implementation that works on gathered copies.

A group is a batch of entries with the same number of query slots and key slots; entries are gathered from the flat rows
into one workspace. A step is one tile of a group: entries [n0, n1), query slots [q0, q1) against key slots [k0, k1).

  stairs  an entry is a segment; the segments of a group have similar lengths, the longest first, so that the entries
          that reach a tile are a prefix of the batch. Rows are aligned left, and padding on the right is harmless under
          a causal mask. With fewer queries than keys they are aligned right, and `edge` hides the padding on the left.
  band    an entry is one tile of a long windowed segment with its own copy of the keys in reach: one step for
          thousands of tiles, where stairs would take a step for each.

Every padded slot repeats a row of its segment, so padding rows of the caller are never read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from .layout import Layout, Segment

ROWS = 16  # queries of a tile, twice that in long segments: 8 to 32 measure alike; from 64 on, the half tile above the
# diagonal is felt
BAND_FROM = 512  # windowed segments longer than this become bands
WHOLE_FROM = 4096  # causal segments from this length on go to a fused operator
SIMILAR = 1.25  # longest to shortest segment of a group
TILE_ELEMENTS = 1 << 17  # scores of a step, all heads: its temporaries then stay near the L2 cache


class Step(NamedTuple):
    """One tile. bias: [(q1 - q0) * group size, columns] of 0 and -inf for the last `columns` keys, or None when every
    row sees every key. edge: bool [n1 - n0, k1 - k0], true at padding on the left, or None."""

    n0: int
    n1: int
    q0: int
    q1: int
    k0: int
    k1: int
    bias: torch.Tensor | None
    edge: torch.Tensor | None


@dataclass
class Group:
    """Entries of equal shape. Tokens are rows of the flat tensors; `real` is false where a slot repeats another's."""

    q_tokens: torch.Tensor  # int64 [entries, q_slots]
    k_tokens: torch.Tensor  # int64 [entries, k_slots]
    q_real: torch.Tensor  # bool [entries, q_slots]
    k_real: torch.Tensor  # bool [entries, k_slots]
    steps: list[Step]


@dataclass
class Plan:
    """What to do with a layout: segments for a fused operator, and groups of tiles."""

    whole: list[Segment]
    groups: list[Group]
    indices: dict[Any, Any] = field(default_factory=dict)  # derived by the implementation


def _causal_bias(rows: int, columns: int, window: int | None, repeat: int) -> torch.Tensor:
    """[rows * repeat, columns] of 0 and -inf, where the last row sees the last column last."""
    behind = torch.arange(rows)[:, None] + columns - rows - torch.arange(columns)[None, :]
    hidden = behind < 0 if window is None else (behind < 0) | (behind >= window)
    bias = torch.zeros(rows, columns).masked_fill_(hidden, -torch.inf)
    return bias.repeat_interleave(repeat, dim=0)


def _chunks(count: int, each: int) -> Iterator[tuple[int, int]]:
    """[0, count) in pieces whose scores, `each` per entry, stay within TILE_ELEMENTS."""
    size = max(1, TILE_ELEMENTS // max(each, 1))
    pieces = -(-count // size)
    for piece in range(pieces):
        yield count * piece // pieces, count * (piece + 1) // pieces


def _stairs(segments: Sequence[Segment], window: int | None, heads: int, repeat: int) -> Group:
    """One group of segments, the longest first."""
    q_len = torch.tensor([s.q_len for s in segments])[:, None]
    k_len = torch.tensor([s.k_len for s in segments])[:, None]
    q_start = torch.tensor([s.q_start for s in segments])[:, None]
    k_start = torch.tensor([s.k_start for s in segments])[:, None]
    q_slots, k_slots = int(q_len.max()), int(k_len.max())
    left = all(s.q_len == s.k_len for s in segments)
    q_at = torch.arange(q_slots)[None, :] - (0 if left else q_slots - q_len)
    k_at = torch.arange(k_slots)[None, :] - (0 if left else k_slots - k_len)
    q_real, k_real = (q_at >= 0) & (q_at < q_len), (k_at >= 0) & (k_at < k_len)
    q_at, k_at = q_at.clamp(min=0).minimum(q_len - 1), k_at.clamp(min=0).minimum(k_len - 1)
    group = Group(q_start + q_at, k_start + k_at, q_real, k_real, [])
    biases: dict[tuple[int, int], torch.Tensor] = {}
    shift = k_slots - q_slots  # 0 when aligned left: there q_slots == k_slots
    rows = ROWS if q_slots <= 256 else 2 * ROWS
    for q0 in range(0, q_slots, rows):
        q1 = min(q0 + rows, q_slots)
        k1 = q1 + shift
        k0 = 0 if window is None else max(0, q0 + shift - window + 1)
        columns = q1 - q0 if window is None or k1 - k0 <= window else k1 - k0
        if (q1 - q0, columns) not in biases:
            biases[q1 - q0, columns] = _causal_bias(q1 - q0, columns, window, repeat)
        reach = sum(s.q_len > (q0 if left else q_slots - q1) for s in segments)
        for n0, n1 in _chunks(reach, heads * (q1 - q0) * (k1 - k0)):
            edge = None if left or bool(k_real[n0:n1, k0:k1].all()) else ~k_real[n0:n1, k0:k1]
            group.steps.append(Step(n0, n1, q0, q1, k0, k1, biases[q1 - q0, columns], edge))
    return group


def _band(segments: Sequence[Segment], window: int, heads: int, repeat: int) -> Group:
    """One group of all tiles of long windowed segments (q_len == k_len)."""
    rows = max(ROWS, min(128, window // 2 // ROWS * ROWS))
    k_slots = rows + window - 1
    tiles = torch.tensor(
        [(s.q_start, s.k_start, first, s.q_len) for s in segments for first in range(0, s.q_len, rows)]
    )
    order = (tiles[:, 2] >= window - 1).to(torch.int8).argsort(stable=True)  # tiles that meet the edge come first
    q_start, k_start, first, length = tiles[order].unsqueeze(-1).unbind(1)
    q_at = first + torch.arange(rows)
    k_at = first + torch.arange(k_slots) - (window - 1)
    q_real, k_real = q_at < length, (k_at >= 0) & (k_at < length)
    group = Group(
        q_start + q_at.minimum(length - 1), k_start + k_at.clamp(min=0).minimum(length - 1), q_real, k_real, []
    )
    bias = _causal_bias(rows, k_slots, window, repeat)
    outside = k_at < 0
    for n0, n1 in _chunks(len(tiles), heads * rows * k_slots):
        edge = outside[n0:n1] if bool(outside[n0:n1].any()) else None
        group.steps.append(Step(n0, n1, 0, rows, 0, k_slots, bias, edge))
    return group


def _similar(segment: Segment, longest: Segment) -> bool:
    """Whether a segment may share a group: its padding would cost less than steps of its own."""
    return all(
        mine * SIMILAR + ROWS >= theirs
        for mine, theirs in ((segment.q_len, longest.q_len), (segment.k_len, longest.k_len))
    )


def build(layout: Layout, window: int | None, num_q_heads: int, num_kv_heads: int) -> Plan:
    """The plan of a layout without parents."""
    plan = Plan([], [])
    repeat = num_q_heads // num_kv_heads
    short: list[Segment] = []
    banded: list[Segment] = []
    for segment in layout.segments:
        blind = max(0, segment.q_len - segment.k_len)  # queries before the first key see nothing: no tile computes them
        q_len = segment.q_len - blind
        if q_len == 0:
            continue
        kept = segment._replace(q_start=segment.q_start + blind, q_len=q_len)
        windowed = window is not None and kept.k_len > window
        if not windowed and q_len == kept.k_len and q_len >= WHOLE_FROM:
            plan.whole.append(kept)
        elif windowed and q_len == kept.k_len and q_len > BAND_FROM:
            banded.append(kept)
        else:
            short.append(kept)
    if banded and window is not None:
        plan.groups.append(_band(banded, window, num_q_heads, repeat))
    for same in (True, False):
        chosen = [s for s in short if (s.q_len == s.k_len) == same]
        chosen.sort(key=lambda s: (s.q_len, s.k_len), reverse=True)
        while chosen:
            longest, count = chosen[0], 1
            while count < len(chosen) and _similar(chosen[count], longest):
                count += 1
            plan.groups.append(_stairs(chosen[:count], window, num_q_heads, repeat))
            chosen = chosen[count:]
    return plan
