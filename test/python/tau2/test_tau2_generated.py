"""Generated retail tasks: allowed, solvable by words alone, not by doing nothing, and nothing of the test split."""

from __future__ import annotations

import copy
import json
import re
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from retail_play import Play
from sinkflex.envs import DualControlEnv
from sinkflex.envs.domain import InfraFault
from sinkflex.envs.tau2.package import Package
from sinkflex.envs.tau2.retail.domain import RetailDomain
from sinkflex.envs.tau2.retail.generate import IDS
from sinkflex.envs.tau2.retail.wishes import KINDS, Question, Wish, topics

SAMPLE = IDS[::8]


@pytest.fixture(scope="module")
def tasks(retail: Any) -> dict[str, Any]:
    return {task_id: retail.task(task_id) for task_id in IDS}


def writes(task: Any) -> list[Any]:
    return [action for action in task.gold if action.name in KINDS]


def test_the_split_is_there_and_costs_nothing_until_a_task_is_asked_for(retail: Any) -> None:
    fresh = RetailDomain(retail.package)
    started = time.process_time()
    assert fresh.splits()["generated"] == len(fresh.task_ids("generated")) == 400
    assert time.process_time() - started < 0.05
    assert fresh._generator is None and not fresh._generated
    with pytest.raises(KeyError):
        fresh.task("generated-400")


def test_a_task_is_a_function_of_its_id(retail: Any) -> None:
    fresh = RetailDomain(retail.package)
    for task_id in reversed(SAMPLE[:10]):
        assert fresh.task(task_id).data == retail.task(task_id).data


def test_all_kinds_of_writes_occur_and_no_two_tasks_are_the_same(tasks: dict[str, Any]) -> None:
    kinds = Counter(action.name for task in tasks.values() for action in writes(task))
    assert set(kinds) == set(KINDS) and min(kinds.values()) >= 20, kinds
    levels = Counter(task.level for task in tasks.values())
    assert set(levels) == {"writes-1", "writes-2", "writes-3"} and min(levels.values()) >= 20, levels
    golds = {json.dumps([(a.name, a.arguments) for a in writes(task)], sort_keys=True) for task in tasks.values()}
    assert len(golds) == len(tasks)
    assert sum(bool(task.data.evaluation_criteria.communicate_info) for task in tasks.values()) >= 20


def test_every_write_is_allowed_by_the_policy_as_the_order_stands(retail: Any, tasks: dict[str, Any]) -> None:
    """One change of items, one return and one cancellation an order at most, and nothing after any of them."""
    orders = retail.package.database.orders
    for task in tasks.values():
        closed = set()
        for action in writes(task):
            order_id = action.arguments.get("order_id")
            if order_id is None:
                continue
            pending = action.name.endswith("_order") or "pending" in action.name
            assert orders[order_id].status == ("pending" if pending else "delivered")
            assert order_id not in closed
            if action.name not in ("modify_pending_order_address", "modify_pending_order_payment"):
                closed.add(order_id)


def test_nothing_of_the_test_split_leaks_in(retail: Any, tasks: dict[str, Any]) -> None:
    """Users, orders, e-mail and street addresses of the test tasks' customers occur in no generated task, text
    included; nor does any such thing that a test task's own text or gold names."""
    database, held = retail.package.database, set()
    named = json.dumps([retail.task(task_id).data.model_dump(mode="json") for task_id in retail.task_ids("test")])
    users = {user_id for user_id in database.users if re.search(rf"\b{user_id}\b", named)}
    users |= {order.user_id for order_id, order in database.orders.items() if order_id in named}
    users |= {user_id for user_id, user in database.users.items() if user.email in named}
    users |= {
        user_id
        for user_id, user in database.users.items()
        if f'"{user.name.first_name}"' in named and f'"{user.name.last_name}"' in named and user.address.zip in named
    }
    assert len(users) >= 25
    for user_id in users:
        user = database.users[user_id]
        held |= {user_id, user.email, user.address.address1, *user.orders, *user.payment_methods}
        held |= {database.orders[order_id].address.address1 for order_id in user.orders}
    held |= set(
        re.findall(r"#W\d{7}|\b[a-z]+_[a-z]+_\d{4}\b|[\w.]+@example\.com|(?:credit_card|paypal|gift_card)_\d+", named)
    )
    found = Counter[str]()
    for task in tasks.values():
        text = json.dumps(task.data.model_dump(mode="json"))
        assert len(text) > 500
        found.update(thing for thing in held if thing in text)
    assert not found
    assert len(held) > 150


def test_gold_and_the_expert_reach_1_and_doing_nothing_0(play: Play, env: DualControlEnv) -> None:
    for number, task_id in enumerate(SAMPLE):
        reward, info = play(task_id, "gold", seed=number)
        assert (reward, info["graded"], info["reason"]) == (1.0, 1.0, "user_stop"), env.render()
        assert not any(message.is_error for message in env.transcript), env.render()
        assert play(task_id, "expert", seed=number + 1)[0] == 1.0, env.render()
        assert play(task_id, "noop", seed=number)[0] == 0.0, env.render()


@pytest.mark.slow
def test_all_of_them_with_three_customers(play: Play, env: DualControlEnv) -> None:
    for seed in range(3):
        for task_id in IDS:
            assert play(task_id, "expert", seed=seed)[0] == 1.0, env.render()


def test_the_text_tells_a_customer_everything_and_names_no_item_product_or_tool(
    retail: Any, tasks: dict[str, Any]
) -> None:
    tools = "|".join(tool.name for tool in retail.agent_tools)
    for task in tasks.values():
        text = retail.scenario(task)
        assert "Domain: retail" in text and "You want to " in text
        assert not re.search(tools, text) and not re.search(r"\b\d{10}\b|(credit_card|gift_card|paypal)_\d", text)
        assert not re.search(r"\b(I|my|mine)\b", text), text
        wishes = topics(retail.package, task.data)
        for wish in wishes:
            if isinstance(wish, Question):
                assert "how much money you get back in total" in text
                assert wish.text.endswith("?") and not re.search(r"\d", wish.text)
                continue
            assert isinstance(wish, Wish) and not wish.refused
            assert wish.order_id is None or wish.order_id in text
            assert all(item.name in text for item in wish.items)
            assert all(value in text for item in wish.items for value in (item.changes or {}).values())
            assert wish.address is None or wish.address.text in text
            assert wish.reason is None or wish.reason in text
            assert wish.payment is None or wish.payment.words.removeprefix("my ") in text
        for told in task.data.evaluation_criteria.communicate_info:
            assert told not in text


def test_a_run_draws_from_it_and_an_environment_resets_to_it(retail: Any) -> None:
    """`env: {suite: tau2-retail, split: generated}`: a run names the tasks, the environment keeps its default split."""
    from sinkflex.train.setup import Setup

    setup: Any = SimpleNamespace(
        config=SimpleNamespace(env=SimpleNamespace(suite="tau2-retail", split="generated", tasks=None)), domain=retail
    )
    assert Setup.task_ids(setup) == list(IDS)
    _, info = DualControlEnv(retail, max_turns=30).reset(seed=3, options={"task_id": IDS[5]})
    assert info["task_id"] == IDS[5] and info["level"].startswith("writes-") and info["outcome"] is None
    _, info = DualControlEnv(retail, split="generated").reset(seed=3)
    assert info["task_id"] in IDS


def with_parts(package: Package, **parts: Any) -> Package:
    other = copy.copy(package)
    for name, value in parts.items():
        object.__setattr__(other, name, value)
    return other


def test_without_a_test_split_all_tasks_are_held_out(retail: Any) -> None:
    package = with_parts(retail.package, splits={"base": tuple(retail.package.tasks)})
    domain = RetailDomain(package)
    named = json.dumps([task.model_dump(mode="json") for task in package.tasks.values()])
    for task_id in IDS[:40]:
        for action in domain.task(task_id).gold:
            assert not any(str(action.arguments.get(name)) in named for name in ("user_id", "order_id", "email"))


def test_data_that_allows_no_task_is_an_infrastructure_fault(retail: Any) -> None:
    """No open orders; and a held-out task that does not say whose it is: nobody could be left out."""
    database = retail.package.database
    shipped = {key: order.model_copy(update={"status": "processed"}) for key, order in database.orders.items()}
    with pytest.raises(InfraFault, match="generated-000 can be generated"):
        RetailDomain(with_parts(retail.package, database=database.model_copy(update={"orders": shipped}))).task(IDS[0])
    with pytest.raises(InfraFault, match="does not say who the customer is"):
        RetailDomain(with_parts(retail.package, database=database.model_copy(update={"users": {}}))).task(IDS[0])
