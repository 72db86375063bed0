"""A launch table with one plain attention kernel, for the tests of scripts/codegen.py: it never runs.

SINKFLEX_TOY names the entries that are listed: `fits` (no spill on any architecture), `spills` (a tile of 256 rows with
4 warps), `large` (more shared memory than a block has on sm_120, and only there), `broken` (does not compile).
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import triton
import triton.language as tl


class Launch(NamedTuple):
    name: str
    kernel: Any
    signature: dict[str, str]
    constexprs: dict[str, Any]
    divisible_by_16: tuple[str, ...]
    num_warps: int
    num_stages: int


@triton.jit
def attention(q, k, v, out, stride, tokens, HEAD_DIM: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, HEAD_DIM)
    queries = tl.load(q + row[:, None] * stride + column[None, :], mask=row[:, None] < tokens, other=0.0)
    top = tl.full([ROWS], 0.0, tl.float32)
    total = tl.full([ROWS], 1.0, tl.float32)
    acc = tl.zeros([ROWS, HEAD_DIM], tl.float32)
    for start in range(0, tokens, KEYS):
        key = start + tl.arange(0, KEYS)
        at = key[:, None] * stride + column[None, :]
        keys = tl.load(k + at, mask=key[:, None] < tokens, other=0.0)
        values = tl.load(v + at, mask=key[:, None] < tokens, other=0.0)
        scores = tl.dot(queries, tl.trans(keys))
        scores = tl.where(key[None, :] <= row[:, None], scores, -float("inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(weights, 1)
        acc = acc * shrink[:, None] + tl.dot(weights.to(values.dtype), values)
        top = higher
    acc = (acc / total[:, None]).to(queries.dtype)
    tl.store(out + row[:, None] * stride + column[None, :], acc, mask=row[:, None] < tokens)


# rows, keys, num_warps, num_stages
ENTRIES = {"fits": (64, 64, 4, 2), "spills": (256, 64, 4, 2), "large": (128, 128, 8, 4), "broken": (64, 60, 4, 2)}


def launches(arch: int) -> list[Launch]:
    signature = {"q": "*bf16", "k": "*bf16", "v": "*bf16", "out": "*bf16", "stride": "i64", "tokens": "i32"}
    chosen = os.environ.get("SINKFLEX_TOY", "fits").split()
    table = []
    for name in chosen:
        rows, keys, num_warps, num_stages = ENTRIES[name]
        constexprs = {"HEAD_DIM": 64, "ROWS": rows, "KEYS": keys}
        divisible = ("q", "k", "v", "out", "stride")
        table.append(Launch(f"toy {name}", attention, signature, constexprs, divisible, num_warps, num_stages))
    return table
