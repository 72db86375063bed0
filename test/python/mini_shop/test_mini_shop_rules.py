"""The shop's rules: tools, customer, phone and score, one situation at a time."""

from __future__ import annotations

from random import Random

import pytest
from sinkflex.envs import DualControlEnv
from sinkflex.envs.conversation import AgentAction, ToolCall
from sinkflex.envs.domain import Task
from sinkflex.envs.mini_shop.domain import MiniShop
from sinkflex.envs.mini_shop.generator import build
from sinkflex.envs.mini_shop.state import Device, Order
from sinkflex.envs.mini_shop.tasks import ShopTask, Wish, gold

CATALOGUE = {
    "mug": (("red", "v10", False), ("blue", "v11", False), ("green", "v12", True)),
    "lamp": (("red", "v20", False), ("pink", "v21", False), ("black", "v22", False)),
}
ORDERS = (("W10", Order("pending", "mug", "v10")), ("W11", Order("delivered", "lamp", "v20")))


def start(*wishes, device=None, orders=ORDERS, **limits):
    content = ShopTask(1, "ana", "z14", False, wishes, orders, CATALOGUE, device or Device())
    shop = MiniShop()
    shop.task = lambda task_id: Task(task_id, "1", content, gold(content))
    env = DualControlEnv(shop, **limits)
    env.reset(seed=0, options={"task_id": "made-up"})
    return env


def say(text):
    return AgentAction(text)


def call(name, /, **arguments):
    return AgentAction(tool_calls=(ToolCall(name, arguments),))


IDENTIFY = call("find_user", name="ana", zip="z14")
CANCEL = Wish("cancel", "W10", "mug")
REFUND = Wish("refund", "W11", "lamp")
SWAP = Wish("swap", "W10", "mug", target="blue", item="v11")


def run(env, *actions):
    for action in actions:
        result = env.step(action)
    return result


def test_a_write_with_plan_and_yes_scores_1():
    _, reward, terminated, _, info = run(
        start(CANCEL), IDENTIFY, say("cancel W10 ?"), call("cancel_order", order="W10"), say("done")
    )
    assert (
        reward == 1.0 and terminated and info["reason"] == "user_stop" and set(info["reward_parts"].values()) == {1.0}
    )


def test_a_write_nobody_agreed_to_happens_and_scores_0():
    env = start(CANCEL)
    run(env, IDENTIFY, call("cancel_order", order="W10"))
    assert env.state.orders["W10"].status == "cancelled" and env.state.violations == [("not_agreed", "cancel", "W10")]
    _, reward, _, _, info = run(env, say("cancel W10 ?"), say("done"))
    assert reward == 0.0 and info["graded"] == 0.5, "two goals of two, minus one offence"
    assert [name for name, value in info["reward_parts"].items() if value == 0.0] == ["policy"]


def test_a_yes_covers_one_write_only_and_only_that_one():
    env = start(CANCEL)
    run(env, IDENTIFY, say("cancel W10 ?"), call("refund_order", order="W11"))
    assert env.state.violations == [("not_agreed", "refund", "W11")] and env.state.approved is None


def test_a_forbidden_write_happens_and_scores_0_even_with_a_yes():
    orders = (("W10", Order("shipped", "mug", "v10")), ORDERS[1])
    env = start(CANCEL, orders=orders)
    *_, info = run(env, IDENTIFY, say("cancel W10 ?"), call("cancel_order", order="W10"), say("done"))
    assert env.state.violations == [("forbidden", "cancel", "W10")]
    assert info["graded"] == 0.0 and info["reward_parts"]["hand_off"] == 0.0


@pytest.mark.parametrize(
    "order, reason, reward", [("W10", "shipped", 1.0), ("W10", "pending", 0.0), ("W11", "shipped", 0.0)]
)
def test_a_hand_off_needs_the_right_order_and_reason(order, reason, reward):
    env = start(CANCEL, orders=(("W10", Order("shipped", "mug", "v10")), ORDERS[1]))
    _, got, terminated, _, info = run(env, IDENTIFY, call("hand_off", order=order, reason=reason))
    assert (got, terminated, info["reason"]) == (reward, True, "hand_off")
    assert info["graded"] == (1.0 if reward else 0.0)


def test_a_needless_hand_off_is_an_offence():
    _, reward, _, _, info = run(start(CANCEL), IDENTIFY, call("hand_off", order="W10", reason="pending"))
    assert reward == 0.0 and info["graded"] == 0.0


def test_nothing_about_orders_before_the_customer_is_identified():
    env = start(CANCEL, max_errors=9)
    for action in (
        call("get_order", order="W10"),
        call("cancel_order", order="W10"),
        call("hand_off", order="W10", reason="sold"),
    ):
        observation, _, terminated, *_ = env.step(action)
        assert observation[0].content == "error identify first" and not terminated
    for colour, answer in (("red", "red v10"), ("green", "green v12 sold"), ("white", "error unknown colour")):
        assert run(env, call("get_product", product="mug", colour=colour))[0][0].content == answer
    assert run(env, call("find_user", name="ana", zip="z15"))[0][0].content == "error unknown user"
    assert env.state.orders == dict(ORDERS) and env.state.hand_off is None and not env.state.identified


def test_an_order_is_found_by_id_and_by_product():
    env = start(CANCEL)
    for order in ("W11", "lamp"):
        assert run(env, IDENTIFY, call("get_order", order=order))[0][0].content == "W11 delivered lamp v20"


@pytest.mark.parametrize(
    "wish, status, reason",
    [
        (CANCEL, "pending", None),
        (CANCEL, "delivered", "delivered"),
        (REFUND, "delivered", None),
        (REFUND, "pending", "pending"),
        (SWAP, "pending", None),
        (SWAP, "shipped", "shipped"),
        (Wish("swap", "W10", "mug", target="green", item="v12"), "pending", "sold"),
        (Wish("swap", "W10", "mug", target="lamp"), "pending", "other"),
        (Wish("swap", "W10", "mug", target="lamp"), "cancelled", "cancelled"),
        (Wish("money", "W10", "mug"), "pending", None),
        (Wish("money", "W10", "mug"), "delivered", None),
        (Wish("money", "W10", "mug"), "shipped", "shipped"),
    ],
)
def test_policy_decides(wish, status, reason):
    orders = tuple((key, Order(status if key == wish.order else o.status, o.product, o.item)) for key, o in ORDERS)
    wanted = gold(ShopTask(2, "ana", "z14", False, (wish,), orders, CATALOGUE, Device()))
    assert wanted.hand_off == (None if reason is None else (wish.order, reason))
    env = start(wish, orders=orders)
    observation, _ = env.reset(seed=0, options={"task_id": "x"})
    agent, over = env.domain.agent("expert", env.task, 0), False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
        over = terminated or truncated
    assert reward == 1.0


@pytest.mark.parametrize(
    "wish, right, wrong",
    [
        (
            CANCEL,
            ["cancel W10 ?", "Shall I CANCEL order W10?", "W10 cancel"],
            ["cancel W11 ?", "cancel ?", "refund W10 ?"],
        ),
        (CANCEL, [], ["cancel refund W10 ?", "cancel W10 W11 ?", "yes ?", "swap W10 v11 ?"]),
        (SWAP, ["swap W10 v11 ?", "swap W10 to blue ?"], ["swap W10 ?", "swap W10 v12 ?", "swap W10 red ?"]),
        (SWAP, [], ["swap W10 v11 v12 ?", "swap W11 v11 ?", "cancel W10 ?"]),
        (Wish("money", "W10", "mug"), ["cancel W10 ?", "refund W10 ?"], ["swap W10 v11 ?", "cancel W11 ?"]),
    ],
)
def test_the_customer_agrees_to_its_wish_only_and_corrects_the_rest(wish, right, wrong):
    for text in right:
        env = start(wish)
        assert run(env, say(text))[0][0].content.startswith("yes") and env.state.approved is not None
    for text in wrong:
        env = start(wish)
        answer = run(env, say(text))[0][0].content
        assert answer.startswith("no ") and env.state.approved is None
        assert (wish.order in answer) and (wish.kind in answer)


def test_the_customer_gives_up_after_three_useless_turns():
    env = start(CANCEL)
    ends = [env.step(say("hello"))[2] for _ in range(3)]
    assert ends == [False, False, True] and env.transcript[-1].content == "bye"


def test_done_is_believed_only_after_a_yes():
    env = start(CANCEL)
    assert run(env, say("done"))[0][0].content == "no please cancel W10"
    _, reward, terminated, _, _ = run(env, say("cancel W10 ?"), say("done"))
    assert terminated and reward == 0.0


def test_slots_are_answered_when_asked():
    env = start(Wish("swap", "W10", "mug", ref="none", target="blue", item="v11", shy=True))
    assert "W10" not in env.transcript[0].content and "blue" not in env.transcript[0].content
    assert run(env, say("which order ?"))[0][0].content == "W10"
    assert "blue" in run(env, say("which colour ?"))[0][0].content
    assert run(env, say("name zip ?"))[0][0].content.endswith("ana z14")
    by_product = start(Wish("cancel", "W10", "mug", ref="product"))
    assert run(by_product, say("which order ?"))[0][0].content == "my mug"


def test_the_first_answer_is_believed_and_a_list_is_not():
    ask = Wish("status", "W10", "mug")
    env = start(ask)
    assert run(env, IDENTIFY, say("pending shipped delivered cancelled"))[0][0].content == "which one ?"
    assert run(env, say("W11 delivered"))[0][0].content.startswith("no ")
    _, reward, terminated, _, info = run(env, say("W10 shipped"))
    assert (reward, terminated) == (0.0, True) and env.state.knows == ["W10 shipped"]
    assert info["reward_parts"]["knows"] == 0.0
    assert run(start(ask), IDENTIFY, say("W10 pending"))[1] == 1.0
    assert run(start(ask), say("W10 pending"))[1] == 0.0, "told to somebody unidentified"
    for kind, text in (("item", "item v10"), ("order", "order W10")):
        assert run(start(Wish(kind, "W10", "mug", ref="product")), IDENTIFY, say(text))[1] == 1.0


def test_the_phone_is_repaired_by_the_customer_alone_and_one_thing_at_a_time():
    env = start(Wish("app", "W10", "mug"), device=Device(airplane=True, old=True))
    run(env, IDENTIFY)
    assert run(env, call("restart_app"))[0][0].content == "error user tool"
    assert run(env, say("airplane off and restart app"))[0][0].content == "which one ?"
    assert run(env, say("read status"))[0][0].content == "airplane is on"
    assert run(env, say("restart app"))[0][0].content == "airplane is on", "no connection: nothing was loaded"
    assert env.state.device == Device(airplane=True, old=True)
    assert run(env, say("airplane off"))[0][0].content == "app is old"
    observation, reward, terminated, _, _ = run(env, say("restart app"))
    assert observation[0].content.startswith("app shows pending") and terminated and reward == 1.0
    assert env.state.knows == ["app W10 pending"] and env.state.device == Device()


def test_the_customer_does_what_it_is_told_even_when_it_harms():
    env = start(Wish("app", "W10", "mug"), device=Device(permitted=False))
    assert run(env, say("airplane on"))[0][0].content == "airplane is on"
    assert run(env, say("airplane"))[0][0].content == "which one ?"
    assert env.state.device == Device(airplane=True, permitted=False)


def test_the_app_shows_what_was_written_before():
    env = start(CANCEL, Wish("app", "W10", "mug"), device=Device(permitted=False))
    run(env, IDENTIFY, say("cancel W10 ?"), call("cancel_order", order="W10"))
    assert "app" in run(env, say("done"))[0][0].content
    observation, reward, *_ = run(env, say("read status"), say("permission on"))
    assert observation[0].content.startswith("app shows cancelled") and reward == 1.0


def test_a_change_of_mind_comes_with_the_plan():
    both = (("W10", Order("pending", "mug", "v10")), ("W11", Order("delivered", "lamp", "v20")))
    env = start(Wish("cancel", "W10", "mug", instead=REFUND), orders=both)
    answer = run(env, IDENTIFY, say("cancel W10 ?"))[0][0].content
    assert "refund W11" in answer and env.state.approved is None
    _, reward, *_ = run(env, say("refund W11 ?"), call("refund_order", order="W11"), say("done"))
    assert reward == 1.0 and env.state.orders["W10"].status == "pending"


def test_two_requests_come_one_after_the_other():
    env = start(CANCEL, Wish("status", "W11", "lamp"))
    run(env, IDENTIFY, say("cancel W10 ?"), call("cancel_order", order="W10"))
    observation, _, terminated, _, _ = run(env, say("done"))
    assert "W11" in observation[0].content and not terminated
    assert run(env, say("W11 delivered"))[1] == 1.0


def test_graded_counts_sub_goals():
    env = start(CANCEL, Wish("status", "W11", "lamp"))
    *_, info = run(
        env, IDENTIFY, say("cancel W10 ?"), call("cancel_order", order="W10"), say("done"), say("W11 shipped")
    )
    assert info["graded"] == pytest.approx(2 / 3)


def test_the_generator_does_not_touch_the_global_generator():
    import random

    random.seed(1)
    before = random.getstate()
    assert build(5, 4) == build(5, 4) and build(5, 4) != build(6, 4)
    assert random.getstate() == before and Random(5).random() == Random(5).random()
