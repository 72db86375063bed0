"""Forward kernel: online softmax over the keys that the tables of triton_schedule.py list for a tile of queries.

One program computes one tile of one query head. Scores live in base 2, with log2(e) folded into `scale`, so that a
score costs one fused multiply-add and one exp2. The sink enters as the state the softmax starts from, top = a and
total = 1, so `top` is never -inf; without a sink it starts from the lowest finite number and total = 0, and what no row
sees never enters a difference of infinities.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Numbers that change from batch to batch: a kernel compiled for one value of them serves all.
VARYING = ("num_queries", "num_tiles", "group", "window")

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def load_rows(at, stride, count, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, WHOLE: tl.constexpr):
    """Tile [ROWS, WIDTH] of the rows from `at` on; 0 beyond row `count` (unless WHOLE) and beyond HEAD_DIM.

    Offsets are 64-bit: a row stride times a row passes 2^31 in long fused projections.
    """
    row = tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    pointers = at + row.to(tl.int64) * stride + column
    if WHOLE:
        if HEAD_DIM == WIDTH:
            return tl.load(pointers)
        return tl.load(pointers, mask=column < HEAD_DIM, other=0.0)
    if HEAD_DIM == WIDTH:
        return tl.load(pointers, mask=row < count, other=0.0)
    return tl.load(pointers, mask=(row < count) & (column < HEAD_DIM), other=0.0)


@triton.jit
def store_rows(at, stride, count, tile, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr):
    """Writes rows [0, count) of a tile [ROWS, WIDTH], columns [0, HEAD_DIM)."""
    row = tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    pointers = at + row.to(tl.int64) * stride + column
    tl.store(pointers, tile.to(at.dtype.element_ty), mask=(row < count) & (column < HEAD_DIM))


@triton.jit
def place(num_tiles, group):
    """(tile, key head, query head) of a program: the heads that share keys run side by side, tile after tile."""
    program = tl.program_id(0)
    kv_head = program // (num_tiles * group)
    rest = program % (num_tiles * group)
    return rest // group, kv_head, kv_head * group + rest % group


@triton.jit
def hide(scores, begin, end, COLUMNS: tl.constexpr):
    """Scores [rows, COLUMNS] with -inf outside the columns [begin, end) of each row; begin may be negative."""
    reach = tl.maximum(end - begin, 0)
    beyond = tl.arange(0, COLUMNS)[None, :] - begin[:, None]  # a column before begin wraps around to a large one
    return tl.where(beyond.to(tl.uint32) < reach[:, None].to(tl.uint32), scores, -float("inf"))


@triton.jit
def absorb(scores, scale, top, total, acc, values, PRECISION: tl.constexpr):
    """The softmax state (top, total, acc) after one more block of scores, with `scale` > 0 still to be applied."""
    new_top = tl.maximum(top, tl.max(scores, 1) * scale)
    weights = tl.exp2(scores * scale - new_top[:, None])
    shrink = tl.exp2(top - new_top)
    total = total * shrink + tl.sum(weights, 1)
    acc = tl.dot(weights.to(values.dtype), values, acc * shrink[:, None], input_precision=PRECISION)
    return new_top, total, acc


@triton.jit(do_not_specialize=VARYING)
def forward(
    q,
    k,
    v,
    sinks,
    out,
    lse,
    lse2,
    tiles,
    ranges,
    edges,
    q_row,
    q_head,
    k_row,
    k_head,
    v_row,
    v_head,
    out_row,
    num_queries,
    num_tiles,
    group,
    window,
    scale,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """out [num_queries, heads, HEAD_DIM] and lse [heads, num_queries]; a program for each tile of queries and head."""
    tile, kv_head, head = place(num_tiles, group)
    first = tl.load(tiles + tile * 6).to(tl.int64)
    rows = tl.load(tiles + tile * 6 + 1)
    q_at = q + first * q_row + head.to(tl.int64) * q_head
    k_at = k + kv_head.to(tl.int64) * k_head
    v_at = v + kv_head.to(tl.int64) * v_head
    queries = load_rows(q_at, q_row, rows, BLOCK_Q, HEAD_DIM, WIDTH, False)

    top = tl.full([BLOCK_Q], LOWEST, tl.float32)
    total = tl.zeros([BLOCK_Q], tl.float32)
    if sinks is not None:
        sink = tl.load(sinks + head).to(tl.float32) * LOG2E
        top = tl.where(sink == -float("inf"), top, sink)
        total = tl.where(sink == -float("inf"), total, 1.0)
    acc = tl.zeros([BLOCK_Q, WIDTH], tl.float32)

    row = tl.arange(0, BLOCK_Q)
    for entry in range(tl.load(tiles + tile * 6 + 4), tl.load(tiles + tile * 6 + 5)):
        at = tl.load(edges + entry * 3).to(tl.int64)
        count = tl.load(edges + entry * 3 + 1)
        behind = tl.load(edges + entry * 3 + 2) + row
        keys = load_rows(k_at + at * k_row, k_row, count, BLOCK_K, HEAD_DIM, WIDTH, False)
        values = load_rows(v_at + at * v_row, v_row, count, BLOCK_K, HEAD_DIM, WIDTH, False)
        scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION)
        scores = hide(scores, behind - window + 1, tl.minimum(behind + 1, count), BLOCK_K)
        top, total, acc = absorb(scores, scale, top, total, acc, values, PRECISION)

    for entry in range(tl.load(tiles + tile * 6 + 2), tl.load(tiles + tile * 6 + 3)):
        at = tl.load(ranges + entry * 2).to(tl.int64)
        length = tl.load(ranges + entry * 2 + 1)
        for start in range(0, length, BLOCK_K):
            keys = load_rows(k_at + (at + start) * k_row, k_row, BLOCK_K, BLOCK_K, HEAD_DIM, WIDTH, True)
            values = load_rows(v_at + (at + start) * v_row, v_row, BLOCK_K, BLOCK_K, HEAD_DIM, WIDTH, True)
            scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION)
            top, total, acc = absorb(scores, scale, top, total, acc, values, PRECISION)

    empty = total == 0.0
    total = tl.where(empty, 1.0, total)
    log_total = top + tl.log2(total)
    at_row = head.to(tl.int64) * num_queries + first + row
    tl.store(lse + at_row, tl.where(empty, -float("inf"), log_total * LN2), mask=row < rows)
    tl.store(lse2 + at_row, tl.where(empty, 0.0, log_total), mask=row < rows)
    out_at = out + first * out_row + head.to(tl.int64) * HEAD_DIM
    store_rows(out_at, out_row, rows, acc / total[:, None], BLOCK_Q, HEAD_DIM, WIDTH)
