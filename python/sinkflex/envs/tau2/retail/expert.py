"""A scripted retail agent that sees only what any agent sees, and follows the policy.

Idea: one conversation is one generator that yields actions and receives observations, so the code reads like the
conversation: find out who it is, look at the orders, understand the request, ask for what is missing, state the plan,
write after a yes, report, next. It knows the scripted customer's phrasing (`reading`), not the task: what it scores is
what the customer's words and the shop's data make possible.
"""

from __future__ import annotations

import json
from typing import Any

from ...conversation import Observation
from ..reference import HAND_OVER, IMPOSSIBLE
from ..talk import Conversation, Talk, TalkingAgent
from .answers import Ledger, answer, product_wanted
from .plans import describe, done, plan
from .reading import (
    AskedItem,
    Request,
    read_address,
    read_email,
    read_name_zip,
    read_order_number,
    read_payment,
    read_reason,
    read_request,
)

WHO = "Could you please tell me your email address, or your full name and zip code?"
UNKNOWN = "I could not find an account with that. Could you check your email address, or your full name and zip code?"
TRIES = 3
PENDING = ("pending",)


class ExpertAgent(TalkingAgent):
    def __init__(self) -> None:
        super().__init__(_Conversation())


class _Refused(Exception):
    """The request cannot be granted; the customer is told so."""


class _Conversation(Conversation):
    def __init__(self) -> None:
        self.user: dict[str, Any] = {}
        self.orders: dict[str, dict[str, Any]] = {}
        self.products: dict[str, dict[str, Any]] = {}
        self.types: dict[str, str] = {}
        self.ledger = Ledger()

    def run(self, observation: Observation) -> Talk:
        text = observation[-1].content
        user_id = yield from self._authenticate()
        self.user = yield from self._read("get_user_details", user_id=user_id)
        for order_id in self.user["orders"]:
            self.orders[order_id] = yield from self._read("get_order_details", order_id=order_id)
        while True:
            request = read_request(text)
            if request is not None:
                text = yield from self._serve(request)
            elif "human agent" in text:
                yield from self._call("transfer_to_human_agents", summary=text)
                text = yield from self._say(HAND_OVER)
            elif text.endswith("?"):
                text = yield from self._say((yield from self._answer(text)))
            else:
                text = yield from self._say(IMPOSSIBLE)

    def _read(self, tool: str, **arguments: Any) -> Talk:
        result = yield from self._call(tool, **arguments)
        return None if result.is_error else json.loads(result.content)

    # Who it is

    def _authenticate(self) -> Talk:
        text = yield from self._say(WHO)
        while True:
            email, name = read_email(text), read_name_zip(text)
            found = None
            if email is not None:
                found = yield from self._call("find_user_id_by_email", email=email)
            elif name is not None:
                first, last, code = name
                found = yield from self._call("find_user_id_by_name_zip", first_name=first, last_name=last, zip=code)
            if found is not None and not found.is_error:
                return found.content
            text = yield from self._say(WHO if found is None else UNKNOWN)

    # One request

    def _serve(self, request: Request) -> Talk:
        try:
            arguments = yield from self._arguments(request)
        except _Refused:
            return (yield from self._say(IMPOSSIBLE))
        reply = yield from self._say(plan(request.tool, arguments, self._names()))
        if not reply.startswith("Yes"):
            return reply
        before = self.orders.get(arguments.get("order_id", ""))
        result = yield from self._call(request.tool, **arguments)
        if result.is_error:
            return (yield from self._say(IMPOSSIBLE))
        self._remember(json.loads(result.content))
        self.ledger.note(request.tool, arguments, before, self.orders.get(arguments.get("order_id", "")), self.products)
        words = done(request.tool, arguments)
        return (yield from self._say(f"{words} Is there anything else I can help you with?"))

    def _arguments(self, request: Request) -> Talk:
        arguments: dict[str, Any] = {}
        order = None
        if request.tool == "modify_user_address":
            arguments["user_id"] = self.user["user_id"]
        else:
            order = yield from self._order(request)
            arguments["order_id"] = order["order_id"]
        if request.items and order is not None:
            yield from self._items(request, order, arguments)
        if request.address is not None:
            arguments |= yield from self._address(request.address, order)
        if request.tool == "cancel_pending_order":
            arguments["reason"] = yield from self._ask(
                request.text, read_reason, "What is the reason for cancelling it?"
            )
        elif request.items or request.tool == "modify_pending_order_payment":
            arguments["payment_method_id"] = yield from self._payment(request, order)
        return arguments

    def _ask(self, text: str, read: Any, question: str) -> Talk:
        for _ in range(TRIES):
            value = read(text)
            if value is not None:
                return value
            text = yield from self._say(question)
        raise _Refused

    def _order(self, request: Request) -> Talk:
        wanted = "delivered" if request.tool.endswith("delivered_order_items") else "pending"
        exact = request.tool in ("cancel_pending_order", "modify_pending_order_items")
        fits = [
            order
            for order in self.orders.values()
            if (order["status"] == wanted or (not exact and wanted in order["status"])) and _holds(order, request)
        ]
        if not fits:
            raise _Refused
        if len(fits) == 1:
            return fits[0]
        number = yield from self._ask("", read_order_number, "What is the order number?")
        if number not in self.orders:
            raise _Refused
        return self.orders[number]

    def _items(self, request: Request, order: dict[str, Any], arguments: dict[str, Any]) -> Talk:
        left = list(order["items"])
        olds, news = [], []
        for asked in request.items:
            old = next((item for item in left if _is(item, asked)), None)
            if old is None:
                raise _Refused
            left.remove(old)
            olds.append(old["item_id"])
            if asked.changes is not None:
                news.append((yield from self._variant(old, asked)))
        arguments["item_ids"] = olds
        if news:
            arguments["new_item_ids"] = news

    def _variant(self, old: dict[str, Any], asked: AskedItem) -> Talk:
        product = yield from self._product(old["product_id"])
        wanted = old["options"] | dict(asked.changes or {})
        for item_id, variant in product["variants"].items():
            if variant["options"] == wanted and variant["available"]:
                return item_id
        raise _Refused

    def _product(self, product_id: str) -> Talk:
        if product_id not in self.products:
            self.products[product_id] = yield from self._read("get_product_details", product_id=product_id)
        return self.products[product_id]

    def _payment(self, request: Request, order: dict[str, Any] | None) -> Talk:
        methods = self.user["payment_methods"]
        question = "Which payment method should I use?"
        paid = yield from self._ask(request.text, lambda text: read_payment(text, methods), question)
        assert order is not None, "only requests about an order are paid"
        original = order["payment_history"][0]["payment_method_id"]
        returned = request.tool == "return_delivered_order_items"
        if returned and paid != original and methods[paid]["source"] != "gift_card":
            raise _Refused
        return paid

    def _address(self, text: str, order: dict[str, Any] | None) -> Talk:
        here = self._referred(text, order)
        if here is None:
            here = yield from self._ask(text, read_address, "What is the full address?")
        return here

    def _referred(self, text: str, order: dict[str, Any] | None) -> dict[str, str] | None:
        """The address that `text` points at, where exactly one fits."""
        if text.startswith("my default address"):
            return dict(self.user["address"])
        if "in another order" not in text:
            return None
        others = [other["address"] for other in self.orders.values() if other is not order]
        fits = [where for where in others if f"the {where['city']} address" in text]
        return dict(fits[0]) if fits and all(where == fits[0] for where in fits) else None

    # Knowing

    def _answer(self, question: str) -> Talk:
        if (name := product_wanted(question)) is not None:
            if not self.types:
                self.types = yield from self._read("list_all_product_types")
            for kind in (kind for kind in name if kind in self.types):
                yield from self._product(self.types[kind])
        if "gift card" in question:
            self.user = yield from self._read("get_user_details", user_id=self.user["user_id"])
        return answer(question, self.user, self.orders, self.products, self.ledger)

    def _remember(self, entity: dict[str, Any]) -> None:
        if "order_id" in entity:
            self.orders[entity["order_id"]] = entity
        else:
            self.user = entity

    def _names(self) -> dict[str, str]:
        items = [item for order in self.orders.values() for item in order["items"]]
        names = {item["item_id"]: describe(item["name"], item["options"], item["item_id"]) for item in items}
        for product in self.products.values():
            for item_id, variant in product["variants"].items():
                names[item_id] = describe(product["name"], variant["options"], item_id)
        return names


def _is(item: dict[str, Any], asked: AskedItem) -> bool:
    same = all(item["options"].get(name) == value for name, value in asked.options.items())
    return bool(item["name"] == asked.name) and same


def _holds(order: dict[str, Any], request: Request) -> bool:
    names = {item["name"] for item in order["items"]}
    if request.items:
        return all(any(_is(item, asked) for item in order["items"]) for asked in request.items)
    return set(request.contents) <= names if request.partly else set(request.contents) == names
