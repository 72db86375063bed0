"""Flex sink attention: torch's compiled FlexAttention with the sink added to its (out, log-sum-exp). CUDA, every mask.

With (O0, L0) the output and log-sum-exp without the sink a:

    O = O0 * sigmoid(L0 - a)        L = logaddexp(L0, a)

in autograd, so that dQ and dK get their part through L0. FlexAttention returns the log-sum-exp in the natural base
(torch 2.11 to 2.13; its kernels work in base 2). A sink cannot be a score modifier: those see one score at a time.

Mask. Every query row and every key row carries a few int32 numbers that say what it sees:

    a key belongs to the query's path    enter[key] <= enter[query] < exit[key]     (depth first over the segments)
    and is no later, and in the window   low[query] <= position[key] <= position[query]

so one compiled mask serves single, packed, cached, shared-prefix and tree layouts with and without a window, and no
[queries, keys] tensor exists. Which 128 x 128 blocks hold a visible pair, or only visible pairs, follows from the
segments (create_block_mask would evaluate every pair). The table of blocks has (tokens / 128)^2 entries in four int32
tensors: 1 MiB at 32 768 tokens, 16 MiB at 131 072; it is kept in the layout, for all layers.

Shapes. Rows are padded to one of a few widths (`bucket`: multiples of 128 up to 1024, then four per doubling), and each
combination of widths, heads and dtype is compiled once, with static shapes: then Inductor knows that lengths are
divisible by 128 and drops the bounds checks, and the paths for dynamic lengths, whose failures are public, are not
taken. At the price of a compilation for each of at most 36 widths up to 131 072 tokens, and of padded copies where a
length is not a width. Past LIMIT combinations the request is refused. Uncompiled FlexAttention materialises the scores,
so running uncompiled is an error here, never a fallback.

Any ratio of query to key heads works (the Triton template divides head numbers; only torch's decoding template wants a
power of two, and it is not used). float32 products are "ieee": the default would be TF32. Errors: ValueError.

Checked on a CPU: all of this with torch's dense definition of FlexAttention in float64 (test_flex.py), and the kernels
that Inductor generates under Triton's interpreter (test_flex_generated.py). Compiled code and speed need a GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from .layout import Layout

BLOCK = 128  # rows and keys of a block of the mask
LIMIT = 128  # combinations of shapes compiled in one process: a gradient or none, with 36 widths, and some to spare
COMPILER = "inductor"  # tests on a CPU put torch's dense definition of FlexAttention in its place ("eager")
MOST_ELEMENTS = 2**31 - 1  # of one tensor: the kernels' offsets may be 32 bits wide
# TRITON: the decoding template refuses some head groups, the flash-attention one has no gradient of the log-sum-exp.
OPTIONS = {"BACKEND": "TRITON", "FLOAT32_PRECISION": "'ieee'"}

_compiled_shapes: set[tuple[Any, ...]] = set()


class Mask(NamedTuple):
    """What FlexAttention needs to know of a layout. `padding`: bool over rows that no segment owns, None if there are
    none; such rows may hold anything, NaN included, and 0 * NaN is NaN."""

    blocks: BlockMask
    q_padding: torch.Tensor | None
    k_padding: torch.Tensor | None


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor | None,
    layout: Layout,
    window: int | None,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out [num_queries, num_q_heads, head_dim] in q's dtype, lse [num_queries, num_q_heads], sink included)."""
    mask = mask_of(layout, window, q.device)
    q_width, k_width = mask.blocks.seq_lengths
    args = [_padded(q, q_width, mask.q_padding, "q"), *(_padded(x, k_width, mask.k_padding, "k") for x in (k, v))]
    out, lse = _run(*args, sinks, mask.blocks, scale)
    out, lse = out[0].transpose(0, 1)[: q.shape[0]], lse[0].transpose(0, 1)[: q.shape[0]]
    if mask.q_padding is not None:
        out = out.masked_fill(mask.q_padding[:, None, None], 0.0)  # for the backward pass: their gradient may be NaN
    return out, lse


def bucket(rows: int) -> int:
    """The width that rows are padded to: a multiple of 128, at most 25 % more where there are more than 1024."""
    step = BLOCK
    while rows > 8 * step:
        step *= 2
    return max(1, -(-rows // step)) * step


def mask_of(layout: Layout, window: int | None, device: torch.device) -> Mask:
    """The mask of a layout on a device, built on first use and kept in the layout."""
    paths = _paths(layout)
    if window is not None and window >= paths.longest:
        window = None
    key = ("flex", window, device)
    if key not in layout.derived:
        q_width, k_width = bucket(layout.num_queries), bucket(layout.num_keys)
        rows = _rows(layout, paths, window, q_width, k_width)
        some, full = blocks(layout, paths, window, q_width // BLOCK, k_width // BLOCK)
        tables = [x.to(device) for kind in (some & ~full, full) for x in _ordered(kind)]
        layout.derived[key] = Mask(
            BlockMask.from_kv_blocks(
                *tables,
                BLOCK_SIZE=BLOCK,
                mask_mod=visible([x.to(device) for x in rows]),
                seq_lengths=(q_width, k_width),
            ),
            _padding(layout.num_queries, [(s.q_start, s.q_len) for s in layout.segments], device),
            _padding(layout.num_keys, [(s.k_start, s.k_len) for s in layout.segments], device),
        )
    mask: Mask = layout.derived[key]
    return mask


def visible(rows: list[torch.Tensor]) -> Callable[..., torch.Tensor]:
    """FlexAttention's mask_mod over the numbers of `_rows`."""
    q_enter, q_low, q_position, k_enter, k_exit, k_position = rows

    def mask_mod(batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        enter, position = q_enter[query], k_position[key]
        on_path = (k_enter[key] <= enter) & (enter < k_exit[key])
        return on_path & (q_low[query] <= position) & (position <= q_position[query])

    return mask_mod


class Paths(NamedTuple):
    """Per segment, int64: depth-first number, the number after its last descendant, and the position of its first key
    counted from the root of its path. `longest`: keys of the longest path."""

    enter: list[int]
    exit: list[int]
    first: list[int]
    longest: int


def _paths(layout: Layout) -> Paths:
    if "flex paths" not in layout.derived:
        count = len(layout.segments)
        size, enter, first = [1] * count, [0] * count, [0] * count
        for index in reversed(range(count)):
            parent = layout.segments[index].parent
            if parent != -1:
                size[parent] += size[index]
        free = [0] * (count + 1)  # the next free number below a segment; below no segment: the last entry
        for index, segment in enumerate(layout.segments):
            enter[index] = free[segment.parent]
            free[segment.parent] += size[index]
            free[index] = enter[index] + 1
            if segment.parent != -1:
                first[index] = first[segment.parent] + layout.segments[segment.parent].k_len
        ends = [begin + segment.k_len for begin, segment in zip(first, layout.segments, strict=True)]
        exits = [begin + many for begin, many in zip(enter, size, strict=True)]
        layout.derived["flex paths"] = Paths(enter, exits, first, max(ends, default=0))
    paths: Paths = layout.derived["flex paths"]
    return paths


def _rows(layout: Layout, paths: Paths, window: int | None, q_width: int, k_width: int) -> list[torch.Tensor]:
    """int32: q_enter, q_low, q_position [q_width], k_enter, k_exit, k_position [k_width]. Padding sees nothing."""
    result = torch.zeros(6, max(q_width, k_width), dtype=torch.int32)
    result[0], result[3] = -1, 1 << 30
    for index, (q_start, q_len, k_start, k_len, _, _) in enumerate(layout.segments):
        first = paths.first[index]
        queries, keys = slice(q_start, q_start + q_len), slice(k_start, k_start + k_len)
        result[0, queries] = paths.enter[index]
        result[2, queries] = torch.arange(first + k_len - q_len, first + k_len, dtype=torch.int32)
        result[3, keys], result[4, keys] = paths.enter[index], paths.exit[index]
        result[5, keys] = torch.arange(first, first + k_len, dtype=torch.int32)
    if window is not None:
        result[1] = result[2] - (window - 1)
    return [row[:width].clone() for row, width in zip(result, (q_width,) * 3 + (k_width,) * 3, strict=True)]


def _pieces(layout: Layout, paths: Paths, window: int | None) -> torch.Tensor:
    """int64 [pieces, 6]: q_start, q_len, first query's position, k_start, k_len, first key's position, for each segment
    and each segment on its path that some of its queries may see."""
    pieces = []
    for index, segment in enumerate(layout.segments):
        position = paths.first[index] + segment.k_len - segment.q_len
        on_path = index if segment.q_len else -1
        while on_path != -1:
            piece, first = layout.segments[on_path], paths.first[on_path]
            if window is not None and position - (first + piece.k_len - 1) >= window:
                break  # and what is before it on the path lies further back still
            if piece.k_len:
                pieces.append((segment.q_start, segment.q_len, position, piece.k_start, piece.k_len, first))
            on_path = piece.parent
    return torch.tensor(pieces, dtype=torch.int64).view(-1, 6)


def _spread(first: torch.Tensor, last: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(which, number): every whole number from first[which] to last[which] (none where last < first)."""
    counts = (last - first + 1).clamp(min=0)
    which = torch.arange(len(first)).repeat_interleave(counts)
    offset = torch.arange(len(which)) - (counts.cumsum(0) - counts)[which]
    return which, first[which] + offset


def blocks(
    layout: Layout, paths: Paths, window: int | None, q_blocks: int, k_blocks: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """bool [q_blocks, k_blocks], twice: blocks with a visible pair, and blocks in which every pair is visible.

    A piece's rows within a block are an interval of positions [a, b], its keys within a block an interval [c, d]. Row p
    sees p - W + 1 to p, so the block's rows see [a - W + 1, b] between them, and all of them see all of [c, d] where
    b - W + 1 <= c and d <= a. Pieces share no pair: a block is full when such rectangles cover its area.
    """
    pieces = _pieces(layout, paths, window)
    q_start, q_len = pieces[:, 0], pieces[:, 1]
    which, row = _spread(q_start // BLOCK, (q_start + q_len - 1) // BLOCK)
    q_start, q_len, position, k_start, k_len, first = pieces[which].unbind(1)
    a = position + (row * BLOCK).maximum(q_start) - q_start
    b = position + (row * BLOCK + BLOCK).minimum(q_start + q_len) - 1 - q_start
    low = first if window is None else first.maximum(a - window + 1)
    high = b.minimum(first + k_len - 1)
    shift = k_start - first
    # No key is in reach where low > high, though both may lie in one block.
    last = torch.where(low <= high, (high + shift) // BLOCK, -1)
    which, column = _spread((low + shift) // BLOCK, last)
    a, b, row, k_start, k_len, first = (x[which] for x in (a, b, row, k_start, k_len, first))
    c = first + (column * BLOCK).maximum(k_start) - k_start
    d = first + (column * BLOCK + BLOCK).minimum(k_start + k_len) - 1 - k_start
    whole = d <= a if window is None else (d <= a) & (b - window + 1 <= c)
    at = row * k_blocks + column
    area = torch.zeros(q_blocks * k_blocks, dtype=torch.int64).index_add_(0, at, (b - a + 1) * (d - c + 1) * whole)
    some = torch.zeros(q_blocks * k_blocks, dtype=torch.bool)
    some[at] = True
    return some.view(q_blocks, k_blocks), (area == BLOCK * BLOCK).view(q_blocks, k_blocks)


def _ordered(table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """int32 [1, 1, rows], [1, 1, rows, columns]: how many columns of a row are set, and the columns, the set first."""
    columns = table.to(torch.int8).argsort(dim=1, descending=True, stable=True)
    return table.sum(1, dtype=torch.int32)[None, None], columns.to(torch.int32)[None, None]


def _padding(rows: int, owned: list[tuple[int, int]], device: torch.device) -> torch.Tensor | None:
    if sum(length for _, length in owned) == rows:
        return None
    padding = torch.ones(rows, dtype=torch.bool)
    for start, length in owned:
        padding[start : start + length] = False
    return padding.to(device)


def _padded(x: torch.Tensor, width: int, padding: torch.Tensor | None, name: str) -> torch.Tensor:
    """[rows, heads, head_dim] as [1, heads, width, head_dim]: a view where there is nothing to pad or to hide."""
    rows, heads, head_dim = x.shape
    if width * heads * head_dim > MOST_ELEMENTS:
        raise ValueError(
            f"{name} has {rows} rows, padded to {width}, of {heads} heads of {head_dim}; impl 'flex' allows at most "
            f"{MOST_ELEMENTS} elements, impl='triton' and 'flash' more"
        )
    if padding is not None:
        x = x.masked_fill(padding[:, None, None], 0.0)
    if width > rows:
        x = torch.nn.functional.pad(x, (0, 0, 0, 0, 0, width - rows))
    if sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True)) > MOST_ELEMENTS:
        x = x.contiguous()
    return x.transpose(0, 1).unsqueeze(0)


def _run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None, mask: BlockMask, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The compiled function, for at most LIMIT combinations of what it is compiled for."""
    from torch._dynamo import config
    from torch._dynamo.exc import FailOnRecompileLimitHit

    needs = tuple(None if x is None else x.requires_grad for x in (q, k, v, sinks))
    shape = (COMPILER, q.device, q.dtype, *q.shape[1:], *k.shape[1:3], torch.is_grad_enabled(), *needs, scale)
    if shape not in _compiled_shapes and len(_compiled_shapes) >= LIMIT:
        raise _too_many(q, k)
    # Entries for other strides and dtypes of sinks are possible too, hence twice; past that Dynamo must stop, too.
    limits = {"recompile_limit": 2 * LIMIT, "accumulated_recompile_limit": 2 * LIMIT}
    with config.patch(fail_on_recompile_limit_hit=True, suppress_errors=False, **limits):
        try:
            result = _compiled(COMPILER)(q, k, v, sinks, mask, scale)
        except FailOnRecompileLimitHit as error:
            raise _too_many(q, k) from error
    _compiled_shapes.add(shape)
    return result


def _too_many(q: torch.Tensor, k: torch.Tensor) -> ValueError:
    return ValueError(
        f"q has {q.shape[2]} rows (padded) and k {k.shape[2]}, one shape more than the {LIMIT} that impl 'flex' "
        "compiles in one process; impl='triton' and 'flash' compile nothing for a length"
    )


@functools.cache
def _compiled(compiler: str) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    return torch.compile(_sink_flex, fullgraph=True, dynamic=False, backend=compiler)


def _sink_flex(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None, mask: BlockMask, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """q [1, num_q_heads, q_width, head_dim], out alike; lse [1, num_q_heads, q_width]. Only ever runs compiled."""
    if not torch.compiler.is_compiling():
        raise ValueError(
            "impl is 'flex', but torch.compile is switched off in this process (TORCHDYNAMO_DISABLE or a stance), and "
            "uncompiled FlexAttention materialises the scores; impl='triton' and 'flash' need no compilation"
        )
    out, aux = flex_attention(
        q,
        k,
        v,
        block_mask=mask,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
        return_aux=AuxRequest(lse=True),
        kernel_options=OPTIONS,
    )
    return (out, aux.lse) if sinks is None else add_sink(out, aux.lse, sinks)


def add_sink(out: torch.Tensor, lse: torch.Tensor, sinks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Adds the sink to (out, lse) without one, differentiably, also through lse. Sizes as in _sink_flex.

    A row that sees nothing has lse = -inf and out = 0. It leaves the arithmetic before a difference of infinities can
    make NaN of it, here or in the backward pass: its log-sum-exp becomes the sink, its output stays 0.
    """
    exact = torch.float64 if out.dtype == torch.float64 else torch.float32
    sink = sinks.to(exact)[None, :, None]
    blind = lse == -torch.inf
    seen = lse.masked_fill(blind, 0.0)
    factor = torch.sigmoid(seen - sink)
    total = torch.where(blind, sink, torch.logaddexp(seen, sink))
    return (out.to(exact) * factor.unsqueeze(-1)).to(out.dtype), total
