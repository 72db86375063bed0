"""The scripted customer.

It answers what it is asked, agrees only to a plan that matches its wish and corrects any other, does with its phone
what it is asked for by name and says what it sees, believes the first answer it gets, and leaves when all wishes are
served or after `PATIENCE` useless turns in one of them. It reads the agent's words by keyword, so their order, case
and punctuation do not matter; a message that names two plans, two facts or two things to do at once is useless.
It acts on the shared state through its own tools only: `approve`, `note`, and its phone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..conversation import ToolCall
from ..domain import UserTools, UserTurn
from . import speech as words
from .speech import Speech
from .tasks import ASKS, SERVICES, ShopTask, Wish
from .words import COLOURS, ITEMS, ORDERS, STATUSES, WRITES

PATIENCE = 3
_MASK = 2**64 - 1
_ORDERS, _ITEMS, _STATUSES, _COLOURS = map(frozenset, (ORDERS, ITEMS, STATUSES, COLOURS))
_FINISHED = frozenset(("done", "cancelled", "refunded", "swapped"))
_WORD = re.compile(r"\w+")
_DEVICE = ("airplane", "permission", "restart", "status")


class Customer:
    """One customer in one episode. All that changes is in `snapshot`."""

    def __init__(self, task: ShopTask, seed: int, speech: Speech = words) -> None:
        self._task, self._seed, self._speech = task, seed, speech
        self._index = 0
        self._changed = False
        self._agreed = False
        self._useless = 0
        self._introductions = 0
        self._seen = ""
        self._draws = 0

    def snapshot(self) -> tuple[object, ...]:
        return (
            self._index,
            self._changed,
            self._agreed,
            self._useless,
            self._introductions,
            self._seen,
            self._draws,
        )

    def restore(self, saved: tuple[object, ...]) -> None:
        (
            self._index,
            self._changed,
            self._agreed,
            self._useless,
            self._introductions,
            self._seen,
            self._draws,
        ) = saved  # type: ignore[assignment]

    @property
    def _wish(self) -> Wish:
        wish = self._task.wishes[self._index]
        return wish.instead if self._changed and wish.instead is not None else wish

    def open(self) -> UserTurn:
        task, speech = self._task, self._speech
        request = self._pick(speech.requests(self._wish))
        start = speech.arrival(task.name, task.zip) if task.introduced else self._pick(speech.GREETINGS)
        return UserTurn(f"{start} {request}")

    def reply(self, agent_text: str, tools: UserTools) -> UserTurn:
        said = frozenset(w if w in _ORDERS else w.lower() for w in _WORD.findall(agent_text))
        wish = self._wish
        actions = [word for word in WRITES if word in said]
        if actions:
            return self._consider(actions, said, tools)
        if wish.kind in ASKS and (answer := self._answer(said)):
            return self._learn(answer, said, tools)
        commands = [word for word in _DEVICE if word in said]
        if commands:
            return self._operate(commands, said, tools)
        if "name" in said or "zip" in said:
            self._introductions += 1
            if self._introductions > 2:
                return self._waste()
            return UserTurn(self._pick(self._speech.identities(self._task.name, self._task.zip)))
        if wish.kind == "swap" and ("colour" in said or "item" in said):
            return UserTurn(self._pick(self._speech.targets(wish.target)))
        if self._speech.asks_for_order(said):
            return UserTurn(self._speech.answer(wish))
        if self._agreed and wish.kind in SERVICES and said & _FINISHED:
            return self._next()
        return self._waste()

    # What the agent may have said

    def _consider(self, actions: Sequence[str], said: frozenset[str], tools: UserTools) -> UserTurn:
        """A plan: agree if it is exactly the wish."""
        wish = self._wish
        action = actions[0]
        fits = wish.kind == action or (wish.kind == "money" and action in ("cancel", "refund"))
        fits = fits and len(actions) == 1 and said & _ORDERS == {wish.order}
        items, colours = said & _ITEMS, said & _COLOURS
        if fits and action == "swap":
            fits = items <= {wish.item} and colours <= {wish.target} and bool(items or colours)
        elif fits:
            fits = items <= {self._task.item_of(wish.order)} and not colours
        if not fits:
            return self._waste()
        if self._task.wishes[self._index].instead is not None and not self._changed:
            self._changed = True
            return UserTurn(self._pick(self._speech.changes(self._wish)))
        consent = {"action": action, "order": wish.order} | ({"item": wish.item} if action == "swap" else {})
        tools(ToolCall("approve", consent))
        self._agreed = True
        return UserTurn(self._pick(self._speech.AGREEMENTS))

    def _answer(self, said: frozenset[str]) -> frozenset[str]:
        """The words of the message that could answer the present question."""
        kinds = {"status": _STATUSES, "item": _ITEMS, "order": _ORDERS}
        return said & kinds[self._wish.kind]

    def _learn(self, answer: frozenset[str], said: frozenset[str], tools: UserTools) -> UserTurn:
        wish = self._wish
        about_another = wish.kind != "order" and not said & _ORDERS <= {wish.order}
        if len(answer) > 1 or about_another:
            return self._waste(self._speech.WHICH if len(answer) > 1 else None)
        subject = wish.product if wish.kind == "order" else wish.order
        tools(ToolCall("note", {"fact": f"{subject} {next(iter(answer))}"}))
        return self._next()

    def _operate(self, commands: Sequence[str], said: frozenset[str], tools: UserTools) -> UserTurn:
        """One thing with the phone, then a look at it."""
        wish = self._wish
        command = commands[0]
        modes = [mode for mode in ("on", "off") if mode in said]
        if len(commands) > 1 or (command in ("airplane", "permission") and len(modes) != 1):
            return self._waste(self._speech.WHICH)
        if command == "restart":
            tools(ToolCall("restart_app", {}))
        elif command != "status":
            tools(ToolCall(f"set_{command}", {"mode": modes[0]}))
        report = tools(ToolCall("read_status", {"order": wish.order}))
        said_so = self._speech.sight(report)
        if wish.kind != "app":
            return self._waste(said_so)
        if report.startswith("app shows"):
            tools(ToolCall("note", {"fact": f"app {wish.order} {report.split()[-1]}"}))
            return self._next(said_so)
        if report == self._seen:
            return self._waste(said_so)
        self._seen = report
        return UserTurn(said_so)

    # What comes of it

    def _next(self, before: str = "") -> UserTurn:
        """The present wish is served as far as the customer can tell."""
        self._index += 1
        self._changed = self._agreed = False
        self._useless, self._seen = 0, ""
        if self._index == len(self._task.wishes):
            return UserTurn(f"{before} {self._pick(self._speech.FAREWELLS)}".strip(), stop=True, reason="user_stop")
        request = self._pick(self._speech.requests(self._wish))
        return UserTurn(f"{before} {self._pick(self._speech.FOLLOW_UPS)} {request}".strip())

    def _waste(self, instead: str | None = None) -> UserTurn:
        """A turn that brought nothing: say the wish again, or give up."""
        self._useless += 1
        if self._useless >= PATIENCE:
            return UserTurn(self._speech.BYE, stop=True, reason="user_gave_up")
        return UserTurn(instead or self._speech.insistence(self._wish))

    def _pick(self, ways: Sequence[str]) -> str:
        """One of several ways to say it, by the seed and the number of choices so far (a splitmix64 step: a generator
        object would cost more than the rest of the episode)."""
        self._draws += 1
        x = (self._seed + self._draws * 0x9E3779B97F4A7C15) & _MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        return ways[(x ^ (x >> 31)) % len(ways)]
