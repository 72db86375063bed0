"""What mini-shop promises about scores: nothing for nothing, all for the expert, on every level."""

from __future__ import annotations

from collections import defaultdict
from statistics import mean

import pytest
from shop_play import play
from sinkflex.envs import make
from sinkflex.envs.mini_shop.domain import PATTERN

HELD_OUT = ("tune", "report")


@pytest.fixture(scope="module")
def env():
    return make("mini-shop")


def by_level(env, agent, ids):
    scores = defaultdict(list)
    for seed, task_id in enumerate(ids):
        played = play(env, agent, task_id, seed)
        assert played.info["outcome"] == "scored"
        scores[played.level].append(played.reward)
    assert sorted(scores) == ["0", "1", "2", "3", "4"]
    return {level: mean(rewards) for level, rewards in scores.items()}


def held_out(env):
    return [task_id for split in HELD_OUT for task_id in env.domain.task_ids(split)]


def test_the_expert_solves_every_task_within_the_size_promised(env):
    ids = held_out(env) + list(env.domain.task_ids("train")[:3000])
    words, turns = [], []
    for seed, task_id in enumerate(ids):
        played = play(env, "expert", task_id, seed)
        assert (played.reward, played.info["graded"]) == (1.0, 1.0), task_id
        words.append(played.words)
        turns.append(played.turns)
        assert all(len(text.split()) <= 14 for text in played.results)
        assert all(len(text.split()) <= 10 for text in played.user_texts)
    assert 65 <= mean(words) <= 80 and max(words) <= 150
    assert max(turns) <= 11, "one turn of the twelve stays free"


def test_gold_is_the_expert(env):
    assert set(by_level(env, "gold", env.domain.task_ids("tune")[:100]).values()) == {1.0}


def test_doing_nothing_scores_0_on_every_task(env):
    for task_id in held_out(env):
        played = play(env, "noop", task_id)
        assert (played.reward, played.info["graded"], played.info["reason"]) == (0.0, 0.0, "user_gave_up")


def test_a_random_agent_scores_at_most_2_per_cent_on_every_level(env):
    assert max(by_level(env, "random", env.domain.task_ids("train")[:5000]).values()) <= 0.02


def test_identify_and_hand_off_scores_at_most_5_per_cent_on_every_level(env):
    ids = held_out(env) + [t for t in env.domain.task_ids("train") if "-L2-" in t]
    assert max(by_level(env, "hand_off", ids).values()) <= 0.05


def test_the_faulty_demonstrator_succeeds_in_a_fifth_to_a_quarter_spread_over_the_levels(env):
    scores = by_level(env, "faulty", env.domain.task_ids("train")[:4000])
    shares = {level: PATTERN.count(int(level)) / len(PATTERN) for level in scores}
    assert 0.18 <= sum(scores[level] * shares[level] for level in scores) <= 0.26
    assert all(0.12 <= score <= 0.35 for score in scores.values()), scores


def test_every_fault_occurs_and_only_slips_can_be_repaired(env):
    outcomes = defaultdict(set)
    for seed, task_id in enumerate(env.domain.task_ids("train")[:3000]):
        observation, _ = env.reset(seed=seed, options={"task_id": task_id})
        agent = env.domain.agent("faulty", env.task, seed)
        over = False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
            over = terminated or truncated
        outcomes[agent.fault].add(reward)
    assert set(outcomes) == {
        None, "wrong_fact", "no_lookup", "stops_early", "no_plan", "wrong_id", "no_write", "needless_hand_off",
        "writes_anyway", "wrong_reason", "wrong_order", "wrong_cure", "no_device", "forgets_second",
    }  # fmt: skip
    lucky = {fault for fault, rewards in outcomes.items() if 1.0 in rewards}
    assert lucky == {None, "no_lookup"} and outcomes[None] == {1.0}


def test_the_mix_has_device_tasks_hand_offs_and_two_requests_as_promised(env):
    tasks = [env.domain.task(task_id) for task_id in env.domain.task_ids("train")[:4000]]
    share = {level: mean(task.level == level for task in tasks) for level in "01234"}
    assert share == {"0": 0.15, "1": 0.2, "2": 0.2, "3": 0.2, "4": 0.25}
    level_3 = [task for task in tasks if task.level == "3"]
    assert all(any(goal[0] == "device" for goal in task.gold.goals) for task in level_3)
    assert 0.05 <= mean(task.gold.hand_off is not None for task in tasks) <= 0.2
    level_4 = [task for task in tasks if task.level == "4"]
    assert all(len(task.data.wishes) == 2 for task in level_4)
    assert 0.2 <= mean(any(wish.instead for wish in task.data.wishes) for task in level_4) <= 0.45
    assert all(len(task.data.orders) == 3 for task in level_4)
