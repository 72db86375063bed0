"""Backward kernels: dQ with everything that is computed per query row, then dK and dV.

With the sink-inclusive log-sum-exp L the backward of sink attention is the ordinary flash backward:

    P = exp(S - L)   dP = dO V^T   dS = P * (dP - delta)   delta = <dO, O> - dL
    dQ = scale * dS K   dK = scale * dS^T Q   dV = P^T dO   da = -sum of exp(a - L) * delta

`backward_queries` runs first. It holds the rows of dO anyway, so it computes delta, which `backward_keys` reads, and
sums its rows' part of da. Both recompute S. `backward_keys` computes S^T = K Q^T and dP^T = V dO^T directly: Triton
3.4 to 3.7.0 miscompiles a transposed accumulator as an operand of a product on Hopper. A program of it keeps its keys
and goes through all query heads that share them, so dK and dV are summed in registers, in a fixed order, and no
gradient per query head exists. Nothing here is atomic.

Order matters to ptxas on Hopper: with the edges behind the ranges, or with a product between the first use of dV and
the next, it gives up on overlapping wgmma instructions (warning C7515). Column vectors of S^T take a register for each
column, so they are loaded where they are used.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .triton_forward import LN2, LOG2E, VARYING, hide, load_rows, place, store_rows


@triton.jit(do_not_specialize=(*VARYING, "d_lse_row", "d_lse_head"))
def backward_queries(
    q,
    k,
    v,
    sinks,
    out,
    lse2,
    d_out,
    d_lse,
    dq,
    delta,
    d_sinks,
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
    d_out_row,
    d_out_head,
    d_lse_row,
    d_lse_head,
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
    """dq like out, delta [heads, num_queries], d_sinks [heads, num_tiles]; a program for each tile and query head."""
    tile, kv_head, head = place(num_tiles, group)
    first = tl.load(tiles + tile * 6).to(tl.int64)
    rows = tl.load(tiles + tile * 6 + 1)
    range_first = tl.load(tiles + tile * 6 + 2)
    range_end = tl.load(tiles + tile * 6 + 3)
    edge_first = tl.load(tiles + tile * 6 + 4)
    edge_end = tl.load(tiles + tile * 6 + 5)
    q_at = q + first * q_row + head.to(tl.int64) * q_head
    k_at = k + kv_head.to(tl.int64) * k_head
    v_at = v + kv_head.to(tl.int64) * v_head
    out_offset = first * out_row + head.to(tl.int64) * HEAD_DIM
    d_out_at = d_out + first * d_out_row + head.to(tl.int64) * d_out_head
    row = tl.arange(0, BLOCK_Q)
    at_row = head.to(tl.int64) * num_queries + first + row

    # A tile that sees no key has O = 0; it may be padding, whose dO may be anything.
    seen = tl.where((range_end > range_first) | (edge_end > edge_first), rows, 0)
    pulls = load_rows(d_out_at, d_out_row, seen, BLOCK_Q, HEAD_DIM, WIDTH, False)
    outs = load_rows(out + out_offset, out_row, seen, BLOCK_Q, HEAD_DIM, WIDTH, False)
    less = tl.sum(pulls.to(tl.float32) * outs.to(tl.float32), 1)
    # Rows beyond the tile get P = exp(S - inf) = 0.
    log_total = tl.load(lse2 + at_row, mask=row < rows, other=float("inf"))
    queries = load_rows(q_at, q_row, rows, BLOCK_Q, HEAD_DIM, WIDTH, False)

    if q.dtype.element_ty != tl.float32:
        # Where rows see few keys, delta from the rounded output cancels against dP and leaves dQ and dK its rounding
        # errors. Tiles that meet no more than about their own number of keys sum delta = P dP instead.
        few = (range_end == range_first) & ((edge_end - edge_first) * BLOCK_K < 2 * BLOCK_Q)
        exact = tl.zeros([BLOCK_Q], tl.float32)
        for entry in range(edge_first, tl.where(few, edge_end, edge_first)):
            at = tl.load(edges + entry * 3).to(tl.int64)
            count = tl.load(edges + entry * 3 + 1)
            behind = tl.load(edges + entry * 3 + 2) + row
            keys = load_rows(k_at + at * k_row, k_row, count, BLOCK_K, HEAD_DIM, WIDTH, False)
            values = load_rows(v_at + at * v_row, v_row, count, BLOCK_K, HEAD_DIM, WIDTH, False)
            scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION)
            d_weights = tl.dot(pulls, tl.trans(values), input_precision=PRECISION)
            scores = hide(scores, behind - window + 1, tl.minimum(behind + 1, count), BLOCK_K)
            exact += tl.sum(tl.exp2(scores * scale - log_total[:, None]) * d_weights, 1)
        less = tl.where(few, exact, less)

    if d_lse is not None:
        d_lse_at = d_lse + first * d_lse_row + head.to(tl.int64) * d_lse_head
        less -= tl.load(d_lse_at + row.to(tl.int64) * d_lse_row, mask=row < rows, other=0.0)
    tl.store(delta + at_row, less, mask=row < rows)
    if sinks is not None:
        sink = tl.load(sinks + head).to(tl.float32) * LOG2E
        share = tl.where(sink == -float("inf"), 0.0, tl.exp2(sink - log_total))
        tl.store(d_sinks + head * num_tiles + tile, -tl.sum(share * less, 0))

    acc = tl.zeros([BLOCK_Q, WIDTH], tl.float32)
    for entry in range(edge_first, edge_end):
        at = tl.load(edges + entry * 3).to(tl.int64)
        count = tl.load(edges + entry * 3 + 1)
        behind = tl.load(edges + entry * 3 + 2) + row
        keys = load_rows(k_at + at * k_row, k_row, count, BLOCK_K, HEAD_DIM, WIDTH, False)
        values = load_rows(v_at + at * v_row, v_row, count, BLOCK_K, HEAD_DIM, WIDTH, False)
        scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION)
        d_weights = tl.dot(pulls, tl.trans(values), input_precision=PRECISION)
        scores = hide(scores, behind - window + 1, tl.minimum(behind + 1, count), BLOCK_K)
        weights = tl.exp2(scores * scale - log_total[:, None])
        d_scores = weights * (d_weights - less[:, None])
        acc = tl.dot(d_scores.to(keys.dtype), keys, acc, input_precision=PRECISION)

    for entry in range(range_first, range_end):
        at = tl.load(ranges + entry * 2).to(tl.int64)
        length = tl.load(ranges + entry * 2 + 1)
        for start in range(0, length, BLOCK_K):
            keys = load_rows(k_at + (at + start) * k_row, k_row, BLOCK_K, BLOCK_K, HEAD_DIM, WIDTH, True)
            values = load_rows(v_at + (at + start) * v_row, v_row, BLOCK_K, BLOCK_K, HEAD_DIM, WIDTH, True)
            scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION)
            d_weights = tl.dot(pulls, tl.trans(values), input_precision=PRECISION)
            weights = tl.exp2(scores * scale - log_total[:, None])
            d_scores = weights * (d_weights - less[:, None])
            acc = tl.dot(d_scores.to(keys.dtype), keys, acc, input_precision=PRECISION)

    store_rows(dq + out_offset, out_row, rows, acc * (scale * LN2), BLOCK_Q, HEAD_DIM, WIDTH)


@triton.jit(do_not_specialize=VARYING)
def backward_keys(
    q,
    k,
    v,
    lse2,
    d_out,
    delta,
    dk,
    dv,
    tiles,
    ranges,
    edges,
    q_row,
    q_head,
    k_row,
    k_head,
    v_row,
    v_head,
    dk_row,
    d_out_row,
    d_out_head,
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
    """dk and dv [num_keys, kv_heads, HEAD_DIM]; a program for each tile of keys and key head."""
    tile, kv_head, _ = place(num_tiles, 1)
    first = tl.load(tiles + tile * 6).to(tl.int64)
    rows = tl.load(tiles + tile * 6 + 1)
    range_first = tl.load(tiles + tile * 6 + 2)
    num_ranges = tl.load(tiles + tile * 6 + 3) - range_first
    edge_first = tl.load(tiles + tile * 6 + 4)
    num_edges = tl.load(tiles + tile * 6 + 5) - edge_first
    keys = load_rows(k + first * k_row + kv_head.to(tl.int64) * k_head, k_row, rows, BLOCK_K, HEAD_DIM, WIDTH, False)
    values = load_rows(v + first * v_row + kv_head.to(tl.int64) * v_head, v_row, rows, BLOCK_K, HEAD_DIM, WIDTH, False)
    dk_acc = tl.zeros([BLOCK_K, WIDTH], tl.float32)
    dv_acc = tl.zeros([BLOCK_K, WIDTH], tl.float32)
    column = tl.arange(0, BLOCK_Q)

    row = tl.arange(0, BLOCK_K)
    for step in range(0, group * num_edges):
        head = (kv_head * group + step // num_edges).to(tl.int64)
        entry = edge_first + step % num_edges
        at = tl.load(edges + entry * 3).to(tl.int64)
        count = tl.load(edges + entry * 3 + 1)
        ahead = row - tl.load(edges + entry * 3 + 2)  # the first query that row sees, in rows of the block
        q_at = q + head * q_head + at * q_row
        d_out_at = d_out + head * d_out_head + at * d_out_row
        at_row = head * num_queries + at + column
        queries = load_rows(q_at, q_row, count, BLOCK_Q, HEAD_DIM, WIDTH, False)
        pulls = load_rows(d_out_at, d_out_row, count, BLOCK_Q, HEAD_DIM, WIDTH, False)
        scores = tl.dot(keys, tl.trans(queries), input_precision=PRECISION)
        d_weights = tl.dot(values, tl.trans(pulls), input_precision=PRECISION)
        log_total = tl.load(lse2 + at_row, mask=column < count, other=0.0)
        scores = hide(scores, ahead, ahead + window, BLOCK_Q)  # queries beyond `count` are 0, and so is their dO
        weights = tl.exp2(scores * scale - log_total[None, :])
        dv_acc = tl.dot(weights.to(pulls.dtype), pulls, dv_acc, input_precision=PRECISION)
        less = tl.load(delta + at_row, mask=column < count, other=0.0)
        d_scores = weights * (d_weights - less[None, :])
        dk_acc = tl.dot(d_scores.to(queries.dtype), queries, dk_acc, input_precision=PRECISION)

    for step in range(0, group * num_ranges):
        head = (kv_head * group + step // num_ranges).to(tl.int64)
        entry = range_first + step % num_ranges
        at = tl.load(ranges + entry * 2).to(tl.int64)
        length = tl.load(ranges + entry * 2 + 1)
        q_at = q + head * q_head
        d_out_at = d_out + head * d_out_head
        at_row = head * num_queries + column
        for start in range(0, length, BLOCK_Q):
            queries = load_rows(q_at + (at + start) * q_row, q_row, BLOCK_Q, BLOCK_Q, HEAD_DIM, WIDTH, True)
            pulls = load_rows(d_out_at + (at + start) * d_out_row, d_out_row, BLOCK_Q, BLOCK_Q, HEAD_DIM, WIDTH, True)
            scores = tl.dot(keys, tl.trans(queries), input_precision=PRECISION)
            d_weights = tl.dot(values, tl.trans(pulls), input_precision=PRECISION)
            log_total = tl.load(lse2 + (at + start) + at_row)
            weights = tl.exp2(scores * scale - log_total[None, :])
            dv_acc = tl.dot(weights.to(pulls.dtype), pulls, dv_acc, input_precision=PRECISION)
            less = tl.load(delta + (at + start) + at_row)
            d_scores = weights * (d_weights - less[None, :])
            dk_acc = tl.dot(d_scores.to(queries.dtype), queries, dk_acc, input_precision=PRECISION)

    at = first * dk_row + kv_head.to(tl.int64) * HEAD_DIM
    store_rows(dk + at, dk_row, rows, dk_acc * (scale * LN2), BLOCK_K, HEAD_DIM, WIDTH)
    store_rows(dv + at, dk_row, rows, dv_acc, BLOCK_K, HEAD_DIM, WIDTH)
