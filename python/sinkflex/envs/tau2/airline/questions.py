"""What airline callers ask where no write says what they want: the six tasks that require a string to be told.

An entry holds only while the task's required strings are the ones it was written for. A question must not contain its
answer (a test compares all of them).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..package import Package
from .speech import statements
from .wishes import Question, Topic, wishes


@dataclass(frozen=True, slots=True)
class Asked:
    """`before` is asked ahead of the first wish, `after` when the last is done."""

    strings: tuple[str, ...]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


BALANCES = "What is the sum of my gift card balances, and what is the sum of my certificate balances?"
CHARGED = "How much is charged to my Mastercard in total?"
REFUND = "How much money do I get back in total?"
UPCOMING = "What do my other upcoming flights cost in total?"
SUITCASES = "How many suitcases, as a number, can I take in total on my reservation {id}?"

QUESTIONS: Mapping[str, Asked] = {
    "3": Asked(("4",), before=(SUITCASES.format(id="JMO1MG"),)),
    "7": Asked(("1628",), after=(UPCOMING,)),
    "11": Asked(("5244",), after=(REFUND,)),
    "14": Asked(("327", "1000", "44"), before=(BALANCES,), after=(CHARGED,)),
    "18": Asked(("23553",), after=(REFUND,)),
    "23": Asked(("327", "1000", "1286"), before=(BALANCES,), after=(CHARGED,)),
}


def topics(package: Package, task: Any) -> tuple[Topic, ...]:
    """Everything the caller brings up, in order; empty where its scenario has to speak for itself."""
    words = asked(task)
    return (*map(Question, words.before), *wishes(package, task), *map(Question, words.after))


def asked(task: Any) -> Asked:
    """What the caller asks in this task; where the wording is not known, the reason for the call after the wishes."""
    strings = tuple(task.evaluation_criteria.communicate_info or ())
    known = QUESTIONS.get(task.id)
    if known is not None and known.strings == strings:
        return known
    reason = " ".join(statements(task.user_scenario.instructions.reason_for_call))
    return Asked(strings, after=(reason,) if strings and reason else ())
