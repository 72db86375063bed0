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
from itertools import pairwise
from typing import Any

from sinkflex.envs.seeds import episode_seed
from sinkflex.policy.linear import LARGE
from sinkflex.policy.model import Policy
from sinkflex.rollout.engine import CHUNK, LocalEngine, common
from sinkflex.rollout.scheduler import EpisodeJob, begin, demonstrate, opening
from sinkflex.rollout.trajectory import Trajectory

from .schedule import task_order
from .setup import Setup
from .threads import PROBE_TOKENS, decode, forward_backward, median_seconds

SAMPLE, PLAYED = 16, 4
"""Tasks whose prompts are looked at, and those of them that the expert plays."""


@dataclass(frozen=True, slots=True)
class Episodes:
    """What an episode is, in tokens. The prompts of n tasks take `shared` + n `own` when what several begin with is
    read once; `read` comes from the environment after the prompt, `sampled` from the policy."""

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
    expected = None if played is None else as_played(prompts, played)
    rows = min(config.rollout.group_size * config.rollout.tasks_per_step, config.rollout.max_live_episodes)
    likely = expected or most
    trained = likely.sampled / (likely.own / config.rollout.group_size + likely.read + likely.sampled)
    speeds = probe(setup.policy, rows, sum(map(len, prompts)) // len(prompts), trained)
    return {
        "expected": None if expected is None else seconds(setup, expected, speeds),
        "most": seconds(setup, most, speeds),
        "read_per_second": speeds.read,
        "decode_per_second": speeds.decode,
        "update_per_second": speeds.update,
    }


def _look(setup: Setup) -> tuple[list[list[int]], list[Trajectory] | None]:
    """Prompts of the first tasks that training draws, and the expert's episodes on some of them."""
    config = setup.config
    full = config.env.system_prompt == "full"
    ids = setup.task_ids()
    prompts: list[list[int]] = []
    played: list[Trajectory] | None = []
    for place in task_order(0, min(SAMPLE, len(ids)), len(ids), seed=config.seed):
        job = EpisodeJob("look", ids[place], config.env.split, 0, 0, episode_seed(config.seed, "look", place))
        env = setup.make_env()
        _, observation, info = begin(env, job)
        prompts.append([i for piece in opening(setup.policy.chat, info, observation, full) for i in piece.ids])
        try:
            if played is not None and len(played) < PLAYED:
                played.append(demonstrate(setup.policy.chat, env, "expert", job, full))
        except (KeyError, ValueError):  # no expert, or a format that cannot write its calls
            played = None
    return prompts, played


def _prompt(prompts: Sequence[list[int]]) -> tuple[float, float]:
    """(shared, own) of `Episodes`: what the second half of the prompts adds to the first."""
    half = len(prompts) // 2
    if half == 0:
        return 0.0, float(len(prompts[0]))
    own = (_distinct(prompts) - _distinct(prompts[:half])) / (len(prompts) - half)
    return max(0.0, _distinct(prompts) - own * len(prompts)), own


def _distinct(prompts: Sequence[list[int]]) -> int:
    """Tokens to read when what prompts begin with alike is read once."""
    ordered = sorted(prompts)
    return sum(map(len, ordered)) - sum(common(a, b) for a, b in pairwise(ordered))


def as_played(prompts: Sequence[list[int]], played: Sequence[Trajectory]) -> Episodes:
    shared, own = _prompt(prompts)
    sampled = sum(t.sampled_tokens for t in played) / len(played)
    behind = sum(len(t.ids) - t.loss_mask.index(True) for t in played) / len(played)
    return Episodes(shared, own, behind - sampled, sampled)


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
    length = sum(map(len, prompts)) / len(prompts)
    share = min(1.0, (max_total_tokens - length) / (sampled + read))
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


def probe(policy: Policy, rows: int, prompt_tokens: int, trained: float) -> Speeds:
    """Measure with `rows` rows behind a prompt; `trained` is the share of tokens in an update that are trained."""
    length = max(2, min(prompt_tokens, CHUNK))
    with policy.rollout_weights():
        engine = LocalEngine(policy, rows)
        prompt = [0] * (length + 1)
        engine.expect([prompt] * rows)
        begun = time.perf_counter()
        engine.open([(row, prompt) for row in range(rows)])
        read = length / (time.perf_counter() - begun)
        decoded = rows / median_seconds(partial(decode, engine, rows), rounds=3)
    del engine  # its cache makes room for the activations
    begun = time.perf_counter()
    forward_backward(policy, PROBE_TOKENS, trained)
    return Speeds(read, decoded, PROBE_TOKENS / (time.perf_counter() - begun))
