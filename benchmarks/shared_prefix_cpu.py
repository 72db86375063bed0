"""A training step of the tiny policy with shared beginnings against the same step with every sequence packed in full.

    PYTHONPATH=python python -P benchmarks/shared_prefix_cpu.py [--repeat 9] [--out FILE]

Tasks of G = 8 samples each: a prompt of P = 6R tokens, then R sampled tokens per sample, all of them trained. A step is
what the loop does after scoring: packing (8192 tokens a micro-batch, the default), forward, loss, backward, clipping,
AdamW. Both sides start from the same weights and train on, alternating in one process at one thread; times are
process-CPU milliseconds, medians. Gradients are compared first; a difference stops the script.

The ideal is the ratio of tokens, G(P+R) / (P+GR) = 4.0. Not everything follows tokens: the head is computed for every
trained token either way, the optimiser and the calls themselves cost as much for few tokens as for many (a fifth of
the shared step of one task with R = 64, which no sharing can reach), and in full-attention layers the answers still
look at all of their prompt (pairs shrink by 2.8 at these lengths; window layers follow tokens). So the record has,
beside the share of the ideal, what a step on 2 of every 8 sequences costs in full: the tokens of the shared step,
nothing shared.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from sinkflex import envs
from sinkflex.config import Algorithm
from sinkflex.policy.model import Policy, build_tiny
from sinkflex.rollout.trajectory import Trajectory
from sinkflex.train.batch import rl_micro_batches
from sinkflex.train.guards import Update, UpdateGuard
from sinkflex.train.update import policy_update

G = 8
BUDGET = 8192
CASES = [(64, 1), (64, 4), (128, 1), (128, 4)]  # R, tasks of a step
LIMIT = 1e-4  # relative difference of loss and gradients, float32

# glibc reads these when a process starts; the command line sets them for the worker.
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "4294967296",
    "MALLOC_TOP_PAD_": "67108864",
    "OMP_NUM_THREADS": "1",
}


class KeepGradients(UpdateGuard):
    def apply(self, *_: Any, **__: Any) -> Update:
        return Update("applied", 0.0)


def episodes(answer: int, tasks: int, samples: int = G) -> list[Trajectory]:
    random = torch.Generator().manual_seed(answer)

    def ids(count: int) -> list[int]:
        return torch.randint(3, 250, (count,), generator=random).tolist()

    rows = []
    for task in range(tasks):
        prompt = ids(6 * answer)
        for sample in range(G):
            sampled = ids(answer)
            if sample < samples:
                rows.append(
                    Trajectory(
                        id=f"t{task}-g{sample}", task_id=str(task), level="0", split="train", task_index=task,
                        sample=sample, seed=0, ids=prompt + sampled, reward=float(sample % 2), outcome="scored",
                        loss_mask=[False] * len(prompt) + [True] * answer,
                        logprobs=[0.0] * len(prompt) + [-5.5] * answer,
                    )
                )  # fmt: skip
    return rows


class Side:
    """A policy with its optimiser, and how its steps are packed."""

    def __init__(self, policy: Policy, share: bool) -> None:
        self.policy = copy.copy(policy)
        self.policy.model = copy.deepcopy(policy.model).train()
        self.share = share
        self.optimizer = torch.optim.AdamW(self.policy.model.parameters(), lr=1e-5, fused=True)

    def step(self, rows: list[Trajectory], guard: UpdateGuard) -> tuple[float, int]:
        """(loss, packed tokens)"""
        advantages = torch.tensor([1.0 if row.reward else -1.0 for row in rows])
        micros = rl_micro_batches(rows, advantages, range(len(rows)), tokens_per_micro_batch=BUDGET, share=self.share)
        _, totals = policy_update(
            self.policy, self.optimizer, guard, micros,
            algorithm=Algorithm(), temperature=1.0, grad_clip=1.0, step=1,
        )  # fmt: skip
        return totals.loss, sum(m.ids_1T.numel() for m in micros)

    def gradients(self, rows: list[Trajectory]) -> tuple[float, list[torch.Tensor]]:
        loss, _ = self.step(rows, KeepGradients())
        found = [p.grad for p in self.policy.model.parameters() if p.grad is not None]
        self.optimizer.zero_grad(set_to_none=True)
        return loss, found


def difference(shared: Side, full: Side, rows: list[Trajectory]) -> float:
    (loss, got), (expected_loss, want) = shared.gradients(rows), full.gradients(rows)
    far = max(float((a - b).norm() / b.norm()) for a, b in zip(got, want, strict=True))
    return max(far, abs(loss - expected_loss) / max(abs(expected_loss), 1.0))


def cpu_ms(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return (time.process_time() - start) * 1e3


def measure(policy: Policy, answer: int, tasks: int, repeat: int) -> dict[str, Any]:
    rows = episodes(answer, tasks)
    few = episodes(answer, tasks, samples=2)
    shared, full = Side(policy, True), Side(policy, False)
    worst = difference(shared, full, rows)
    if not worst < LIMIT:
        raise SystemExit(f"R {answer}, {tasks} tasks: the two sides differ by {worst}; nothing is timed")
    guard = UpdateGuard()
    sides = {"shared": (shared, rows), "full": (full, rows), "full_2_of_8": (full, few)}
    tokens = {name: side.step(given, guard)[1] for name, (side, given) in sides.items()}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeat):
        for name, (side, given) in sides.items():
            times[name].append(cpu_ms(lambda side=side, given=given: side.step(given, guard)))  # type: ignore[misc]
    ms = {name: statistics.median(values) for name, values in times.items()}
    ideal = G * (6 * answer + answer) / (6 * answer + G * answer)
    ratio = ms["full"] / ms["shared"]
    return {
        "R": answer,
        "P": 6 * answer,
        "G": G,
        "tasks": tasks,
        "tokens": tokens,
        "cpu_ms": {name: round(value, 2) for name, value in ms.items()},
        "spread": {n: round((max(v) - min(v)) / ms[n], 3) for n, v in times.items()},
        "ideal": round(ideal, 2),
        "ratio": round(ratio, 2),
        "share_of_ideal": round(ratio / ideal, 3),
        "difference": float(f"{worst:.1e}"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="A training step with shared beginnings, against full packing.")
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--impl", default="flash")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    policy = build_tiny(envs.domain("mini-shop"), impl=options.impl, seed=1, max_positions=4096)
    cells = []
    for answer, tasks in CASES:
        cells.append(measure(policy, answer, tasks, options.repeat))
        c = cells[-1]
        print(
            f"R {c['R']:4}  P {c['P']:4}  G {G}  tasks {c['tasks']}   full {c['cpu_ms']['full']:8.1f} ms   "
            f"shared {c['cpu_ms']['shared']:7.1f} ms   ratio {c['ratio']:.2f} of {c['ideal']:.2f} "
            f"({c['share_of_ideal']:.0%})   difference {c['difference']:.0e}",
            flush=True,
        )
    record = {
        "what": "shared prefix, training step of the tiny policy",
        "command": " ".join(["PYTHONPATH=python python -P", *sys.argv]),
        "unit": "process-CPU milliseconds, one thread, medians of alternating repetitions",
        "impl": options.impl,
        "repeat": options.repeat,
        "tokens_per_micro_batch": BUDGET,
        "parameters": policy.parameters,
        "cells": cells,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
    }
    if options.out:
        options.out.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in ALLOCATOR.items()):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **ALLOCATOR})
    main()
