"""How the scripted agents state a write before they do it, and report it afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .wishes import KINDS, address_text

ASK = "Do you confirm (yes/no)?"


def plan(tool: str, arguments: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """The write in words, with a question to confirm it. `names` describes items by id."""
    kind = KINDS[tool]
    order = arguments.get("order_id")
    paid = arguments.get("payment_method_id")
    old = [names[item_id] for item_id in arguments.get("item_ids", ())]
    new = [names[item_id] for item_id in arguments.get("new_item_ids", ())]
    match kind:
        case "cancel":
            what = f"I will cancel order {order}, reason: {arguments['reason']}."
        case "return":
            what = f"I will return {'; '.join(old)} of order {order}. The refund goes to {paid}."
        case "exchange" | "modify_items":
            verb = "exchange" if kind == "exchange" else "change"
            pairs = "; ".join(f"{a} for {b}" for a, b in zip(old, new, strict=True))
            what = f"I will {verb} in order {order}: {pairs}. The price difference goes to {paid}."
        case "modify_payment":
            what = f"I will change the payment of order {order} to {paid}."
        case "modify_address":
            what = f"I will change the shipping address of order {order} to {address_text(arguments)}."
        case "user_address":
            what = f"I will change the default address of your profile to {address_text(arguments)}."
    return f"{what} {ASK}"


def done(tool: str, arguments: Mapping[str, Any]) -> str:
    order = arguments.get("order_id")
    match KINDS[tool]:
        case "cancel":
            return f"Order {order} has been cancelled."
        case "return":
            return f"The return for order {order} has been requested."
        case "exchange":
            return f"The exchange for order {order} has been requested."
        case "modify_items":
            return f"The items of order {order} have been changed."
        case "modify_payment":
            return f"The payment of order {order} has been changed."
        case "modify_address":
            return f"The shipping address of order {order} has been changed."
        case "user_address":
            return "Your default address has been changed."


def describe(name: str, options: Mapping[str, str], item_id: str) -> str:
    return f"{name} ({', '.join(f'{key}: {value}' for key, value in options.items())}) [{item_id}]"
