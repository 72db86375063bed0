"""Schedule: a layout cut into tiles, and for each tile the rows of the other side that it meets.

For the queries (forward, dQ) a tile holds up to block_q rows of one segment, and meets key rows of that segment and of
all segments on its path. For the keys (dK, dV) a tile holds up to block_k rows of one segment, and meets query rows of
that segment and of everything that descends from it. What a tile meets is clipped to what causality and the window
leave of it and comes in two kinds:

    range  a run of whole blocks of which every row of the tile sees, or is seen by, every row: no mask
    edge   one block, whole or cut short, that needs the mask

so the time of a kernel goes into loops without mask arithmetic, and blocks that nobody sees are never visited. The
tables are int32 on the device of the operands:

    tiles   [tiles, 6]   first row, rows, first range, end of ranges, first edge, end of edges; most work first
    ranges  [ranges, 2]  first row, rows (a multiple of the block)
    edges   [edges, 3]   first row, rows, position of the first query minus position of the first key

Tiles cover every row, padding included (it meets nothing), so that kernels write every row. The tables depend on the
layout, the window and the blocks, are built from whole columns at a time on the CPU, and are kept in `layout.derived`:
one copy to the device for each combination, none later.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from .layout import Layout

UNBOUNDED = 1 << 30  # the window of a request without one


class Schedule(NamedTuple):
    tiles: torch.Tensor
    ranges: torch.Tensor
    edges: torch.Tensor


class _Tiles(NamedTuple):
    """Rows of one side in tiles, columns of int64 [tiles]; owner is a segment, or -1 for padding."""

    row: torch.Tensor
    rows: torch.Tensor
    position: torch.Tensor
    owner: torch.Tensor


class _Meetings(NamedTuple):
    """Tiles and what they meet: positions [low, high) of the other side, of which [full_low, full_high) need no mask.

    row is the row of the other side that holds position 0.
    """

    tile: torch.Tensor
    row: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor
    full_low: torch.Tensor
    full_high: torch.Tensor


def query_schedule(
    layout: Layout, window: int | None, block_q: int, block_k: int, device: torch.device | str
) -> Schedule:
    """Tiles of queries and the keys they see."""
    key = ("triton queries", window, block_q, block_k, str(device))
    if key not in layout.derived:
        layout.derived[key] = _on_device(_build_queries(layout, window or UNBOUNDED, block_q, block_k), device)
    schedule: Schedule = layout.derived[key]
    return schedule


def key_schedule(
    layout: Layout, window: int | None, block_q: int, block_k: int, device: torch.device | str
) -> Schedule:
    """Tiles of keys and the queries that see them."""
    key = ("triton keys", window, block_q, block_k, str(device))
    if key not in layout.derived:
        layout.derived[key] = _on_device(_build_keys(layout, window or UNBOUNDED, block_q, block_k), device)
    schedule: Schedule = layout.derived[key]
    return schedule


def _columns(layout: Layout) -> tuple[torch.Tensor, ...]:
    """q_start, q_len, k_start, k_len, first_position, parent of all segments, and the position of the first query."""
    table = torch.tensor([list(s) for s in layout.segments], dtype=torch.int64).view(-1, 6)
    q_start, q_len, k_start, k_len, first, parent = table.unbind(1)
    return q_start, q_len, k_start, k_len, first, parent, first + k_len - q_len


def _spread(counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(owner, index within the owner) of sum(counts) things."""
    owner = torch.arange(len(counts)).repeat_interleave(counts)
    return owner, torch.arange(len(owner)) - (counts.cumsum(0) - counts)[owner]


def _tile(start: torch.Tensor, length: torch.Tensor, position: torch.Tensor, total: int, block: int) -> _Tiles:
    """Tiles of the segments, in their order, then those of the rows between and behind them."""
    end = torch.cat([start.new_zeros(1), start + length])
    gap = torch.cat([start, start.new_tensor([total])]) - end
    starts, lengths = torch.cat([start, end]), torch.cat([length, gap])
    positions = torch.cat([position, torch.zeros_like(end)])
    owner, index = _spread((lengths + block - 1) // block)
    first = index * block
    segment = torch.where(owner < len(start), owner, -1)
    return _Tiles(starts[owner] + first, (lengths[owner] - first).clamp(max=block), positions[owner] + first, segment)


def _build_queries(layout: Layout, window: int, block_q: int, block_k: int) -> Schedule:
    q_start, q_len, k_start, k_len, first, parent, q_first = _columns(layout)
    tiles = _tile(q_start, q_len, q_first, layout.num_queries, block_q)
    tile = (tiles.owner >= 0).nonzero().squeeze(1)
    piece = tiles.owner[tile]
    pairs = []
    while len(tile):
        pairs.append((tile, piece))
        piece = parent[piece]
        # Positions fall along the path, so what lies behind the window ends it.
        on = (piece >= 0) & (first[piece] + k_len[piece] > tiles.position[tile] - window + 1)
        tile, piece = tile[on], piece[on]
    tile, piece = _joined(pairs)
    begin, end = tiles.position[tile], tiles.position[tile] + tiles.rows[tile]
    low = torch.maximum(first[piece], begin - window + 1)
    high = torch.minimum(first[piece] + k_len[piece], end)
    meetings = _Meetings(
        tile,
        k_start[piece] - first[piece],
        low,
        high,
        torch.maximum(low, end - window),
        torch.minimum(high, begin + 1),
    )
    return _cut(tiles, meetings, block_k, sign=1)


def _build_keys(layout: Layout, window: int, block_q: int, block_k: int) -> Schedule:
    q_start, q_len, k_start, k_len, first, parent, q_first = _columns(layout)
    tiles = _tile(k_start, k_len, first, layout.num_keys, block_k)
    segment = (q_len > 0).nonzero().squeeze(1)
    piece = segment
    pairs = []
    while len(segment):
        pairs.append((piece, segment))
        piece = parent[piece]
        on = (piece >= 0) & (first[piece] + k_len[piece] > q_first[segment] - window + 1)
        segment, piece = segment[on], piece[on]
    piece, segment = _joined(pairs)
    counts = (k_len + block_k - 1) // block_k
    pair, index = _spread(counts[piece])
    tile, segment = (counts.cumsum(0) - counts)[piece[pair]] + index, segment[pair]
    begin, end = tiles.position[tile], tiles.position[tile] + tiles.rows[tile]
    low = torch.maximum(q_first[segment], begin)
    high = torch.minimum(q_first[segment] + q_len[segment], end - 1 + window)
    meetings = _Meetings(
        tile,
        q_start[segment] - q_first[segment],
        low,
        high,
        torch.maximum(low, end - 1),
        torch.minimum(high, begin + window),
    )
    return _cut(tiles, meetings, block_q, sign=-1)


def _joined(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    none = torch.arange(0)
    return torch.cat([none, *(a for a, _ in pairs)]), torch.cat([none, *(b for _, b in pairs)])


def _cut(tiles: _Tiles, meetings: _Meetings, block: int, sign: int) -> Schedule:
    """Blocks of every meeting: masked ones in front, whole ones, masked ones behind. sign 1: the tiles are queries."""
    tile, row, low, high, full_low, full_high = (x[meetings.high > meetings.low] for x in meetings)
    size = high - low
    front = (full_low - low + block - 1) // block
    whole = ((full_high - low) // block - front).clamp(min=0)
    front = torch.where(whole > 0, front, 0)
    masked = (size + block - 1) // block - whole

    order = _descending(torch.zeros(len(tiles.row), dtype=torch.int64).index_add_(0, tile, 2 * masked + whole))
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order))

    with_range = (whole > 0).nonzero().squeeze(1)
    with_range = with_range[rank[tile[with_range]].argsort(stable=True)]
    begin = (row + low + front * block)[with_range]
    ranges = torch.stack([begin, (whole * block)[with_range]], 1)

    of, index = _spread(masked)
    offset = torch.where(index < front[of], index, index + whole[of]) * block
    edge_tile = tile[of]
    behind = sign * (tiles.position[edge_tile] - low[of] - offset)
    edges = torch.stack([(row + low)[of] + offset, (size[of] - offset).clamp(max=block), behind], 1)
    by_rank = rank[edge_tile].argsort(stable=True)

    bounds = []
    for owners in (tile[with_range], edge_tile):
        counts = rank[owners].bincount(minlength=len(order))
        bounds += [counts.cumsum(0) - counts, counts.cumsum(0)]
    table = torch.stack([tiles.row[order], tiles.rows[order], *bounds], 1)
    return Schedule(table, ranges, edges[by_rank])


def _descending(work: torch.Tensor) -> torch.Tensor:
    """Tiles by falling work; equals keep their order."""
    return work.neg().argsort(stable=True)


def _on_device(schedule: Schedule, device: torch.device | str) -> Schedule:
    """The tables as int32 views of one buffer, moved in one copy; each begins at a multiple of 16 bytes.

    Triton compiles a kernel anew for pointers with another alignment.
    """
    parts, starts, end = [], [], 0
    for table in schedule:
        starts.append(end)
        parts.append(torch.nn.functional.pad(table.to(torch.int32).flatten(), (0, -table.numel() % 4)))
        end += len(parts[-1])
    buffer = torch.cat(parts).to(device)
    return Schedule(*(buffer[i : i + x.numel()].view(x.shape) for i, x in zip(starts, schedule, strict=True)))
