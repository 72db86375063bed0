"""The loop: warm start, then training steps of six stages, readable from top to bottom.

    generate    G episodes of each of N tasks, sampled by the current weights           rollout.scheduler
    score       the environment's reward, inside generate                               envs
    log_probs   behaviour log-probs were recorded while sampling; a reference only with KL
    advantages  each episode against its group, or all of the step; no value model      algorithms.advantages
    update      packed micro-batches (shared beginnings once), clipped loss             train.batch, train.update
    sync        the engine reads the weights it trains: nothing to copy, the version is stamped on every turn

Which GRPO this is: advantages divided by the group's population deviation (or not: normalize none), groups without
variance left out of the denominator (or kept), token mean over the whole optimiser step, separate clip offsets, k3
against a frozen reference only when its coefficient is above 0, on-policy: a batch is used `epochs` times and dropped.

Every random draw follows from (seed, step, place), so a resumed run continues bit for bit without stored streams.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from sinkflex.algorithms.advantages import AdvantageResult, group_advantages, step_advantages
from sinkflex.config import Eval, Run
from sinkflex.control import Control
from sinkflex.envs.seeds import episode_seed
from sinkflex.evaluate import evaluate_policy, evaluate_scripted
from sinkflex.events import Events
from sinkflex.policy.model import Policy
from sinkflex.rollout import transcript
from sinkflex.rollout.scheduler import Collector, EpisodeJob
from sinkflex.rollout.trajectory import Trajectory

from . import checkpoint
from .batch import learned_rewards, rl_micro_batches, select, split
from .forecast import forecast
from .guards import Update, UpdateGuard, ZeroVarianceWatch, check_infra_rate
from .metrics import rollout_metrics, update_metrics
from .reference import frozen_copy
from .schedule import learning_rate, task_order
from .setup import Setup, plan_fields, prepare
from .update import Totals, policy_update
from .verify import PackingCheck
from .warm_start import make_optimizer, stages_by_step, warm_start


@dataclass(slots=True)
class _Loop:
    run: Run
    setup: Setup
    events: Events
    control: Control
    optimizer: torch.optim.Optimizer
    reference: Policy | None = None
    noop_mean: float | None = None
    guard: UpdateGuard = field(default_factory=UpdateGuard)
    check_packing: PackingCheck = field(default_factory=PackingCheck)

    @property
    def policy(self) -> Policy:
        return self.setup.policy


def train(run: Run, events: Events, control: Control) -> int:
    """Run to the end, to a stop, or to a `Refusal`. Returns the exit code (0 completed, 130 stopped)."""
    torch.manual_seed(run.config.seed)
    torch.use_deterministic_algorithms(True, warn_only=run.config.device != "cpu")
    config = run.config
    setup = prepare(run)
    if run.resume is None:
        checkpoint.refuse_used(run.run_dir)
    loop = _Loop(
        run, setup, events, control, optimizer=make_optimizer(setup, config.optim.lr, config.optim.weight_decay)
    )
    step, sft_done = _restore(loop) if run.resume else (0, 0)
    if config.eval:
        loop.noop_mean = _noop_mean(setup, config.eval)
    events.emit("plan", **plan_fields(setup, loop.noop_mean), forecast=forecast(setup))

    if step == 0 and config.warm_start and not _warm_start(loop, sft_done):
        return 130
    loop.reference = _reference(loop)
    if run.resume is None or (step == 0 and sft_done < _sft_steps(run)):
        _evaluate(loop, 0)
        _save(loop, 0)
    together = config.rollout.tasks_per_step if config.algorithm.advantage == "reinforce_plus_plus" else 1
    watch = ZeroVarianceWatch(config.train.zero_variance_warn, together * config.rollout.group_size)
    while step < config.train.steps:
        if control.stop_requested:
            return _stopped(loop, step)
        step += 1
        _step(loop, step, watch)
        last = step == config.train.steps
        if config.eval and (last or (config.eval.every and step % config.eval.every == 0)):
            _evaluate(loop, step)
        if last or (config.checkpoint.every and step % config.checkpoint.every == 0):
            _save(loop, step)
    events.emit("end", status="completed", exit_code=0, step=step, checkpoint=events.status.checkpoint, error=None)
    return 0


def _step(loop: _Loop, step: int, watch: ZeroVarianceWatch) -> None:
    """One training step: the six stages of the module's docstring, and its `step` event."""
    setup, config, events = loop.setup, loop.run.config, loop.events
    started = time.monotonic()
    events.enter("rollout", step, config.train.steps, waiting_for="policy")
    trajectories = _generate(loop, step)
    rollout_s = time.monotonic() - started

    check_infra_rate(trajectories, config.train.max_infra_rate, step=step)
    result = _advantages(loop, trajectories)

    events.enter("update", step, config.train.steps)
    update_started = time.monotonic()
    last = config.train.steps if config.optim.schedule == "linear" else None
    lr = learning_rate(step, config.optim.lr, config.optim.warmup_steps, last)
    for group in loop.optimizer.param_groups:
        group["lr"] = lr
    updates, totals, gap = _update(loop, step, trajectories, result)

    now = time.monotonic()
    tokens = sum(len(t.ids) for t in trajectories)
    metrics = rollout_metrics(trajectories, result) | update_metrics(updates, totals, gap, config.algorithm.kl.coef > 0)
    metrics |= {
        "lr": lr,
        "policy_version": setup.policy.version,
        "tokens": tokens,
        "tokens_per_second": tokens / (now - started),
        "rollout_s": rollout_s,
        "update_s": now - update_started,
        "step_s": now - started,
    }
    transcript.write(loop.run.run_dir / "episodes", f"step-{step:06d}", trajectories, step, setup.policy.chat)
    events.emit("step", stage="rl", step=step, total=config.train.steps, metrics=metrics)
    warning = watch.observe(result.zero_variance_fraction, float(metrics["success"] or 0.0))
    if warning:
        events.warn("SF-ZERO-VARIANCE", warning[0], warning[1])


def _generate(loop: _Loop, step: int) -> list[Trajectory]:
    """group_size episodes of each of the step's tasks. Groups share the task; every episode has its own seed."""
    config, setup = loop.run.config, loop.setup
    n, g = config.rollout.tasks_per_step, config.rollout.group_size
    ids = setup.task_ids()
    jobs = [
        EpisodeJob(
            f"s{step}-t{i}-g{k}",
            ids[place],
            config.env.split,
            i,
            k,
            episode_seed(config.seed, f"rl/{step}/{ids[place]}", k),
        )
        for i, place in enumerate(task_order((step - 1) * n, n, len(ids), seed=config.seed))
        for k in range(g)
    ]
    collector = Collector(setup.policy, setup.make_env, setup.settings(config.rollout.temperature))
    with setup.policy.rollout_weights():
        trajectories = collector.collect(jobs)
    for t in trajectories:
        loop.events.emit("episode", **transcript.episode_event(t, step))
    return trajectories


def _advantages(loop: _Loop, trajectories: Sequence[Trajectory]) -> AdvantageResult:
    rewards = learned_rewards(trajectories, loop.run.config.algorithm.reward)
    algorithm = loop.run.config.algorithm
    if algorithm.advantage == "reinforce_plus_plus":
        return step_advantages(rewards, algorithm.normalize)
    groups = torch.tensor([t.task_index for t in trajectories])
    return group_advantages(rewards, groups, algorithm.normalize)


def _update(
    loop: _Loop, step: int, trajectories: Sequence[Trajectory], result: AdvantageResult
) -> tuple[list[Update], Totals, float | None]:
    """epochs x mini_batches optimiser steps. The gap is measured before the first of them: same weights, so it must be
    rounding and nothing else. Behaviour log-probs of an older policy would make it grow, which the gate refuses."""
    config, algorithm = loop.run.config, loop.run.config.algorithm
    chosen = select(
        trajectories, result, zero_variance=algorithm.zero_variance, mask_truncated=algorithm.mask_truncated
    )
    updates: list[Update] = []
    totals = Totals()
    gap: float | None = None
    loop.policy.model.train()
    for epoch in range(algorithm.epochs):
        for rows in split(chosen.rows, algorithm.mini_batches, seed=config.seed, step=step, epoch=epoch):
            micros = rl_micro_batches(
                trajectories,
                result.advantages,
                rows,
                tokens_per_micro_batch=config.train.tokens_per_micro_batch,
                aggregate=algorithm.aggregate,
                constant_length=algorithm.constant_length,
            )
            loop.check_packing(loop.policy, micros, trajectories, config.rollout.temperature, step)
            update, part = policy_update(
                loop.policy,
                loop.optimizer,
                loop.guard,
                micros,
                algorithm=algorithm,
                temperature=config.rollout.temperature,
                grad_clip=config.optim.grad_clip,
                step=step,
                reference=loop.reference,
                gap_limit=config.train.logprob_gap_limit if gap is None else None,
            )
            if gap is None and part.tokens:
                gap = part.gap / part.tokens
            updates.append(update)
            totals.add(part)
    loop.policy.model.eval()
    return updates, totals, gap


def _warm_start(loop: _Loop, done: int) -> bool:
    """The supervised stage. False when it was stopped (and saved)."""
    warm = loop.run.config.warm_start
    assert warm is not None
    total = _sft_steps(loop.run)
    loop.events.enter("warm_start", done, total)
    optimizer = make_optimizer(loop.setup, warm.sft.lr)
    if 0 < done < total and loop.run.resume is not None:
        policy = loop.policy
        checkpoint.load(loop.run.resume.checkpoint, model=policy.model, adapter=policy.adapter, optimizer=optimizer)
    for step in warm_start(loop.setup, warm.sft, optimizer, done, loop.events):
        loop.events.status.step = step
        if loop.control.stop_requested and step < total:
            _save(loop, 0, optimizer=optimizer, sft_step=step)
            _say_stopped(loop, 0)
            return False
    return True


def _evaluate(loop: _Loop, step: int) -> None:
    """Report split before the first and after the last step, tuning split in between; transcripts are kept."""
    config, setup = loop.run.config, loop.setup
    if config.eval is None:
        return
    ends = step in (0, config.train.steps)
    name, count = (
        (config.eval.report_split, config.eval.report_tasks) if ends else (config.eval.split, config.eval.tasks)
    )
    loop.events.enter("eval", step, config.train.steps, detail=name)
    settings = setup.settings(config.eval.temperature)
    for suite in config.eval.suites:
        evaluation = evaluate_policy(
            setup.policy,
            setup.make_env,
            setup.domain,
            suite,
            name,
            count,
            config.eval.trials,
            settings=settings,
            step=step,
            seed=config.seed,
        )
        transcript.write(
            loop.run.run_dir / "episodes", f"step-{step:06d}-{name}", evaluation.trajectories, step, setup.policy.chat
        )
        for t in evaluation.trajectories:
            loop.events.emit("episode", **transcript.episode_event(t, step))
        loop.events.emit("eval", **evaluation.fields(step, loop.noop_mean if ends else None))


def _noop_mean(setup: Setup, config: Eval) -> float:
    """The do-nothing agent on the report tasks: the score that must not be mistaken for skill."""
    env = setup.make_env()
    suite, seed = setup.config.env.suite, setup.config.seed
    evaluation = evaluate_scripted("noop", env, suite, config.report_split, config.report_tasks, seed=seed)
    return float(evaluation.fields(0, None)["mean"])


def _sft_steps(run: Run) -> int:
    return len(stages_by_step(run.config.warm_start.sft)) if run.config.warm_start else 0


def _reference(loop: _Loop) -> Policy | None:
    """The policy as reinforcement learning starts; absent, not idle, when KL is off (B25).

    A resume finds it in the step-0 checkpoint's weights, which rotation protects.
    """
    if loop.run.config.algorithm.kl.coef == 0:
        return None
    resumed = loop.run.resume is not None and loop.run.resume.step > 0
    return frozen_copy(loop.policy, checkpoint.folder(loop.run.run_dir, 0) if resumed else None)


def _restore(loop: _Loop) -> tuple[int, int]:
    """Weights, optimiser and counters of the checkpoint to resume from. Returns (step, finished warm-start steps)."""
    assert loop.run.resume is not None
    path = loop.run.resume.checkpoint
    state = checkpoint.read_state(path)
    unfinished = state.step == 0 and state.sft_step < _sft_steps(loop.run)
    policy, optimizer = loop.policy, None if unfinished else loop.optimizer
    checkpoint.load(path, model=policy.model, adapter=policy.adapter, optimizer=optimizer)
    policy.version = state.policy_version
    checkpoint.restore_random(path)
    return state.step, state.sft_step


def _save(
    loop: _Loop, step: int, *, optimizer: torch.optim.Optimizer | None = None, sft_step: int | None = None
) -> None:
    config = loop.run.config
    loop.events.enter("checkpoint", step, config.train.steps)
    state = checkpoint.TrainerState(
        step=step,
        policy_version=loop.policy.version,
        data_position=step * config.rollout.tasks_per_step,
        run=loop.run.run,
        config_sha256=loop.run.config_sha256,
        sft_step=_sft_steps(loop.run) if sft_step is None else sft_step,
        extra={"threads": torch.get_num_threads()},
    )
    saved = checkpoint.save(
        loop.run.run_dir,
        state,
        model=loop.policy.model,
        adapter=loop.policy.adapter,
        tokenizer=loop.policy.tokenizer,
        optimizer=optimizer or loop.optimizer,
    )
    protect = (0,) if config.algorithm.kl.coef > 0 else ()
    checkpoint.rotate(loop.run.run_dir, run=loop.run.run, newest=step, keep=config.checkpoint.keep, protect=protect)
    loop.events.emit("checkpoint", step=step, path=str(saved.path.relative_to(loop.run.run_dir)), bytes=saved.bytes)


def _stopped(loop: _Loop, step: int) -> int:
    """Asked to stop between two steps: save what is finished, say so."""
    _save(loop, step)
    _say_stopped(loop, step)
    return 130


def _say_stopped(loop: _Loop, step: int) -> None:
    loop.events.emit(
        "end", status="stopped", exit_code=130, step=step, checkpoint=loop.events.status.checkpoint, error=None
    )
