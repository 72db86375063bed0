"""The expert, which sees what an agent sees, and the generated tasks that it may be trained on beside it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from sinkflex.envs import DualControlEnv
from sinkflex.envs.tau2.telecom.generated import COUNT, generate, issues, passes
from telecom_play import assert_equal_to_oracle, play_to_the_end, tasks_with


@pytest.fixture(params=["telecom", "solo"])
def either(request: pytest.FixtureRequest) -> DualControlEnv:
    return DualControlEnv(request.getfixturevalue(request.param), max_turns=60, max_errors=10, render_mode="ansi")


@pytest.mark.slow
def test_the_expert_solves_the_benchmark(either: DualControlEnv) -> None:
    ids = either.domain.task_ids("base")
    solved = sum(play_to_the_end(either, task_id, "expert")[0] for task_id in ids)
    assert solved >= 0.9 * len(ids)


def test_the_expert_solves_some_of_it(either: DualControlEnv) -> None:
    ids = either.domain.task_ids("base")[::7]
    rewards = [play_to_the_end(either, task_id, "expert")[0] for task_id in ids]
    assert sum(rewards) >= 0.9 * len(ids)


def test_the_expert_hands_over_only_what_only_a_human_can_mend(env: DualControlEnv, telecom: Any) -> None:
    for wrong, handed_over in (("contract_end_suspension", True), ("overdue_bill_suspension", False)):
        task_id = next(i for i in tasks_with(telecom, wrong) if "lock_sim" not in i)
        _, info = play_to_the_end(env, task_id, "expert")
        assert (info["reason"] == "transfer") is handed_over
        assert info["user_tool_calls_by_agent"] == info["errors"] == 0


@pytest.fixture(scope="module")
def made(telecom: Any) -> dict[str, Any]:
    return {task_id: telecom.task(task_id).data for task_id in telecom.task_ids("generated")}


def test_generated_tasks_are_many_and_varied_and_the_same_every_time(telecom: Any, made: dict[str, Any]) -> None:
    assert len(made) == COUNT == telecom.splits()["generated"]
    again = generate(telecom.package, count=30)
    assert again == {task_id: made[task_id] for task_id in list(made)[:30]}
    assert list(generate(telecom.package, count=5, seed=1)) != list(again)[:5]
    assert len({frozenset(issues(task_id)) for task_id in made}) > COUNT / 3
    kinds = Counter((task_id.partition("]")[0], len(issues(task_id))) for task_id in made)
    assert len(kinds) == 21 and max(kinds.values()) - min(kinds.values()) <= 3
    assert len({task.ticket for task in made.values()}) > COUNT / 2


def test_nothing_of_the_test_split_is_in_the_generated_tasks(telecom: Any, made: dict[str, Any]) -> None:
    """By the set of issues, and by all that names somebody or something in the benchmark's data; plans are shared."""
    held_out = {frozenset(issues(task_id)) for task_id in telecom.task_ids("test")}
    assert not held_out & {frozenset(issues(task_id)) for task_id in made}
    database = telecom.package.database
    names = {text for c in database.customers for text in (c.customer_id, c.full_name, c.phone_number, c.email)}
    names |= {text for line in database.lines for text in (line.line_id, line.phone_number)}
    names |= {bill.bill_id for bill in database.bills} | {"B1234321"} | {d.device_id for d in database.devices}
    names |= {device.imei for device in database.devices}
    for task in made.values():
        text = json.dumps(task.model_dump(), default=str)
        assert not [name for name in names if f'"{name}"' in text or f" {name}" in text], task.id
    for task_id in list(made)[::40]:
        environment = telecom.start(telecom.task(task_id)).environment
        assert {c.customer_id for c in environment.tools.db.customers}.isdisjoint(names)


def test_generated_tasks_pass_the_gate_and_the_package_agrees(either: DualControlEnv, made: dict[str, Any]) -> None:
    for task_id in list(made)[::23]:
        assert play_to_the_end(either, task_id, "noop")[0] == 0.0
        assert play_to_the_end(either, task_id, "gold")[0] == 1.0
        assert_equal_to_oracle(either)
        assert play_to_the_end(either, task_id, "expert")[0] == 1.0


@pytest.mark.slow
def test_every_generated_task_is_solved_by_gold_and_not_by_doing_nothing(either: DualControlEnv, made: Any) -> None:
    for task_id in made:
        assert play_to_the_end(either, task_id, "noop")[0] == 0.0
        assert play_to_the_end(either, task_id, "gold")[0] == 1.0


def test_the_gate_refuses_what_needs_no_agent_or_less_than_gold(telecom: Any, made: dict[str, Any]) -> None:
    task = next(task for task_id, task in made.items() if len(issues(task_id)) == 3 and "mobile" in task_id)
    assert passes(telecom.package, task)
    calls = task.initial_state.initialization_actions
    whole = task.initial_state.model_copy(update={"initialization_actions": calls[:1]})
    assert not passes(telecom.package, task.model_copy(update={"initial_state": whole}))
    criteria = task.evaluation_criteria
    for actions in (criteria.actions[:-1], [*criteria.actions, criteria.actions[-1]]):
        changed = criteria.model_copy(update={"actions": actions})
        assert not passes(telecom.package, task.model_copy(update={"evaluation_criteria": changed}))


def test_the_scenario_is_the_package_s_and_holds_nothing_of_gold(telecom: Any, solo: Any) -> None:
    for task_id in telecom.task_ids("base"):
        task = telecom.task(task_id)
        text = telecom.scenario(task)
        assert text == str(task.data.user_scenario) and "John Smith" in text
        assert ("Persona" in text) == ("PERSONA:None" not in task_id)
        fixes = {action.name for action in task.gold} - {"can_send_mms"}
        assert not [name for name in fixes if name in text] and not [i for i in issues(task_id) if i in text]
    assert not hasattr(solo, "scenario"), "where nobody is there to talk to, no model can play them"


def test_the_corpus_is_telecom_s_and_nobody_s_of_the_benchmark(telecom: Any, solo: Any) -> None:
    for domain in (telecom, solo):
        texts = list(domain.corpus())
        assert texts == list(domain.corpus()) and all(isinstance(text, str) for text in texts)
        whole = "\n".join(texts)
        assert domain.policy_text in whole and "John Smith" not in whole and "555-123-2002" not in whole
        for words in ("toggle_airplane_mode", "Status Bar", "refuel", "line_ids", "I still have no service"):
            assert words in whole
