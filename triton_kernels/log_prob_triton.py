"""The steps of log_prob_tile.py as CUDA kernels: one program per row of a tile, one pass over it.

A program holds its row of a tile in registers, so the tile is read once and written once: the weights, or the gradient
of the logits, in the dtype of the product that follows. Reductions over a row have a fixed order and nothing is atomic,
so results repeat bit by bit. Columns beyond the tile's are -inf: their weight is 0. Row offsets are 64-bit.

The products around these kernels are torch's (log_prob.py says why): the kernels compute no `dot`, so neither TF32 nor
the layout of accumulators enters here. Logits are float32; float64 takes the torch operators, because its exp2 spills
registers whatever the number of warps. Arguments that may be None are compiled away.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .log_prob_tile import RowPull, RowState
from .triton_launch import Launch

BLOCK = 8192  # lanes of a program, at least the columns of a tile (TILES in log_prob.py)
# With 16 warps a thread has 64 registers for its 16 logits, and one variant spills on sm_80 (scripts/codegen.py).
NUM_WARPS = 8


@triton.jit
def load_row(logits, targets, first, columns, scale, BLOCK: tl.constexpr):
    """(offset of the row's first logit, lanes, s in each, whether the target is in this tile, which lane is it)."""
    row = tl.program_id(0)
    at = row.to(tl.int64) * columns
    lane = tl.arange(0, BLOCK)
    s = tl.load(logits + at + lane, mask=lane < columns, other=-float("inf")) * scale
    place = tl.load(targets + row) - first
    inside = (place >= 0) & (place < columns)
    return at, lane, s, inside, (lane == place) & inside


@triton.jit
def absorb_rows(
    logits, weights, targets, top, total, target, shrink, weighted, first, columns, scale, BLOCK: tl.constexpr
):
    """The softmax state of a row after its tile of logits, and the weights of the tile. `weights` may be `logits`."""
    row = tl.program_id(0)
    at, lane, s, inside, chosen = load_row(logits, targets, first, columns, scale, BLOCK)
    old_top, old_total = tl.load(top + row), tl.load(total + row)
    new_top = tl.maximum(old_top, tl.max(s, 0))
    drop = old_top - new_top
    shrunk = tl.exp2(drop)
    weight = tl.exp2(s - new_top)
    tl.store(top + row, new_top)
    tl.store(total + row, old_total * shrunk + tl.sum(weight, 0))
    tl.store(shrink + row, shrunk)
    tl.store(target + row, tl.sum(tl.where(chosen, s, 0.0), 0), mask=inside)
    if weighted is not None:
        moved = (tl.load(weighted + row) + drop * old_total) * shrunk
        above = tl.where(s == -float("inf"), 0.0, s - new_top)  # 0 * -inf is no number: what has no weight adds nothing
        tl.store(weighted + row, moved + tl.sum(weight * above, 0))
    if weights is not None:
        tl.store(weights + at + lane, weight.to(weights.dtype.element_ty), mask=lane < columns)


@triton.jit
def differentiate_rows(
    logits, gradient, targets, top, level, slope, at_target, first, columns, scale, BLOCK: tl.constexpr
):
    """Gradient of a row of logits (RowPull of log_prob_tile.py). `gradient` may be `logits`."""
    row = tl.program_id(0)
    at, lane, s, _, chosen = load_row(logits, targets, first, columns, scale, BLOCK)
    above = s - tl.load(top + row)
    factor = tl.load(level + row)
    if slope is not None:
        factor += tl.load(slope + row) * tl.where(above == -float("inf"), 0.0, above)
    pulled = tl.exp2(above) * factor + tl.where(chosen, tl.load(at_target + row), 0.0)
    tl.store(gradient + at + lane, pulled.to(gradient.dtype.element_ty), mask=lane < columns)


def absorb(
    logits: Tensor,
    spare: Tensor | None,
    targets: Tensor,
    first: int,
    scale: float,
    state: RowState,
    into: torch.dtype | None,
) -> Tensor | None:
    """As log_prob_tile.absorb; `spare` is not used. Weights of the logits' dtype take their place."""
    weights = None if into is None else _place_for(logits, into)
    rows = (state.top, state.total, state.target, state.shrink, state.weighted)
    _launch(absorb_rows, logits, weights, targets, *rows, first, logits.shape[1], scale)
    return weights


def differentiate(
    logits: Tensor, spare: Tensor | None, targets: Tensor, first: int, scale: float, pull: RowPull, into: torch.dtype
) -> Tensor:
    """As log_prob_tile.differentiate; `spare` is not used. A gradient of the logits' dtype takes their place."""
    gradient = _place_for(logits, into)
    rows = (pull.top, pull.level, pull.slope, pull.at_target)
    _launch(differentiate_rows, logits, gradient, targets, *rows, first, logits.shape[1], scale)
    return gradient


def _place_for(logits: Tensor, dtype: torch.dtype) -> Tensor:
    return logits if dtype == logits.dtype else torch.empty_like(logits, dtype=dtype)


def _launch(kernel: Any, logits: Tensor, *arguments: Any) -> None:
    """One program a row, on the device of the logits. Rows lie one behind another; the row state is contiguous."""
    if logits.shape[1] > BLOCK:
        raise ValueError(f"logits has {logits.shape[1]} columns; a tile has at most {BLOCK}")
    with torch.cuda.device_of(logits):
        kernel[(logits.shape[0],)](logits, *arguments, BLOCK=BLOCK, num_warps=NUM_WARPS)


def launches(arch: int) -> Iterator[Launch]:
    """Every configuration that `_launch` asks for, the same on all architectures; float16 compiles as bfloat16 does."""

    def launch(kernel: Any, written: str | None, optional: str, given: bool, ragged: bool = False) -> Launch:
        """`written` is the dtype of the tile that leaves, None for none; `optional` the row state that may be None;
        `ragged` a last tile whose rows are not aligned."""
        names = [name for name in kernel.arg_names if name != "BLOCK"]
        output = names[1]
        absent = {name for name, is_none in ((output, written is None), (optional, not given)) if is_none}
        kinds = dict.fromkeys(names, "*fp32") | {output: f"*{written}", "targets": "*i64"}
        kinds |= {"first": "i32", "columns": "i32", "scale": "fp32"}
        return Launch(
            name=f"log_prob {kernel.__name__} to {written}"
            + (f" with {optional}" if given else "")
            + (" ragged" if ragged else ""),
            kernel=kernel,
            signature={name: kinds[name] for name in names if name not in absent},
            constexprs={"BLOCK": BLOCK, **dict.fromkeys(absent)},
            divisible_by_16=tuple(
                name for name in names if name not in absent and name != "scale" and not (ragged and name == "columns")
            ),
            num_warps=NUM_WARPS,
            num_stages=1,
        )

    for given in (False, True):
        for written in (None, "fp32", "bf16"):
            yield launch(absorb_rows, written, "weighted", given)
        for written in ("fp32", "bf16"):
            yield launch(differentiate_rows, written, "slope", given)
        yield launch(absorb_rows, "bf16", "weighted", given, ragged=True)
        yield launch(differentiate_rows, "bf16", "slope", given, ragged=True)
