"""The scripted expert: obeys the policy and reads observations only.

It understands the customer by the words of `speech` and keeps what tools have told it. `decide` is a pure function of
what it has read, so the faulty demonstrator can ask it for the right action and do another.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..conversation import AgentAction, Message, Observation, ToolCall
from .rules import money_back_action, reason_against
from .state import Order
from .tasks import ASKS
from .words import COLOURS, NAMES, ORDERS, PRODUCTS, WRITES, ZIPS

_CURES = {"airplane": "airplane off", "permission": "permission on", "old": "restart app"}
WRITE_TOOLS = {"cancel": "cancel_order", "refund": "refund_order", "swap": "swap_item"}
_ACTIONS = {tool: action for action, tool in WRITE_TOOLS.items()}


def say(text: str) -> AgentAction:
    return AgentAction(text=text)


def call(name: str, /, **arguments: str) -> AgentAction:
    return AgentAction(tool_calls=(ToolCall(name, arguments),))


def plan(action: str, order: str, colour: str | None, item: str | None) -> str:
    """What the agent says before a write: the action, the order, and the item in question (of a swap the new one, with
    its colour, which is how the customer knows it)."""
    return " ".join(filter(None, (action, order, colour, item, "?")))


def _first(words: list[str], group: tuple[str, ...]) -> str | None:
    return next((word for word in words if word in group), None)


@dataclass(slots=True)
class Heard:
    """The present wish as the agent understands it. `seen` is the last look at the phone."""

    kind: str
    ref: str | None
    target: str | None
    agreed: bool = False
    written: bool = False
    seen: str | None = None


class Expert:
    """See the module's docstring. `request` counts the wishes that followed the first."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.zip: str | None = None
        self.listed: tuple[str, ...] = ()
        self.identified = False
        self.orders: dict[str, tuple[str, Order]] = {}
        self.products: dict[str, tuple[tuple[str, str, bool], ...]] = {}
        self.wish = Heard("", None, None)
        self.request = 0
        self._last: ToolCall | None = None

    def act(self, observation: Observation) -> AgentAction:
        for message in observation:
            self._read(message)
        action = self.decide()
        self._last = action.tool_calls[0] if action.tool_calls else None
        return action

    # Reading

    def _read(self, message: Message) -> None:
        if message.role == "user":
            self._hear(message.content.split())
        elif message.role == "tool" and not message.is_error and self._last is not None:
            self._learn(self._last, message.content.split())

    def _hear(self, words: list[str]) -> None:
        self.name = self.name or _first(words, NAMES)
        self.zip = self.zip or _first(words, ZIPS)
        wish, kind = self.wish, _kind(words)
        ref = _first(words, ORDERS)
        target = _first(words, COLOURS)
        products = [word for word in words if word in PRODUCTS]
        if "to" in words and products and words[-1] == products[-1] and words[-2] == "to":
            target = products.pop()
        if kind is not None:
            self.request += "now" in words or "also" in words
            self.wish = Heard(kind, ref or (products[0] if products else None), target)
        elif "yes" in words:
            wish.agreed = True
        elif wish.kind == "app":
            wish.seen = next((sight for sight in _CURES if sight in words), None)
        elif wish.ref is None:
            wish.ref = ref or (products[0] if products else None)
        elif wish.target is None:
            wish.target = target or (products[0] if products else None)

    def _learn(self, done: ToolCall, words: list[str]) -> None:
        if done.name == "find_user":
            self.identified, self.listed = True, tuple(words[1:])
        elif done.name == "get_order":
            order, status, product, item = words
            self.orders[done.arguments["order"]] = (order, Order(status, product, item))
        elif done.name == "get_product":
            self.products[done.arguments["product"]] = _variants(words)
        elif done.name in _ACTIONS:
            self.wish.written = True

    # Deciding

    def decide(self) -> AgentAction:
        wish = self.wish
        if not self.identified:
            if self.name is None or self.zip is None:
                return say("name zip ?")
            return call("find_user", name=self.name, zip=self.zip)
        if wish.kind == "app":
            return say(_CURES[wish.seen] if wish.seen else "read status")
        if wish.ref is None:
            return say("which order ?")
        if wish.ref not in self.orders:
            return call("get_order", order=wish.ref)
        number, order = self.orders[wish.ref]
        if wish.kind in ASKS:
            return say(
                {"status": f"{number} {order.status}", "item": f"{order.product} {order.item}"}.get(
                    wish.kind, f"order {number}"
                )
            )
        return self._serve(wish, number, order)

    def _serve(self, wish: Heard, number: str, order: Order) -> AgentAction:
        """A write: look, decide by policy, say the plan, write, say done."""
        if wish.written:
            return say("done")
        action = money_back_action(order.status) if wish.kind == "money" else wish.kind
        item: str | None = None
        if action == "swap" and order.status == "pending":
            if wish.target is None:
                return say("which colour ?")
            if wish.target in COLOURS:
                if order.product not in self.products:
                    return call("get_product", product=order.product, colour=wish.target)
                item = next((i for colour, i, _ in self.products[order.product] if colour == wish.target), None)
        reason = reason_against(
            action, order, item, self.products | {order.product: self.products.get(order.product, ())}
        )
        if reason is not None:
            return call("hand_off", order=number, reason=reason)
        if not wish.agreed:
            return say(plan(action, number, wish.target if item else None, item or order.item))
        if action == "swap":
            return call("swap_item", order=number, item=str(item))
        return call(WRITE_TOOLS[action], order=number)


def _kind(words: list[str]) -> str | None:
    """The kind of a new request, or None where the words make none."""
    if action := _first(words, WRITES):
        return action
    if "money" in words:
        return "money"
    if "app" in words and ("show" in words or "wrong" in words):
        return "app"
    if "where" in words or "how" in words:
        return "status"
    if "item" in words:
        return "item"
    return "order" if "order" in words and ("which" in words or "what" in words) else None


def _variants(words: list[str]) -> tuple[tuple[str, str, bool], ...]:
    """ "red v31" or "red v31 sold" as the one variant it tells: (colour, item, sold out)."""
    return ((words[0], words[1], words[-1] == "sold"),)
