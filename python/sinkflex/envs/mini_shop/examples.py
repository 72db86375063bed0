"""Example conversations for the prompt, in sentences: the expert at work for people and orders that occur in no task.

They are played, not written: a task is built from seeds of its own, and in what was said its name, zip, order and item
ids are replaced by others, which the generator never draws.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ..conversation import Message, ToolCall
from . import sentences
from .expert import Expert
from .generator import build
from .tasks import Kind, ShopTask
from .tools import call_tool
from .user import Customer

MOST = 8
_NAMES = ("Max", "Nell", "Ivo", "Ruth", "Lars", "Bea", "Karl", "Dora")
_KINDS: dict[int, tuple[Kind, ...]] = {
    0: ("status", "order", "item"),
    1: ("cancel", "refund", "swap"),
    2: ("money", "swap"),
    3: ("app",),
    4: ("cancel", "status"),
}
_FIRST_SEED = 4_000_000_000
_ID = re.compile(r"\b([zWv])(\d\d)\b")


def examples(levels: Sequence[int], count: int) -> Sequence[Message]:
    """`count` conversations, in which the levels take turns. ValueError for more than there are."""
    if count > MOST:
        raise ValueError(f"mini-shop has {MOST} example conversations, {count} were asked for")
    chosen = itertools.islice(itertools.cycle(levels), count)
    return tuple(m for place, level in enumerate(chosen) for m in _conversation(level, place // len(levels), place))


@lru_cache(maxsize=256)
def _conversation(level: int, turn: int, place: int) -> tuple[Message, ...]:
    """The `turn`-th example of a level, the `place`-th of the prompt: the expert's episode up to its last turn."""
    kind = _KINDS[level][turn % len(_KINDS[level])]
    tasks = (build(seed, level) for seed in itertools.count(_FIRST_SEED + 10_000 * place))
    task = next(task for task in tasks if task.wishes[0].kind == kind or (level == 3 and len(task.wishes) == 1))
    state, customer, agent = task.start(), Customer(task, place, sentences), sentences.InSentences(Expert())
    said = [Message("user", customer.open().text)]
    over = False
    while not over:
        action = agent.act(tuple(said[-1:]))
        calls = tuple(replace(call, id=f"example.{place}.{len(said)}") for call in action.tool_calls)
        said.append(Message("assistant", action.text, tool_calls=calls))
        for call in calls:
            result = sentences.result(call.name, call_tool(state, "agent", call))
            said.append(Message("tool", result, name=call.name, tool_call_id=call.id))
            over = call.name == "hand_off"
        if not calls:
            reply = customer.reply(action.text, lambda call: call_tool(state, "user", call))
            said.append(Message("user", reply.text))
            over = reply.stop
    return tuple(_renamed(message, task, _NAMES[place]) for message in said[:-1])


def _renamed(message: Message, task: ShopTask, name: str) -> Message:
    def text(words: Any) -> Any:
        words = re.sub(rf"\b{task.name.title()}\b", name, words)
        return _ID.sub(lambda found: f"{found[1]}{int(found[2]) + 50}", words)

    calls = tuple(
        ToolCall(call.name, {key: text(value) for key, value in call.arguments.items()}, call.id)
        for call in message.tool_calls
    )
    return replace(message, content=text(message.content), tool_calls=calls)
