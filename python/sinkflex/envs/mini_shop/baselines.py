"""Agents that must not succeed: they measure what a score is worth."""

from __future__ import annotations

from random import Random

from ..conversation import AgentAction, Observation
from . import words
from .expert import Expert, call, say


class Noop:
    """Says that it is done, and nothing else."""

    def act(self, observation: Observation) -> AgentAction:
        return say("done")


class RandomAgent:
    """Valid calls and the expert's kinds of messages at random. Ids come, with even odds, from what it has been shown
    (the stronger half) or from all there are."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self._shown: dict[tuple[str, ...], list[str]] = {}

    def act(self, observation: Observation) -> AgentAction:
        for message in observation:
            for word in message.content.split():
                for group in (words.NAMES, words.ZIPS, words.ORDERS, words.ITEMS, words.PRODUCTS):
                    if word in group:
                        self._shown.setdefault(group, []).append(word)
        return self._message() if self._rng.random() < 0.5 else self._call()

    def _one(self, group: tuple[str, ...]) -> str:
        shown = self._shown.get(group)
        return self._rng.choice(shown if shown and self._rng.random() < 0.5 else group)

    def _message(self) -> AgentAction:
        order, item = self._one(words.ORDERS), self._one(words.ITEMS)
        texts = (
            "name zip ?",
            "which order ?",
            "which colour ?",
            "read status",
            "airplane off",
            "permission on",
            "restart app",
            "done",
            f"cancel {order} {item} ?",
            f"refund {order} {item} ?",
            f"swap {order} {item} ?",
            f"order {order}",
            f"item {item}",
            f"{order} {self._rng.choice(words.STATUSES)}",
        )
        return say(self._rng.choice(texts))

    def _call(self) -> AgentAction:
        order = self._one(words.ORDERS)
        match self._rng.randrange(7):
            case 0:
                return call("find_user", name=self._one(words.NAMES), zip=self._one(words.ZIPS))
            case 1:
                return call("get_order", order=self._rng.choice((order, self._one(words.PRODUCTS))))
            case 2:
                return call("get_product", product=self._one(words.PRODUCTS), colour=self._rng.choice(words.COLOURS))
            case 3:
                return call("cancel_order", order=order)
            case 4:
                return call("refund_order", order=order)
            case 5:
                return call("swap_item", order=order, item=self._one(words.ITEMS))
            case _:
                return call("hand_off", order=order, reason=self._rng.choice(words.REASONS))


class HandOff(Expert):
    """Identifies the customer and hands off at once, in the strongest way that needs no look at an order: the order
    that was named, else one of the listed, and the reason that is right most often."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rng = Random(seed)

    def decide(self) -> AgentAction:
        if not self.identified:
            return super().decide()
        order = self.wish.ref if self.wish.ref in words.ORDERS else self._rng.choice(self.listed)
        return call("hand_off", order=str(order), reason="shipped")
