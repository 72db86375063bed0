"""What happens to a tile of logits between its products, in torch operators: the online softmax and its gradient.

Everything lives in base 2, s = scale * logits with log2(e) / temperature in `scale`: exp2 is several times cheaper than
exp on a CPU. log_prob.py says what a tile is; log_prob_triton.py holds the same two steps as kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LOG2E = 1.4426950408889634
LN2 = 0.6931471805599453


@dataclass(slots=True)
class RowState:
    """Online softmax of some rows, in base 2: the weights of the columns seen are exp2(s - top). All [rows].

    `total` sums the weights, `weighted` the weights times (s - top); `target` is the target's s. `shrink` is what the
    last tile multiplied earlier weights by.
    """

    top: Tensor
    total: Tensor
    target: Tensor
    shrink: Tensor
    weighted: Tensor | None

    @staticmethod
    def start(rows: int, exact: torch.dtype, device: torch.device, entropy: bool) -> RowState:
        """The lowest finite number, not -inf, so that what is absent never enters a difference of infinities."""
        lowest, *zeros = (torch.zeros(rows, dtype=exact, device=device) for _ in range(5 if entropy else 4))
        lowest.fill_(torch.finfo(exact).min)
        return RowState(lowest, zeros[0], zeros[1], zeros[2], zeros[3] if entropy else None)

    def of(self, rows: slice) -> RowState:
        weighted = None if self.weighted is None else self.weighted[rows]
        return RowState(self.top[rows], self.total[rows], self.target[rows], self.shrink[rows], weighted)


@dataclass(slots=True)
class RowPull:
    """What flows into the logits of some rows: ds_v = exp2(s_v - top) * (level + slope * (s_v - top)), plus `at_target`
    at the target's, divided by the temperature. All [rows]; slope is None where no gradient reaches the entropy."""

    top: Tensor
    level: Tensor
    slope: Tensor | None
    at_target: Tensor

    def of(self, rows: slice) -> RowPull:
        slope = None if self.slope is None else self.slope[rows]
        return RowPull(self.top[rows], self.level[rows], slope, self.at_target[rows])


def absorb(
    logits: Tensor,
    spare: Tensor | None,
    targets: Tensor,
    first: int,
    scale: float,
    state: RowState,
    into: torch.dtype | None,
) -> Tensor | None:
    """The softmax state after the tile of `logits` [rows, columns], whose first column is `first`: updates `state`.

    s = scale * logits. Returns the weights [rows, columns] in dtype `into`, or None for None. Overwrites logits and
    `spare`, another such tile, which only the entropy needs.
    """
    if scale != 1.0:
        logits.mul_(scale)
    column, inside = _columns(targets, first, logits.shape[1])
    state.target.copy_(torch.where(inside, logits.gather(1, column).squeeze(1), state.target))
    top = torch.maximum(state.top, logits.amax(1))
    drop = state.top - top
    torch.exp2(drop, out=state.shrink)
    state.top.copy_(top)
    logits.sub_(top.unsqueeze(1))
    if state.weighted is None:
        weights = logits.exp2_()
    else:
        weights = torch.exp2(logits, out=spare)
        moved = state.weighted.addcmul_(drop, state.total).mul_(state.shrink)
        moved.add_(logits.mul_(weights).sum(1))
    state.total.mul_(state.shrink).add_(weights.sum(1))
    return None if into is None else weights.to(into)


def differentiate(
    logits: Tensor, spare: Tensor | None, targets: Tensor, first: int, scale: float, pull: RowPull, into: torch.dtype
) -> Tensor:
    """Gradient of the tile of `logits` (RowPull says which) in dtype `into`.

    Overwrites logits and `spare`, another such tile, which only a slope needs.
    """
    if scale != 1.0:
        logits.mul_(scale)
    logits.sub_(pull.top.unsqueeze(1))
    if pull.slope is None:
        logits.exp2_().mul_(pull.level.unsqueeze(1))
    else:
        weights = torch.exp2(logits, out=spare)
        logits.mul_(pull.slope.unsqueeze(1)).add_(pull.level.unsqueeze(1)).mul_(weights)
    column, inside = _columns(targets, first, logits.shape[1])
    logits.scatter_add_(1, column, torch.where(inside, pull.at_target, 0.0).unsqueeze(1))
    return logits.to(into)


def _columns(targets: Tensor, first: int, columns: int) -> tuple[Tensor, Tensor]:
    """Where in the tile the targets are [rows, 1], and whether [rows]; some place of the tile where they are not."""
    column = targets - first
    inside = (column >= 0) & (column < columns)
    return column.clamp(0, columns - 1).unsqueeze(1), inside
