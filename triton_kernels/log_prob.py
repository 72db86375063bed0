"""Log-probs of given tokens from hidden states, without the logits of all rows over all the vocabulary.

    z_v = <h, W_v>     s = z / temperature     lse = log sum_v exp(s_v)     log_prob = s_y - lse     p = exp(s - lse)

This is attention over the vocabulary: one query per row, keys and values both W. So it is computed like flash
attention: tiles of rows x columns of logits, and per row the running maximum, the sum of weights and the target's
logit. Logits are float32 (float64 for float64 inputs) from the product on; they are never rounded to a narrower dtype.

The gradient of a row's log-prob by its hidden state, (W_y - E) / temperature with E = sum_v p_v W_v, does not depend on
what flows in. With a frozen head E is accumulated in the forward, rescaled as the maximum rises, and the backward is a
scaled row: two products, as many as the plain path has. A trained head needs the incoming gradient in every logit, so
the backward computes the logits again, tile by tile; E would save nothing there and is left out: four products, where
the plain path has three. A gradient of the entropy goes that way too.

Products are the library's (MKL, cuBLAS): at hidden sizes of thousands they are nearly all of the work, and a kernel of
our own would have to match them before fusing gained anything; E [rows, hidden] does not fit registers either. All that
happens between two products is one step over a tile: torch operators on the CPU (log_prob_tile.py), one Triton kernel
on CUDA (log_prob_triton.py). Extra memory: a few tiles (TILES), the row state, and at most [rows, hidden] in float32
for E or the gradient of hidden, and again for kept rows or for rows that must be widened.

Operands of products: float32 inputs as they are (on CUDA under torch's own setting for TF32, off by default); bfloat16
and float16 on the CPU widened to float32 tile by tile, on CUDA multiplied as they are into float32. There the weights
that go into E, relative to the largest, and the gradient of the logits are rounded to the inputs' dtype, except that in
float16, where such gradients vanish, the products of a trained head run in float32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import log_prob_tile
from .choice import DTYPES
from .log_prob_tile import LN2, LOG2E, RowPull, RowState

# Rows and columns of a tile. On the CPU a tile and its rows of hidden states stay in the last cache while both products
# run at full speed (measured: from 256 rows and 512 columns on they do); on CUDA products want more rows.
TILES = {"cpu": (512, 2048), "cuda": (4096, 8192)}
SLICE = 64  # columns of hidden in which a gradient is written back


class LogProb(NamedTuple):
    """Of the tempered distribution of every row; float32, or float64 for float64 inputs; all differentiable."""

    log_prob: Tensor
    lse: Tensor
    entropy: Tensor | None


def linear_log_prob(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    temperature: float = 1.0,
    return_entropy: bool = False,
    keep: Tensor | None = None,
) -> LogProb:
    """Natural log-prob of each target under softmax(hidden @ weight.T / temperature), its log-sum-exp and entropy.

    hidden [tokens, hidden]; weight [vocabulary, hidden] in the same dtype; targets int64 [rows]. keep int64 [rows]
    picks rows of hidden, one as often as wanted (their gradients add up); None takes all, and rows is tokens. The
    entropy is None unless asked for; with a frozen head a gradient of it costs two more products.

    Errors: ValueError naming the argument, its value and what is allowed. On CUDA a target or kept row out of range
    is found by the device, without waiting for it, and stops the process's CUDA work with an assertion that names it.
    """
    temperature = _check(hidden, weight, targets, temperature, keep)
    differentiable = torch.is_grad_enabled()
    ahead = differentiable and hidden.requires_grad and not weight.requires_grad
    again = differentiable and (weight.requires_grad or (hidden.requires_grad and return_entropy))
    return LogProb(*_LinearLogProb.apply(hidden, weight, targets, keep, temperature, return_entropy, ahead, again))


class _Steps(NamedTuple):
    absorb: Callable[..., Tensor | None]
    differentiate: Callable[..., Tensor]
    in_torch: bool


def _steps(device: torch.device, exact: torch.dtype) -> _Steps:
    """What happens to a tile between its products, on this device."""
    if device.type == "cpu" or exact == torch.float64:
        return _Steps(log_prob_tile.absorb, log_prob_tile.differentiate, in_torch=True)
    from . import log_prob_triton  # only here, so that a machine without a GPU needs no Triton

    return _Steps(log_prob_triton.absorb, log_prob_triton.differentiate, in_torch=False)


@functools.cache
def _multiplies_into_float32(device_type: str) -> bool:
    """Whether torch has products of narrow operands into float32 there (`torch.mm(..., out_dtype=)`)."""
    return device_type == "cuda" and torch._C._dispatch_has_kernel_for_dispatch_key("aten::mm.dtype_out", "CUDA")


def _multiply_into_float32(a: Tensor, b: Tensor, out: Tensor) -> None:
    torch.mm(a, b, out_dtype=out.dtype, out=out)


class _Tiles:
    """One call's shapes, dtypes and buffers, and its walk over the tiles: columns outside, so that a tile of the weight
    is widened once and its gradient written once; blocks of rows inside."""

    def __init__(
        self, rows: Tensor, weight: Tensor, targets: Tensor, temperature: float, *, gradient: bool, spare: bool
    ) -> None:
        device = rows.device
        self.exact = torch.float64 if weight.dtype == torch.float64 else torch.float32
        narrow = _multiplies_into_float32(device.type) and not (gradient and weight.dtype == torch.float16)
        self.operand = weight.dtype if narrow else self.exact
        self.rows, self.weight = rows.to(self.operand).contiguous(), weight
        self.targets = targets.contiguous()
        self.scale = LOG2E / temperature
        self.block, self.width = TILES[device.type]
        self.block, self.width = max(1, min(self.block, len(rows))), min(self.width, len(weight))
        self.steps = _steps(device, self.exact)
        self.logits = torch.empty(self.block * self.width, dtype=self.exact, device=device)
        self.spare = torch.empty_like(self.logits) if spare and self.steps.in_torch else None

    def columns(self) -> Iterator[tuple[slice, Tensor]]:
        """Ranges of the vocabulary, each with its rows of the weight in the dtype of the products."""
        for first in range(0, len(self.weight), self.width):
            columns = slice(first, min(first + self.width, len(self.weight)))
            yield columns, self.weight[columns].to(self.operand)

    def blocks(self, columns: slice, part: Tensor) -> Iterator[tuple[slice, Tensor, Tensor | None, float]]:
        """(block of rows, their logits in these columns, a spare tile if any, factor that makes s of the logits)."""
        for start in range(0, len(self.rows), self.block):
            rows = slice(start, min(start + self.block, len(self.rows)))
            shape = (rows.stop - rows.start, columns.stop - columns.start)
            logits = self.logits[: shape[0] * shape[1]].view(shape)
            spare = None if self.spare is None else self.spare[: shape[0] * shape[1]].view(shape)
            if self.operand == self.exact:
                logits.addmm_(self.rows[rows], part.T, beta=0, alpha=self.scale)
                yield rows, logits, spare, 1.0
            else:
                _multiply_into_float32(self.rows[rows], part.T, logits)
                yield rows, logits, spare, self.scale


def _add_product(into: Tensor, a: Tensor, b: Tensor, first: bool, shrink: Tensor | None = None) -> None:
    """into = into * shrink (per row) + a @ b; where `first`, into = a @ b whatever it held.

    In place or with `out`, here as everywhere in this file: autocast leaves such products alone.
    """
    if a.dtype == into.dtype:
        if shrink is not None and not first:
            into.mul_(shrink.unsqueeze(1))
        into.addmm_(a, b, beta=0 if first else 1)
    elif first:
        _multiply_into_float32(a, b, into)
    else:
        product = torch.empty_like(into)
        _multiply_into_float32(a, b, product)
        if shrink is None:
            into.add_(product)
        else:
            torch.addcmul(product, into, shrink.unsqueeze(1), out=into)


class _LinearLogProb(torch.autograd.Function):
    """`ahead`: accumulate E in the forward. `again`: keep what computing the logits again in the backward takes."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        keep: Tensor | None,
        temperature: float,
        entropy: bool,
        ahead: bool,
        again: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        tiles = _Tiles(_kept(hidden, keep), weight, targets, temperature, gradient=False, spare=entropy)
        state = RowState.start(len(targets), tiles.exact, hidden.device, entropy)
        expected = hidden.new_empty(len(targets), hidden.shape[1], dtype=tiles.exact) if ahead else None
        into = tiles.operand if ahead else None
        for columns, part in tiles.columns():
            for rows, logits, spare, scale in tiles.blocks(columns, part):
                here = state.of(rows)
                chosen = tiles.targets[rows]
                weights = tiles.steps.absorb(logits, spare, chosen, columns.start, scale, here, into)
                if expected is not None:
                    _add_product(expected[rows], weights, part, columns.start == 0, here.shrink)
        if expected is not None:
            expected.div_(state.total.unsqueeze(1))
        log_total = state.total.log2()
        mean = None if state.weighted is None else state.weighted / state.total
        ctx.temperature, ctx.shape, ctx.dtype = temperature, hidden.shape, hidden.dtype
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(hidden if again else None, weight, targets, keep, state.top, state.total, mean, expected)
        # The difference first: close to 1 a probability keeps its digits.
        log_prob = ((state.target - state.top) - log_total) * LN2
        return log_prob, (state.top + log_total) * LN2, None if mean is None else (log_total - mean) * LN2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, d_log_prob: Tensor | None, d_lse: Tensor | None, d_entropy: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        hidden, weight, targets, keep, top, total, mean, expected = ctx.saved_tensors
        zero = torch.zeros_like(top)
        at_target = (zero if d_log_prob is None else d_log_prob) / ctx.temperature
        spread = (zero if d_lse is None else d_lse) / ctx.temperature - at_target  # over the vocabulary, as p
        if expected is not None and d_entropy is None:

            def piece(columns: slice) -> Tensor:
                chosen = weight[:, columns].index_select(0, targets).to(expected.dtype)
                chosen.mul_(at_target.unsqueeze(1))
                return chosen.addcmul_(expected[:, columns], spread.unsqueeze(1))

            d_hidden = _returned(piece, ctx.shape, ctx.dtype, keep, weight.device)
            return d_hidden, *(None,) * 7
        level, slope = spread / total, None
        if d_entropy is not None:
            # dH/ds_v = -p_v (log p_v + H), and log2 p_v + H / LN2 = (s_v - top) - mean.
            slope = d_entropy * (-LN2 / ctx.temperature) / total
            level = level - slope * mean
        pull = RowPull(top, level, slope, at_target)
        want_hidden, want_weight = ctx.needs_input_grad[:2]
        tiles = _Tiles(_kept(hidden, keep), weight, targets, ctx.temperature, gradient=True, spare=slope is not None)
        d_rows, d_weight = _pull_back(tiles, pull, want_hidden, want_weight)
        if d_rows is not None and (keep is not None or d_rows.dtype != ctx.dtype):
            whole = d_rows
            d_rows = _returned(lambda columns: whole[:, columns], ctx.shape, ctx.dtype, keep, weight.device)
        return d_rows, d_weight, *(None,) * 6


def _pull_back(
    tiles: _Tiles, pull: RowPull, want_hidden: bool, want_weight: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of the rows (exact dtype) and of the weight (its own), from logits computed again."""
    weight, exact = tiles.weight, tiles.exact
    d_rows = torch.empty(tiles.rows.shape, dtype=exact, device=weight.device) if want_hidden else None
    d_weight = torch.empty(weight.shape, dtype=weight.dtype, device=weight.device) if want_weight else None
    if d_weight is not None and not len(tiles.rows):
        d_weight.zero_()
    for columns, part in tiles.columns():
        d_part = None if d_weight is None else d_weight[columns]
        if d_part is not None and weight.dtype != exact:
            d_part = torch.zeros(d_part.shape, dtype=exact, device=weight.device)
        for rows, logits, spare, scale in tiles.blocks(columns, part):
            d_logits = tiles.steps.differentiate(
                logits, spare, tiles.targets[rows], columns.start, scale, pull.of(rows), tiles.operand
            )
            if d_rows is not None:
                _add_product(d_rows[rows], d_logits, part, columns.start == 0)
            if d_part is not None:
                _add_product(d_part, d_logits.T, tiles.rows[rows], rows.start == 0)
        if d_part is not None and weight.dtype != exact:
            assert d_weight is not None
            d_weight[columns] = d_part
    return d_rows, d_weight


def _kept(hidden: Tensor, keep: Tensor | None) -> Tensor:
    return hidden if keep is None else hidden.index_select(0, keep)


def _returned(
    piece: Callable[[slice], Tensor], shape: torch.Size, dtype: torch.dtype, keep: Tensor | None, device: torch.device
) -> Tensor:
    """Gradient of hidden [tokens, hidden] from `piece(columns)` [rows, columns], a few columns at a time."""
    gradient = torch.empty(shape, dtype=dtype, device=device)
    for start in range(0, shape[1], SLICE):
        columns = slice(start, min(start + SLICE, shape[1]))
        gradient[:, columns] = _summed(piece(columns), keep, shape[0])
    return gradient


def _summed(part: Tensor, keep: Tensor | None, tokens: int) -> Tensor:
    """Rows that `keep` repeats added up, in the dtype of part: in their order on the CPU, in a fixed one on CUDA."""
    if keep is None:
        return part
    total = part.new_zeros(tokens, part.shape[1])
    # The one of the two without atomics: on CUDA index_put_ sorts, on the CPU index_add_ goes row by row.
    return total.index_put_((keep,), part, accumulate=True) if part.is_cuda else total.index_add_(0, keep, part)


def _check(hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float, keep: Tensor | None) -> float:
    """Refuses what has no meaning; returns the temperature as a float."""
    for name, matrix, axes in (("hidden", hidden, "[tokens, hidden]"), ("weight", weight, "[vocabulary, hidden]")):
        if matrix.dim() != 2:
            raise ValueError(f"{name} has shape {tuple(matrix.shape)}; it needs {axes}")
        if matrix.dtype not in DTYPES:
            raise ValueError(f"{name} is {matrix.dtype}; allowed are {', '.join(str(d) for d in DTYPES)}")
    if weight.dtype != hidden.dtype or weight.device != hidden.device:
        raise ValueError(
            f"weight is {weight.dtype} on {weight.device}; it must match hidden, {hidden.dtype} on {hidden.device}"
        )
    if hidden.device.type not in TILES:
        raise ValueError(f"hidden is on {hidden.device}; allowed are {' and '.join(TILES)}")
    if not hidden.shape[1]:
        raise ValueError(f"hidden has shape {tuple(hidden.shape)}; it needs [tokens, hidden] with hidden at least 1")
    if weight.shape[1] != hidden.shape[1] or not len(weight):
        raise ValueError(f"weight has shape {tuple(weight.shape)}; it needs (1 or more, hidden's {hidden.shape[1]})")
    if isinstance(temperature, bool) or not isinstance(temperature, int | float) or not 0.0 < temperature < math.inf:
        raise ValueError(f"temperature is {temperature!r}; allowed are finite numbers above 0 (0 is greedy choice)")
    for name, rows in (("targets", targets), ("keep", keep)):
        if rows is None:
            continue
        if rows.dim() != 1 or rows.dtype != torch.int64 or rows.device != hidden.device:
            raise ValueError(
                f"{name} is {rows.dtype} {tuple(rows.shape)} on {rows.device}; it needs int64 [rows] on {hidden.device}"
            )
    wanted = len(hidden) if keep is None else len(keep)
    if len(targets) != wanted:
        of = "rows of hidden" if keep is None else "entries of keep"
        raise ValueError(f"targets has {len(targets)} entries; it needs one for each of the {wanted} {of}")
    _check_range("targets", targets, len(weight), "the vocabulary")
    if keep is not None:
        _check_range("keep", keep, len(hidden), "the rows of hidden")
    return float(temperature)


def _check_range(name: str, values: Tensor, limit: int, of: str) -> None:
    if not len(values):
        return
    least, most = torch.aminmax(values)
    allowed = f"allowed are 0 to {limit - 1}, {of}"
    if values.is_cuda:
        torch._assert_async((least >= 0) & (most < limit), f"{name} is out of range; {allowed}")
    elif int(least) < 0 or int(most) >= limit:
        raise ValueError(f"{name} goes from {int(least)} to {int(most)}; {allowed}")
