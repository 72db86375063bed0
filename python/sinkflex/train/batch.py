"""From trajectories to packed micro-batches.

Idea: the trained tokens of a step are chosen first (`select`), shared out over optimiser steps (`split`), and only then
packed under a token budget (`rl_micro_batches`, `sft_micro_batches`). What a token weighs in the loss is settled over
the whole optimiser step, so packing can never change a gradient.

What several sequences of a micro-batch begin with (a group's prompt, the system prompt of a domain, equal first turns)
is packed once where that pays (prefix_tree.py), as a segment that the others continue. The budget counts packed tokens.

Shapes of a micro-batch of B sequences: `ids_1T` and `positions_1T` hold the pieces one after another without padding;
`layout` says how long each is and which it continues, and positions follow the path. `rows_N` are the N places in
[0, T) whose hidden state predicts a trained token, that is the place of the token before it on the sequence's path;
`targets_N` are those tokens. A place may occur in several sequences, and so may a trained token in a shared piece: it
counts for each of them. Masks come from spans of sampled tokens, never from comparing ids. A sequence is fed up to the
token before its last trained one: nothing later can reach the loss.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress, pairwise
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from sinkflex.algorithms.advantages import AdvantageResult
from sinkflex.algorithms.aggregate import Aggregate, StepCounts, step_counts, token_weights
from sinkflex.kernels.layout import Layout
from sinkflex.refusal import Refusal
from sinkflex.rollout.trajectory import Trajectory

from .prefix_tree import PrefixTree


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
    layout: Layout
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


def learned_rewards(trajectories: Sequence[Trajectory], kind: Literal["exact", "graded"]) -> Tensor:
    """What advantages are computed from, [N] float64 in [0, 1]; NaN for an episode that is not scored.

    "graded" is the mean of exact success and the share of sub-goals reached: a group in which nobody succeeds still
    tells its better half from the worse, and success stays worth more than any failure.
    """
    rewards = [math.nan if t.reward is None else t.reward for t in trajectories]
    if kind == "graded":
        rewards = [(reward + (t.graded or 0.0)) / 2 for reward, t in zip(rewards, trajectories, strict=True)]
    return torch.tensor(rewards, dtype=torch.float64)


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
    share: bool = True,
) -> list[RlMicroBatch]:
    """One optimiser step over `rows` (places in `trajectories` and in `advantages` [all]), the largest micro-batch
    first.

    `counts` defaults to the counts of these rows: the whole optimiser step, all ranks. Without `share` every sequence
    is packed in full.
    """
    batches = []
    for micro in _packed(trajectories, rows, tokens_per_micro_batch, aggregate, constant_length, counts, share):
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
    examples: Sequence[TokenRow],
    *,
    tokens_per_micro_batch: int,
    counts: StepCounts | None = None,
    share: bool = True,
) -> list[MicroBatch]:
    """One supervised optimiser step over all `examples` that have a trained token; mean over trained tokens."""
    rows = [i for i, example in enumerate(examples) if any(example.loss_mask)]
    return _packed(examples, rows, tokens_per_micro_batch, "token_mean", None, counts, share)


def _packed(
    sequences: Sequence[TokenRow],
    rows: Sequence[int],
    budget: int,
    aggregate: Aggregate,
    constant_length: int | None,
    counts: StepCounts | None,
    share: bool,
) -> list[MicroBatch]:
    tokens = torch.tensor([sum(sequences[i].loss_mask) for i in rows], dtype=torch.int64)
    weights = token_weights(tokens, counts or step_counts(tokens), aggregate, constant_length)
    weight_of = dict(zip(rows, weights.tolist(), strict=True))
    fed = [_fed(sequences[i], i, budget) for i in rows]
    tree = PrefixTree(fed, share=share)
    return [_pack(sequences, rows, fed, tree, stretch, weight_of) for stretch in _stretches(tree, len(rows), budget)]


def _fed(row: TokenRow, index: int, budget: int) -> list[int]:
    """The ids to feed: all before the last trained token."""
    if len(row.ids) != len(row.loss_mask):
        raise ValueError(f"sequence {index}: {len(row.ids)} ids and {len(row.loss_mask)} mask entries")
    last = max(compress(range(len(row.ids)), row.loss_mask), default=0)
    if last == 0 or row.loss_mask[0]:
        raise ValueError(f"sequence {index}: needs a trained token that is not the first (nothing predicts that one)")
    if last > budget:
        raise Refusal(
            "SF-EPISODE-TOO-LONG",
            f"Episode {getattr(row, 'id', index)} has {last} tokens to train on, "
            f"train.tokens_per_micro_batch is {budget}.",
            why="An episode is never cut: its last tokens carry the reward.",
            fix="Raise train.tokens_per_micro_batch or lower rollout.max_total_tokens.",
            owner="policy",
        )
    return list(row.ids[:last])


def _stretches(tree: PrefixTree, count: int, budget: int) -> list[tuple[int, int]]:
    """The tree's order cut into micro-batches, the largest first: a budget that does not fit the memory fails at once.

    What fits a micro-batch of its own is not torn: a subtree (a group, since its members share a prompt) goes whole
    into the current micro-batch or opens the next one; only one that is too large is taken apart, where it branches.
    """
    stretches = []
    start = 0
    work = [(0, count)] if count else []
    while work:
        low, high = work.pop()
        if tree.tokens(start, high) <= budget:
            continue
        if low > start and tree.tokens(low, high) <= budget:
            stretches.append((start, low))
            start = low
        else:
            work.extend(reversed(tree.parts(low, high)))
    if count:
        stretches.append((start, count))
    return sorted(stretches, key=lambda stretch: -tree.tokens(*stretch))


def _pack(
    sequences: Sequence[TokenRow],
    rows: Sequence[int],
    fed: Sequence[list[int]],
    tree: PrefixTree,
    stretch: tuple[int, int],
    weight_of: dict[int, float],
) -> MicroBatch:
    """`rows`, `fed` and the tree's sequences correspond; the tree's order decides that of the sequences."""
    pieces, places = tree.pack(*stretch)
    ids = [token for piece in pieces for token in fed[piece.sequence][piece.begin : piece.end]]
    layout = Layout.from_lengths([p.end - p.begin for p in pieces], parents=[p.parent for p in pieces])
    members = [tree.order[at] for at in range(*stretch)]
    rows_of: list[Tensor] = []
    targets: list[int] = []
    owner: list[int] = []
    for member in members:
        row = sequences[rows[member]]
        trained = list(compress(range(len(row.ids)), row.loss_mask))
        rows_of.append(places[member][torch.tensor(trained) - 1])
        targets += compress(row.ids, row.loss_mask)
        owner += [rows[member]] * len(trained)
    return MicroBatch(
        ids_1T=torch.tensor([ids], dtype=torch.int64),
        positions_1T=layout.positions()[None],
        layout=layout,
        sequences=tuple(rows[member] for member in members),
        rows_N=torch.cat(rows_of),
        targets_N=torch.tensor(targets, dtype=torch.int64),
        weights_N=torch.tensor([weight_of[i] for i in owner], dtype=torch.float32),
        sequence_N=torch.tensor(owner, dtype=torch.int64),
    )


def _fields(micro: MicroBatch) -> dict[str, Any]:
    return {name: getattr(micro, name) for name in MicroBatch.__slots__}


def _moved(micro: MicroBatch, device: torch.device | str) -> dict[str, Any]:
    names = [name for cls in type(micro).__mro__ for name in getattr(cls, "__slots__", ())]
    return {name: getattr(micro, name).to(device) for name in names if isinstance(getattr(micro, name), Tensor)}
