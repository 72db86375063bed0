"""An evaluation from request to report: agents, limits, faults, stopping, bad requests."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from eval_samples import raw, report_of, run
from sinkflex import envs
from sinkflex.envs.conversation import AgentAction
from sinkflex.envs.deadline import TimedOut, deadline
from sinkflex.eval.budget import Purse
from sinkflex.eval.play import AgentFault, ContextOverflow, TrialJob, Usage, play
from sinkflex.eval.request import Budget
from sinkflex.eval.results import Trial, read_trials
from sinkflex.refusal import Refusal


def test_the_reference_agents_of_mini_shop_score_what_they_must(tmp_path: Path) -> None:
    means = {}
    for name in ("expert", "gold", "noop"):
        code, events = run(raw(tmp_path / name, agent={"kind": "scripted", "name": name}))
        assert code == 0
        means[name] = report_of(events)["mean"]
    assert means == {"expert": 1.0, "gold": 1.0, "noop": 0.0}


def test_a_report_says_how_it_was_measured(tmp_path: Path) -> None:
    _, events = run(raw(tmp_path))
    got = report_of(events)
    assert got["scripted_user"] is True and got["noop_mean"] == 0.0 and got["coverage"] == 1.0
    assert len(got["data_sha256"]) == 64 and got["version"]
    assert [event["type"] for event in events[:2]] == ["eval_plan", "trial"]
    transcript = next(iter(read_trials(tmp_path)[1].values())).transcript
    assert transcript[0]["role"] in ("assistant", "user") and any("tool_calls" in m for m in transcript)


def test_levels_choose_tasks_and_are_part_of_what_a_score_means(tmp_path: Path) -> None:
    _, events = run(raw(tmp_path, levels=[1, 0], trials=1))
    assert {trial.task_id.split("-")[1] for trial in read_trials(tmp_path)[1].values()} == {"L0", "L1"}
    assert report_of(events)["levels"] == events[0]["levels"] == [0, 1]
    with pytest.raises(Refusal, match="levels"):
        run(raw(tmp_path, levels=[1], trials=1))


def test_a_named_task_may_be_of_a_level_that_a_checkpoint_was_not_trained_on(tmp_path: Path) -> None:
    _, events = run(raw(tmp_path, levels=[0, 1], tasks=None, task_ids=["tune-L4-00004"]))
    assert report_of(events)["tasks"] == 1 and report_of(events)["levels"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"suite": "mini-shp"}, "did you mean 'mini-shop'"),
        ({"split": "base"}, "mini-shop has no split 'base'.*train"),
        ({"task_ids": ["nobody"]}, "has no task 'nobody'"),
        ({"levels": [0, 7]}, "mini-shop has the levels 0 to 4"),
        ({"suite": "tau2-retail", "split": "test", "levels": [0]}, "tau2-retail has no levels"),
        ({"agent": {"kind": "scripted", "name": "hero"}}, "hero"),
        ({"user": {"kind": "alien"}}, "no user 'alien'"),
        ({"trials": 0}, "--trials is 0"),
        ({"max_turns": 0}, "--max-turns is 0"),
        ({"budget": {"tokens": 0}}, "--budget is 0 tokens"),
        ({"trial_timeout_s": 0}, "--trial-timeout is 0"),
    ],
)
def test_a_request_that_cannot_be_honoured_is_refused_before_anything_is_played(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(Refusal, match=message) as refused:
        run(raw(tmp_path / "none", **change))
    assert refused.value.exit_code in (2, 3)
    assert not (tmp_path / "none" / "trials.jsonl").exists() or not read_trials(tmp_path / "none")[1]


class Slow:
    """A domain of one suite in which one call takes a minute."""

    def __init__(self, inner: Any, where: str) -> None:
        self.inner, self.where = inner, where

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def start(self, task: Any) -> Any:
        if self.where == "reset":
            time.sleep(60)
        return self.inner.start(task)

    def call(self, *arguments: Any) -> str:
        if self.where == "step":
            try:
                time.sleep(60)
            except Exception as error:  # as careless packages do
                raise AssertionError("swallowed") from error
        return str(self.inner.call(*arguments))

    def score(self, *arguments: Any) -> Any:
        if self.where == "reward":
            time.sleep(60)
        return self.inner.score(*arguments)


class Expert:
    def __init__(self, env: Any) -> None:
        self.agent = env.domain.agent("expert", env.task, 0)
        self.usage = Usage()

    async def act(self, observation: Any) -> AgentAction:
        return self.agent.act(observation)


def job(task_id: str, timeout_s: float = 1.0) -> TrialJob:
    return TrialJob(task_id, 0, 1, "tune", timeout_s)


def first_task() -> str:
    return envs.domain("mini-shop").task_ids("tune")[0]


def played(env: Any, player: Any, timeout_s: float = 1.0) -> Trial:
    return asyncio.run(play(env, job(first_task(), timeout_s), player, lambda *_: None))


@pytest.mark.parametrize(("where", "owner"), [("reset", "env"), ("step", "env"), ("reward", "reward")])
def test_B77_an_environment_that_hangs_ends_its_trial_only(where: str, owner: str) -> None:
    env = envs.DualControlEnv(Slow(envs.domain("mini-shop"), where), split="tune")
    began = time.monotonic()
    trial = played(env, lambda task, info: Expert(env))
    assert time.monotonic() - began < 5
    assert (trial.outcome, trial.reason, trial.owner, trial.reward) == ("infra_error", "timeout", owner, None)
    healthy = envs.DualControlEnv("mini-shop", split="tune")
    assert played(healthy, lambda task, info: Expert(healthy), 60.0).reward == 1.0


def test_a_deadline_leaves_no_timer_behind() -> None:
    with pytest.raises(TimedOut, match=r"within 0\.05 s"), deadline(0.05):
        time.sleep(5)
    time.sleep(0.1)
    with deadline(None):
        pass


class Silent:
    """An agent that never answers."""

    usage = Usage()

    async def act(self, observation: Any) -> AgentAction:
        await asyncio.sleep(60)
        raise AssertionError("unreachable")


def test_B93_a_trial_whose_agent_never_answers_ends_in_bounded_time() -> None:
    env = envs.DualControlEnv("mini-shop", split="tune")
    trial = played(env, lambda task, info: Silent(), 0.2)
    assert (trial.outcome, trial.owner, trial.reason) == ("infra_error", "engine", "timeout")
    assert trial.task_id == first_task() and trial.transcript


class Raising:
    usage = Usage()

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def act(self, observation: Any) -> AgentAction:
        raise self.error


def test_a_context_that_is_full_is_a_failure_of_the_agent_and_not_a_fault() -> None:
    env = envs.DualControlEnv("mini-shop", split="tune")
    trial = played(env, lambda task, info: Raising(ContextOverflow("33000 tokens")))
    assert (trial.outcome, trial.reward, trial.reason, trial.truncated) == ("scored", 0.0, "context", True)
    trial = played(env, lambda task, info: Raising(AgentFault("engine", "HTTP 500")))
    assert (trial.outcome, trial.reward, trial.owner) == ("infra_error", None, "engine")


def test_B139_an_agent_that_says_nothing_fails_by_the_rules_and_the_run_completes() -> None:
    class Mute:
        usage = Usage()

        async def act(self, observation: Any) -> AgentAction:
            return AgentAction(text="")

    env = envs.DualControlEnv("mini-shop", split="tune")
    trial = played(env, lambda task, info: Mute(), 60.0)
    assert (trial.outcome, trial.reward, trial.reason) == ("scored", 0.0, "too_many_errors")


def test_B94_trials_wait_for_their_agents_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sinkflex.eval import runner

    waiting, most = 0, 0

    class Waits:
        usage = Usage()

        async def act(self, observation: Any) -> AgentAction:
            nonlocal waiting, most
            waiting += 1
            most = max(most, waiting)
            await asyncio.sleep(0.05)
            waiting -= 1
            return AgentAction(text="")

    monkeypatch.setattr(runner, "make_player", lambda evaluation: lambda job, task, info: Waits())
    agent = {"kind": "endpoint", "url": "http://nowhere", "model": "m"}
    code, events = run(raw(tmp_path / "a", tasks=32, trials=1, concurrency=16, agent=agent))
    assert (code, most) == (0, 16)
    most = 0
    _, events = run(raw(tmp_path / "b", tasks=32, trials=1, agent=agent))
    [plan] = [event for event in events if event["type"] == "eval_plan"]
    assert plan["concurrency"] == most > 1


def test_B137_no_trial_begins_that_would_exceed_the_budget() -> None:
    purse = Purse()
    begun = 0
    while not purse.empty(Budget(money=1.00)) and begun < 20:
        purse.in_flight += 1
        begun += 1
        if purse.in_flight == 4 or purse.trials:
            purse.in_flight -= 1
            purse.spend(Trial("t", begun, 0, cost=0.30))
    spent = (purse.trials + purse.in_flight) * 0.30
    assert spent <= 1.00 + 4 * 0.30 and begun < 20


def test_B137_a_budget_that_is_used_up_ends_the_run_as_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sinkflex.eval import runner

    class Costs:
        def __init__(self) -> None:
            self.usage = Usage(tokens={"completion": 30}, cost=0.30)

        async def act(self, observation: Any) -> AgentAction:
            await asyncio.sleep(0)
            return AgentAction(text="")

    monkeypatch.setattr(runner, "make_player", lambda evaluation: lambda job, task, info: Costs())
    agent = {"kind": "endpoint", "url": "http://nowhere", "model": "m"}
    limits = {"budget": {"money": 1.0}, "prices": {"prompt": 1.0, "completion": 1.0}}
    request = raw(tmp_path, tasks=20, trials=1, concurrency=4, agent=agent, **limits)
    code, events = run(request)
    got = report_of(events)
    assert code == 1 and got["complete"] is False
    assert got["cost"] <= 1.0 + 4 * 0.30
    code, events = run(request | {"budget": None})
    assert code == 0 and report_of(events)["complete"] is True
