"""Tasks that reward doing nothing: training leaves them out and says so; no generated task is one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from sinkflex import envs
from sinkflex.envs import DualControlEnv
from sinkflex.train.idle import idle_note
from sinkflex.train.setup import Setup


def training(domain: Any, split: str, tasks: list[str] | None = None) -> Any:
    """What of a run's setup chooses its tasks."""
    config = SimpleNamespace(env=SimpleNamespace(suite=domain.name, split=split, tasks=tasks))
    setup: Any = SimpleNamespace(config=config, domain=domain)
    setup.task_ids = lambda levels=None: Setup.task_ids(setup, levels)
    return setup


def note_of(setup: Any) -> list[str]:
    return idle_note(setup.domain, setup.config.env, setup.task_ids())


def noop(domain: Any, split: str, task_id: str) -> float:
    env = DualControlEnv(domain, split=split, max_turns=40, max_errors=10)
    observation, _ = env.reset(seed=5, options={"task_id": task_id})
    agent, over, reward = domain.agent("noop", env.task, 5), False, 0.0
    while not over:
        observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
        over = terminated or truncated
    return reward


@pytest.mark.parametrize(("suite", "left_out", "count"), [("tau2-retail", 5, 74), ("tau2-airline", 13, 30)])
def test_training_leaves_out_exactly_what_doing_nothing_solves(
    suite: str, left_out: int, count: int, retail: Any
) -> None:
    domain = envs.domain(suite)
    setup = training(domain, "train")
    drawn = setup.task_ids()
    assert len(drawn) == count - left_out and not [i for i in drawn if noop(domain, "train", i) != 0.0]
    missing = [i for i in domain.task_ids("train") if i not in drawn]
    assert len(missing) == left_out and all(noop(domain, "train", i) == 1.0 for i in missing)
    [note] = note_of(setup)
    assert note.startswith(f"left out {left_out} of {count} tasks of split train, which reward doing nothing: ")
    assert sorted(note.partition("nothing: ")[2].partition(";")[0].split()) == sorted(missing)


def test_a_config_that_names_such_a_task_gets_it_and_is_told(retail: Any) -> None:
    setup = training(retail, "train", ["10", "2"])
    assert setup.task_ids() == ["10", "2"]
    assert note_of(setup) == ["env.tasks names 1 tasks that reward doing nothing: 10"]
    assert note_of(training(retail, "train", ["2"])) == []


@pytest.mark.parametrize("suite", ["tau2-retail", "tau2-telecom", "tau2-telecom-solo"])
def test_no_generated_task_rewards_doing_nothing(suite: str, retail: Any) -> None:
    domain = envs.domain(suite)
    setup = training(domain, "generated")
    drawn = setup.task_ids()
    assert drawn == list(domain.task_ids("generated")) and note_of(setup) == []
    assert not [task_id for task_id in drawn[::10] if noop(domain, "generated", task_id) != 0.0]


def test_suites_without_such_tasks_are_drawn_from_whole() -> None:
    shop = envs.domain("mini-shop")
    assert training(shop, "tune").task_ids() == list(shop.task_ids("tune"))
