"""The scripted customer's sentences. Pure: the choice between phrasings comes from the generator handed in.

A customer speaks of products by name, of what should change by option names and values, of payment by its source, and
never of item ids, product ids, payment ids or tools (a test scans everything that can be said).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .identity import Credential
from .wishes import Address, Item, Wish

MAX_CONTENTS = 4


@dataclass(frozen=True, slots=True)
class Manner:
    """`forthcoming` says payment, reason and full address unasked; `forgetful` must look for an order number first."""

    forthcoming: bool
    forgetful: bool


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def options(values: Mapping[str, str]) -> str:
    return "(" + ", ".join(f"{name}: {value}" for name, value in values.items()) + ")"


def item(thing: Item) -> str:
    """The item as its owner would call it: by name, with its options where the name does not single it out."""
    return f"the {thing.name}" if thing.unique else f"the {thing.name} {options(thing.options)}"


def change(thing: Item) -> str:
    if thing.changes is None:
        return item(thing)
    wanted = f"another one {options(thing.changes)}" if thing.changes else "a new one of exactly the same kind"
    return f"{item(thing)} for {wanted}"


def order(wish: Wish) -> str:
    """An order by what is in it."""
    names = [f"the {name}" for name in wish.contents[:MAX_CONTENTS]]
    more = len(wish.contents) > MAX_CONTENTS
    return f"order with {', '.join(names)} and other things" if more else f"order with {listed(names)}"


def address(where: Address, manner: Manner) -> str:
    return where.text if manner.forthcoming or where.reference is None else where.reference


def reason(wish: Wish) -> str:
    return "I ordered it by mistake." if wish.reason == "ordered by mistake" else "I no longer need it."


def payment(wish: Wish) -> str:
    assert wish.payment is not None, "only wishes with a payment method are asked for it"
    if wish.kind == "return":
        return f"Please put the refund on {wish.payment.words}."
    if wish.kind == "modify_payment":
        return f"Please use {wish.payment.words}."
    return f"Please use {wish.payment.words} for the price difference."


def core(wish: Wish, manner: Manner) -> str:
    """The wish as a phrase that follows `I want to`."""
    match wish.kind:
        case "cancel":
            return f"cancel my {order(wish)}"
        case "return":
            return f"return {listed([item(thing) for thing in wish.items])} from an order that I received"
        case "exchange":
            return f"exchange {listed([change(thing) for thing in wish.items])} from an order that I received"
        case "modify_items":
            return f"swap {listed([change(thing) for thing in wish.items])} in my pending order"
        case "modify_payment":
            assert wish.payment is not None
            return f"change the payment of my {order(wish)} to {wish.payment.words}"
        case "modify_address":
            assert wish.address is not None
            return f"have my {order(wish)} shipped to {address(wish.address, manner)}"
        case "user_address":
            assert wish.address is not None
            return f"change the default address in my profile to {address(wish.address, manner)}"


def request(wish: Wish, manner: Manner, rng: random.Random) -> str:
    """Asking for it the first time."""
    start = rng.choice(("I want to", "I would like to", "I need to"))
    return " ".join([f"{start} {core(wish, manner)}.", *(extras(wish) if manner.forthcoming else ())])


def details(wish: Wish) -> str:
    """Everything about the wish except its order number."""
    return " ".join([f"I want to {core(wish, Manner(True, False))}.", *extras(wish)])


def extras(wish: Wish) -> list[str]:
    out = []
    if wish.kind == "cancel":
        out.append(reason(wish))
    if wish.payment is not None and wish.kind != "modify_payment":
        out.append(payment(wish))
    return out


def credential(who: Credential) -> str:
    if who.email:
        return f"My email address is {who.email}."
    return f"My name is {who.name} and my zip code is {who.zip}."


def order_number(wish: Wish) -> str:
    if wish.order_id is None:
        return "It is not about an order, it is about the address in my profile."
    return f"The order number is {wish.order_id}."
