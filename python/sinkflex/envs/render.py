"""A conversation as plain text, one message a line."""

from __future__ import annotations

import json
from collections.abc import Iterable

from .conversation import Message


def conversation_text(transcript: Iterable[Message]) -> str:
    lines: list[str] = []
    for message in transcript:
        speaker = {"assistant": "agent"}.get(message.role, message.role)
        if message.role == "tool":
            speaker = f"{message.name} {'refuses' if message.is_error else 'returns'}"
        if message.content or not message.tool_calls:
            lines.append(f"{speaker}: {message.content}")
        for call in message.tool_calls:
            lines.append(f"{speaker} calls {call.name} {json.dumps(call.arguments, ensure_ascii=False, default=str)}")
    return "\n".join(lines)
