"""Reference agents for retail: `random` and `gold`.

`random` says and calls things that exist in the shop, with no idea. `gold` replays the task's gold actions as a
conversation: it states each write as a plan, waits for the customer's yes, and tells the strings that the task
requires. It alone reads the task's gold.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from ...conversation import AgentAction, Message, Observation, ToolCall
from ...domain import ToolSpec
from ..package import Package
from ..reference import HAND_OVER, IMPOSSIBLE
from .plans import describe, done, plan
from .wishes import KINDS, TRANSFER

MAX_PLANS = 3
"""How often gold states a plan that the customer does not confirm before it writes all the same."""

PHRASES = (
    "What is your email address?",
    "Could you give me your name and zip code, please?",
    "What is the order number?",
    "Which payment method should I use?",
    "What is the reason for the cancellation?",
    "Do you confirm (yes/no)?",
    "I will cancel your order. Do you confirm (yes/no)?",
    "I will return all items to your PayPal account. Do you confirm (yes/no)?",
    "Your order has been cancelled.",
    "It has been done. Is there anything else I can help you with?",
    "Unfortunately that is not possible.",
    "I could not find an account with these details.",
    "One moment, please.",
    "",
)


class RandomAgent:
    """Half words, half calls whose arguments name things that exist in the shop."""

    def __init__(self, package: Package, tools: Sequence[ToolSpec], seed: str) -> None:
        self.package, self.tools, self.rng = package, tools, random.Random(seed)

    def act(self, observation: Observation) -> AgentAction:
        if self.rng.random() < 0.5:
            return AgentAction(text=self.rng.choice(PHRASES))
        return AgentAction(tool_calls=tuple(self.call() for _ in range(self.rng.choice((1, 1, 1, 2)))))

    def call(self) -> ToolCall:
        spec = self.rng.choice(self.tools)
        database = self.package.database
        order = self.rng.choice(list(database.orders.values()))
        user = database.users[order.user_id]
        properties: Mapping[str, Any] = spec.parameters["properties"]
        return ToolCall(spec.name, {name: self._argument(name, user, order) for name in properties})

    def _argument(self, name: str, user: Any, order: Any) -> Any:
        rng, products = self.rng, self.package.database.products
        if name in ("item_ids", "new_item_ids"):
            items = rng.sample(order.items, rng.randint(0, min(2, len(order.items))))
            if name == "item_ids":
                return [item.item_id for item in items]
            return [rng.choice(list(products[item.product_id].variants)) for item in items]
        if name in user.address.model_fields_set:
            return getattr(user.address, name)
        pools: dict[str, Sequence[str]] = {
            "order_id": (order.order_id,),
            "user_id": (user.user_id,),
            "email": (user.email,),
            "first_name": (user.name.first_name,),
            "last_name": (user.name.last_name,),
            "product_id": [item.product_id for item in order.items],
            "payment_method_id": list(user.payment_methods),
            "reason": ("no longer needed", "ordered by mistake", "just because"),
            "expression": ("1 + 1", "2 * (3.5 - 1", "9**9**9"),
        }
        return rng.choice(pools.get(name) or ("nothing",))


class GoldAgent:
    """`left`: gold actions not yet replayed. `reports`: what the customer has to be told about those that were."""

    def __init__(self, package: Package, task: Any) -> None:
        criteria = task.evaluation_criteria
        self.names = item_names(package)
        self.left: list[Any] = list(criteria.actions or ())
        self.strings = tuple(criteria.communicate_info or ())
        self.reports: list[str] = []
        self.called: Any = None
        self.plans = 0
        self.asked = False

    def act(self, observation: Observation) -> AgentAction:
        last = observation[-1]
        if last.role == "user":
            self.asked = last.content.endswith("?")
        if self.called is not None:
            self._note(self.called, last)
            self.called = None
        following = self.left[0].name if self.left else None
        if self.reports and (last.is_error or following is None or self._writes_left()):
            return self._report()
        if following is not None and following not in (*KINDS, TRANSFER):
            return self._call()
        if self.asked:
            return AgentAction(text=self._answer())
        if following == TRANSFER and (self.reports or "human agent" in last.content):
            return self._call()
        if following not in KINDS:
            return AgentAction(text=IMPOSSIBLE)
        if self.plans >= MAX_PLANS or (self.plans > 0 and last.content.startswith("Yes")):
            return self._call()
        self.plans += 1
        return AgentAction(text=plan(self.left[0].name, self.left[0].arguments, self.names))

    def _call(self) -> AgentAction:
        self.plans = 0
        self.called = self.left.pop(0)
        return AgentAction(tool_calls=(ToolCall(self.called.name, dict(self.called.arguments)),))

    def _note(self, called: Any, result: Message) -> None:
        if called.name in KINDS:
            self.reports.append(IMPOSSIBLE if result.is_error else done(called.name, called.arguments))
        elif called.name == TRANSFER:
            self.reports.append(HAND_OVER)

    def _report(self) -> AgentAction:
        # The customer may leave now: whatever has to be told is told with the last write.
        words = self.reports + ([self._answer()] if self.strings and not self._writes_left() else [])
        self.reports = []
        return AgentAction(text=" ".join(words))

    def _writes_left(self) -> bool:
        return any(action.name in KINDS for action in self.left)

    def _answer(self) -> str:
        return f"Here is what you asked for: {', '.join(self.strings)}." if self.strings else IMPOSSIBLE


def item_names(package: Package) -> dict[str, str]:
    """Every item of the shop in words, by id."""
    return {
        item_id: describe(product.name, variant.options, item_id)
        for product in package.database.products.values()
        for item_id, variant in product.variants.items()
    }
