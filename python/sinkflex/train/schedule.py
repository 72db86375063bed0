"""What follows from a step number alone, so that a resumed run needs no state for it.

Steps count from 1: step k is the k-th update, and a checkpoint named k has k behind it.
"""

from __future__ import annotations

import random
from functools import lru_cache


def learning_rate(step: int, lr: float, warmup_steps: int, last: int | None = None) -> float:
    """Linear from lr / warmup_steps at step 1 to lr at step `warmup_steps`; then constant, or, with `last`, falling
    linearly towards 0, which the step after `last` would have."""
    if step < warmup_steps:
        return lr * step / warmup_steps
    return lr if last is None else lr * (last - step + 1) / (last - max(warmup_steps, 1) + 1)


def falling_rate(step: int, lr: float, steps: int) -> float:
    """Linear from lr at step 1 to lr / steps at step `steps`: the supervised warm start."""
    return lr * (steps - step + 1) / steps


def task_order(position: int, count: int, tasks: int, *, seed: int) -> list[int]:
    """Places (0 .. tasks-1) of the `count` tasks that follow the first `position` ones.

    Every epoch visits each task once, in an order of its own that follows from the seed and the epoch's number. One
    request may run over the end of an epoch.
    """
    if tasks < 1:
        raise ValueError("no tasks to order")
    chosen: list[int] = []
    while len(chosen) < count:
        epoch, inside = divmod(position + len(chosen), tasks)
        order = _epoch_order(tasks, seed, epoch)
        chosen.extend(order[inside : inside + count - len(chosen)])
    return chosen


@lru_cache(maxsize=4)
def _epoch_order(tasks: int, seed: int, epoch: int) -> tuple[int, ...]:
    """Kept, because shuffling twenty thousand tasks anew costs a tenth of a supervised step."""
    order = list(range(tasks))
    random.Random(f"tasks {seed} {epoch}").shuffle(order)
    return tuple(order)
