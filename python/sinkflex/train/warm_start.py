"""The supervised warm start: learn from episodes that scripted agents of the suite play, before reinforcement learning.

Demonstrations are played as they are needed, each from its own task and seed, so no step sees another's episodes twice
and a resume needs no stored data. Only the agent's own tokens carry loss.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import torch

from sinkflex.config import Demonstrations, Sft
from sinkflex.envs.seeds import episode_seed
from sinkflex.events import Events
from sinkflex.rollout.scheduler import EpisodeJob, demonstrate
from sinkflex.rollout.trajectory import Trajectory

from .batch import sft_micro_batches
from .guards import UpdateGuard
from .schedule import falling_rate, task_order
from .setup import Setup
from .update import supervised_update


def stages_by_step(sft: Sft) -> list[Demonstrations]:
    """The demonstrations of each supervised step, in order."""
    return [stage for stage in sft.demonstrations for _ in range(stage.steps)]


def make_optimizer(setup: Setup, lr: float, weight_decay: float = 0.0) -> torch.optim.Optimizer:
    """AdamW in one pass over each trained parameter: a third of the time of the default, and no copy of all beside."""
    betas = setup.config.optim.betas
    trained = [p for p in setup.policy.model.parameters() if p.requires_grad]
    return torch.optim.AdamW(trained, lr=lr, betas=(betas[0], betas[1]), weight_decay=weight_decay, fused=True)


def warm_start(setup: Setup, sft: Sft, optimizer: torch.optim.Optimizer, done: int, events: Events) -> Iterator[int]:
    """Runs the supervised steps after the first `done`; yields after each one, so that the caller can stop between."""
    stages = stages_by_step(sft)
    ids = {stage.levels: setup.task_ids(stage.levels) for stage in sft.demonstrations}
    guard = UpdateGuard()
    setup.policy.model.train()
    for step in range(done + 1, len(stages) + 1):
        started = time.monotonic()
        stage = stages[step - 1]
        lr = falling_rate(step, sft.lr, len(stages))
        for group in optimizer.param_groups:
            group["lr"] = lr
        examples = _episodes(setup, ids[stage.levels], stage.agent, step, sft.episodes_per_step)
        micros = sft_micro_batches(examples, tokens_per_micro_batch=setup.config.train.tokens_per_micro_batch)
        update, totals = supervised_update(setup.policy, optimizer, guard, micros, grad_clip=sft.grad_clip, step=step)
        tokens = sum(len(e.ids) for e in examples)
        metrics = {
            "loss": totals.loss,
            "lr": lr,
            "grad_norm": update.grad_norm,
            "tokens": tokens,
            "tokens_per_second": tokens / (time.monotonic() - started),
            "agent": stage.agent,
        }
        events.emit("step", stage="sft", step=step, total=len(stages), metrics=metrics)
        yield step
    setup.policy.model.eval()


def _episodes(setup: Setup, ids: Sequence[str], agent: str, step: int, count: int) -> list[Trajectory]:
    config = setup.config
    env = setup.make_env()
    order = task_order((step - 1) * count, count, len(ids), seed=config.seed)
    return [
        demonstrate(
            setup.policy.chat, env, agent,
            EpisodeJob(
                f"d{step}-{i}", ids[place], config.env.split, i, 0, episode_seed(config.seed, f"sft/{step}", i)
            ),
            system_prompt=config.env.system_prompt == "full",
        )
        for i, place in enumerate(order)
    ]  # fmt: skip
