"""The faulty demonstrator: an expert that makes one serious mistake in about four episodes of five.

The mistake is drawn by the seed from those the task has room for; before and after it the agent plays as the expert
does, on observations only. About one episode in ten also starts by asking for an order before it has identified
anybody, which the shop refuses and the agent then repairs.
"""

from __future__ import annotations

from random import Random

from ..conversation import AgentAction
from .expert import WRITE_TOOLS, Expert, call, plan, say
from .tasks import ASKS, SERVICES, ShopTask, resolve
from .words import ITEMS, ORDERS, REASONS, STATUSES

CLEAN_SHARE = 0.2
BLIND_SHARE = 0.10

_ASK = ("wrong_fact", "no_lookup", "stops_early")
_WRITE = ("no_plan", "wrong_id", "no_write", "needless_hand_off")
_FORBIDDEN = ("writes_anyway", "wrong_reason", "wrong_order")
_APP = ("stops_early", "wrong_cure", "no_device")
_SECOND = ("forgets_second",)


def faults_of(task: ShopTask, index: int) -> tuple[str, ...]:
    """The mistakes that the wish at `index` has room for."""
    wish = task.wishes[index].instead or task.wishes[index]
    if wish.kind in ASKS:
        found: tuple[str, ...] = _ASK
    elif wish.kind in SERVICES:
        order = dict(task.orders)[wish.order]
        found = _WRITE if resolve(wish, order, task.catalogue)[1] is None else _FORBIDDEN
    else:
        found = _APP
    return found + _SECOND if index else found


class Faulty(Expert):
    """See the module's docstring. `fault` names this episode's mistake, None for a clean one."""

    def __init__(self, task: ShopTask, seed: int) -> None:
        super().__init__()
        self._rng = Random(seed)
        self._at = self._rng.randrange(len(task.wishes))
        clean = self._rng.random() < CLEAN_SHARE
        self.fault = None if clean else self._rng.choice(faults_of(task, self._at))
        self._blind = self._rng.random() < BLIND_SHARE
        self._stuck = ""

    def decide(self) -> AgentAction:
        right = super().decide()
        if self._blind and self.wish.ref is not None and not self.identified:
            self._blind = False
            return call("get_order", order=self.wish.ref)
        if self.fault is None or not self.identified or self.request != self._at:
            return right
        return self._mistake(self.fault, right) or right

    def _mistake(self, fault: str, right: AgentAction) -> AgentAction | None:
        """The wrong action in place of the right one, or None where this is not the moment."""
        name = right.tool_calls[0].name if right.tool_calls else ""
        arguments = right.tool_calls[0].arguments if right.tool_calls else {}
        wish = self.wish
        match fault:
            case "wrong_fact" if not name and wish.kind in ASKS and wish.ref in self.orders:
                return self._guess()
            case "no_lookup" if name == "get_order":
                return self._guess()
            case "stops_early" | "forgets_second" | "no_device":
                return self._stop(fault, name)
            case "no_plan" if not name and right.text.endswith("?") and wish.ref in self.orders and not wish.agreed:
                wish.agreed = True
                return super().decide()
            case "wrong_id" if name in WRITE_TOOLS.values():
                return call(name, **{**arguments, "order": self._other(arguments["order"])})
            case "no_write" if name in WRITE_TOOLS.values():
                return say("done")
            case "needless_hand_off" if not name and wish.ref in self.orders and not wish.agreed:
                number, order = self.orders[wish.ref]
                return call("hand_off", order=number, reason=order.status if order.status in REASONS else "other")
            case "writes_anyway" if name == "hand_off":
                return self._write_anyway(arguments["order"])
            case "wrong_reason" if name == "hand_off":
                reasons = [reason for reason in REASONS if reason != arguments["reason"]]
                return call("hand_off", order=arguments["order"], reason=self._rng.choice(reasons))
            case "wrong_order" if name == "hand_off":
                return call("hand_off", order=self._other(arguments["order"]), reason=arguments["reason"])
            case "wrong_cure" if wish.kind == "app" and wish.seen:
                cures = [cure for cure in ("airplane off", "permission on", "restart app") if cure != right.text]
                self._stuck = self._stuck or self._rng.choice(cures)
                return say(self._stuck)
            case _:
                return None

    def _stop(self, fault: str, name: str) -> AgentAction | None:
        """Takes the talk for finished: at once, or in a phone case after the first look."""
        app = self.wish.kind == "app"
        if fault == "stops_early" and ((app and not self.wish.seen) or (not app and name != "get_order")):
            return None
        return say("done")

    def _guess(self) -> AgentAction:
        """An answer that was not looked up, or the wrong line of what was."""
        number = self.wish.ref if self.wish.ref in ORDERS else self._rng.choice(self.listed)
        known = self.orders.get(self.wish.ref or "")
        match self.wish.kind:
            case "status":
                wrong = [s for s in STATUSES[:4] if known is None or s != known[1].status]
                return say(f"{known[0] if known else number} {self._rng.choice(wrong)}")
            case "item" if known:
                # Another column of what was looked up. A random id here would unteach copying, which no reward can
                # bring back: the right one of forty is never sampled.
                return say(f"{known[1].product} {known[0]}")
            case "item":
                return say(f"item {self._rng.choice(ITEMS)}")
            case _:
                return say(f"order {self._other(known[0]) if known else number}")

    def _write_anyway(self, number: str) -> AgentAction:
        """Serves the forbidden wish as if it were allowed: plan, then write."""
        wish = self.wish
        action = "refund" if wish.kind == "money" else wish.kind
        order = self.orders[wish.ref or ""][1]
        items = [item for colour, item, _ in self.products.get(order.product, ()) if colour == wish.target]
        item = items[0] if items else order.item
        if not wish.agreed and not self._stuck:
            self._stuck = "planned"
            return say(plan(action, number, wish.target if action == "swap" else None, item))
        if action == "swap":
            return call("swap_item", order=number, item=item)
        return call(WRITE_TOOLS[action], order=number)

    def _other(self, order: str) -> str:
        """Another order of the customer: a distractor."""
        return self._rng.choice([listed for listed in self.listed if listed != order] or list(ORDERS))
