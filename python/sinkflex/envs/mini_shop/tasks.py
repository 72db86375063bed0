"""What a task is: a customer with wishes, a small world, and the end that policy wants.

Gold is derived, not written: each wish is resolved by the rules (a deed, a hand-off, a fact, a repaired phone) and
the deeds are applied to the world.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .rules import money_back_action, reason_against
from .state import Catalogue, Device, Order, ShopState

Kind = Literal["cancel", "refund", "swap", "money", "status", "item", "order", "app"]
Reference = Literal["id", "product", "none"]
ASKS = ("status", "item", "order")
SERVICES = ("cancel", "refund", "swap", "money")


@dataclass(frozen=True, slots=True)
class Wish:
    """One request. The customer speaks of the order by `ref`: its id, the product in it, or not at all until asked.
    `target` is the colour (or other product) of a swap and `item` the id behind a colour; a `shy` customer names the
    target only when asked. `instead` is what the customer wants after all once the plan for this wish is said."""

    kind: Kind
    order: str
    product: str
    ref: Reference = "id"
    target: str = ""
    item: str = ""
    shy: bool = False
    instead: Wish | None = None


@dataclass(frozen=True, slots=True)
class ShopTask:
    """The whole content of a task. `introduced`: the customer gives name and zip in the first words."""

    level: int
    name: str
    zip: str
    introduced: bool
    wishes: tuple[Wish, ...]
    orders: tuple[tuple[str, Order], ...]
    catalogue: Catalogue
    device: Device

    def item_of(self, order: str) -> str:
        """What is in one of the customer's orders, as the task begins."""
        return dict(self.orders)[order].item

    def start(self) -> ShopState:
        return ShopState(self.name, self.zip, dict(self.orders), self.catalogue, self.device)


Goal = tuple[str, ...]
"""("identified",) · ("order", id, status, item) · ("knows", fact) · ("hand_off", order, reason) · ("device", field)."""


@dataclass(frozen=True, slots=True)
class Gold:
    """The final state that counts as success, and the sub-goals on the way to it."""

    orders: dict[str, Order]
    knows: tuple[str, ...]
    hand_off: tuple[str, str] | None
    goals: tuple[Goal, ...]


def fact(wish: Wish, order: Order) -> str:
    """What the customer knows once this question is answered rightly."""
    match wish.kind:
        case "status":
            return f"{wish.order} {order.status}"
        case "item":
            return f"{wish.order} {order.item}"
        case "order":
            return f"{wish.product} {wish.order}"
        case _:
            return f"app {wish.order} {order.status}"


def resolve(wish: Wish, order: Order, catalogue: Catalogue) -> tuple[str, str | None]:
    """(the write that serves a service wish, the reason that forbids it or None)."""
    action = money_back_action(order.status) if wish.kind == "money" else wish.kind
    return action, reason_against(action, order, wish.item or None, catalogue)


def gold(task: ShopTask) -> Gold:
    orders = dict(task.orders)
    knows: list[str] = []
    hand_off: tuple[str, str] | None = None
    goals: list[Goal] = [("identified",)]
    device = task.device
    for stated in task.wishes:
        wish = stated.instead or stated
        order = orders[wish.order]
        if wish.kind in SERVICES:
            action, reason = resolve(wish, order, task.catalogue)
            if reason is not None:
                hand_off = (wish.order, reason)
                goals.append(("hand_off", *hand_off))
                continue
            status = {"cancel": "cancelled", "refund": "refunded"}.get(action, order.status)
            after = Order(status, order.product, wish.item if action == "swap" else order.item)
            orders[wish.order] = after
            goals.append(("order", wish.order, after.status, after.item))
        else:
            if wish.kind == "app":
                faults = (("airplane", device.airplane), ("permitted", not device.permitted), ("old", device.old))
                goals += [("device", name) for name, wrong in faults if wrong]
            knows.append(fact(wish, order))
            goals.append(("knows", knows[-1]))
    return Gold(orders, tuple(knows), hand_off, tuple(goals))
