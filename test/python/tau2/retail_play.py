"""What the retail tests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sinkflex.envs import DualControlEnv
from sinkflex.envs.conversation import Message

ALL = [str(n) for n in range(114)]
Play = Callable[..., tuple[float, dict[str, Any]]]


def user_words(env: DualControlEnv) -> list[str]:
    return [message.content for message in env.transcript if message.role == "user"]


def package_messages(transcript: tuple[Message, ...], invalid: frozenset[str] = frozenset()) -> list[Any]:
    """The transcript as the package's own message types. `invalid`: ids of calls that never reached the package."""
    from tau2.data_model.message import AssistantMessage, ToolCall, ToolMessage, UserMessage

    out: list[Any] = []
    for m in transcript:
        if m.role == "assistant":
            calls = [
                ToolCall(id=c.id, name=c.name, arguments=c.arguments, requestor="assistant")
                for c in m.tool_calls
                if c.id not in invalid
            ]
            out.append(AssistantMessage(role="assistant", content=m.content or None, tool_calls=calls or None))
        elif m.role == "user":
            out.append(UserMessage(role="user", content=m.content))
        elif m.role == "tool" and m.tool_call_id not in invalid:
            out.append(ToolMessage(id=m.tool_call_id, role="tool", content=m.content, error=m.is_error))
    return out
