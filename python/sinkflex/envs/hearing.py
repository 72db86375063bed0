"""How words cross between agent and user: what the user hears of the agent, and when the user's words end the talk.

Only the user's side can end a conversation (B86). Simulated users, scripted or models, may end it by a marker in
their text; a marker counts wherever it stands, and the words around it are kept (B85). The agent's private reasoning
is never spoken (B84).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from .domain import UserFault, UserTurn

STOP_MARKERS = {
    "###STOP###": "user_stop",
    "###TRANSFER###": "transfer",
    "###OUT-OF-SCOPE###": "out_of_scope",
}
Result = TypeVar("Result")
_THINKING = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)


def spoken(text: str) -> str:
    """The part of an agent's text that is meant for the user: reasoning blocks, closed or cut, are removed."""
    return (_THINKING.sub("", text) if "<think>" in text else text).strip()


def read_user_turn(turn: UserTurn) -> UserTurn:
    """`turn` with any stop marker taken out of its text and turned into `stop` and a reason."""
    found = [marker for marker in STOP_MARKERS if marker in turn.text]
    if not found:
        return turn
    first = min(found, key=turn.text.index)
    text = turn.text
    for marker in found:
        text = text.replace(marker, " ")
    return UserTurn(" ".join(text.split()), stop=True, reason=turn.reason or STOP_MARKERS[first])


async def listen(speak: Callable[[], UserTurn | Awaitable[UserTurn]]) -> UserTurn:
    """What the user says. A user that says nothing is asked once more; silence again is the user's fault, never
    the agent's (B87): UserFault."""
    for _ in range(2):
        said = speak()
        turn = read_user_turn(await said if inspect.isawaitable(said) else said)
        if turn.stop or turn.text.strip():
            return turn
    raise UserFault("the simulated user returned an empty reply twice in a row")


def without_waiting(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """The result of a coroutine that never waits. TypeError when it does: then somebody answers asynchronously."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: Result = done.value
        return result
    coroutine.close()
    raise TypeError("this user answers asynchronously: await areset() and astep() instead of reset() and step()")
