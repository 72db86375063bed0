"""Measure an agent on held-out tasks: mean over trials, then over tasks, with an interval and the do-nothing baseline.

The policy plays through the same scheduler as in training. Scripted agents (noop, random, expert, hand_off ...) play
through the same environment, so every figure of a report has the same meaning. An episode that a fault ended is not a
failure: it is counted apart and lowers `coverage`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sinkflex.envs.seeds import episode_seed
from sinkflex.intervals import mean_interval
from sinkflex.policy.model import Policy
from sinkflex.rollout.scheduler import Collector, EpisodeJob, RolloutSettings, act, begin
from sinkflex.rollout.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The figures of an `eval` event. `trajectories` are in (task, trial) order."""

    suite: str
    split: str
    agent: str
    tasks: int
    trials: int
    greedy: bool
    score_mode: str
    trajectories: Sequence[Trajectory]

    @property
    def scored(self) -> list[Trajectory]:
        return [t for t in self.trajectories if t.reward is not None]

    def fields(self, step: int, noop_mean: float | None) -> dict[str, Any]:
        by_task: dict[str, list[float]] = {}
        by_level: dict[str, dict[str, list[float]]] = {}
        for t in self.scored:
            by_task.setdefault(t.task_id, []).append(t.reward or 0.0)
            by_level.setdefault(t.level, {}).setdefault(t.task_id, []).append(t.reward or 0.0)
        means = [_mean(rewards) for rewards in by_task.values()]
        low, high = mean_interval(means)
        return {
            "suite": self.suite,
            "split": self.split,
            "step": step,
            "agent": self.agent,
            "tasks": self.tasks,
            "trials": self.trials,
            "mean": _mean(means),
            "ci_low": low,
            "ci_high": high,
            "score_mode": self.score_mode,
            "greedy": self.greedy,
            "graded_mean": _mean([t.graded or 0.0 for t in self.scored]),
            "by_level": {
                level: {"tasks": len(tasks), "mean": _mean([_mean(r) for r in tasks.values()])}
                for level, tasks in sorted(by_level.items())
            },
            "infra_errors": len(self.trajectories) - len(self.scored),
            "coverage": len(self.scored) / len(self.trajectories) if self.trajectories else 0.0,
            "noop_mean": noop_mean,
            "turns_per_episode": _mean([float(t.turns) for t in self.scored]),
        }


def eval_jobs(task_ids: Sequence[str], split: str, step: int, trials: int, seed: int) -> list[EpisodeJob]:
    """One job per (task, trial). The seed does not depend on the step: two evaluations meet the same customers."""
    return [
        EpisodeJob(f"e{step}-{split}-{i}-{k}", task_id, split, i, k, episode_seed(seed, f"eval/{split}/{task_id}", k))
        for i, task_id in enumerate(task_ids)
        for k in range(trials)
    ]


def evaluate_policy(
    policy: Policy,
    make_env: Callable[[], Any],
    domain: Any,
    suite: str,
    split: str,
    tasks: int,
    trials: int,
    *,
    settings: RolloutSettings,
    step: int,
    seed: int,
    on_episode: Callable[[Trajectory], None] = lambda t: None,
) -> Evaluation:
    """The first `tasks` tasks of `split`, `trials` times each, sampled at the settings' temperature (0: greedy)."""
    ids = list(domain.task_ids(split)[:tasks])
    jobs = eval_jobs(ids, split, step, trials, seed)
    with policy.rollout_weights():
        trajectories = Collector(policy, make_env, settings, on_episode).collect(jobs)
    return Evaluation(
        suite, split, "policy", len(ids), trials, settings.temperature == 0, domain.score_mode, trajectories
    )


def evaluate_scripted(
    agent_name: str, env: Any, suite: str, split: str, tasks: int, *, seed: int, trials: int = 1
) -> Evaluation:
    """A scripted agent of the suite on the same tasks, customers and limits as `evaluate_policy`."""
    domain = env.domain
    ids = list(domain.task_ids(split)[:tasks])
    trajectories = [_play(agent_name, env, job) for job in eval_jobs(ids, split, 0, trials, seed)]
    return Evaluation(suite, split, agent_name, len(ids), trials, True, domain.score_mode, trajectories)


def _play(agent_name: str, env: Any, job: EpisodeJob) -> Trajectory:
    t, observation, _ = begin(env, job)
    agent = env.domain.agent(agent_name, env.domain.task(job.task_id), job.seed)
    over = False
    while not over:
        observation, over = act(t, env, agent.act(observation))
    return t


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
