"""What a first turn is worth, that nothing later counts, and what the reference agents score."""

from __future__ import annotations

from typing import Any

import pytest
from sinkflex.envs import DualControlEnv, domain, make
from sinkflex.envs.conversation import AgentAction, ToolCall


@pytest.fixture(scope="module")
def suite() -> Any:
    return domain("tool-calls")


def first_turn(env: Any, task_id: str, action: AgentAction) -> tuple[float, dict[str, Any]]:
    env.reset(seed=0, options={"task_id": task_id})
    _, reward, terminated, truncated, info = env.step(action)
    assert terminated or truncated, "one turn is all there is"
    return reward, info


def calls(*made: tuple[str, Any]) -> AgentAction:
    return AgentAction(tool_calls=tuple(ToolCall(name, arguments) for name, arguments in made))


def task_with(suite: Any, tool: str, **wanted: Any) -> Any:
    tasks = map(suite.task, suite.task_ids("report"))
    return next(t for t in tasks if t.gold.name == tool and all(f(t.gold.arguments[k]) for k, f in wanted.items()))


def test_exact_is_one_call_of_the_right_tool_with_exactly_the_right_arguments(suite: Any) -> None:
    env = DualControlEnv(suite, split="report")
    task = task_with(suite, "share_file")
    right = dict(task.gold.arguments)
    file, person = right["file"], right["person"]
    expected = {
        1.0: (1.0, calls(("share_file", right))),
        0.5: (0.0, calls(("share_file", {"file": file, "person": person.split()[0]}))),
    }
    for share, (exact, action) in expected.items():
        reward, info = first_turn(env, task.id, action)
        assert (reward, info["reward_parts"]) == (exact, {"call": 1.0, "tool": 1.0, "arguments": share})
        assert info["graded"] == pytest.approx((2 + share) / 3)
    for action, graded in (
        (calls(("share_file", {"file": file})), 2.5 / 3),  # an argument is missing
        (calls(("share_file", right | {"why": "so"})), 1.0),  # one too many: all right arguments, and not exact
        (calls(("delete_file", {"file": file})), 1 / 3),
        (calls(("share_file", right), ("share_file", right)), 0.0),
        (calls(("cancel_order", {"order": "1"})), 0.0),  # a tool of another family is no tool here
        (AgentAction(text=f"I shared {file} with {person}."), 0.0),
        (AgentAction(error="not a call"), 0.0),
    ):
        reward, info = first_turn(env, task.id, action)
        assert (reward, info["graded"]) == (0.0, pytest.approx(graded)), action


def test_a_leading_hash_is_given_as_asked(suite: Any) -> None:
    env = DualControlEnv(suite, split="report")
    hashed = task_with(suite, "cancel_order", order=lambda v: v.startswith("#"))
    bare = task_with(suite, "cancel_order", order=lambda v: not v.startswith("#"))
    for task, changed in ((hashed, hashed.gold.arguments["order"][1:]), (bare, "#" + bare.gold.arguments["order"])):
        assert first_turn(env, task.id, calls(("cancel_order", dict(task.gold.arguments))))[0] == 1.0
        assert first_turn(env, task.id, calls(("cancel_order", {"order": changed})))[0] == 0.0


def test_only_a_type_of_certain_meaning_is_repaired_and_counted(suite: Any) -> None:
    env = DualControlEnv(suite, split="report")
    buy = task_with(suite, "buy_item")
    as_text = buy.gold.arguments | {"quantity": str(buy.gold.arguments["quantity"])}
    reward, info = first_turn(env, buy.id, calls(("buy_item", as_text)))
    assert (reward, info["coerced_arguments"]) == (1.0, 1)
    trip = task_with(suite, "cancel_order", order=lambda v: v.isdecimal())
    as_number = {"order": int(trip.gold.arguments["order"])}
    assert first_turn(env, trip.id, calls(("cancel_order", as_number)))[0] == 0.0, "an id is a text"


def test_no_second_try(suite: Any) -> None:
    """An output that cannot be read is counted, shown, and the end, whatever the limits allow."""
    env = DualControlEnv(suite, split="report", max_turns=12, max_errors=10)
    env.reset(seed=0, options={"task_id": suite.task_ids("report")[0]})
    observation, reward, terminated, truncated, info = env.step(AgentAction(error="the tool call is not JSON"))
    assert (reward, terminated, truncated, info["errors"], info["reason"]) == (0.0, False, True, 1, "max_turns")
    assert observation[-1].role == "env" and "not JSON" in observation[-1].content


def test_the_prompt_lists_the_familys_tools_and_its_examples() -> None:
    env = make("tool-calls", split="report", examples=2)
    _, info = env.reset(seed=0, options={"task_id": "report-travel-direct-00004"})
    assert [tool["function"]["name"] for tool in info["tools"]] == ["find_flight", "book_hotel", "cancel_trip"]
    assert [message.role for message in info["examples"]] == ["user", "assistant"] * 2
    assert {call.name for message in info["examples"] for call in message.tool_calls} == {"find_flight", "cancel_trip"}
    with pytest.raises(ValueError, match="has 6 example conversations, 7 were asked for"):
        make("tool-calls", examples=7)


def test_a_moment_of_an_episode_can_be_restored(suite: Any) -> None:
    env, other = DualControlEnv(suite, split="report"), DualControlEnv(suite, split="report")
    env.reset(seed=3, options={"task_id": "report-travel-direct-00004"})
    other.restore(env.snapshot())
    gold = suite.task("report-travel-direct-00004").gold
    assert other.step(AgentAction(tool_calls=(gold,)))[1] == 1.0


@pytest.mark.parametrize(
    ("name", "least", "most"), [("gold", 1, 1), ("expert", 1, 1), ("noop", 0, 0), ("random", 0, 0.05)]
)
def test_reference_agents(suite: Any, name: str, least: float, most: float) -> None:
    for split in ("tune", "report"):
        env, rewards = DualControlEnv(suite, split=split), []
        for index, task in enumerate(map(suite.task, suite.task_ids(split))):
            observation, _ = env.reset(seed=index, options={"task_id": task.id})
            rewards.append(env.step(suite.agent(name, task, index).act(observation))[1])
        assert least <= sum(rewards) / len(rewards) <= most
