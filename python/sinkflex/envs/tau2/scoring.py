"""The package's scoring, without running the conversation again.

reward = product over the task's own reward basis. The components (each 0 or 1) mean what the package's evaluators mean:
- DB: the final database equals the one that the gold actions leave (erring gold actions are skipped there as here);
- COMMUNICATE: every required string occurs in some assistant message, ignoring case and the message's commas;
- ACTION: every gold action was called (the package compares only the arguments that the call names, so an empty
  call passes; it is in no retail basis: reported beside the reward, multiplied into it only where a basis says so);
- ENV_ASSERTION (telecom): the task's assertions hold in the final state.
Two figures of our own never enter a reward: DB_UNORDERED (the order inside lists is ignored) and ACTION_STRICT (all
arguments are compared). A component that needs a judge (NL_ASSERTION) cannot be computed here: it is left out of the
product and named by `dropped`. Equality with the package's evaluators on gold runs and random runs is a test.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..conversation import Message, ToolCall
from ..domain import Score
from .package import Package
from .state import Changes, changes, fresh

COMPUTABLE = ("DB", "COMMUNICATE", "ACTION", "ENV_ASSERTION")


def basis(task: Any) -> tuple[str, ...]:
    """The components that the task's reward is the product of, in the data's order."""
    return tuple(kind.value for kind in task.evaluation_criteria.reward_basis)


def dropped(task: Any) -> tuple[str, ...]:
    """Components of the basis that cannot be computed without a judge."""
    return tuple(name for name in basis(task) if name not in COMPUTABLE)


def judged(task: Any) -> tuple[str, ...]:
    """What a judge has to decide for the reward of a task, in natural language; mostly nothing."""
    return tuple(task.evaluation_criteria.nl_assertions or ()) if "NL_ASSERTION" in dropped(task) else ()


def combine(components: Sequence[str], parts: Mapping[str, float]) -> float:
    """The product over `components` (those that `parts` holds), nothing else."""
    return float(math.prod(parts[name] for name in components if name in parts))


def gold_changes(package: Package, task: Any) -> Changes:
    """What the gold actions change in the base database."""
    state = fresh(package)
    for action in task.evaluation_criteria.actions or ():
        try:
            state.environment.make_tool_call(action.name, requestor=action.requestor, **action.arguments)
        except Exception:  # whatever it raised: the package's evaluator skips an erring gold action
            continue
    return changes(state)


def score(task: Any, gold: Changes, now: Changes, transcript: Sequence[Message]) -> Score:
    wanted = task.evaluation_criteria.communicate_info or ()
    told = [said(text, transcript) for text in wanted]
    same = now == gold
    parts = {
        "DB": float(same),
        "COMMUNICATE": float(all(told)),
        "DB_UNORDERED": float(same or _unordered(now) == _unordered(gold)),
        **action_parts(task, transcript),
    }
    return Score(reward=combine(basis(task), parts), graded=_graded(gold, now, told), parts=parts)


def said(text: str, transcript: Sequence[Message]) -> bool:
    """Whether an assistant message holds `text`, compared as the package does: the commas of the message only."""
    needle = text.lower()
    return any(
        needle in message.content.lower().replace(",", "")
        for message in transcript
        if message.role == "assistant" and message.content.strip()
    )


def action_parts(task: Any, transcript: Sequence[Message], by_whom: bool = False) -> dict[str, float]:
    """ACTION and ACTION_STRICT. `by_whom`: the strict figure also asks that the action's requestor made the call."""
    actions = task.evaluation_criteria.actions or ()
    made = [(message.role, call) for message in transcript for call in _calls(message)]
    strict = [
        any(_same_call(action, call) and (not by_whom or role == action.requestor) for role, call in made)
        for action in actions
    ]
    loose = [any(action.compare_with_tool_call(call) for _, call in made) for action in actions]
    return {"ACTION": float(all(loose)), "ACTION_STRICT": float(all(strict))}


def assertions(environment: Any, task: Any) -> list[bool]:
    """Whether each of the task's assertions holds, as the package runs them. Raises what an assertion raises."""
    return [
        bool(environment.run_env_assertion(assertion, raise_assertion_error=False))
        for assertion in task.evaluation_criteria.env_assertions or ()
    ]


def _calls(message: Message) -> Iterator[ToolCall]:
    for call in message.tool_calls:
        arguments = call.arguments
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError):
                arguments = None
        if isinstance(arguments, dict):
            yield ToolCall(call.name, arguments, call.id)


def _same_call(action: Any, call: ToolCall) -> bool:
    names = set(action.arguments) if action.compare_args is None else set(action.compare_args)
    both = (action.arguments, call.arguments)
    ours, theirs = ({k: v for k, v in given.items() if k in names} for given in both)
    extra = action.compare_args is None and set(call.arguments) - names
    return bool(action.name == call.name and ours == theirs and not extra)


def _graded(gold: Changes, now: Changes, told: Sequence[bool]) -> float:
    """Share of the task's sub-goals: each entity that gold changes and each required string is one; an entity changed
    that gold leaves alone is one more, never reached. 1.0 exactly when DB and COMMUNICATE are both 1."""
    reached = sum(now.get(key) == entity for key, entity in gold.items()) + sum(told)
    total = len(gold) + len(told) + sum(key not in gold for key in now)
    return reached / total if total else 1.0


def _unordered(state: Changes) -> dict[tuple[str, str], str]:
    return {key: json.dumps(_sorted(json.loads(entity)), sort_keys=True) for key, entity in state.items()}


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((_sorted(item) for item in value), key=functools.partial(json.dumps, sort_keys=True))
    return value
