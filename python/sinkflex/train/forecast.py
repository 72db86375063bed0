"""How long a run will take, said before its first step: work in tokens, speeds from a short probe, seconds from both.

The work follows from the tasks of the first step. What the policy will sample nobody knows; two cases are counted:

    expected  every episode goes as the suite's expert plays it; None where there is no expert to ask
    most      every turn uses all of max_new_tokens, and every episode all of its turns and tokens

The speeds are those of three things that the run does: reading a prompt, decoding one token for all rows, and a forward
and backward of packed tokens. Attention to long conversations, the environment and checkpoints are left out, and rows
that end early make the rest of a rollout slower than the probe: a forecast, which the measured steps replace.

Nothing of it touches the run: no random stream is drawn from, no gradient stays, and all seconds are clocks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from sinkflex.envs.seeds import episode_seed
from sinkflex.policy.linear import LARGE
from sinkflex.policy.model import Policy
from sinkflex.rollout.engine import CHUNK, LocalEngine, common
from sinkflex.rollout.scheduler import EpisodeJob, begin, demonstrate, opening
from sinkflex.rollout.trajectory import Trajectory

from .batch import sft_micro_batches
from .schedule import task_order
from .setup import Setup
from .threads import decode, median_seconds
from .update import log_probs

SAMPLE = 4
"""Tasks that are looked at."""

PROBE_TOKENS = 256
"""Tokens of the probe's prompt and of its forward and backward, at most."""


@dataclass(frozen=True, slots=True)
class Episodes:
    """What an episode of the looked-at tasks is, in tokens: `shared` begins every prompt, `own` follows it in a prompt,
    `read` comes from the environment after that, `sampled` from the policy."""

    shared: float
    own: float
    read: float
    sampled: float


@dataclass(frozen=True, slots=True)
class Speeds:
    """Tokens per second."""

    read: float
    decode: float
    update: float


def forecast(setup: Setup) -> dict[str, Any] | None:
    """The `forecast` of the plan event; None for a small model, whose steps are there before one has read it."""
    config = setup.config
    if setup.policy.parameters < LARGE:
        return None
    prompts, played = _look(setup)
    most = at_most(
        prompts, played, config.env.max_turns, config.rollout.max_new_tokens, config.rollout.max_total_tokens
    )
    expected = None if played is None else as_played(played)
    rows = min(config.rollout.group_size * config.rollout.tasks_per_step, config.rollout.max_live_episodes)
    likely = expected or most
    speeds = probe(setup.policy, rows, int(most.shared), likely.sampled / (likely.own + likely.read + likely.sampled))
    return {
        "expected": None if expected is None else seconds(setup, expected, speeds),
        "most": seconds(setup, most, speeds),
        "read_per_second": speeds.read,
        "decode_per_second": speeds.decode,
        "update_per_second": speeds.update,
    }


def _look(setup: Setup) -> tuple[list[list[int]], list[Trajectory] | None]:
    """Prompts of some tasks of the first step, and the expert's episodes on them."""
    config = setup.config
    full = config.env.system_prompt == "full"
    ids = setup.task_ids()
    prompts: list[list[int]] = []
    played: list[Trajectory] | None = []
    for place in task_order(0, min(SAMPLE, config.rollout.tasks_per_step), len(ids), seed=config.seed):
        job = EpisodeJob("look", ids[place], config.env.split, 0, 0, episode_seed(config.seed, "look", place))
        env = setup.make_env()
        _, observation, info = begin(env, job)
        prompts.append([i for piece in opening(setup.policy.chat, info, observation, full) for i in piece.ids])
        try:
            if played is not None:
                played.append(demonstrate(setup.policy.chat, env, "expert", job, full))
        except (KeyError, ValueError):  # no expert, or a format that cannot write its calls
            played = None
    return prompts, played


def _prompt(prompts: Sequence[list[int]]) -> tuple[float, float]:
    """(tokens that all begin with, mean of those behind)."""
    shared = min(common(min(prompts), max(prompts)), min(map(len, prompts)) - 1) if len(prompts) > 1 else 0
    return float(shared), sum(len(p) for p in prompts) / len(prompts) - shared


def as_played(played: Sequence[Trajectory]) -> Episodes:
    starts = [t.loss_mask.index(True) for t in played]
    shared, own = _prompt([t.ids[:start] for t, start in zip(played, starts, strict=True)])
    sampled = sum(t.sampled_tokens for t in played) / len(played)
    return Episodes(shared, own, sum(len(t.ids) for t in played) / len(played) - shared - own - sampled, sampled)


def at_most(
    prompts: Sequence[list[int]],
    played: Sequence[Trajectory] | None,
    max_turns: int,
    max_new_tokens: int,
    max_total_tokens: int,
) -> Episodes:
    """Environment turns are as long as the expert's, where it was asked; one that ends every task at once has one."""
    shared, own = _prompt(prompts)
    turns, read = float(max_turns), 0.0
    if played is not None:
        if all(t.turns == 1 for t in played):
            turns = 1.0
        per_turn = sum(len(t.ids) - t.loss_mask.index(True) - t.sampled_tokens for t in played)
        read = per_turn / max(sum(t.turns - 1 for t in played), 1) * (turns - 1)
    sampled = turns * max_new_tokens
    share = min(1.0, (max_total_tokens - shared - own) / (sampled + read))
    return Episodes(shared, own, read * share, sampled * share)


def seconds(setup: Setup, episode: Episodes, speeds: Speeds) -> dict[str, float]:
    """Seconds of a training step, of all evaluations, of the warm start, and of the run."""
    config = setup.config
    tasks, group = config.rollout.tasks_per_step, config.rollout.group_size
    prompt = episode.shared + tasks * episode.own
    behind = tasks * group * (episode.read + episode.sampled)
    rollout = (prompt + tasks * group * episode.read) / speeds.read + tasks * group * episode.sampled / speeds.decode
    update = config.algorithm.epochs * (prompt + behind) / speeds.update
    evaluated = 0.0
    if config.eval is not None:
        e = config.eval
        between = (config.train.steps - 1) // e.every if e.every else 0
        episodes = e.trials * len(e.suites) * (2 * e.report_tasks + between * e.tasks)
        one = (episode.own + episode.read) / speeds.read + episode.sampled / speeds.decode
        evaluated = episodes * one + (2 + between) * episode.shared / speeds.read
    warm = 0.0
    if config.warm_start is not None:
        sft = config.warm_start.sft
        own = sft.episodes_per_step * (episode.own + episode.read + episode.sampled)
        warm = sum(d.steps for d in sft.demonstrations) * (episode.shared + own) / speeds.update
    step = rollout + update
    return {
        "step_s": step,
        "eval_s": evaluated,
        "warm_start_s": warm,
        "total_s": warm + config.train.steps * step + evaluated,
    }


def probe(policy: Policy, rows: int, shared: int, trained: float) -> Speeds:
    """Measure with `rows` rows behind a prompt of about `shared` tokens; `trained` is the share of trained tokens."""
    length = max(2, min(shared, PROBE_TOKENS, CHUNK))
    with policy.rollout_weights():
        engine = LocalEngine(policy, rows, capacity=64)
        prompt = [0] * (length + 1)
        engine.expect([prompt] * rows)
        begun = time.perf_counter()
        engine.open([(row, prompt) for row in range(rows)])
        read = length / (time.perf_counter() - begun)
        decoded = rows / median_seconds(partial(decode, engine, rows), rounds=3)
    del engine  # its cache makes room for the activations
    begun = time.perf_counter()
    _forward_backward(policy, [0] * PROBE_TOKENS, max(1, round(trained * PROBE_TOKENS)))
    return Speeds(read, decoded, PROBE_TOKENS / (time.perf_counter() - begun))


def _forward_backward(policy: Policy, ids: list[int], trained: int) -> None:
    """As an update does it, of one sequence whose last `trained` tokens are trained. No gradient is kept."""

    @dataclass(frozen=True, slots=True)
    class Row:
        ids: list[int]
        loss_mask: list[bool]

    trained = min(trained, len(ids) - 1)
    row = Row(ids, [False] * (len(ids) - trained) + [True] * trained)
    (micro,) = sft_micro_batches([row], tokens_per_micro_batch=len(ids))
    policy.model.train()
    scored, _ = log_probs(policy, micro.to(policy.device), 1.0)
    torch.autograd.grad(scored.sum(), [p for p in policy.model.parameters() if p.requires_grad], allow_unused=True)
    policy.model.eval()
