"""Telecom's reward: the product over the task's own basis, which is ENV_ASSERTION, with ACTION where the only right end
is to hand over to a human. DB (both databases equal gold's) and COMMUNICATE are reported and in no basis.

The state is graded as it stands: nothing is replayed, so a run that could not be replayed is scored like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...conversation import Message
from ...domain import Score
from ..scoring import action_parts, assertions, basis, combine, said
from .state import Entities, TelecomState, duplicate, entities


@dataclass(frozen=True)
class Goal:
    """What a task's score is measured by: which assertions hold at its start, the entities that gold's actions leave
    when nothing is synchronised between them (so the package computes DB: a payment made there finds no request), and
    what they change in an episode."""

    held: tuple[bool, ...]
    unsynced: Entities
    changed: Entities


def goal(task: Any, start: TelecomState) -> Goal:
    """`start` is the state in which the task begins."""
    before = entities(start.environment)
    held = tuple(assertions(start.environment, task))
    final = after_gold(task, duplicate(start), sync=True)
    changed = {key: value for key, value in final.items() if before.get(key) != value}
    return Goal(held, after_gold(task, duplicate(start), sync=False), changed)


def after_gold(task: Any, start: TelecomState, sync: bool) -> Entities:
    """What the gold actions leave; `sync`: as in an episode, where every call ends in a synchronisation."""
    environment = start.environment
    for action in task.evaluation_criteria.actions or ():
        try:
            environment.make_tool_call(action.name, requestor=action.requestor, **action.arguments)
            if sync:
                environment.sync_tools()
        except Exception:  # whatever it raised: the package's evaluator skips an erring gold action
            continue
    return entities(environment)


def score(task: Any, aim: Goal, state: TelecomState, transcript: Sequence[Message]) -> Score:
    """`graded`: the share of sub-goals reached; these are the assertions that the start does not meet, the entities
    that gold changes, and ACTION where the basis has it. It is 1.0 exactly when the reward is."""
    now = entities(state.environment)
    held = assertions(state.environment, task)
    told = [said(text, transcript) for text in task.evaluation_criteria.communicate_info or ()]
    parts = {
        "ENV_ASSERTION": float(all(held)),
        "DB": float(now == aim.unsynced),
        "COMMUNICATE": float(all(told)),
        **action_parts(task, transcript, by_whom=not state.environment.solo_mode),
    }
    reward = combine(basis(task), parts)
    goals = [holds for holds, before in zip(held, aim.held, strict=True) if not (holds and before)]
    goals += [now.get(key) == value for key, value in aim.changed.items()]
    goals += [parts["ACTION"] == 1.0] if "ACTION" in basis(task) else []
    share = sum(goals) / len(goals) if goals else reward
    # Another way than gold's may succeed, and gold's state may be reached without success (an assertion broken later).
    graded = 1.0 if reward == 1.0 else min(share, 1 - 1 / (len(goals) + 1))
    return Score(reward=reward, graded=graded, parts=parts)
