"""Training tasks for retail, composed on the package's own shop: the split `generated`.

Idea: a task is a customer and up to three writes that the policy allows on that customer's orders as they stand
(pending: cancel, modify payment, address or items; delivered: return or exchange; once per order). The gold actions
come first; the customer's wishes and the task's text are derived from them as for any other task. A candidate counts
only when all gold writes succeed and each changes the database, so that doing nothing scores 0, and when the scripted
expert, which hears and reads only, reaches 1.0 in conversation: what the customer says suffices.
Nothing of the test split is used: its customers, their orders and their addresses are left out. Where the data has no
test split, all its tasks count as held out.
A task is a function of its id and the data, made when it is first asked for.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...conversation import Message, ToolCall
from ...domain import ToolError
from ..package import Package
from ..scoring import gold_changes, score
from ..state import Changes, changes, fresh
from ..tools import run
from . import speech
from .customer import Customer
from .expert import ExpertAgent
from .identity import credentials, customers
from .questions import MONEY_BACK_TOLD
from .wishes import Wish, topics

IDS = tuple(f"generated-{number:03}" for number in range(400))

ATTEMPTS = 200
TURNS = 80
ADDRESS = ("address1", "address2", "city", "state", "country", "zip")
PENDING = (
    "cancel_pending_order",
    "modify_pending_order_items",
    "modify_pending_order_payment",
    "modify_pending_order_address",
)
DELIVERED = ("return_delivered_order_items", "exchange_delivered_order_items")
REASONS = ("no longer needed", "ordered by mistake")
STREETS = ("Alder Court", "Birch Row", "Canal Street", "Dune Road", "Elm Terrace", "Foundry Lane", "Granite Way")
MANNERS = (
    "You are polite and to the point.",
    "You bring up one thing at a time, in this order.",
    "You are in a hurry and answer in few words.",
    "You are relaxed and friendly, and say what is asked for only when it is asked for.",
    "You are organised and want every step confirmed.",
    "You do not like to repeat yourself.",
)

Write = tuple[str, dict[str, Any]]
"""A tool and its arguments."""


class Generator:
    """`users`: the customers of generated tasks, in a fixed random order."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self.orders: Mapping[str, Any] = package.database.orders
        held_out = customers(package, package.splits.get("test") or tuple(package.tasks))
        users = package.database.users
        self.users = [user for key, user in users.items() if key not in held_out and self._open_orders(user)]
        random.Random("retail").shuffle(self.users)
        self.foreign = {
            where.address1
            for key in held_out
            for where in (users[key].address, *(self.orders[order].address for order in users[key].orders))
        }

    def task(self, task_id: str) -> Any:
        """The package's own Task. Raises LookupError where the data allows none."""
        if self.users:
            for candidate in self._candidates(task_id):
                if solved_by_words(self.package, candidate):
                    return candidate
        raise LookupError(f"no task {task_id} can be generated from this retail data")

    def _candidates(self, task_id: str) -> Iterator[Any]:
        rng = random.Random(task_id)
        first = self.users[IDS.index(task_id) % len(self.users)]
        for attempt in range(ATTEMPTS):
            user = first if attempt < ATTEMPTS // 4 else rng.choice(self.users)
            writes = self._writes(rng, user)
            if any(arguments.get("address1") in self.foreign for _, arguments in writes):
                continue
            if writes and _all_change(self.package, writes):
                yield self._described(task_id, rng, user, writes)

    def _open_orders(self, user: Any) -> list[Any]:
        return [self.orders[key] for key in user.orders if self.orders[key].status in ("pending", "delivered")]

    # Writes

    def _writes(self, rng: random.Random, user: Any) -> list[Write]:
        wanted = rng.choices((1, 2, 3), (35, 35, 30))[0]
        orders = self._open_orders(user)
        rng.shuffle(orders)
        writes: list[Write] = []
        for order in orders[:wanted]:
            pending = order.status == "pending"
            # Few customers can pay in another way: asked for twice as often.
            tool = rng.choices(PENDING, (1, 1, 2, 1))[0] if pending else rng.choice(DELIVERED)
            writes += self._write(tool, rng, user, order)
            # Changed items close an order: they come last.
            if tool in PENDING[2:] and len(writes) < wanted and rng.random() < 0.5:
                writes += self._write("modify_pending_order_items", rng, user, order)
        if len(writes) < wanted and rng.random() < 0.4:
            writes.append(("modify_user_address", {"user_id": user.user_id, **self._address(rng, user)}))
        return writes[:wanted]

    def _write(self, tool: str, rng: random.Random, user: Any, order: Any) -> list[Write]:
        """One write, or none where the order has nothing to offer for it."""
        arguments: dict[str, Any] = {"order_id": order.order_id}
        if tool == "cancel_pending_order":
            arguments["reason"] = rng.choice(REASONS)
        elif tool == "modify_pending_order_address":
            arguments |= self._address(rng, user)
        else:
            methods = list(user.payment_methods)
            if tool == "modify_pending_order_payment":
                methods = [key for key in methods if key != order.payment_history[0].payment_method_id]
            else:
                arguments |= self._items(rng, order, replaced=tool != "return_delivered_order_items")
            if not methods or not arguments.get("item_ids", True):
                return []
            arguments["payment_method_id"] = rng.choice(methods)
        return [(tool, arguments)]

    def _items(self, rng: random.Random, order: Any, replaced: bool) -> dict[str, list[str]]:
        ids = [item.item_id for item in order.items]
        things = [item for item in order.items if ids.count(item.item_id) == 1]
        chosen = rng.sample(things, min(len(things), rng.choices((1, 2, 3), (60, 30, 10))[0]))
        if not replaced:
            return {"item_ids": [item.item_id for item in chosen]}
        old, new = [], []
        for item in chosen:
            variants = self.package.database.products[item.product_id].variants
            others = [key for key, variant in variants.items() if variant.available and key != item.item_id]
            if others:
                old.append(item.item_id)
                new.append(rng.choice(others))
        return {"item_ids": old, "new_item_ids": new}

    def _address(self, rng: random.Random, user: Any) -> dict[str, str]:
        """Another address of the customer's own, or a new one in a city where customers live."""
        own = [user.address, *(self.orders[key].address for key in user.orders)]
        known = [where.model_dump(include=set(ADDRESS)) for where in own if where != user.address]
        if rng.random() < 0.5:
            return rng.choice([*known, user.address.model_dump(include=set(ADDRESS))])
        city = rng.choice(self.users).address
        street = f"{rng.randrange(1000, 9999)} {rng.choice(STREETS)}"
        suite = f"Suite {rng.randrange(100, 999)}" if rng.random() < 0.5 else ""
        return dict(zip(ADDRESS, (street, suite, city.city, city.state, city.country, city.zip), strict=True))

    # Words

    def _described(self, task_id: str, rng: random.Random, user: Any, writes: Sequence[Write]) -> Any:
        name, mail = f"{user.name.first_name} {user.name.last_name}", rng.random() < 0.5
        who = f"You are {name} in zip code {user.address.zip}."
        if mail:
            who = f"You are {name} and your email is {user.email}."
        lookup: Write = ("find_user_id_by_email", {"email": user.email})
        if not mail:
            first, last = user.name.first_name, user.name.last_name
            lookup = "find_user_id_by_name_zip", {"first_name": first, "last_name": last, "zip": user.address.zip}
        actions = [lookup, ("get_user_details", {"user_id": user.user_id}), *self._with_reads(writes)]
        refund = self._refund(writes) if rng.random() < 0.3 else None
        scenario = {
            "domain": "retail",
            "known_info": who,
            "unknown_info": None if mail else "You do not remember your email address.",
            "task_instructions": rng.choice(MANNERS),
            "reason_for_call": "",
        }
        task = {
            "id": task_id,
            "user_scenario": {"instructions": scenario},
            "evaluation_criteria": {
                "actions": [
                    {"action_id": f"{task_id}_{index}", "name": tool, "arguments": arguments}
                    for index, (tool, arguments) in enumerate(actions)
                ],
                "communicate_info": [] if refund is None else [refund],
                "reward_basis": ["DB", "COMMUNICATE"],
            },
        }
        kind = type(next(iter(self.package.tasks.values())))
        wishes = [topic for topic in topics(self.package, kind.model_validate(task)) if isinstance(topic, Wish)]
        told = [told_of(wish, asked_for=rng.random() < 0.5) for wish in wishes]
        scenario["reason_for_call"] = " ".join(told if refund is None else [*told, MONEY_BACK_TOLD])
        return kind.model_validate(task)

    def _with_reads(self, writes: Sequence[Write]) -> Iterator[Write]:
        """Each write after the look-ups that it needs, as the data's own gold lists have them."""
        seen: set[str] = set()
        for tool, arguments in writes:
            order_id = arguments.get("order_id", "")
            items = {item.item_id: item.product_id for item in self.orders[order_id].items} if order_id else {}
            products = [items[key] for key in arguments["item_ids"]] if "new_item_ids" in arguments else []
            for key, name, read in (
                (order_id, "order_id", "get_order_details"),
                *((product, "product_id", "get_product_details") for product in products),
            ):
                if key and key not in seen:
                    seen.add(key)
                    yield read, {name: key}
            yield tool, arguments

    def _refund(self, writes: Sequence[Write]) -> str | None:
        """What all writes together give back, where all of them cancel or return."""
        total = 0.0
        for tool, arguments in writes:
            if tool not in ("cancel_pending_order", "return_delivered_order_items"):
                return None
            order = self.orders[arguments["order_id"]]
            ids = arguments.get("item_ids")
            total += sum(item.price for item in order.items if ids is None or item.item_id in ids)
        return f"{total:.2f}"


def told_of(wish: Wish, asked_for: bool) -> str:
    """The wish in the words of the data's task texts. `asked_for`: its order number is told only then."""
    parts = [f"You want to {speech.core(wish, speech.Manner(True, False))}."]
    if wish.order_id is not None:
        hint = f"The order number is {wish.order_id}"
        parts.append(f"{hint}, which you tell only when asked." if asked_for else f"{hint}.")
    if wish.kind == "cancel":
        parts.append(f"The reason is '{wish.reason}'.")
    elif wish.payment is not None and wish.kind != "modify_payment":
        what = "The refund should go to" if wish.kind == "return" else "The price difference is settled with"
        parts.append(f"{what} {wish.payment.words}.")
    text = " ".join(parts)
    for pair in ((" my ", " your "), (" I ", " you "), (" mine", " yours")):
        text = text.replace(*pair)
    return text


def _all_change(package: Package, writes: Sequence[Write]) -> bool:
    """Whether every write succeeds and changes the database."""
    state = fresh(package)
    before: Changes = {}
    for tool, arguments in writes:
        try:
            state.environment.make_tool_call(tool, requestor="assistant", **arguments)
        except ValueError:
            return False
        after = changes(state)
        if after == before:
            return False
        before = after
    return True


def solved_by_words(package: Package, task: Any) -> bool:
    """Whether the scripted expert reaches 1.0 with the task's customer."""
    state = fresh(package)
    customer = Customer(topics(package, task), credentials(package, task), f"0/{task.id}")
    agent = ExpertAgent()
    transcript = [Message("user", customer.open().text)]
    observation = tuple(transcript)
    for _ in range(TURNS):
        action = agent.act(observation)
        transcript.append(Message("assistant", action.text, tool_calls=action.tool_calls))
        if action.tool_calls:
            observation = tuple(_result(state, call) for call in action.tool_calls)
        else:
            turn = customer.reply(action.text, _no_tools)
            if turn.stop:
                return score(task, gold_changes(package, task), changes(state), transcript).reward == 1.0
            observation = (Message("user", turn.text),)
        transcript += observation
    return False


def _result(state: Any, call: ToolCall) -> Message:
    try:
        return Message("tool", run(state, "agent", call), name=call.name)
    except ToolError as error:
        return Message("tool", str(error), name=call.name, is_error=True)


def _no_tools(call: ToolCall) -> str:
    raise ToolError(f"customers of retail have no tool {call.name}")
