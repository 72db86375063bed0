"""The scripted agents but for the expert: the task's own answer, and two that measure what a score is worth."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ..conversation import AgentAction, Observation, ToolCall
from ..domain import ToolSpec


class Gold:
    """Makes the right call. It knows the task, as its name says."""

    def __init__(self, call: ToolCall) -> None:
        self._call = call

    def act(self, observation: Observation) -> AgentAction:
        return AgentAction(tool_calls=(self._call,))


class Noop:
    """Says that it is done, and nothing else."""

    def act(self, observation: Observation) -> AgentAction:
        return AgentAction(text="Done.")


class RandomAgent:
    """A valid call at random: texts are one to three words of the request in a row, numbers one of the request's."""

    def __init__(self, tools: Sequence[ToolSpec], seed: int) -> None:
        self._tools, self._rng = tools, Random(seed)

    def act(self, observation: Observation) -> AgentAction:
        words = [word.strip('.,:;?!"') for word in observation[-1].content.split()]
        numbers = [int(word) for word in words if word.isdigit()] or [1]
        tool = self._rng.choice(self._tools)
        arguments = {
            name: self._rng.choice(numbers) if schema["type"] == "integer" else self._some(words)
            for name, schema in tool.parameters["properties"].items()
        }
        return AgentAction(tool_calls=(ToolCall(tool.name, arguments),))

    def _some(self, words: Sequence[str]) -> str:
        start = self._rng.randrange(len(words))
        return " ".join(words[start : start + self._rng.randint(1, 3)])
