"""The words that agent, user and environment exchange.

Idea: an episode is a list of `Message`s. The agent adds to it by an `AgentAction` (words to the user, or
tool calls, or an output that could not be parsed); everything else arrives as messages in an observation.
These types know nothing of tokens: `sinkflex.policy` turns them into ids and back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool", "env"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as the agent wrote it. `arguments` is whatever was parsed: an object when the agent behaved,
    any other JSON value or the raw text when it did not. The environment validates; the parser never guesses."""

    name: str
    arguments: Any
    id: str = ""


@dataclass(frozen=True, slots=True)
class AgentAction:
    """What the agent does in one turn: `text` to the user, or one or more `tool_calls`.

    `error` says why the policy's output could not be read as either; the environment answers it with an
    error observation and the turn is spent. `text` beside `tool_calls` is kept in the transcript and not
    delivered (the calls decide the channel). `thinking` is never shown to anybody.
    """

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    error: str | None = None
    thinking: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of the conversation. `role="env"` carries an error observation that belongs to no tool call.
    `tool_call_id` ties a tool result to its call; `name` is the tool's name in a tool result."""

    role: Role
    content: str
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    is_error: bool = False


Observation = tuple[Message, ...]
"""The messages added since the agent's last action, oldest first. Never empty."""
