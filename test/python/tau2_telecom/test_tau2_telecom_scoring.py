"""Telecom's scoring against the package's evaluators, which are the oracle."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sinkflex.envs import DualControlEnv
from sinkflex.envs.conversation import AgentAction, ToolCall
from sinkflex.envs.tau2.telecom.phone import request, sentence
from sinkflex.envs.tau2.telecom.state import duplicate, entities
from telecom_play import SERVICE, assert_equal_to_oracle, call, play_to_the_end, say, tasks_with

RANDOM_RUNS = 200


@pytest.fixture(params=["telecom", "solo"])
def either(request: pytest.FixtureRequest) -> DualControlEnv:
    domain = request.getfixturevalue(request.param)
    return DualControlEnv(domain, max_turns=60, max_errors=20, render_mode="ansi")


@pytest.mark.slow
def test_gold_succeeds_and_scores_equal_the_package_s_on_every_task(either: DualControlEnv) -> None:
    for task_id in either.domain.task_ids("base"):
        assert play_to_the_end(either, task_id, "gold")[0] == 1.0
        assert_equal_to_oracle(either)


def test_gold_succeeds_and_scores_equal_the_package_s_on_some_tasks(either: DualControlEnv) -> None:
    for task_id in either.domain.task_ids("base")[::9]:
        assert play_to_the_end(either, task_id, "gold")[0] == 1.0
        assert_equal_to_oracle(either)


class Chaos:
    """Gold actions dropped, doubled and shuffled, mixed with random calls and requests: runs that often nearly
    succeed."""

    def __init__(self, env: DualControlEnv, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        domain: Any = env.domain
        stranger = domain.agent("random", env.task, seed)
        moves: list[AgentAction] = []
        for action in [a for a in env.task.gold if rng.random() < 0.9]:
            if domain.solo or action.requestor == "assistant":
                move = AgentAction(tool_calls=(ToolCall(action.name, dict(action.arguments)),))
            else:
                move = AgentAction(text=request([sentence(action.name, action.arguments)]))
            moves += [move] * rng.choice((1, 1, 1, 1, 2))
        strange = [stranger.act(()) for _ in range(rng.choice((0, 0, 2, 5)))]
        for move in strange:
            moves.insert(rng.randint(0, len(moves)), move)
        if rng.random() < 0.2:
            rng.shuffle(moves)
        self.moves = moves


def random_runs(env: DualControlEnv, seeds: range) -> set[tuple[float, ...]]:
    domain: Any = env.domain
    ids = domain.task_ids("base")
    outcomes = set()
    for seed in seeds:
        env.reset(seed=seed, options={"task_id": ids[seed * 37 % len(ids)]})
        invalid: set[str] = set()
        for move in Chaos(env, seed).moves:
            _, _, terminated, truncated, info = env.step(move)
            invalid |= {f"{info['turn']}.{i}" for i, c in enumerate(info["tool_calls"]) if not c["valid"]}
            if terminated or truncated:
                break
        parts = assert_equal_to_oracle(env, frozenset(invalid))
        outcomes.add((parts["DB"], parts["ENV_ASSERTION"], parts["ACTION"]))
    return outcomes


@pytest.mark.slow
def test_scores_equal_the_package_s_evaluators_on_random_runs(either: DualControlEnv) -> None:
    assert len(random_runs(either, range(RANDOM_RUNS))) >= 5, "the random runs must meet nearly every combination"


def test_scores_equal_the_package_s_evaluators_on_some_random_runs(either: DualControlEnv) -> None:
    assert len(random_runs(either, range(1000, 1025))) >= 3


def test_an_assertion_alone_decides_where_the_basis_says_so(env: DualControlEnv, telecom: Any) -> None:
    """Another way than gold's: data is refuelled although it is not needed. The reward ignores what DB reports."""
    task_id = tasks_with(telecom, "airplane_mode_on", "data_mode_off")[0]
    env.reset(seed=0, options={"task_id": task_id})
    call(env, "refuel_data", customer_id="C1001", line_id="L1001", gb_amount=1.0)
    agent = telecom.agent("gold", env.task, 0)
    terminated = False
    while not terminated:
        _, reward, terminated, _, info = env.step(agent.act(()))
    assert (reward, info["reward_parts"]["ENV_ASSERTION"], info["reward_parts"]["DB"]) == (1.0, 1.0, 0.0)


def test_where_only_a_human_can_help_the_hand_over_is_part_of_the_reward(env: DualControlEnv, telecom: Any) -> None:
    """Such a task's assertion (no service) holds from the start: ACTION decides."""
    task_id = tasks_with(telecom, "lock_sim_card_pin")[0]
    env.reset(seed=0, options={"task_id": task_id})
    say(env, "YOU ARE BEING TRANSFERRED TO A HUMAN AGENT. PLEASE HOLD ON.")
    score = telecom.score(env.task, env.state, env.transcript)
    assert (score.reward, score.graded, score.parts["ENV_ASSERTION"], score.parts["ACTION"]) == (0.0, 0.0, 1.0, 0.0)
    assert play_to_the_end(env, task_id, "gold")[0] == 1.0


def test_action_accepts_any_arguments_and_any_caller_and_our_own_figure_does_not(solo_env: Any, env: Any) -> None:
    """The package compares the arguments that are given only: `grant_app_permission` of anything passes for gold's."""
    task_id = tasks_with(env.domain, "break_app_sms_permission")[0]
    task = env.domain.task(task_id)
    state = env.domain.start(task)
    from sinkflex.envs.conversation import Message

    calls = tuple(ToolCall(a.name, {}, str(n)) for n, a in enumerate(task.gold))
    score = env.domain.score(task, state, (Message("assistant", "", tool_calls=calls),))
    assert (score.parts["ACTION"], score.parts["ACTION_STRICT"]) == (1.0, 0.0)
    calls = tuple(ToolCall(a.name, dict(a.arguments), str(n)) for n, a in enumerate(task.gold))
    by_agent = env.domain.score(task, state, (Message("assistant", "", tool_calls=calls),))
    by_user = env.domain.score(task, state, (Message("user", "", tool_calls=calls),))
    assert (by_agent.parts["ACTION_STRICT"], by_user.parts["ACTION_STRICT"]) == (0.0, 1.0)
    alone = solo_env.domain.score(task, solo_env.domain.start(task), (Message("assistant", "", tool_calls=calls),))
    assert alone.parts["ACTION_STRICT"] == 1.0


def test_graded_rises_with_every_issue_and_is_whole_only_with_the_reward(solo: Any) -> None:
    task = solo.task(SERVICE)
    state = solo.start(task)
    seen = [solo.score(task, state, ()).graded]
    for action in task.gold:
        solo.call(state, "agent", ToolCall(action.name, dict(action.arguments)))
        seen.append(solo.score(task, state, ()).graded)
    assert seen[0] == 0.0 and seen[-1] == 1.0 and max(seen[:-1]) < 1.0
    assert seen[0] < max(seen[1:-1]) and len(set(seen)) >= 4


def test_scoring_leaves_the_state_as_it_is(env: DualControlEnv, telecom: Any) -> None:
    play_to_the_end(env, SERVICE, "gold")
    before = entities(env.state.environment)
    first = telecom.score(env.task, env.state, env.transcript)
    assert telecom.score(env.task, env.state, env.transcript) == first
    assert entities(env.state.environment) == before == entities(duplicate(env.state).environment)


def test_a_run_that_cannot_be_replayed_is_scored_as_it_stands(solo_env: DualControlEnv, solo: Any) -> None:
    """Refuelling for a customer without a draft bill makes the package invent a random id, which the agent then reads:
    its replay refuses the run. Here the state is graded live, and the id is always the same."""
    task_id = tasks_with(solo, "airplane_mode_on", "data_mode_off")[0]
    bills = []
    for _ in range(2):
        solo_env.reset(seed=0, options={"task_id": task_id})
        call(solo_env, "refuel_data", customer_id="C1002", line_id="L1004", gb_amount=1.0)
        bills.append(call(solo_env, "get_bills_for_customer", customer_id="C1002")[0])
        agent = solo.agent("gold", solo_env.task, 0)
        terminated = False
        while not terminated:
            _, reward, terminated, _, _ = solo_env.step(agent.act(()))
        assert reward == 1.0
    assert bills[0] == bills[1] and bills[0].count("Draft") == 1

    from tau2.domains.telecom.environment import get_environment
    from tau2.evaluator.evaluator_env import EnvironmentEvaluator
    from telecom_play import package_messages

    with pytest.raises(ValueError, match="Expected"):
        EnvironmentEvaluator.calculate_reward(
            get_environment, solo_env.task.data, package_messages(solo_env.transcript, solo=True), solo_mode=True
        )


def test_an_assertion_that_raises_ends_one_episode_and_names_its_owner(solo_env: DualControlEnv, solo: Any) -> None:
    """In the package such an error ends the whole batch."""
    from tau2.data_model.tasks import EnvAssertion

    solo_env.reset(seed=0, options={"task_id": SERVICE})
    criteria = solo_env.task.data.evaluation_criteria
    broken = EnvAssertion(
        env_type="assistant",
        func_name="assert_overdue_bill_exists",
        arguments={"customer_id": "C1001", "overdue_bill_id": "B0"},
    )
    good = criteria.env_assertions
    try:
        criteria.env_assertions = [*good, broken]
        solo._goals.pop(SERVICE, None)
        reward, info = play_to_the_end(solo_env, SERVICE, "noop")
    finally:
        criteria.env_assertions = good
        solo._goals.pop(SERVICE, None)
    assert (reward, info["outcome"], info["owner"]) == (0.0, "infra_error", "reward") and "B0" in info["error"]
    assert play_to_the_end(solo_env, SERVICE, "gold")[0] == 1.0
