"""Advantages without a value model: an episode is compared with others of the same step.

`group_advantages`: with the episodes of its task (GRPO, arXiv 2402.03300, equation 4 with outcome rewards).
`step_advantages`: with all episodes of the step (REINFORCE++, arXiv 2501.03262, its first variant, without a penalty
in the reward). Tasks of unequal difficulty make that noisier. But a task on which all episodes fail alike pushes them
down, where GRPO is silent: a policy that answers every request the same way can leave that only so.

Conventions: N episodes; a reward that is NaN or infinite means "not scored" (null in the trajectory). Statistics
run over the scored episodes of a group only. The standard deviation is the population one (divide by n), EPSILON is
added to it, and a group whose scored rewards are all equal (max - min is 0; one scored episode included) has advantage
exactly 0: with a computed deviation of 1e-17, rounding would decide. An episode that is not scored has advantage 0 and
`valid` False; it must not be trained on, nor counted in any denominator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class AdvantageResult:
    """`advantages` [N] float64, `valid` [N] (scored) and `varied` [N] (scored, and the group's rewards differ).

    The counts are of groups with at least one scored episode. `reward_mean` is over scored episodes, `reward_std` the
    mean of the groups' deviations; both are NaN when nothing was scored.
    """

    advantages: Tensor
    valid: Tensor
    varied: Tensor
    groups: int
    zero_variance_groups: int
    reward_mean: float
    reward_std: float

    @property
    def zero_variance_fraction(self) -> float:
        """The metric frac_reward_zero_std. 1.0 when no group was scored: nothing can be learned from it either."""
        return self.zero_variance_groups / self.groups if self.groups else 1.0


def group_advantages(rewards_N: Tensor, group_N: Tensor, normalize: Literal["std", "none"] = "std") -> AdvantageResult:
    """(reward - mean of the group) / (deviation of the group + EPSILON), or without the division for "none".

    `group_N` holds integers; equal ones belong together, in any order. A group may have any size, one included.
    """
    if rewards_N.shape != group_N.shape or rewards_N.dim() != 1:
        raise ValueError(f"rewards {tuple(rewards_N.shape)} and groups {tuple(group_N.shape)} must be equal vectors")
    rewards = rewards_N.double()
    valid = rewards.isfinite()
    rewards = torch.where(valid, rewards, 0.0)
    index, count_groups = _dense(group_N)
    size_G = _sum(valid.double(), index, count_groups)
    mean_G = _sum(rewards, index, count_groups) / size_G.clamp(min=1.0)
    centred = torch.where(valid, rewards - mean_G[index], 0.0)
    std_G = (_sum(centred.square(), index, count_groups) / size_G.clamp(min=1.0)).sqrt()
    varied_G = _spread(rewards, valid, index, count_groups) > 0
    std_G = torch.where(varied_G, std_G, 0.0)
    varied = valid & varied_G[index]
    advantages = centred / (std_G[index] + EPSILON) if normalize == "std" else centred
    scored_G = size_G > 0
    groups = int(scored_G.sum())
    return AdvantageResult(
        advantages=torch.where(varied, advantages, 0.0),
        valid=valid,
        varied=varied,
        groups=groups,
        zero_variance_groups=groups - int(varied_G.sum()),
        reward_mean=float(rewards[valid].mean()),
        reward_std=float(std_G[scored_G].mean()),
    )


def step_advantages(rewards_N: Tensor, normalize: Literal["std", "none"] = "std") -> AdvantageResult:
    """As `group_advantages` with the whole step as one group, which is how the counts and `varied` count it."""
    return group_advantages(rewards_N, torch.zeros(rewards_N.shape, dtype=torch.long), normalize)


def _dense(group_N: Tensor) -> tuple[Tensor, int]:
    labels, index = torch.unique(group_N, return_inverse=True)
    return index, len(labels)


def _sum(values_N: Tensor, index_N: Tensor, groups: int) -> Tensor:
    return torch.zeros(groups, dtype=values_N.dtype).index_add_(0, index_N, values_N)


def _spread(rewards: Tensor, valid: Tensor, index: Tensor, groups: int) -> Tensor:
    """max - min of the scored rewards of each group; -inf for a group without any."""
    empty = torch.full((groups,), -torch.inf, dtype=rewards.dtype)
    top = empty.scatter_reduce(0, index, rewards.masked_fill(~valid, -torch.inf), "amax")
    bottom = -empty.scatter_reduce(0, index, (-rewards).masked_fill(~valid, -torch.inf), "amax")
    return top - bottom
