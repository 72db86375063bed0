"""Exact and graded score.

Exact: 1 if the final state equals the gold one (orders, phone, hand-off with order and reason, what the customer has
been led to know, identification) and no write broke policy, else 0. A limit that cuts the episode gives 0 in the
environment, whatever the state.
Graded: (sub-goals met - offences) / sub-goals, at least 0. Offences are writes that policy forbids, writes nobody
agreed to, and a hand-off that gold does not have.
"""

from __future__ import annotations

from ..domain import Score
from .state import Device, ShopState
from .tasks import Goal, Gold

_SOUND = Device()


def score(gold: Gold, state: ShopState) -> Score:
    parts = {
        "identified": float(state.identified),
        "orders": float(state.orders == gold.orders),
        "device": float(state.device == _SOUND),
        "knows": float(tuple(state.knows) == gold.knows),
        "hand_off": float(state.hand_off == gold.hand_off),
        "policy": float(not state.violations),
    }
    met = sum(_met(goal, state) for goal in gold.goals)
    offences = len(state.violations) + (state.hand_off is not None and state.hand_off != gold.hand_off)
    graded = max(0.0, (met - offences) / len(gold.goals))
    return Score(reward=float(all(parts.values())), graded=graded, parts=parts)


def _met(goal: Goal, state: ShopState) -> bool:
    match goal:
        case ("identified",):
            return state.identified
        case ("order", order, status, item):
            return (state.orders[order].status, state.orders[order].item) == (status, item)
        case ("knows", fact):
            return fact in state.knows
        case ("hand_off", order, reason):
            return state.hand_off == (order, reason)
        case ("device", part):
            return bool(getattr(state.device, part) == getattr(_SOUND, part))
        case _:
            raise AssertionError(f"a goal of an unknown kind: {goal}")
