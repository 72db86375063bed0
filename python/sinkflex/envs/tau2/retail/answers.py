"""The scripted expert's answers to questions, from what it has read and done in the conversation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Entity = Mapping[str, Any]

_NAME = re.compile(r"\b[A-Z][\w-]*(?: [A-Z][\w-]*)*")
_OFFICE = ("Desk Lamp", "Headphones", "Laptop", "Mechanical Keyboard", "Office Chair")
_MONEY_BACK = re.compile(r"get back in total|total refund|price difference|need to pay today")


@dataclass
class Ledger:
    """What each write of this conversation gives back (positive) or costs (negative)."""

    amounts: list[float] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)

    def note(self, tool: str, arguments: Entity, before: Entity | None, after: Entity | None, products: Entity) -> None:
        if before is None or after is None:
            return
        prices = {item["item_id"]: item["price"] for item in before["items"]}
        if tool == "cancel_pending_order":
            self.amounts.append(before["payment_history"][0]["amount"])
        elif tool == "return_delivered_order_items":
            self.amounts.append(sum(prices[item_id] for item_id in arguments["item_ids"]))
            self.returned += arguments["item_ids"]
        elif "new_item_ids" in arguments:
            new = {i: v["price"] for product in products.values() for i, v in product["variants"].items()}
            old_total = sum(prices[item_id] for item_id in arguments["item_ids"])
            self.amounts.append(old_total - sum(new[item_id] for item_id in arguments["new_item_ids"]))


def product_wanted(question: str) -> tuple[str, ...] | None:
    """Product types whose catalogue is needed to answer; None where the customer's own orders suffice."""
    if not re.search(r"available|in your online store", question):
        return None
    names = _NAME.findall(question)
    return tuple(names + [name.removesuffix("s") for name in names])


def answer(
    question: str, user: Entity, orders: Mapping[str, Entity], products: Mapping[str, Entity], ledger: Ledger
) -> str:
    names = product_wanted(question)
    if names is not None:
        return _catalogue(question, [p for p in products.values() if p["name"] in names], orders)
    if _MONEY_BACK.search(question):
        parts = ", ".join(f"{abs(amount):.2f}" for amount in ledger.amounts)
        words = f"The total is {abs(sum(ledger.amounts)):.2f} dollars ({parts})."
        return f"{words} {_totals(orders.values())}" if "total price" in question else words
    if "remaining items" in question:
        return _remaining(orders.values(), ledger)
    if "gift card" in question:
        cards = [m for m in user["payment_methods"].values() if m["source"] == "gift_card"]
        balances = ", ".join(f"{card['balance']:.2f}" for card in cards)
        return f"The balance of your gift card is {balances} dollars. {_paid_with(user, orders.values())}"
    if "total price of all" in question:
        prices = [i["price"] for order in orders.values() for i in order["items"] if f"{i['name']}s" in question]
        return f"The total is {sum(prices):.2f} dollars."
    if "home office" in question:
        items = [item for order in _in_city(question, orders) for item in order["items"]]
        prices = [item["price"] for item in items if item["name"] in _OFFICE]
        return f"You would get {sum(prices):.2f} dollars back."
    if "most expensive" in question:
        items = [item for order in orders.values() if "pending" in order["status"] for item in order["items"]]
        top = max(items, key=lambda item: float(item["price"]))
        return f"The most expensive item is the {top['name']} at {top['price']:.2f} dollars."
    return _orders(question, orders.values())


def _catalogue(question: str, products: Sequence[Entity], orders: Mapping[str, Entity]) -> str:
    words = []
    for product in products:
        variants = [v for v in product["variants"].values() if v["available"]]
        if "How many" in question:
            words.append(f"There are {len(variants)} available options of the {product['name']}.")
        elif "bamboo" in question:
            fits = [v for v in variants if "bamboo" in v["options"].values()]
            words += [f"{_options(v)} costs {v['price']} dollars." for v in fits]
        else:
            best = min(variants, key=lambda v: float(v["price"]))
            words.append(f"The cheapest {product['name']} costs {best['price']:.2f} dollars ({_options(best)}).")
    if "save" in question:
        words.append(_savings(question, products, orders))
    return " ".join(words) or "I do not have that product."


def _savings(question: str, products: Sequence[Entity], orders: Mapping[str, Entity]) -> str:
    """Returning against exchanging for the cheapest: both amounts, for items that were delivered."""
    returned, saved = 0.0, 0.0
    parts = question.split("save by exchanging")
    for order in orders.values():
        for item in order["items"] if order["status"] == "delivered" else ():
            if item["name"] in parts[0]:
                returned += item["price"]
            for product in products:
                if item["name"] == product["name"] and item["name"] in parts[-1]:
                    prices = [v["price"] for v in product["variants"].values() if v["available"]]
                    saved += item["price"] - min(prices)
    return f"Returning gives {returned:.2f} dollars back, exchanging saves {saved:.2f} dollars."


def _orders(question: str, orders: Any) -> str:
    """The customer's orders in words, or those that the question names by a product or a status."""
    named = [order for order in orders if any(item["name"] in question for item in order["items"])]
    cancelled = [order for order in orders if order["status"] == "cancelled"] if "cancelled order" in question else []
    return " ".join(_order(order) for order in cancelled or named or orders)


def _in_city(question: str, orders: Mapping[str, Entity]) -> list[Entity]:
    return [order for order in orders.values() if order["address"]["city"] in question]


def _order(order: Entity) -> str:
    items = "; ".join(f"{item['name']} ({_options(item)}) for {item['price']} dollars" for item in order["items"])
    tracking = ", ".join(number for f in order["fulfillments"] for number in f["tracking_id"])
    where = order["address"]
    place = f"{where['address1']}, {where['address2']}, {where['city']}, {where['state']} {where['zip']}"
    total = sum(item["price"] for item in order["items"])
    sent = f" Tracking number: {tracking}." if tracking else ""
    return f"Order {order['order_id']} ({order['status']}): {items}. Total {total:.2f} dollars. Address: {place}.{sent}"


def _totals(orders: Any) -> str:
    return " ".join(f"Order {o['order_id']}: {o['payment_history'][0]['amount']:.2f} dollars." for o in orders)


def _remaining(orders: Any, ledger: Ledger) -> str:
    gone = set(ledger.returned)
    touched = [order for order in orders if gone & {item["item_id"] for item in order["items"]}]
    left = sum(item["price"] for order in touched for item in order["items"] if item["item_id"] not in gone)
    return f"You paid {left:.2f} dollars for the remaining items."


def _paid_with(user: Entity, orders: Any) -> str:
    words = []
    for order in orders:
        method = user["payment_methods"].get(order["payment_history"][0]["payment_method_id"], {})
        words.append(f"Order {order['order_id']} was paid with {method.get('brand') or method.get('source')}.")
    return " ".join(words)


def _options(thing: Entity) -> str:
    return ", ".join(f"{name}: {value}" for name, value in thing["options"].items())
