"""From trajectories to packed micro-batches.

Idea: the trained tokens of a step are chosen first (`select`), shared out over optimiser steps (`split`), and only then
packed under a token budget (`rl_micro_batches`, `sft_micro_batches`). What a token weighs in the loss is settled over
the whole optimiser step, so packing can never change a gradient.

Shapes of a micro-batch of B sequences: `ids_1T` and `positions_1T` hold the sequences one after another without
padding (`lengths` says how long each is; positions restart at 0). `rows_N` are the N places in [0, T) whose hidden
state predicts a trained token, that is the place of the token before it; `targets_N` are those tokens. Masks come from
spans of sampled tokens, never from comparing ids. A sequence is fed up to the token before its last trained one:
nothing later can reach the loss.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, compress, pairwise
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from sinkflex.algorithms.advantages import AdvantageResult
from sinkflex.algorithms.aggregate import Aggregate, StepCounts, step_counts, token_weights
from sinkflex.refusal import Refusal
from sinkflex.rollout.trajectory import Trajectory


class TokenRow(Protocol):
    """A sequence and which of its tokens are trained. Trajectories and demonstrations are both."""

    @property
    def ids(self) -> Sequence[int]: ...
    @property
    def loss_mask(self) -> Sequence[bool]: ...


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """See the module's shapes. `sequence_N` is the place in the step's list of rows that a trained token belongs to,
    `sequences` the same for each packed sequence. `weights_N` float32: loss = sum of weight * per-token loss."""

    ids_1T: Tensor
    positions_1T: Tensor
    lengths: tuple[int, ...]
    sequences: tuple[int, ...]
    rows_N: Tensor
    targets_N: Tensor
    weights_N: Tensor
    sequence_N: Tensor

    def to(self, device: torch.device | str) -> MicroBatch:
        return replace(self, **_moved(self, device))


@dataclass(frozen=True, slots=True)
class RlMicroBatch(MicroBatch):
    """With the behaviour log-prob and the advantage of every trained token, float32."""

    behaviour_N: Tensor
    advantages_N: Tensor

    def to(self, device: torch.device | str) -> RlMicroBatch:
        return replace(self, **_moved(self, device))


@dataclass(frozen=True, slots=True)
class Selection:
    """`rows` are the places of the trajectories that are trained on, in order; every other one is counted once."""

    rows: tuple[int, ...]
    unscored: int = 0
    truncated: int = 0
    zero_variance: int = 0
    without_tokens: int = 0


def select(
    trajectories: Sequence[Trajectory],
    result: AdvantageResult,
    *,
    zero_variance: Literal["exclude", "keep"] = "exclude",
    mask_truncated: bool = False,
) -> Selection:
    """Which episodes carry loss. Those left out are in no denominator.

    An episode that is not scored never does. With `mask_truncated`, one cut by a limit does not either; its reward was
    earned all the same and stays in the baseline of its group. With "exclude", groups without variance are left out;
    with "keep" they stay (their tokens count in the denominator, and a KL penalty reaches them).
    """
    rows: list[int] = []
    dropped = {"unscored": 0, "truncated": 0, "zero_variance": 0, "without_tokens": 0}
    for i, trajectory in enumerate(trajectories):
        if not bool(result.valid[i]):
            dropped["unscored"] += 1
        elif mask_truncated and trajectory.truncated:
            dropped["truncated"] += 1
        elif zero_variance == "exclude" and not bool(result.varied[i]):
            dropped["zero_variance"] += 1
        elif not any(trajectory.loss_mask):
            dropped["without_tokens"] += 1
        else:
            rows.append(i)
    return Selection(tuple(rows), **dropped)


def split(rows: Sequence[int], mini_batches: int, *, seed: int, step: int, epoch: int = 0) -> list[list[int]]:
    """`rows` shuffled and shared out over at most `mini_batches` optimiser steps; sizes differ by at most one.

    Nothing is left over, and no optimiser step is empty: fewer rows than mini-batches give fewer mini-batches. The
    order follows from seed, step and epoch alone, so that a resume repeats it.
    """
    order = list(rows)
    random.Random(f"mini-batches {seed} {step} {epoch}").shuffle(order)
    parts = min(mini_batches, len(order))
    bounds = [len(order) * i // parts for i in range(parts + 1)] if parts else [0]
    return [order[a:b] for a, b in pairwise(bounds)]


def rl_micro_batches(
    trajectories: Sequence[Trajectory],
    advantages: Tensor,
    rows: Sequence[int],
    *,
    tokens_per_micro_batch: int,
    aggregate: Aggregate = "token_mean",
    constant_length: int | None = None,
    counts: StepCounts | None = None,
) -> list[RlMicroBatch]:
    """One optimiser step over `rows` (places in `trajectories` and in `advantages` [all]).

    `counts` defaults to the counts of these rows: the whole optimiser step, all ranks.
    """
    batches = []
    for micro in _packed(trajectories, rows, tokens_per_micro_batch, aggregate, constant_length, counts):
        members = [trajectories[i] for i in micro.sequences]
        behaviour = [lp for t in members for lp in compress(t.logprobs, t.loss_mask)]
        batches.append(
            RlMicroBatch(
                **_fields(micro),
                behaviour_N=torch.tensor(behaviour, dtype=torch.float32),
                advantages_N=advantages[micro.sequence_N].float(),
            )
        )
    return batches


def sft_micro_batches(
    examples: Sequence[TokenRow], *, tokens_per_micro_batch: int, counts: StepCounts | None = None
) -> list[MicroBatch]:
    """One supervised optimiser step over all `examples` that have a trained token; mean over trained tokens."""
    rows = [i for i, example in enumerate(examples) if any(example.loss_mask)]
    return _packed(examples, rows, tokens_per_micro_batch, "token_mean", None, counts)


def _packed(
    sequences: Sequence[TokenRow],
    rows: Sequence[int],
    budget: int,
    aggregate: Aggregate,
    constant_length: int | None,
    counts: StepCounts | None,
) -> list[MicroBatch]:
    tokens = torch.tensor([sum(sequences[i].loss_mask) for i in rows], dtype=torch.int64)
    weights = token_weights(tokens, counts or step_counts(tokens), aggregate, constant_length)
    weight_of = dict(zip(rows, weights.tolist(), strict=True))
    fed = {i: _fed_length(sequences[i], i) for i in rows}
    return [_pack(sequences, bin_, fed, weight_of) for bin_ in _bins(sequences, rows, fed, budget)]


def _fed_length(row: TokenRow, index: int) -> int:
    """Tokens to feed: all before the last trained one."""
    if len(row.ids) != len(row.loss_mask):
        raise ValueError(f"sequence {index}: {len(row.ids)} ids and {len(row.loss_mask)} mask entries")
    last = max((p for p, m in enumerate(row.loss_mask) if m), default=0)
    if last == 0 or row.loss_mask[0]:
        raise ValueError(f"sequence {index}: needs a trained token that is not the first (nothing predicts that one)")
    return last


def _bins(sequences: Sequence[TokenRow], rows: Sequence[int], fed: dict[int, int], budget: int) -> list[list[int]]:
    """Neighbours in length share a bin (little waste where an implementation pads); the longest come first, so that a
    budget that does not fit the memory fails at once."""
    bins: list[list[int]] = []
    used = 0
    for i in sorted(rows, key=lambda i: (-fed[i], i)):
        if fed[i] > budget:
            name = getattr(sequences[i], "id", i)
            raise Refusal(
                "SF-EPISODE-TOO-LONG",
                f"Episode {name} has {fed[i]} tokens to train on, train.tokens_per_micro_batch is {budget}.",
                why="An episode is never cut: its last tokens carry the reward.",
                fix="Raise train.tokens_per_micro_batch or lower rollout.max_total_tokens.",
                owner="policy",
            )
        if not bins or used + fed[i] > budget:
            bins.append([])
            used = 0
        bins[-1].append(i)
        used += fed[i]
    return bins


def _pack(
    sequences: Sequence[TokenRow], members: list[int], fed: dict[int, int], weight_of: dict[int, float]
) -> MicroBatch:
    lengths = tuple(fed[i] for i in members)
    ids: list[int] = []
    positions: list[int] = []
    rows: list[int] = []
    targets: list[int] = []
    owner: list[int] = []
    for i, start in zip(members, accumulate(lengths, initial=0), strict=False):
        row = sequences[i]
        ids.extend(row.ids[: fed[i]])
        positions.extend(range(fed[i]))
        for p, trained in enumerate(row.loss_mask):
            if trained:
                rows.append(start + p - 1)
                targets.append(row.ids[p])
                owner.append(i)
    return MicroBatch(
        ids_1T=torch.tensor([ids], dtype=torch.int64),
        positions_1T=torch.tensor([positions], dtype=torch.int64),
        lengths=lengths,
        sequences=tuple(members),
        rows_N=torch.tensor(rows, dtype=torch.int64),
        targets_N=torch.tensor(targets, dtype=torch.int64),
        weights_N=torch.tensor([weight_of[i] for i in owner], dtype=torch.float32),
        sequence_N=torch.tensor(owner, dtype=torch.int64),
    )


def _fields(micro: MicroBatch) -> dict[str, Any]:
    return {name: getattr(micro, name) for name in MicroBatch.__slots__}


def _moved(micro: MicroBatch, device: torch.device | str) -> dict[str, Any]:
    names = [name for cls in type(micro).__mro__ for name in getattr(cls, "__slots__", ())]
    return {name: getattr(micro, name).to(device) for name in names if isinstance(getattr(micro, name), Tensor)}
