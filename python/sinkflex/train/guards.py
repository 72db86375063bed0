"""What stops, skips or warns, with the reason in words.

Idea: training that silently does nothing, or silently does harm, is worse than training that stops. A guard decides and
says why; it never repairs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from sinkflex.refusal import Refusal
from sinkflex.rollout.trajectory import Trajectory

Verdict = Literal["applied", "no_tokens", "non_finite"]


@dataclass(frozen=True, slots=True)
class Update:
    """What became of an optimiser step. `grad_norm` is before clipping; 0.0 when there was nothing to train on."""

    verdict: Verdict
    grad_norm: float

    @property
    def skipped(self) -> bool:
        return self.verdict != "applied"


class UpdateGuard:
    """Takes optimiser steps, or leaves weights and optimiser state bit-identical and counts why.

    A step without trained tokens must not be taken even though its gradient is 0: weight decay and momentum would move
    the weights. A loss or gradient that is not finite is skipped; `limit` such steps in a row end the run.
    """

    def __init__(self, limit: int = 3) -> None:
        self.limit = limit
        self.skipped: Counter[Verdict] = Counter()
        self._non_finite_in_a_row = 0

    def apply(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Iterable[Tensor],
        *,
        tokens: int,
        loss: float,
        grad_clip: float,
        step: int,
    ) -> Update:
        """Clip the gradients to the norm `grad_clip`, step if that is sound, and clear the gradients."""
        if tokens == 0:
            return self._skip(optimizer, "no_tokens", 0.0)
        grad_norm = float(torch.nn.utils.clip_grad_norm_(list(parameters), grad_clip))
        if not (math.isfinite(loss) and math.isfinite(grad_norm)):
            self._non_finite_in_a_row += 1
            update = self._skip(optimizer, "non_finite", grad_norm)
            if self._non_finite_in_a_row >= self.limit:
                raise Refusal(
                    "SF-NON-FINITE",
                    f"Step {step}: loss {loss}, gradient norm {grad_norm}; {self.limit} updates in a row not finite.",
                    why="The weights are those of the last finite update; going on would train nothing.",
                    fix="Resume from the last checkpoint with a lower optim.lr or optim.grad_clip, or in float32.",
                    owner="policy",
                )
            return update
        self._non_finite_in_a_row = 0
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return Update("applied", grad_norm)

    def _skip(self, optimizer: torch.optim.Optimizer, verdict: Verdict, grad_norm: float) -> Update:
        optimizer.zero_grad(set_to_none=True)
        self.skipped[verdict] += 1
        return Update(verdict, grad_norm)


def check_logprob_gap(gap: float, limit: float, *, step: int) -> None:
    """`gap`: mean |training - rollout| log-prob over the trained tokens, before the step's first update."""
    if gap <= limit:
        return
    raise Refusal(
        "SF-LOGPROB-GAP",
        f"Step {step}: the training pass and the rollout disagree by {gap:.4g} per token, the limit is {limit:g}.",
        why="With the same weights both must give the same log-probs; a gap means another attention, temperature, "
        "position or dtype in one of them, and importance ratios that are wrong from the start.",
        fix="Set attention.impl: eager to find out whether attention is the cause; with bfloat16, try model.dtype: "
        "float32 or a higher train.logprob_gap_limit.",
        owner="engine",
    )


def check_infra_rate(trajectories: Sequence[Trajectory], limit: float, *, step: int) -> float:
    """The share of episodes that ended by a fault outside the policy (metric infra_rate). Refuses above `limit`."""
    faults = [t for t in trajectories if t.outcome == "infra_error"]
    rate = len(faults) / len(trajectories) if trajectories else 0.0
    if rate > limit:
        causes = Counter(f"{t.owner or 'infra'}: {t.error or t.reason or 'no message'}" for t in faults)
        worst = "; ".join(f"{count} x {cause[:200]}" for cause, count in causes.most_common(3))
        owner = Counter(t.owner or "infra" for t in faults).most_common(1)[0][0]
        raise Refusal(
            "SF-INFRA-RATE",
            f"Step {step}: {len(faults)} of {len(trajectories)} episodes failed outside the policy ({worst}).",
            why=f"They carry no reward; above train.max_infra_rate ({limit:g}) what is left is no fair sample.",
            fix="Mend the cause named above, then resume from the last checkpoint.",
            owner=owner,
        )
    return rate


def expected_zero_variance(success: float, group_size: int) -> float:
    """The share of groups whose rewards are all equal when each episode succeeds with probability `success`."""
    return success**group_size + (1.0 - success) ** group_size


class ZeroVarianceWatch:
    """Warns when most groups carry no signal: once when the share rises to the limit, again after it fell below."""

    def __init__(self, limit: float, group_size: int) -> None:
        self._limit = limit
        self._group_size = group_size
        self._above = False

    def observe(self, share: float, success: float) -> tuple[str, str] | None:
        """(what, fix) for a `warn` event, or None. `success`: share of scored episodes with the full reward."""
        was_above, self._above = self._above, share >= self._limit
        if was_above or not self._above:
            return None
        what = f"No learning signal in {share:.0%} of the groups: all episodes of such a group have the same reward."
        if success >= 0.5:
            return what, "Most tasks are solved: more steps buy little; use harder tasks (env.levels) or stop here."
        if success == 0.0:
            return what, "No episode succeeded, so no group size helps: use easier tasks or a longer warm start."
        doubled = 2 * self._group_size
        return what, (
            f"At a success rate of {success:.3f} groups of {self._group_size} are expected to be flat in "
            f"{expected_zero_variance(success, self._group_size):.0%} of cases, groups of {doubled} in "
            f"{expected_zero_variance(success, doubled):.0%}: raise rollout.group_size, or use easier tasks or a "
            "longer warm start."
        )
