"""Plan: a layout cut into tiles of equal shape, for an implementation that works on gathered copies.

    strip   some queries in a row, their own keys, and in front of these the keys before them on their path (the lead)
    group   strips of similar shape, batched: [strips, slots] of queries and of keys; the longest first, so that the
            strips that reach a tile are a prefix of the batch. Queries are aligned left and keys at the diagonal;
            padding on the right is harmless under a causal mask, `edge` hides the padding on the left.
    step    one tile of a group: strips [n0, n1), query slots [q0, q1) against key slots [k0, k1)
    chunk   groups whose queries are one range of rows and whose copies are small: what is gathered at a time
    rect    keys that many later rows see in full (a prefix under its continuations): a product without a mask

Without a window, segments become nodes of at most NODE rows, each the child of the one before it, so a long sequence
is a tree like any other. The keys of a node reach the rows below it as a rect, or, where a rect would cost more than
it saves, as the lead of their strips. With a window the lead holds at most window - 1 keys, and rows of a long segment
are cut into strips of one tile each (a band): one step for thousands of tiles.

Every padded slot repeats a row of its strip, so padding rows of the caller are never read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from .layout import Layout

ROWS = 16  # queries of a tile, twice that in long strips: 8 to 32 measure alike; from 64 on, the half tile above the
# diagonal is felt
BAND_FROM = 512  # windowed segments longer than this become bands
NODE = 768  # rows of a node, without a window
SIMILAR = 1.25  # longest to shortest strip of a group
TILE_ELEMENTS = 1 << 17
STRIP_ELEMENTS = 1 << 18  # queries of a strip, without a window
CHUNK_ELEMENTS = 1 << 21  # gathered queries and keys of a chunk; rows of long strips count eightfold, as they need no
# company to fill a tile
RECT_SCORES = 1 << 18  # from so many scores on a rect pays for its own steps,
RECT_COPIES = 1 << 18  # and from so many elements of keys that leads would copy more than once

Range = tuple[int, int]  # first row and number of rows
Rows = slice | torch.Tensor  # a range, or int64 rows in any order


class Step(NamedTuple):
    """One tile. bias: [keys, (q1 - q0) * group size] of 0 and -inf for the last keys, or None when every query sees
    every key. edge: bool [n1 - n0, k1 - k0], true at padding on the left, or None."""

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
    """Strips of equal shape. Tokens are rows of the flat tensors; `real` is false where a slot repeats another's."""

    q_tokens: torch.Tensor  # int64 [strips, q_slots]
    k_tokens: torch.Tensor  # int64 [strips, k_slots]
    q_real: torch.Tensor  # bool [strips, q_slots]
    k_real: torch.Tensor  # bool [strips, k_slots]
    steps: list[Step]


@dataclass
class Chunk:
    """Groups over the query rows [start, stop), rows without a strip included."""

    start: int
    stop: int
    groups: list[Group]
    indices: dict[Any, Any] = field(default_factory=dict)  # derived by the implementation


class Rect(NamedTuple):
    """Keys that all of some queries see."""

    k_rows: Rows
    num_keys: int
    q_rows: list[Rows]


@dataclass
class Plan:
    """What to do with a layout: chunks cover every query row once, and rects add to them."""

    chunks: list[Chunk]
    rects: list[Rect]


class _Strip(NamedTuple):
    q_start: int
    q_len: int
    k_start: int  # the key row of the first query
    lead: tuple[Range, ...]  # rows of the keys in front, in the order of their positions
    lead_len: int
    band: bool


@dataclass
class _Node:
    """Keys that continue another node's, with a query each or without queries (q_start -1)."""

    q_start: int
    k_start: int
    length: int
    parent: int
    children: list[int] = field(default_factory=list)
    below_rows: int = 0  # queries of all nodes under it
    below_strips: int = 0


@lru_cache(maxsize=64)
def _causal_bias(rows: int, columns: int, window: int | None, repeat: int) -> torch.Tensor:
    """[columns, rows * repeat] of 0 and -inf for keys in columns, where the last query sees the last key last."""
    behind = torch.arange(rows)[:, None] + columns - rows - torch.arange(columns)[None, :]
    hidden = behind < 0 if window is None else (behind < 0) | (behind >= window)
    bias = torch.zeros(rows, columns).masked_fill_(hidden, -torch.inf)
    return bias.T.repeat_interleave(repeat, dim=1)


def _parts(count: int, each: int, limit: int) -> Iterator[tuple[int, int]]:
    """[0, count) in even pieces whose elements, `each` per entry, stay within the limit."""
    size = max(1, limit // max(each, 1))
    pieces = -(-count // size)
    for piece in range(pieces):
        yield count * piece // pieces, count * (piece + 1) // pieces


def _expand(ranges: Sequence[Range]) -> torch.Tensor:
    """The rows of all ranges, one behind another."""
    if not ranges:
        return torch.zeros(1, dtype=torch.int64)
    starts, lengths = torch.tensor(ranges).unbind(1)
    before = lengths.cumsum(0) - lengths
    return (starts - before).repeat_interleave(lengths) + torch.arange(int(lengths.sum()))


def _merged(ranges: Sequence[Range]) -> list[Range]:
    """Ranges in order of their rows, touching ones as one."""
    merged: list[Range] = []
    for start, length in sorted(ranges):
        if merged and sum(merged[-1]) == start:
            merged[-1] = (merged[-1][0], merged[-1][1] + length)
        else:
            merged.append((start, length))
    return merged


class _Slots:
    """Key rows of strips by their place relative to the first query's key; places before it are the lead."""

    def __init__(self, strips: Sequence[_Strip]) -> None:
        def column(values: list[int]) -> torch.Tensor:
            return torch.tensor(values)[:, None]

        self.q_start, self.q_len = column([s.q_start for s in strips]), column([s.q_len for s in strips])
        self.k_start, self.lead_len = column([s.k_start for s in strips]), column([s.lead_len for s in strips])
        self.leads = _expand([piece for s in strips for piece in s.lead])
        self.ends = self.lead_len.cumsum(0)

    def queries(self, at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        real = at < self.q_len
        return self.q_start + at.minimum(self.q_len - 1), real

    def keys(self, at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        real = (at >= -self.lead_len) & (at < self.q_len)
        own = self.k_start + at.clamp(min=0).minimum(self.q_len - 1)
        if not bool(self.lead_len.any()):
            return own, real
        led = self.leads[(self.ends + at).clamp_(0, len(self.leads) - 1)]
        return torch.where(real & (at < 0), led, own), real


def _stairs(strips: Sequence[_Strip], window: int | None, heads: int, repeat: int) -> Group:
    """One group of strips, the longest first."""
    slots = _Slots(strips)
    q_slots, lead = strips[0].q_len, max(s.lead_len for s in strips)
    q_tokens, q_real = slots.queries(torch.arange(q_slots)[None, :])
    k_tokens, k_real = slots.keys(torch.arange(lead + q_slots)[None, :] - lead)
    group = Group(q_tokens, k_tokens, q_real, k_real, [])
    pads = lead - slots.lead_len.squeeze(1)
    ragged = bool(pads.any())
    rows = max(ROWS, (2 if q_slots + lead <= 256 else 4) * ROWS // repeat)
    reach = len(strips)
    for q0 in range(0, q_slots, rows):
        q1 = min(q0 + rows, q_slots)
        while strips[reach - 1].q_len <= q0:
            reach -= 1
        k1 = lead + q1
        k0 = 0 if window is None else max(0, lead + q0 - window + 1)
        clipped = window is not None and k1 - k0 > window
        bias = _causal_bias(q1 - q0, k1 - k0 if clipped else q1 - q0, window if clipped else None, repeat)
        for n0, n1 in _parts(reach, heads * (q1 - q0) * (k1 - k0), TILE_ELEMENTS):
            padded = pads[n0:n1, None] > torch.arange(k0, k1) if ragged else None
            edge = padded if padded is not None and bool(padded.any()) else None
            group.steps.append(Step(n0, n1, q0, q1, k0, k1, bias, edge))
    return group


def _band(strips: Sequence[_Strip], window: int, rows: int, heads: int, repeat: int) -> Group:
    """One group of strips of one tile each, with the whole window in front."""
    slots = _Slots(sorted(strips, key=lambda s: s.lead_len))  # those that meet the edge come first
    lead = window - 1
    q_tokens, q_real = slots.queries(torch.arange(rows)[None, :])
    k_tokens, k_real = slots.keys(torch.arange(lead + rows)[None, :] - lead)
    group = Group(q_tokens, k_tokens, q_real, k_real, [])
    bias = _causal_bias(rows, lead + rows, window, repeat)
    outside = lead - slots.lead_len > torch.arange(lead + rows)
    for n0, n1 in _parts(len(strips), heads * rows * (lead + rows), TILE_ELEMENTS):
        edge = outside[n0:n1] if bool(outside[n0:n1].any()) else None
        group.steps.append(Step(n0, n1, 0, rows, 0, lead + rows, bias, edge))
    return group


def _similar(strip: _Strip, longest: _Strip) -> bool:
    """Whether a strip may share a group: its padding would cost less than steps of its own."""
    allowed = max(ROWS, (1 - 1 / SIMILAR) * (longest.lead_len + longest.q_len))
    return strip.q_len * SIMILAR + ROWS >= longest.q_len and abs(strip.lead_len - longest.lead_len) <= allowed


def _band_rows(window: int, repeat: int) -> int:
    return max(ROWS, min(64, window // (2 * repeat) // ROWS * ROWS))


def _windowed_strips(layout: Layout, window: int, repeat: int) -> Iterator[_Strip]:
    for segment in layout.segments:
        blind = max(0, segment.q_len - segment.k_len)
        length = segment.q_len - blind
        own = segment.k_start + segment.k_len - length
        band = length > BAND_FROM
        size = _band_rows(window, repeat) if band else max(length, 1)
        for first in range(0, length, size):
            pieces: list[Range] = []
            need, end, on_path = window - 1, own + first, segment
            while need > 0:
                start = max(on_path.k_start, end - need)
                if start < end:
                    pieces.append((start, end - start))
                need -= end - start
                if on_path.parent == -1:
                    break
                on_path = layout.segments[on_path.parent]
                end = on_path.k_start + on_path.k_len
            yield _Strip(
                segment.q_start + blind + first,
                min(size, length - first),
                own + first,
                tuple(reversed(pieces)),
                window - 1 - need,
                band,
            )


def _nodes(layout: Layout) -> list[_Node]:
    """Segments as nodes of at most NODE rows; keys before the first query of a segment are nodes without queries."""
    nodes: list[_Node] = []
    last: list[int] = []  # the node that each segment ends with
    for segment in layout.segments:
        at = -1 if segment.parent == -1 else last[segment.parent]
        blind = max(0, segment.q_len - segment.k_len)
        before = max(0, segment.k_len - segment.q_len)
        for first, length, q_start in (
            (segment.k_start, before, -1),
            (segment.k_start + before, segment.k_len - before, segment.q_start + blind),
        ):
            for begin, end in _parts(length, 1, NODE):
                nodes.append(_Node(-1 if q_start == -1 else q_start + begin, first + begin, end - begin, at))
                at = len(nodes) - 1
        last.append(at)
    for index in reversed(range(len(nodes))):
        node = nodes[index]
        if node.parent != -1:
            above = nodes[node.parent]
            above.children.append(index)
            above.below_rows += node.below_rows + (node.length if node.q_start != -1 else 0)
            above.below_strips += node.below_strips + (node.q_start != -1)
    return nodes


def _below(nodes: list[_Node], index: int) -> list[Range]:
    """Query rows of all nodes under one."""
    ranges: list[Range] = []
    todo = list(nodes[index].children)
    while todo:
        node = nodes[todo.pop()]
        todo += node.children
        if node.q_start != -1:
            ranges.append((node.q_start, node.length))
    return _merged(ranges)


def _tree(layout: Layout, num_q_heads: int, num_kv_heads: int, head_dim: int) -> tuple[list[_Strip], list[Rect]]:
    nodes = _nodes(layout)
    strips: list[_Strip] = []
    rects: list[Rect] = []
    carried: list[tuple[Range, ...]] = []  # keys on the path down to each node that no rect holds
    for index, node in enumerate(nodes):
        lead = () if node.parent == -1 else carried[node.parent]
        if node.q_start != -1:
            for first, end in _parts(node.length, num_q_heads * head_dim, STRIP_ELEMENTS):
                before = (*lead, (node.k_start, first)) if first else lead
                lead_len = sum(length for _, length in before)
                strips.append(_Strip(node.q_start + first, end - first, node.k_start + first, before, lead_len, False))
        lead = (*lead, (node.k_start, node.length))
        keys = sum(length for _, length in lead)
        copies = keys * (node.below_strips - 1) * num_kv_heads * head_dim
        if copies >= RECT_COPIES or keys * node.below_rows * num_q_heads >= RECT_SCORES:
            ranges = _below(nodes, index)
            scattered = node.below_rows < 64 * len(ranges)
            q_rows: list[Rows] = [_expand(ranges)] if scattered else [slice(a, a + n) for a, n in ranges]
            joined = _merged(lead)
            k_rows = slice(joined[0][0], sum(joined[0])) if len(joined) == 1 else _expand(joined)
            rects.append(Rect(k_rows, keys, q_rows))
            lead = ()
        carried.append(lead)
    return strips, rects


def _longest_path(layout: Layout) -> int:
    lengths: list[int] = []
    for segment in layout.segments:
        lengths.append(segment.k_len + (0 if segment.parent == -1 else lengths[segment.parent]))
    return max(lengths, default=0)


def build(layout: Layout, window: int | None, num_q_heads: int, num_kv_heads: int, head_dim: int) -> Plan:
    """The plan of a layout."""
    repeat = num_q_heads // num_kv_heads
    rects: list[Rect] = []
    if window is None or window >= _longest_path(layout):
        window = None
        strips, rects = _tree(layout, num_q_heads, num_kv_heads, head_dim)
    else:
        strips = list(_windowed_strips(layout, window, repeat))
    chunks: list[Chunk] = []
    taken: list[_Strip] = []
    size = 0

    def close(stop: int) -> None:
        groups = []
        bands = [s for s in taken if s.band]
        if bands and window is not None:
            groups.append(_band(bands, window, _band_rows(window, repeat), num_q_heads, repeat))
        rest = sorted((s for s in taken if not s.band), key=lambda s: (s.q_len, s.lead_len), reverse=True)
        while rest:
            same = [s for s in rest if _similar(s, rest[0])]
            rest = [s for s in rest if not _similar(s, rest[0])]
            groups.append(_stairs(same, window, num_q_heads, repeat))
        chunks.append(Chunk(chunks[-1].stop if chunks else 0, stop, groups))
        taken.clear()

    for strip in sorted(strips):
        weight = head_dim * (strip.q_len * num_q_heads + (strip.lead_len + strip.q_len) * num_kv_heads)
        weight *= 8 if strip.band or strip.lead_len + strip.q_len > 256 else 1
        if taken and size + weight > CHUNK_ELEMENTS:
            close(strip.q_start)
            size = 0
        taken.append(strip)
        size += weight
    if taken:
        close(layout.num_queries)
    return Plan(chunks, rects)
