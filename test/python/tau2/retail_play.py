"""What the tests of retail and airline share."""

from __future__ import annotations

import json
import pickle
import re
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


def small_base(database: Any, task: Any, messages: list[Any]) -> bytes:
    """The pickled part of a database that a run and its task's gold can meet, for the package's evaluator: it makes and
    hashes two databases a run, which takes a second with whole ones. In it are the entities whose key is in messages or
    gold, with their owners, all products, and where the run searched for flights those from and to the airports asked
    for. Where a tool would answer otherwise than it did in the run, the evaluator's replay refuses the run."""
    gold = [(action.name, action.arguments) for action in task.evaluation_criteria.actions or ()]
    text = json.dumps([gold, [message.model_dump(mode="json") for message in messages]])
    named = set(re.findall(r"#?\w+", text))
    entities = [(key, entity) for _, table in database for key, entity in table.items()]
    named |= {entity.user_id for key, entity in entities if key in named and "user_id" in vars(entity)}
    calls = [call for m in messages for call in getattr(m, "tool_calls", None) or ()]
    asked = [call.arguments for call in calls if call.name.startswith("search_")]
    ends = {airport for arguments in asked for airport in (arguments.get("origin"), arguments.get("destination"))}

    def met(table: str, key: str, entity: Any) -> bool:
        flies = table == "flights" and bool(ends & {entity.origin, entity.destination})
        return table == "products" or key in named or flies

    tables = {name: {key: e for key, e in table.items() if met(name, key, e)} for name, table in database}
    return pickle.dumps(type(database).model_construct(**tables))
