"""Reference agents for telecom, with a user and solo: `noop`, `random` and `gold`.

`gold` replays the task's gold actions: its own as calls, the user's (three quarters of all) as words to the operator,
or as calls too where it is alone. It alone reads the task's gold.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from ...conversation import AgentAction, Observation, ToolCall
from ...domain import ToolSpec
from .phone import SENTENCES, request, sentence

TRANSFER = "transfer_to_human_agents"
HAND_OVER = "YOU ARE BEING TRANSFERRED TO A HUMAN AGENT. PLEASE HOLD ON."
REFUSAL = "I cannot help with that."
TRY = "Please check whether it works now."
FINISH = AgentAction(tool_calls=(ToolCall("done", {}),))

PHRASES = (
    "Could you give me your name and phone number, please?",
    "Are you abroad at the moment?",
    "I can add 2 GB of data for 4 dollars. Shall I do that?",
    "Would you like to change your plan?",
    "Does it work now?",
    "One moment, please.",
    "",
)


class NoopAgent:
    def __init__(self, solo: bool) -> None:
        self.solo = solo

    def act(self, observation: Observation) -> AgentAction:
        return FINISH if self.solo else AgentAction(text=REFUSAL)


class RandomAgent:
    """Words and calls that exist in the domain, with no idea; alone, calls only."""

    def __init__(self, tools: Sequence[ToolSpec], seed: str, solo: bool) -> None:
        self.tools, self.rng, self.solo = tools, random.Random(seed), solo

    def act(self, observation: Observation) -> AgentAction:
        if not self.solo and self.rng.random() < 0.6:
            return AgentAction(text=self.words())
        return AgentAction(tool_calls=(self.call(),))

    def words(self) -> str:
        if self.rng.random() < 0.3:
            return self.rng.choice(PHRASES)
        names = self.rng.sample(list(SENTENCES), self.rng.randint(1, 3))
        return request([sentence(name, self._arguments(("app_name", "permission", "mode"))) for name in names])

    def call(self) -> ToolCall:
        spec = self.rng.choice(self.tools)
        return ToolCall(spec.name, self._arguments(tuple(spec.parameters["properties"])))

    def _arguments(self, names: Sequence[str]) -> dict[str, Any]:
        pools: Mapping[str, Sequence[Any]] = {
            "customer_id": ("C1001", "C1001", "C1001", "C1002"),
            "line_id": ("L1002", "L1002", "L1001", "L1004"),
            "bill_id": ("B1234321", "B1002", "B1003"),
            "id": ("C1001", "L1002", "P1002", "B1234321", "X1"),
            "phone_number": ("555-123-2002", "555-123-2001", "555"),
            "gb_amount": (2.0, 1, 0.5, -1),
            "limit": (1, 12),
            "mode": ("4g_5g_preferred", "4g_only", "2g_only", "6g"),
            "app_name": ("messaging", "browser"),
            "permission": ("storage", "sms", "camera"),
            "apn_settings": ({}, {"apn_name": "internet"}, {"mmsc_url": None}),
        }
        return {name: self.rng.choice(pools.get(name, ("nothing",))) for name in names}


class GoldAgent:
    """`left`: gold actions not yet made. Those of the user that follow one another are asked for in one message."""

    def __init__(self, task: Any, solo: bool) -> None:
        self.left: list[Any] = list(task.evaluation_criteria.actions or ())
        self.solo = solo
        self.transferred = False

    def act(self, observation: Observation) -> AgentAction:
        if self.left and (self.solo or self.left[0].requestor == "assistant"):
            action = self.left.pop(0)
            self.transferred = self.transferred or action.name == TRANSFER
            return AgentAction(tool_calls=(ToolCall(action.name, dict(action.arguments)),))
        if self.solo:
            return FINISH
        asked = []
        while self.left and self.left[0].requestor == "user":
            action = self.left.pop(0)
            asked.append(sentence(action.name, action.arguments))
        if asked:
            return AgentAction(text=request(asked))
        return AgentAction(text=HAND_OVER if self.transferred else TRY)
