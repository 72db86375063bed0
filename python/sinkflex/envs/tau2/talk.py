"""A scripted agent whose conversation is one generator: it yields actions and is sent what comes back, so that its code
reads like the conversation."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ..conversation import AgentAction, Observation, ToolCall

Talk = Generator[AgentAction, Observation, Any]


class Conversation:
    """What every such conversation is made of; `run` is the whole of it."""

    def run(self, observation: Observation) -> Talk:
        raise NotImplementedError

    def _say(self, words: str) -> Talk:
        """Returns what the user answers."""
        observation = yield AgentAction(text=words)
        return observation[-1].content

    def _call(self, tool: str, **arguments: Any) -> Talk:
        """Returns the tool's message."""
        observation = yield AgentAction(tool_calls=(ToolCall(tool, arguments),))
        return observation[-1]


class TalkingAgent:
    """One episode of a conversation."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._talk: Talk | None = None

    def act(self, observation: Observation) -> AgentAction:
        if self._talk is None:
            self._talk = self._conversation.run(observation)
            return next(self._talk)
        return self._talk.send(observation)
