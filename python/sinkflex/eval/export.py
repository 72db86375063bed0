"""Results in tau2-bench's own format, so that its viewer and its metrics read them: simulations.json.

Only scored trials are in it: the package would take a fault for a reward. Timestamps are invented (the package sorts
messages by them) and rise by a millisecond; an error observation that belongs to no call becomes a system message.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from .results import Trial

SIMULATIONS = "simulations.json"
_EPOCH = datetime(2025, 1, 1, tzinfo=UTC)
_TERMINATION = {
    "max_turns": "max_steps",
    "max_total_tokens": "max_steps",
    "context": "max_steps",
    "too_many_errors": "too_many_errors",
}


def simulations(
    identity: Mapping[str, Any], plan: Mapping[str, Any], domain: Any, trials: Iterable[Trial]
) -> dict[str, Any]:
    """The object that the package's `Results` validates. `domain` is one of the tau2 suites."""
    scored = sorted((t for t in trials if t.reward is not None), key=lambda t: t.key)
    used = list(dict.fromkeys(t.task_id for t in scored))
    data = {task_id: domain.task(task_id).data for task_id in used}
    return {
        "timestamp": _time(0),
        "info": {
            "git_commit": "unknown",
            "num_trials": plan["trials"],
            "max_steps": identity["max_turns"],
            "max_errors": identity["max_errors"],
            "user_info": {"implementation": identity["user"]["kind"], "llm": identity["user"].get("model")},
            "agent_info": {"implementation": identity["agent"]["kind"], "llm": identity["agent"]["label"]},
            "environment_info": {
                "domain_name": str(identity["suite"]).removeprefix("tau2-"),
                "policy": domain.policy_text,
            },
            "seed": identity["seed"],
        },
        "tasks": [json.loads(task.model_dump_json()) for task in data.values()],
        "simulations": [_simulation(trial, data[trial.task_id]) for trial in scored],
    }


def _simulation(trial: Trial, task: Any) -> dict[str, Any]:
    basis = [kind.value for kind in task.evaluation_criteria.reward_basis]
    breakdown = {name: trial.reward_parts[name] for name in basis if name in trial.reward_parts}
    database = trial.reward_parts.get("DB")
    return {
        "id": f"{trial.task_id}-{trial.trial}",
        "task_id": trial.task_id,
        "timestamp": _time(0),
        "start_time": _time(0),
        "end_time": _time(len(trial.transcript)),
        "duration": trial.wall_s,
        "termination_reason": _TERMINATION.get(trial.reason or "", "user_stop"),
        "agent_cost": trial.cost,
        "reward_info": {
            "reward": trial.reward,
            "db_check": None if database is None else {"db_match": database == 1.0, "db_reward": database},
            "reward_basis": basis,
            "reward_breakdown": breakdown,
            "info": {"dropped": [name for name in basis if name not in trial.reward_parts]},
        },
        "messages": list(_messages(trial.transcript)),
        "trial": trial.trial,
        "seed": trial.seed,
    }


def _messages(transcript: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    callers: dict[str, str] = {}
    for place, message in enumerate(transcript):
        role = message["role"]
        entry: dict[str, Any] = {"role": role, "content": message["content"], "timestamp": _time(place)}
        if role == "tool":
            caller = callers.get(message.get("tool_call_id", ""), "assistant")
            entry |= {
                "id": message.get("tool_call_id", ""),
                "requestor": caller,
                "error": message.get("is_error", False),
            }
        elif role == "env":
            entry["role"] = "system"
        elif message.get("tool_calls"):
            callers |= {call["id"]: role for call in message["tool_calls"]}
            entry["content"] = message["content"] or None
            entry["tool_calls"] = [_call(call, role) for call in message["tool_calls"]]
        yield entry


def _call(call: Mapping[str, Any], requestor: str) -> dict[str, Any]:
    arguments = call["arguments"]
    # The package has objects only; what the agent wrote instead is kept under a name that no tool has.
    whole = arguments if isinstance(arguments, dict) else {"_unreadable": arguments}
    return {"id": call["id"], "name": call["name"], "arguments": whole, "requestor": requestor}


def _time(place: int) -> str:
    return (_EPOCH + timedelta(milliseconds=place)).isoformat(timespec="milliseconds")
