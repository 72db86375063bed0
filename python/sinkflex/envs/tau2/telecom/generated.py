"""Training tasks beyond the benchmark's: the package's own breaks and repairs, combined anew, for invented people.

Idea: the package composes its tasks from functions that break something and functions that repair it. Here the same
functions are composed for another customer, line, plan and place. A task is kept only if it passes the gate: gold
succeeds and no part of gold is enough, and doing nothing fails. The combination is never one of the test split, and no
person, number, line or bill of the benchmark's data is in it.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator, Mapping
from typing import Any

from ..scoring import assertions
from .package import TelecomPackage
from .people import Account, invent
from .scoring import goal, score
from .state import TelecomState, entities, fresh

COUNT = 400
SEED = 20250225
MANAGERS = {
    "mobile_data_issues": "mobile_data_task_manager",
    "service_issues": "service_issues_task_manager",
    "mms_issues": "mms_issue_task_manager",
}
HAND_OVER = {
    "action_id": "transfer_to_human_agents",
    "name": "transfer_to_human_agents",
    "requestor": "assistant",
    "arguments": {"summary": "I cannot fix the issue."},
    "compare_args": [],
}


def issues(task_id: str) -> tuple[str, ...]:
    """What is wrong in a task, from its id: `[intent]issue|issue[PERSONA:name]`."""
    return tuple(task_id.partition("]")[2].partition("[")[0].split("|"))


def generate(package: TelecomPackage, count: int = COUNT, seed: int = SEED) -> dict[str, Any]:
    """`count` tasks by id. Equal arguments give equal tasks. Problems and numbers of issues are balanced."""
    room = "tau2.domains.telecom.tasks"
    personas = list(importlib.import_module(f"{room}.const").PERSONAS.items())
    compose = importlib.import_module(f"{room}.utils").compose_tasks
    managers = [getattr(importlib.import_module(f"{room}.{name}"), attribute) for name, attribute in MANAGERS.items()]
    known = {issue for task_id in package.tasks for issue in issues(task_id)}
    held_out = {frozenset(issues(task_id)) for task_id in package.splits.get("test", ())}
    rng = random.Random(seed)
    pools: list[tuple[Any, list[Any]]] = []
    for manager in managers:
        by_number: dict[int, list[Any]] = {}
        for composed in compose(manager.selection_sets, manager.task_validator):
            names = frozenset(task.name for task in composed.composed_from)
            if names <= known and names not in held_out:
                by_number.setdefault(len(names), []).append(composed)
        pools += [(manager, group) for group in by_number.values()]
    tasks: dict[str, Any] = {}
    number = 0
    while len(tasks) < count:
        # Round by problem and number of issues, so that neither the many long nor the few short ones prevail.
        manager, group = pools[number % len(pools)]
        number += 1
        account, data = invent(rng, package.database.plans, number)
        task = _task(package, manager, rng.choice(group), account, data, rng.choice(personas))
        if passes(package, task):
            tasks[task.id] = task
        elif number > 4 * count:
            raise ValueError(f"only {len(tasks)} of {count} tasks passed the gate after {number} tries")
    return tasks


def passes(package: TelecomPackage, task: Any) -> bool:
    """The gate."""
    state = fresh(package, task)
    aim = goal(task, state)
    start = entities(state.environment)
    if score(task, aim, state, ()).reward != 0.0:
        return False
    hands_over = "ACTION" in [kind.value for kind in task.evaluation_criteria.reward_basis]
    for action in task.evaluation_criteria.actions:
        if not hands_over and all(assertions(state.environment, task)):
            return False
        state.environment.make_tool_call(action.name, requestor=action.requestor, **action.arguments)
        state.environment.sync_tools()
    changed = entities(state.environment) != start
    return all(assertions(state.environment, task)) and changed != hands_over


def _task(
    package: TelecomPackage, manager: Any, composed: Any, account: Account, data: dict[str, Any], persona: Any
) -> Any:
    task_type = type(next(iter(package.tasks.values())))
    state = _begin(package, task_type, data)
    environment = state.environment
    initial: list[Any] = []
    for call in _calls(manager.set_surrounding(environment), account):
        environment.run_env_function_call(call)
        initial.append(call)
    for function in composed.init_funcs:
        for call in _calls(function(environment), account):
            # What the functions assert of the state is for their own check: gate and gold say more.
            if not hasattr(call, "assert_value"):
                environment.run_env_function_call(call)
                initial.append(call)
    hopeless = any(function is None for function in composed.fix_funcs)
    checks = list(_calls(manager.get_env_assertions(expected_success=not hopeless), account))
    repairs: list[Any] = []
    if not hopeless:
        repairs = [call for function in composed.fix_funcs for call in _calls(function(environment), account)]
        checks += [c for function in composed.extra_env_assertions for c in _calls(function(environment), account)]
    template = manager.base_task_template
    place = f"abroad in {account.country}" if _abroad(environment) else "at home in the United States"
    words = {"name": account.name, "phone_number": account.phone, "location": place}
    instructions = template["user_scenario"]["instructions"]
    return task_type.model_validate(
        {
            **template,
            "id": f"{template['id']}{composed.name}[PERSONA:{persona[0]}][CUSTOMER:{account.customer_id}]",
            "user_scenario": {
                "persona": persona[1],
                "instructions": {**instructions, "known_info": instructions["known_info"].format(**words)},
            },
            "ticket": template["ticket"].format(**words),
            "initial_state": {
                "initialization_data": {"agent_data": data},
                "initialization_actions": [call.model_dump() for call in initial],
            },
            "evaluation_criteria": {
                "actions": [HAND_OVER] if hopeless else [_action(call, n) for n, call in enumerate(repairs)],
                "env_assertions": [check.model_dump() for check in checks],
                "reward_basis": ["ENV_ASSERTION", "ACTION"] if hopeless else ["ENV_ASSERTION"],
            },
        }
    )


def _begin(package: TelecomPackage, task_type: Any, data: dict[str, Any]) -> TelecomState:
    """The company's data before anything is broken."""
    empty = {
        "id": "new",
        "user_scenario": {"instructions": "none"},
        "initial_state": {"initialization_data": {"agent_data": data}, "initialization_actions": []},
    }
    return fresh(package, task_type.model_validate(empty))


def _calls(calls: list[Any], account: Account) -> Iterator[Any]:
    """The package's functions name the benchmark's one customer in places: here the account takes that place."""
    mine: Mapping[str, Any] = {
        "customer_id": account.customer_id,
        "line_id": account.line_id,
        "new_bill_id": account.overdue_bill_id,
        "overdue_bill_id": account.overdue_bill_id,
        "bill_id": account.overdue_bill_id,
        "name": account.name,
        "phone_number": account.phone,
        "data_used_gb": account.limit_gb + 0.1,
    }
    for call in calls:
        yield call.model_copy(update={"arguments": {key: mine.get(key, v) for key, v in call.arguments.items()}})


def _action(call: Any, number: int) -> dict[str, Any]:
    return {
        "action_id": f"{call.name}_{number}",
        "name": call.name,
        "requestor": call.requestor,
        "arguments": call.arguments,
    }


def _abroad(environment: Any) -> bool:
    return bool(environment.user_tools.db.surroundings.is_abroad)
