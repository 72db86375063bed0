"""Our scoring against the package's evaluators, which are the oracle, and the traps of tau2-bench's rewards."""

from __future__ import annotations

import copy
import math
import pickle
import random
from typing import Any

import pytest
from retail_play import ALL, Play, package_messages, small_base
from sinkflex.envs import DualControlEnv
from sinkflex.envs.conversation import AgentAction, Message, ToolCall
from sinkflex.envs.tau2 import scoring
from sinkflex.envs.tau2.state import changes, full_database

RANDOM_RUNS = 200


@pytest.fixture(scope="session")
def oracle(retail: Any) -> Any:
    """(task, messages) to the package's components and their product over the task's basis, computed as its
    `evaluate_simulation` does (that module itself imports litellm)."""
    from tau2.domains.retail.environment import get_environment
    from tau2.evaluator.evaluator_action import ActionEvaluator
    from tau2.evaluator.evaluator_communicate import CommunicateEvaluator
    from tau2.evaluator.evaluator_env import EnvironmentEvaluator

    def evaluate(task: Any, messages: list[Any], whole: bool = False) -> tuple[dict[str, float], float]:
        database = retail.package.database
        base = pickle.dumps(database) if whole else small_base(database, task, messages)

        def environment(solo_mode: bool = False) -> Any:
            return get_environment(db=pickle.loads(base), solo_mode=solo_mode)

        parts = {
            "DB": EnvironmentEvaluator.calculate_reward(environment, task, messages).db_check.db_reward,
            "COMMUNICATE": CommunicateEvaluator.calculate_reward(task, messages).reward,
            "ACTION": ActionEvaluator.calculate_reward(task, messages).reward,
        }
        return parts, math.prod(parts[kind.value] for kind in task.evaluation_criteria.reward_basis)

    return evaluate


def assert_equal_to_oracle(
    env: DualControlEnv, oracle: Any, invalid: frozenset[str] = frozenset(), whole: bool = False
) -> dict[str, float]:
    task = env.task.data
    ours = env.domain.score(env.task, env.state, env.transcript)
    parts, reward = oracle(task, package_messages(env.transcript, invalid), whole)
    assert ({name: ours.parts[name] for name in parts}, ours.reward) == (parts, reward), (task.id, env.render())
    return parts


def test_scores_equal_the_package_s_evaluators_on_every_gold_run(play: Play, env: DualControlEnv, oracle: Any) -> None:
    for task_id in ALL:
        play(task_id, "gold")
        assert assert_equal_to_oracle(env, oracle) == {"DB": 1.0, "COMMUNICATE": 1.0, "ACTION": 1.0}


@pytest.mark.parametrize("task_id", ["2", "12", "20", "22", "64"])
def test_scores_equal_the_package_s_evaluators_on_some_gold_runs(
    task_id: str, play: Play, env: DualControlEnv, oracle: Any
) -> None:
    play(task_id, "gold")
    assert_equal_to_oracle(env, oracle, whole=True)


class Chaos:
    """Gold actions dropped, doubled, shuffled and altered, mixed with random calls and with words that hold some of the
    required strings: runs that change the state and often nearly succeed."""

    def __init__(self, env: DualControlEnv, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.env = env
        stranger = env.domain.agent("random", env.task, seed)
        calls = [ToolCall(a.name, copy.deepcopy(a.arguments)) for a in env.task.gold]
        calls = [self.alter(call) for call in calls if rng.random() < 0.9]
        calls += rng.choices(calls, k=int(rng.random() < 0.3)) if calls else []
        calls += [
            call for call in (stranger.call() for _ in range(rng.choice((0, 0, 1, 4)))) if call.name != "calculate"
        ]
        if rng.random() < 0.3:
            rng.shuffle(calls)
        self.actions = [AgentAction(tool_calls=(call,)) for call in calls]
        for told in env.task.data.evaluation_criteria.communicate_info:
            words = rng.choice((told, told.upper(), f"$1,{told}", f"{told[:1]},{told[1:]}", told[:-1], f"so {told}."))
            text, call = rng.choice(((words, ()), (words, (ToolCall("list_all_product_types", {}),))))
            self.actions.insert(rng.randint(0, len(self.actions)), AgentAction(text=text, tool_calls=call))

    def alter(self, call: ToolCall) -> ToolCall:
        if self.rng.random() < 0.75:
            return call
        key = self.rng.choice(list(call.arguments) or [""])
        value = call.arguments.get(key)
        if isinstance(value, list):
            call.arguments[key] = self.rng.choice((value[::-1], value[:-1], value * 2, []))
        elif key == "payment_method_id":
            order = self.env.domain.package.database.orders[call.arguments["order_id"]]
            call.arguments[key] = self.rng.choice(
                list(self.env.domain.package.database.users[order.user_id].payment_methods)
            )
        elif isinstance(value, str):
            call.arguments[key] = self.rng.choice((value, value.upper(), "", "ordered by mistake"))
        return call


@pytest.mark.slow
def test_scores_equal_the_package_s_evaluators_on_random_runs(env: DualControlEnv, oracle: Any) -> None:
    outcomes = set()
    for seed in range(RANDOM_RUNS):
        env.reset(seed=seed, options={"task_id": ALL[seed * 37 % len(ALL)]})
        invalid: set[str] = set()
        for action in Chaos(env, seed).actions:
            _, _, terminated, truncated, info = env.step(action)
            turn = f"{info['turn']}."
            invalid |= {turn + str(i) for i, c in enumerate(info["tool_calls"]) if not c["valid"]}
            if terminated or truncated:
                break
        parts = assert_equal_to_oracle(env, oracle, frozenset(invalid))
        outcomes.add((parts["DB"], parts["COMMUNICATE"], bool(changes(env.state))))
    assert len(outcomes) >= 6, "the random runs must meet nearly every combination"


@pytest.mark.parametrize("task_id", ["4", "11", "22", "36", "54"])
def test_the_state_s_hash_is_the_package_s(task_id: str, play: Play, env: DualControlEnv, retail: Any) -> None:
    """Copy-on-write against the package's environment on a database of its own."""
    from tau2.domains.retail.environment import get_environment

    play(task_id, "gold")
    environment = get_environment()
    for action in env.task.gold:
        try:
            environment.make_tool_call(action.name, requestor=action.requestor, **action.arguments)
        except ValueError:
            continue
    assert full_database(env.state).get_hash() == environment.get_db_hash() != retail.package.database.get_hash()


def test_replies_are_the_package_s_byte_for_byte(retail: Any) -> None:
    from tau2.data_model.message import ToolCall as PackageCall
    from tau2.domains.retail.environment import get_environment

    environment = get_environment()
    for task_id in ("4", "13", "21", "46", "102"):
        task = retail.task(task_id)
        state = retail.start(task)
        for action in task.gold:
            try:
                ours = retail.call(state, "agent", ToolCall(action.name, dict(action.arguments)))
            except Exception as refused:
                ours = str(refused)
            theirs = environment.get_response(PackageCall(id="x", name=action.name, arguments=action.arguments))
            assert ours == theirs.content


def written(retail: Any, task_id: str, *calls: tuple[str, dict[str, Any]]) -> Any:
    """The score after these calls and nothing said."""
    task = retail.task(task_id)
    state = retail.start(task)
    for name, arguments in calls:
        retail.call(state, "agent", ToolCall(name, arguments))
    return retail.score(task, state, ())


def gold_writes(retail: Any, task_id: str) -> list[tuple[str, dict[str, Any]]]:
    writes = {tool.name for tool in retail.agent_tools if tool.kind == "write"}
    return [(a.name, copy.deepcopy(a.arguments)) for a in retail.task(task_id).gold if a.name in writes]


@pytest.mark.parametrize("task_id", ["20", "21", "36", "37", "100"])
def test_the_order_inside_item_lists_counts(task_id: str, retail: Any) -> None:
    writes = gold_writes(retail, task_id)
    assert written(retail, task_id, *writes).parts["DB"] == 1.0
    for _, arguments in writes:
        for key in ("item_ids", "new_item_ids"):
            if key in arguments:
                arguments[key].reverse()
    assert written(retail, task_id, *writes).parts["DB"] == 0.0


def test_the_order_of_writes_counts_where_they_touch_the_same_thing(retail: Any) -> None:
    writes = gold_writes(retail, "22")
    assert written(retail, "22", *writes).parts["DB"] == 1.0
    assert written(retail, "22", *reversed(writes)).parts["DB"] == 0.0


def test_list_order_is_strict_in_the_reward_and_ignored_in_a_figure_apart(retail: Any) -> None:
    task = retail.task("50").data
    gold = {("orders", "#W1"): '{"return_items": ["a", "b"], "n": 1}'}
    turned = {("orders", "#W1"): '{"return_items": ["b", "a"], "n": 1}'}
    other = {("orders", "#W1"): '{"return_items": ["b", "c"], "n": 1}'}
    score = scoring.score(task, gold, turned, ())
    assert (score.reward, score.parts["DB"], score.parts["DB_UNORDERED"]) == (0.0, 0.0, 1.0)
    assert scoring.score(task, gold, other, ()).parts["DB_UNORDERED"] == 0.0


def test_an_integer_is_not_the_float_of_the_same_value(retail: Any) -> None:
    """An exchange of nothing leaves the price difference 0, not 0.0: another hash in the package and here."""
    task = retail.task("0")
    state = retail.start(task)
    empty = {"order_id": "#W2378156", "item_ids": [], "new_item_ids": [], "payment_method_id": "credit_card_9513926"}
    retail.call(state, "agent", ToolCall("exchange_delivered_order_items", empty))
    as_integer = changes(state)
    before = full_database(state).get_hash()
    state.tables["orders"]["#W2378156"].exchange_price_difference = 0.0
    assert changes(state) != as_integer
    assert full_database(state).get_hash() != before


def test_modifying_several_items_repeats_the_package_s_mistake(retail: Any) -> None:
    """Every modified item gets the price and options of the last new one. The reward depends on it: never repaired."""
    task = retail.task("20")
    state = retail.start(task)
    for name, arguments in gold_writes(retail, "20"):
        retail.call(state, "agent", ToolCall(name, arguments))
    items = state.tables["orders"].peek("#W9911714").items
    modified = [item for item in items if item.item_id in arguments["new_item_ids"]]
    assert len(modified) == 4 and len({(item.price, str(item.options)) for item in modified}) == 1


def test_a_state_that_returns_to_the_base_has_no_changes(retail: Any) -> None:
    task = retail.task("22")
    state = retail.start(task)
    address = retail.package.database.users["ethan_garcia_1261"].address.model_dump()
    elsewhere = {**address, "city": "Nowhere"}
    retail.call(state, "agent", ToolCall("modify_user_address", {"user_id": "ethan_garcia_1261", **elsewhere}))
    assert list(changes(state)) == [("users", "ethan_garcia_1261")]
    retail.call(state, "agent", ToolCall("modify_user_address", {"user_id": "ethan_garcia_1261", **address}))
    assert changes(state) == {}


def test_graded_counts_sub_goals_and_forbidden_changes(retail: Any) -> None:
    writes = gold_writes(retail, "16")
    assert len(writes) == 3
    assert written(retail, "16").graded == 0.0
    assert written(retail, "16", writes[0]).graded == 1 / 4
    assert written(retail, "16", *writes).graded == 3 / 4
    stray = ("cancel_pending_order", {"order_id": "#W9348897", "reason": "no longer needed"})
    assert written(retail, "16", *writes, stray).graded == 3 / 5
    assert (written(retail, "10").graded, written(retail, "10", stray).graded) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("It is 1,126.04 dollars.", True),
        ("It is 1126.04.", True),
        ("1126,04", False),
        ("It is 1126.4", False),
        ("", False),
    ],
)
def test_a_required_string_is_looked_for_without_the_message_s_commas(message: str, found: bool) -> None:
    assert scoring.said("1126.04", [Message("assistant", message)]) is found
    assert not scoring.said("1126.04", [Message("user", message)])
    assert not scoring.said("1126.04", [Message("tool", message)])


def test_words_beside_a_call_count_as_told_as_in_the_package(retail: Any) -> None:
    call = ToolCall("list_all_product_types", {})
    assert scoring.said("10", [Message("assistant", "There are 10.", tool_calls=(call,))])


def test_the_package_s_action_check_accepts_partial_arguments_and_ours_does_not(retail: Any) -> None:
    task = retail.task("50")
    empty = [Message("assistant", "", tool_calls=(ToolCall("transfer_to_human_agents", {}),))]
    score = retail.score(task, retail.start(task), empty)
    assert (score.reward, score.parts["ACTION"], score.parts["ACTION_STRICT"]) == (1.0, 1.0, 0.0)


def with_basis(retail: Any, task_id: str, *names: str) -> Any:
    from tau2.data_model.tasks import RewardType

    task = copy.deepcopy(retail.task(task_id).data)
    task.evaluation_criteria.reward_basis = [RewardType(name) for name in names]
    return task


@pytest.mark.parametrize("database", [0.0, 1.0])
@pytest.mark.parametrize("communicate", [0.0, 1.0])
@pytest.mark.parametrize("action", [0.0, 1.0])
def test_B92_the_reward_is_the_product_over_the_task_s_own_basis(
    database: float, communicate: float, action: float, retail: Any
) -> None:
    """Task 2: one return and one string to tell."""
    gold = retail._gold_changes("2")
    now = gold if database else {}
    transcript = [Message("assistant", "There are 10." if communicate else "There are some.")]
    calls = retail.task("2").gold if action else ()
    transcript += [Message("assistant", "", tool_calls=(ToolCall(a.name, a.arguments),)) for a in calls]
    for basis, expected in (
        (("DB", "COMMUNICATE"), database * communicate),
        (("DB", "ACTION"), database * action),
        (("COMMUNICATE",), communicate),
    ):
        score = scoring.score(with_basis(retail, "2", *basis), gold, now, transcript)
        assert score.reward == expected
        assert (score.parts["DB"], score.parts["COMMUNICATE"], score.parts["ACTION"]) == (database, communicate, action)


def test_a_component_that_needs_a_judge_is_dropped_and_named_never_raised(retail: Any) -> None:
    task = with_basis(retail, "2", "DB", "NL_ASSERTION")
    gold = retail._gold_changes("2")
    assert scoring.dropped(task) == ("NL_ASSERTION",)
    assert (scoring.score(task, gold, gold, ()).reward, scoring.score(task, gold, {}, ()).reward) == (1.0, 0.0)


def test_B91_a_task_with_a_contradictory_gold_scores_as_upstream_and_is_listed(
    env: DualControlEnv, oracle: Any
) -> None:
    """Task 10: returning both orders to their own payments before handing over is right by the policy, unlike gold."""
    env.reset(seed=0, options={"task_id": "10"})
    returns = (
        ("#W5490111", ["4579334072", "1421289881", "6117189161", "4947717507"], "credit_card_3124723"),
        ("#W7387996", ["5796612084"], "paypal_9497703"),
    )
    for order_id, items, paid in returns:
        arguments = {"order_id": order_id, "item_ids": items, "payment_method_id": paid}
        env.step(AgentAction(tool_calls=(ToolCall("return_delivered_order_items", arguments),)))
    env.step(AgentAction(tool_calls=(ToolCall("transfer_to_human_agents", {"summary": "refund to the other order"}),)))
    *_, info = env.step(AgentAction("YOU ARE BEING TRANSFERRED TO A HUMAN AGENT. PLEASE HOLD ON."))
    assert info["reason"] == "transfer"
    assert assert_equal_to_oracle(env, oracle)["DB"] == info["reward_parts"]["DB"] == 0.0
    assert set(env.domain.known_odd) == {"10", "64", "100", "105"}
    assert "scores 0" in env.domain.known_odd["10"]
    assert len(env.domain.data_sha256()) == 64 and env.domain.version
