"""How many threads a CPU run uses. `auto` measures it for a model of some size and keeps what a run began with.

Another number of threads adds float32 sums in another order: about one part in 10^7, which sampling turns into other
tokens sooner or later. So a resume takes the number that its run began with, and only `threads: N` makes two machines
comparable.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from sinkflex.config import Run
from sinkflex.policy.linear import LARGE
from sinkflex.policy.model import Policy
from sinkflex.rollout.engine import LocalEngine

from . import checkpoint
from .batch import sft_micro_batches
from .update import log_probs

ROWS = 16
"""Most rows of the measured decode; a rollout of fewer episodes is measured with theirs."""

PROBE_TOKENS, TRAINED = 256, 0.3
"""Tokens of the measured forward and backward, and how many of them are trained."""

WORTH = 1.1
"""A count of threads must be so many times faster than every smaller one: cores have other work too."""

LONG = 2.0
"""Seconds of one forward from which on a single one has to do."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Tokens per second, of a decode and of a forward and backward."""

    decode: float
    update: float

    @property
    def both(self) -> float:
        """Tokens that are sampled and learned from, in a second."""
        return 1.0 / (1.0 / self.decode + 1.0 / self.update)


@dataclass(frozen=True, slots=True)
class Threads:
    """`measured`: by number of threads; empty where nothing was measured."""

    reason: str
    measured: dict[int, Measured]

    def fields(self) -> dict[str, object]:
        """For the `plan` event. The speeds are clocks, so they stay out of the reason."""
        speeds = [
            {"threads": count, "decode_per_second": speed.decode, "update_per_second": speed.update}
            for count, speed in self.measured.items()
        ]
        return {"threads": torch.get_num_threads(), "threads_measured": speeds}


def choose_threads(run: Run, policy: Policy) -> Threads:
    """Set torch's threads for the run, and say why."""
    config = run.config
    if config.threads != "auto":
        return _take(config.threads, "set in the config")
    if policy.parameters < LARGE:
        return _take(1, "the model is too small to share its work")
    if run.resume is not None:
        count = checkpoint.read_state(run.resume.checkpoint).extra.get("threads")
        if isinstance(count, int):
            return _take(count, "as the run began")
    cores = available()
    if policy.device.type != "cpu" or cores == 1:
        return _take(cores, "all cores")
    rows = min(ROWS, config.rollout.group_size * config.rollout.tasks_per_step)
    measured = measure(policy, candidates(cores), rows)
    count = best(measured)
    return _take(count, f"measured, of {cores} cores", measured)


def _take(count: int, why: str, measured: dict[int, Measured] | None = None) -> Threads:
    torch.set_num_threads(count)
    return Threads(f"{count}, {why}", measured or {})


def available() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def candidates(cores: int) -> list[int]:
    """1, 2, 4, ... and all cores."""
    return sorted({cores, *(1 << power for power in range(cores.bit_length()) if 1 << power <= cores)})


def best(measured: dict[int, Measured]) -> int:
    """The fewest threads that no larger number beats by much."""
    chosen = min(measured)
    for count in sorted(measured):
        if measured[count].both > WORTH * measured[chosen].both:
            chosen = count
    return chosen


def measure(policy: Policy, counts: list[int], rows: int) -> dict[int, Measured]:
    """Wall-clock speeds for each count of threads, of decode forwards of `rows` rows and of an update."""
    decodes: dict[int, float] = {}
    with policy.rollout_weights():
        engine = LocalEngine(policy, rows)
        engine.open([(row, [0]) for row in range(rows)])
        for count in counts:
            torch.set_num_threads(count)
            decodes[count] = rows / median_seconds(partial(decode, engine, rows))
    measured = {}
    for count in counts:
        torch.set_num_threads(count)
        taken = median_seconds(partial(forward_backward, policy, PROBE_TOKENS, TRAINED), rounds=1)
        measured[count] = Measured(decodes[count], PROBE_TOKENS / taken)
    return measured


def decode(engine: LocalEngine, rows: int) -> None:
    """One token for every row, to its logits."""
    engine.feed([(row, [0]) for row in range(rows)], list(range(rows)))


def median_seconds(work: Callable[[], object], rounds: int = 5) -> float:
    """Wall seconds of `work`, the first time aside; of the first alone where it takes long."""
    taken = []
    for number in range(rounds + 1):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        begun = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - begun)
        if number == 0 and taken[0] > LONG:
            return taken[0]
    return statistics.median(taken[1:])


def forward_backward(policy: Policy, tokens: int, trained: float) -> None:
    """As an update does it, of one sequence of which this share is trained. No gradient is kept."""

    @dataclass(frozen=True, slots=True)
    class Row:
        ids: list[int]
        loss_mask: list[bool]

    count = min(max(1, round(trained * tokens)), tokens - 1)
    row = Row([0] * tokens, [False] * (tokens - count) + [True] * count)
    (micro,) = sft_micro_batches([row], tokens_per_micro_batch=tokens)
    policy.model.train()
    scored, _ = log_probs(policy, micro.to(policy.device), 1.0)
    torch.autograd.grad(scored.sum(), [p for p in policy.model.parameters() if p.requires_grad], allow_unused=True)
    policy.model.eval()
