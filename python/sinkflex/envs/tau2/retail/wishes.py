"""What the scripted customer wants, derived from a task.

Idea: the task's gold writes say what the customer ends up wanting (the task's text is often conditional, the gold list
has taken the branch), in which order, and in which order inside a list (both change the final hash). Each becomes a
`Wish` in a customer's words: product names, the options that change, a payment source, an address, a reason. The ids
stay inside: they recognise a plan and are never spoken, except an order number when it is asked for.
A gold write that errs when it is executed is a wish that will be refused: it is asked for once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..package import Package
from ..state import TableState, fresh
from .questions import DEMANDS, asked, fallback

Kind = Literal["cancel", "return", "exchange", "modify_items", "modify_payment", "modify_address", "user_address"]
Afterwards = Literal["accept", "transfer"]

KINDS: Mapping[str, Kind] = {
    "cancel_pending_order": "cancel",
    "return_delivered_order_items": "return",
    "exchange_delivered_order_items": "exchange",
    "modify_pending_order_items": "modify_items",
    "modify_pending_order_payment": "modify_payment",
    "modify_pending_order_address": "modify_address",
    "modify_user_address": "user_address",
}
TRANSFER = "transfer_to_human_agents"


@dataclass(frozen=True, slots=True)
class Item:
    """An item of an order. `changes`: the options in which the wanted variant differs (empty: the same again), None
    where nothing replaces it. `unique`: its name says which one it is."""

    name: str
    options: Mapping[str, str]
    unique: bool
    item_id: str
    product_id: str
    changes: Mapping[str, str] | None = None
    new_item_id: str | None = None


@dataclass(frozen=True, slots=True)
class Payment:
    """`words` name it among the customer's own methods."""

    id: str
    source: str
    words: str
    last_four: str | None = None


@dataclass(frozen=True, slots=True)
class Address:
    """`reference` is how the customer points at it without spelling it out, where it stands in the shop's data."""

    text: str
    zip: str
    reference: str | None


@dataclass(frozen=True, slots=True)
class Wish:
    """One write. `contents`: names of everything in its order. `others`: those not wished for."""

    kind: Kind
    order_id: str | None = None
    contents: tuple[str, ...] = ()
    items: tuple[Item, ...] = ()
    payment: Payment | None = None
    address: Address | None = None
    reason: str | None = None
    refused: bool = False
    afterwards: Afterwards = "accept"

    @property
    def others(self) -> tuple[str, ...]:
        wanted = {item.name for item in self.items}
        return tuple(name for name in self.contents if name not in wanted)


@dataclass(frozen=True, slots=True)
class Question:
    text: str


@dataclass(frozen=True, slots=True)
class Demand:
    """Something that the policy forbids or the shop cannot do: every plan is turned down, a refusal is accepted or
    answered with the wish for a human agent."""

    text: str
    afterwards: Afterwards = "accept"


Topic = Wish | Question | Demand


def topics(package: Package, task: Any) -> tuple[Topic, ...]:
    """Everything the customer brings up, in order. Never empty."""
    actions = task.evaluation_criteria.actions or ()
    afterwards: Afterwards = "transfer" if any(action.name == TRANSFER for action in actions) else "accept"
    wishes = tuple(_wishes(package, actions, afterwards))
    strings = tuple(task.evaluation_criteria.communicate_info or ())
    if (known := asked(task)) is not None:
        before, after = known.before, known.after
    else:
        before, after = (), (fallback(task),) if strings else ()
    demands: tuple[Topic, ...] = ()
    if not wishes and (task.id in DEMANDS or not strings):
        demands = (Demand(DEMANDS.get(task.id) or fallback(task), afterwards),)
    return (*map(Question, before), *demands, *wishes, *map(Question, after))


def _wishes(package: Package, actions: Any, afterwards: Afterwards) -> Iterator[Wish]:
    """The gold writes in gold order, each described by the database as it stands just before it."""
    state = fresh(package)
    for action in actions:
        facts = _facts(state, action.name, action.arguments) if action.name in KINDS else None
        try:
            state.environment.make_tool_call(action.name, requestor=action.requestor, **action.arguments)
            refused = False
        except Exception:
            refused = True
        if facts is not None:
            yield Wish(kind=KINDS[action.name], refused=refused, afterwards=afterwards, **facts)


def _facts(state: TableState, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    orders, users = state.tables["orders"], state.tables["users"]
    order = orders.peek(arguments["order_id"]) if "order_id" in arguments else None
    user = users.peek(order.user_id if order is not None else arguments["user_id"])
    facts: dict[str, Any] = {"reason": arguments.get("reason")}
    if order is not None:
        facts["order_id"] = order.order_id
        facts["contents"] = tuple(dict.fromkeys(item.name for item in order.items))
        facts["items"] = tuple(_items(state, order, arguments))
    if "payment_method_id" in arguments:
        facts["payment"] = payment(user, arguments["payment_method_id"])
    if "address1" in arguments:
        facts["address"] = _address(state, arguments, user, order)
    return facts


def _items(state: TableState, order: Any, arguments: Mapping[str, Any]) -> Iterator[Item]:
    names = Counter(item.name for item in order.items)
    by_id = {item.item_id: item for item in order.items}
    old_ids = arguments.get("item_ids", ())
    new_ids = arguments.get("new_item_ids") or (None,) * len(old_ids)
    for old_id, new_id in zip(old_ids, new_ids, strict=True):
        old = by_id[old_id]
        changes = None
        if new_id is not None:
            new = state.tables["products"].peek(old.product_id).variants[new_id].options
            changes = {name: value for name, value in new.items() if old.options.get(name) != value}
        yield Item(old.name, dict(old.options), names[old.name] == 1, old_id, old.product_id, changes, new_id)


def payment(user: Any, payment_id: str) -> Payment:
    """A payment method of `user` in words that single it out among all of theirs."""
    method = user.payment_methods[payment_id]
    alone = sum(other.source == method.source for other in user.payment_methods.values()) == 1
    last_four = getattr(method, "last_four", None)
    words = {"credit_card": "credit card", "paypal": "PayPal account", "gift_card": "gift card"}[method.source]
    if not alone and last_four is not None:
        words = f"{method.brand.capitalize()} card ending in {last_four}"
    elif not alone and method.source == "gift_card":
        words = f"gift card with {method.balance:.2f} dollars on it"
    return Payment(payment_id, method.source, f"my {words}", last_four)


def address_text(where: Mapping[str, Any]) -> str:
    lines = [where["address1"], where["address2"], where["city"], f"{where['state']} {where['zip']}", where["country"]]
    return ", ".join(line for line in lines if line)


def _address(state: TableState, arguments: Mapping[str, Any], user: Any, order: Any) -> Address:
    wanted = {name: arguments[name] for name in ("address1", "address2", "city", "state", "country", "zip")}
    reference = None
    if order is not None and user.address.model_dump() == wanted:
        reference = f"my default address in {wanted['city']}"
    else:
        others = (state.tables["orders"].peek(order_id) for order_id in user.orders)
        if any(other is not order and other.address.model_dump() == wanted for other in others):
            reference = f"the {wanted['city']} address that is in another order of mine"
    return Address(address_text(wanted), wanted["zip"], reference)
