"""Once per run: the packed forward against the plain one.

The first micro-batch of reinforcement learning, and the first one in which sequences share a beginning where that comes
later, is computed a second time, some of its sequences alone, with their logits in full. Both must give the same
log-probs: a kernel that loses a parent, a position that is off or a head that is not what it seems shows here, before
the first update.
No gradient, no random numbers, nothing counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sinkflex.algorithms.losses import chunked_log_probs
from sinkflex.kernels.layout import Layout
from sinkflex.policy.attention import AttentionContext
from sinkflex.policy.model import Policy
from sinkflex.refusal import Refusal

from .batch import MicroBatch, TokenRow
from .update import log_probs

LIMITS = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 0.05, torch.float16: 0.02}
"""Largest mean difference per token, by the model's dtype. A mean, since rounding may send single tokens of a mixture
to another expert."""

EAGER_UP_TO = 1024
"""Sequences up to this length are computed with eager attention, the specification; its memory grows with the square
of the length, so longer ones take the run's own implementation, without a shared piece."""

SEQUENCES = 8
"""So many sequences of the micro-batch are computed alone, spread evenly over it."""

ROWS = 128
"""Rows whose full logits exist at once."""


class PackingCheck:
    """Remembers what has been verified in this process."""

    def __init__(self) -> None:
        self._verified: set[bool] = set()

    def __call__(
        self, policy: Policy, micros: Sequence[MicroBatch], sequences: Sequence[TokenRow], temperature: float, step: int
    ) -> None:
        """Refusal SF-PACKING when the log-probs of a micro-batch that has to be verified differ."""
        for micro in micros:
            shares = micro.layout.has_parents
            if True in self._verified or shares in self._verified:
                continue
            self._verified.add(shares)
            _verify(policy, micro, sequences, temperature, step)


def plain_log_probs(policy: Policy, sequence: TokenRow, temperature: float) -> torch.Tensor:
    """Log-prob of each trained token of one sequence, in order, without gradient."""
    trained = [p for p, m in enumerate(sequence.loss_mask) if m]
    fed = trained[-1]
    ids = torch.tensor([sequence.ids[:fed]], device=policy.device)
    targets = torch.tensor([sequence.ids[p] for p in trained], device=policy.device)
    rows = torch.tensor(trained, device=policy.device) - 1
    context = AttentionContext("eager" if fed <= EAGER_UP_TO else policy.impl, layout=Layout.single(fed))
    with torch.no_grad():
        states = policy.hidden(ids, torch.arange(fed, device=policy.device)[None], context)[rows]
        return chunked_log_probs(states, policy.logits, targets, temperature, chunk=ROWS)[0]


def _verify(policy: Policy, micro: MicroBatch, sequences: Sequence[TokenRow], temperature: float, step: int) -> None:
    was_training = policy.model.training
    policy.model.eval()
    with torch.no_grad():
        packed = log_probs(policy, micro.to(policy.device), temperature)[0]
    members = list(dict.fromkeys(micro.sequences))
    count = min(SEQUENCES, len(members))
    differences = []
    for index in (members[i * (len(members) - 1) // max(count - 1, 1)] for i in range(count)):
        mine = packed[(micro.sequence_N == index).to(packed.device)]
        differences.append((mine - plain_log_probs(policy, sequences[index], temperature)).abs())
    policy.model.train(was_training)
    difference = torch.cat(differences)
    mean, limit = float(difference.mean()), LIMITS[next(policy.model.parameters()).dtype]
    if mean <= limit:
        return
    raise Refusal(
        "SF-PACKING",
        f"Step {step}: packed episodes and the same ones alone disagree by {mean:.4g} per token (at most "
        f"{float(difference.max()):.4g}), the limit is {limit:g}.",
        why="The run's first micro-batch is computed both ways with the same weights, before anything is trained: "
        f"{micro.layout.num_queries} packed tokens of {len(members)} episodes, {count} of them alone.",
        fix="Set attention.impl: eager to find out whether attention is the cause. If the difference stays, this model "
        "computes something from its neighbours in the batch and cannot be trained here.",
        owner="engine",
    )
