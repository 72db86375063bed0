"""How the scripted expert reads the scripted customer: the sentences of `speech`, back into what they mean.

The expert sees the customer's words only, so everything here is text in, data out. A sentence that is not understood
gives None, and the expert asks again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_FORMS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("cancel_pending_order", re.compile(r"cancel my order with (?P<contents>.+?)\.(?: |$)")),
    ("return_delivered_order_items", re.compile(r"return (?P<items>.+?) from an order that I received\.")),
    ("exchange_delivered_order_items", re.compile(r"exchange (?P<items>.+?) from an order that I received\.")),
    ("modify_pending_order_items", re.compile(r"swap (?P<items>.+?) in my pending order\.")),
    (
        "modify_pending_order_payment",
        re.compile(r"change the payment of my order with (?P<contents>.+?) to (?P<paid>.+?)\."),
    ),
    ("modify_pending_order_address", re.compile(r"have my order with (?P<contents>.+?) shipped to (?P<address>.+)\.$")),
    ("modify_user_address", re.compile(r"change the default address in my profile to (?P<address>.+)\.$")),
)
_ITEM = re.compile(
    r"the (?P<name>[A-Z][\w-]*(?: [A-Z][\w-]*)*)(?: \((?P<options>[^)]*)\))?"
    r"(?: for (?:another one \((?P<changes>[^)]*)\)|(?P<same>a new one of exactly the same kind)))?"
)
_PAYMENT = re.compile(
    r"my (credit card|PayPal account|gift card(?: with (?P<balance>[\d.]+) dollars)?|"
    r"\w+ card ending in (?P<last>\d{4}))"
)
_EMAIL = re.compile(r"email address is ([\w.+-]+@[\w.-]+\w)")
_NAME = re.compile(r"My name is (\S+) (.+) and my zip code is (\d{5})")
_ORDER = re.compile(r"#W\d{7}")
_ADDRESS = re.compile(r"(?P<street>.+), (?P<city>[^,]+), (?P<state>[A-Z]{2}) (?P<zip>\d{5}), (?P<country>\w+)$")


@dataclass(frozen=True, slots=True)
class AskedItem:
    """`changes` None: nothing replaces it; empty: the same kind again."""

    name: str
    options: Mapping[str, str]
    changes: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Request:
    """`contents`: product names of the order; `partly`: it holds more than those."""

    tool: str
    text: str
    items: tuple[AskedItem, ...] = ()
    contents: tuple[str, ...] = ()
    partly: bool = False
    address: str | None = None


def read_request(text: str) -> Request | None:
    for tool, form in _FORMS:
        if found := form.search(text):
            groups = found.groupdict()
            contents = groups.get("contents") or ""
            return Request(
                tool=tool,
                text=text,
                items=tuple(_item(match) for match in _ITEM.finditer(groups.get("items") or "")),
                contents=tuple(match["name"] for match in _ITEM.finditer(contents)),
                partly="other things" in contents,
                address=groups.get("address"),
            )
    return None


def _item(match: re.Match[str]) -> AskedItem:
    changes = _options(match["changes"] or "") if match["changes"] or match["same"] else None
    return AskedItem(match["name"], _options(match["options"] or ""), changes)


def _options(text: str) -> dict[str, str]:
    return dict(part.split(": ", 1) for part in text.split(", ") if ": " in part)


def read_email(text: str) -> str | None:
    found = _EMAIL.search(text)
    return found[1] if found else None


def read_name_zip(text: str) -> tuple[str, str, str] | None:
    found = _NAME.search(text)
    return (found[1], found[2], found[3]) if found else None


def read_order_number(text: str) -> str | None:
    found = _ORDER.search(text)
    return found[0] if found else None


def read_reason(text: str) -> str | None:
    if "by mistake" in text:
        return "ordered by mistake"
    return "no longer needed" if "no longer need" in text else None


def read_payment(text: str, methods: Mapping[str, Mapping[str, object]]) -> str | None:
    """The id of the payment method that the text speaks of; `methods` as the shop's profile shows them."""
    for found in _PAYMENT.finditer(text):
        words = found[1]
        source = "gift_card" if words.startswith("gift") else "paypal" if words.startswith("PayPal") else "credit_card"
        for method_id, method in methods.items():
            right = method["source"] == source
            right = right and (found["last"] is None or method.get("last_four") == found["last"])
            if right and (found["balance"] is None or method.get("balance") == float(found["balance"])):
                return method_id
    return None


def read_address(text: str) -> dict[str, str] | None:
    """A full address; None for a reference such as `my default address in Austin`."""
    found = _ADDRESS.search(text.removeprefix("The address is ").rstrip("."))
    if found is None:
        return None
    line1, _, line2 = found["street"].partition(", ")
    return {
        "address1": line1,
        "address2": line2,
        "city": found["city"],
        "state": found["state"],
        "country": found["country"],
        "zip": found["zip"],
    }
