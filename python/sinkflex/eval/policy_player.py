"""A model of our own as the agent: all trials at once through the rollout scheduler, as in training.

`model` is any transformers folder; `checkpoint` is a checkpoint of a run, which is one too. A trial is written as soon
as its episode is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sinkflex import envs
from sinkflex.envs.conversation import AgentAction
from sinkflex.kernels import api
from sinkflex.policy.linear import quicken
from sinkflex.policy.model import Policy, load_policy
from sinkflex.refusal import Refusal
from sinkflex.rollout.scheduler import Collector, EpisodeJob, RolloutSettings, opening
from sinkflex.rollout.trajectory import Trajectory

from .play import Stopped, TrialJob, Usage, as_json
from .results import Trial

if TYPE_CHECKING:
    from .runner import Evaluation


class _Ended(Exception):
    """Asked to stop, or the budget is used up: the episodes under way are dropped."""


class _Awaited:
    """An environment whose user is asked over the network, for the collector, which waits for one answer at a time. One
    loop for all of them: the connections of a client belong to the loop that opened them. `users` keeps what each
    episode's user has used, by the episode's seed."""

    def __init__(self, env: Any, loop: asyncio.Runner, users: dict[int, Usage]) -> None:
        self._env = env
        self._loop = loop
        self._users = users

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, *, seed: int, options: dict[str, Any]) -> Any:
        begun = self._loop.run(self._env.areset(seed=seed, options=options))
        self._users[seed] = getattr(self._env.user, "usage", Usage())
        return begun

    def step(self, action: AgentAction) -> Any:
        return self._loop.run(self._env.astep(action))


def play_policy(evaluation: Evaluation, jobs: Sequence[TrialJob]) -> str | None:
    """Plays the jobs; returns None, or why it ended early: "stop" or "budget"."""
    if not jobs:
        return None
    request = evaluation.request
    policy = _load(evaluation)
    settings = RolloutSettings(
        temperature=request.temperature,
        max_new_tokens=request.max_new_tokens,
        max_total_tokens=request.max_total_tokens,
        max_live_episodes=request.concurrency,
        system_prompt=evaluation.request.system_prompt,
    )
    by_id = {f"{job.task_id}/{job.trial}": job for job in jobs}
    loop, users = asyncio.Runner(), dict[int, Usage]()

    def finished(t: Trajectory) -> None:
        trial = _trial(t, by_id[t.id], users.get(t.seed, Usage()))
        loop.run(evaluation.judge(trial))
        evaluation.finished(trial)
        if (reason := evaluation.reason_to_end()) is not None:
            raise _Ended(reason)

    def make_env() -> Any:
        return _Awaited(evaluation.make_env(), loop, users) if request.user.kind == "llm" else evaluation.make_env()

    collector = Collector(policy, make_env, settings, finished)
    episodes = [
        EpisodeJob(name, job.task_id, job.split, index, job.trial, job.seed)
        for index, (name, job) in enumerate(by_id.items())
    ]
    # A person has one conversation at a time; the collector begins all that it is given at once.
    together = [episodes] if evaluation.person is None else [[episode] for episode in episodes]
    try:
        with loop, policy.rollout_weights():
            for some in together:
                if evaluation.person is not None:
                    evaluation.begin(by_id[some[0].id])
                collector.collect(some)
    except Stopped:
        return "stop"
    except _Ended as ended:
        return str(ended) if len(evaluation.results.trials) < evaluation.plan["total"] else None
    return None


def _load(evaluation: Evaluation) -> Policy:
    import torch

    path = evaluation.request.agent.path
    assert path is not None, "the command line names the folder"
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    policy = load_policy(path, impl=api.choose(device, dtype).impl, dtype=dtype)
    policy.model.to(device)
    quicken(policy.model)
    _check_prompt(evaluation, policy)
    return policy


def _check_prompt(evaluation: Evaluation, policy: Policy) -> None:
    """A model that cannot spell this suite (a checkpoint of another vocabulary) is refused before the first trial."""
    request = evaluation.request  # nobody else's user is asked
    env = envs.DualControlEnv(evaluation.domain, split=request.split, examples=request.examples)
    first = evaluation.domain.task_ids(evaluation.request.split)[0]
    observation, info = env.reset(seed=0, options={"task_id": first})
    try:
        opening(policy.chat, info, observation, request.system_prompt)
    except (ValueError, KeyError) as error:
        raise Refusal(
            "SF-EVAL-VOCABULARY",
            f"{evaluation.request.agent.label} cannot play {evaluation.request.suite}.",
            why=f"Its tokenizer cannot spell the first prompt: {error}",
            fix="Use a model trained on this suite, or one with an open vocabulary.",
            owner="policy",
            exit_code=2,
        ) from error


def _trial(t: Trajectory, job: TrialJob, user: Usage) -> Trial:
    calls: Sequence[Any] = t.calls
    sampled = t.sampled_tokens
    return Trial(
        task_id=job.task_id,
        trial=job.trial,
        seed=job.seed,
        level=t.level,
        reward=t.reward,
        graded=t.graded,
        reward_parts=dict(t.reward_parts),
        outcome=t.outcome,
        owner=t.owner,
        error=t.error,
        reason=t.reason,
        terminated=t.terminated,
        truncated=t.truncated,
        turns=t.turns,
        tool_calls=len(calls),
        tool_errors=sum(call.error is not None for call in calls),
        parse_failures=t.parse_failures,
        user_owned_calls=t.counters.get("user_tool_calls_by_agent", 0),
        coerced_arguments=t.counters.get("coerced_arguments", 0),
        tokens={"completion": sampled, "prompt": len(t.ids) - sampled, **user.tokens},
        cost=user.cost,  # the agent's own tokens cost nothing
        attempts=job.attempts + 1,
        wall_s=round(t.wall_s, 3),
        transcript=[as_json(message) for message in t.transcript],
    )
