"""Splits, names, contents and words of mini-shop."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from shop_play import action_words, play
from sinkflex.envs import domain, make
from sinkflex.envs.conversation import AgentAction, ToolCall
from sinkflex.envs.mini_shop import words
from sinkflex.envs.mini_shop.domain import SPLITS
from sinkflex.envs.mini_shop.generator import essence

SPLIT_SIZES = {"train": 20_000, "tune": 500, "report": 500}


@pytest.fixture(scope="module")
def shop():
    return domain("mini-shop")


def test_splits_and_names(shop):
    assert shop.splits() == SPLIT_SIZES
    ids = shop.task_ids("train")
    assert list(ids[:6]) == [f"train-L{level}-{i:05d}" for i, level in enumerate((0, 1, 2, 3, 4, 4))]
    assert {len(shop.task_ids(split)) for split in SPLIT_SIZES} == {500, 20_000}
    for task_id in (ids[0], ids[137], ids[-1]):
        task = shop.task(task_id)
        assert task.id == task_id and f"-L{task.level}-" in task_id
    for wrong in ("train-L1-00000", "train-L0-20000", "tune-L0-00500", "test-L0-00000", "train-L0-0", "", "train"):
        with pytest.raises(KeyError):
            shop.task(wrong)


def test_levels_filter_the_ids_and_nothing_else(shop):
    some = domain("mini-shop", levels=[3, 0])
    assert some.splits() == {"train": 7000, "tune": 175, "report": 175}
    assert set(some.task_ids("tune")) == {t for t in shop.task_ids("tune") if "-L0-" in t or "-L3-" in t}
    assert some.task("tune-L4-00004") == shop.task("tune-L4-00004")
    for levels in ([], [5], [-1, 0]):
        with pytest.raises(ValueError, match="levels 0 to 4"):
            domain("mini-shop", levels=levels)


def test_no_content_occurs_twice_within_or_across_splits(shop):
    starts = sorted(start for start, _ in SPLITS.values())
    assert all(after - before >= 10**9 for before, after in itertools.pairwise(starts))
    contents: set[str] = set()
    essences: dict[str, set[str]] = {}
    for split in SPLIT_SIZES:
        tasks = [shop.task(task_id).data for task_id in shop.task_ids(split)]
        contents |= {repr(task) for task in tasks}
        # The distractors around a customer's requests do not make a task new.
        essences[split] = {essence(task) for task in tasks}
    assert len(contents) == 21_000
    assert all(not essences[a] & essences[b] for a, b in itertools.combinations(SPLIT_SIZES, 2))
    assert len(essences["report"]) >= 490 and len(essences["train"]) >= 19_000


def test_the_data_are_pinned(shop):
    """The generator draws the same on every Python version; a deliberate change updates this line and `version`."""
    assert shop.data_sha256() == "4f2425420912f913c4edcdf43452c170b6d4beeb86b7ea5818de3ab23f0d569d"


def test_ids_are_drawn_evenly(shop):
    counts: dict[str, Counter] = {kind: Counter() for kind in ("names", "zips", "orders", "items")}
    for task_id in shop.task_ids("train")[:8000]:
        data = shop.task(task_id).data
        counts["names"][data.name] += 1
        counts["zips"][data.zip] += 1
        for wish in data.wishes:
            counts["orders"][wish.order] += 1
            counts["items"][dict(data.orders)[wish.order].item] += 1
    for kind, group in (("names", 24), ("zips", 24), ("orders", 40), ("items", 40)):
        assert len(counts[kind]) == group
        assert max(counts[kind].values()) <= 1.6 * min(counts[kind].values()), kind


def test_the_vocabulary_is_small_fixed_and_of_single_words(shop):
    vocabulary = shop.closed_vocabulary()
    assert len(vocabulary) == len(set(vocabulary)) <= 260
    assert all(word.split() == [word] for word in vocabulary)
    assert vocabulary == domain("mini-shop", levels=[0]).closed_vocabulary()
    kinds = [words.NAMES, words.ZIPS, words.ORDERS, words.ITEMS, words.PRODUCTS, words.COLOURS]
    assert sum(map(len, kinds)) == len(set().union(*kinds)), "a word says by itself what it names"


def test_no_episode_leaves_the_vocabulary():
    env = make("mini-shop", max_errors=12)
    known = set(env.domain.closed_vocabulary())
    for agent in ("expert", "faulty", "random"):
        for seed, task_id in enumerate(env.domain.task_ids("train")[:700]):
            played = play(env, agent, task_id, seed)
            assert not {word for text in played.texts for word in text.split()} - known
        for message in env.transcript:  # the user's own calls too
            assert not {word for call in message.tool_calls for word in action_words(AgentAction("", (call,)))} - known


def test_error_observations_stay_in_the_vocabulary():
    env = make("mini-shop", max_errors=99)
    known = set(env.domain.closed_vocabulary())
    env.reset(seed=0, options={"task_id": "tune-L1-00001"})
    identity = {"name": env.task.data.name, "zip": env.task.data.zip}
    bad = [
        AgentAction(error="no call end"),
        AgentAction(),
        AgentAction(tool_calls=(ToolCall("teleport", {}), ToolCall("read_status", {}), ToolCall("find_user", "x"))),
        AgentAction(tool_calls=(ToolCall("find_user", {"name": "ana"}), ToolCall("find_user", identity | {"x": "y"}))),
        AgentAction(tool_calls=(ToolCall("get_order", {"order": 3}), ToolCall("get_order", {"order": "W10"}))),
        AgentAction(tool_calls=(ToolCall("find_user", identity), ToolCall("get_order", {"order": "v10"}))),
        AgentAction(tool_calls=(ToolCall("swap_item", {"order": env.task.data.orders[0][0], "item": "W10"}),)),
        AgentAction(
            tool_calls=(
                ToolCall("hand_off", {"order": env.task.data.orders[0][0], "reason": "tired"}),
                ToolCall("hand_off", {"order": env.task.data.orders[0][0], "reason": "sold"}),
                ToolCall("get_order", {"order": "W10"}),
            )
        ),
    ]
    said = []
    for action in bad:
        observation, *_ = env.step(action)
        said += [message.content for message in observation]
    assert said == [
        "error unreadable",
        "error silent",
        "error unknown tool",
        "error user tool",
        "error arguments",
        "error missing zip",
        "error unexpected",
        "error wrong order",
        "error identify first",
        "ok " + " ".join(order for order, _ in env.task.data.orders),
        "error unknown order",
        "error unknown item",
        "error wrong reason",
        "ok",
        "error not run",
    ]
    assert not {word for text in said for word in text.split()} - known


def test_10_000_random_episodes_end_without_an_exception():
    env = make("mini-shop")
    ids = env.domain.task_ids("train")
    rng = random.Random(0)
    reasons: Counter = Counter()
    for seed in range(10_000):
        observation, _ = env.reset(seed=seed, options={"task_id": ids[rng.randrange(len(ids))]})
        agent = env.domain.agent("random", env.task, seed)
        wild = seed % 4 == 0  # every fourth episode also draws from the whole action space, sense or not
        turns, over = 0, False
        while not over:
            action = env.action_space.sample() if wild and rng.random() < 0.5 else agent.act(observation)
            observation, reward, terminated, truncated, info = env.step(action)
            turns, over = turns + 1, terminated or truncated
            assert observation in env.observation_space and not (terminated and truncated)
        assert turns == info["turn"] <= 12 and info["outcome"] == "scored", info
        assert reward in (0.0, 1.0) and 0.0 <= info["graded"] <= 1.0 and (reward == 0.0 or info["graded"] == 1.0)
        reasons[info["reason"]] += 1
    assert set(reasons) == {"user_stop", "user_gave_up", "hand_off", "too_many_errors", "max_turns"}


def test_scripted_agents_but_the_faulty_one_never_see_the_task(shop):
    class Sealed:
        def __getattr__(self, name):
            raise AssertionError(f"the agent looked at the task's {name}")

    task = shop.task("tune-L2-00002")
    sealed = type(task)(task.id, task.level, Sealed(), Sealed())
    for name in ("noop", "random", "expert", "gold", "hand_off"):
        shop.agent(name, sealed, 0)
    with pytest.raises(KeyError):
        shop.agent("genius", task, 0)


def test_nothing_in_the_prompt_depends_on_the_task(shop):
    env = make("mini-shop")
    prompts = set()
    for task_id in shop.task_ids("tune")[:50]:
        _, info = env.reset(seed=0, options={"task_id": task_id})
        prompts.add(repr((info["policy_text"], info["tools"])))
    assert len(prompts) == 1
