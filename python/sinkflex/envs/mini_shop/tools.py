"""The tools of both sides. Agent tools work on the shop, user tools on the device and on the user's own mind.

What is impossible is refused (`ToolError`): anything about orders before the customer is identified, and ids that do
not exist or belong to somebody else. What is merely forbidden *happens* and is recorded as a violation, as is a write
without the user's yes: the final state then differs from the gold one and the episode scores 0. A shop that refused
would do the policy's thinking for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..conversation import ToolCall
from ..domain import ToolError, ToolSpec
from .rules import reason_against
from .state import Device, Order, ShopState
from .words import REASONS, WRITES

_WORD = {"type": "string"}


def _schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


AGENT_TOOLS = (
    ToolSpec("find_user", "Identify the customer; lists their orders.", _schema(name=_WORD, zip=_WORD), "read"),
    ToolSpec("get_order", "An order by its id, or by the product in it.", _schema(order=_WORD), "read"),
    ToolSpec("get_product", "The item of a product in a colour.", _schema(product=_WORD, colour=_WORD), "read"),
    ToolSpec("cancel_order", "Cancel a pending order.", _schema(order=_WORD), "write"),
    ToolSpec("refund_order", "Refund a delivered order.", _schema(order=_WORD), "write"),
    ToolSpec(
        "swap_item", "Put another item of the same product into an order.", _schema(order=_WORD, item=_WORD), "write"
    ),
    ToolSpec(
        "hand_off",
        "Transfer to a human, which ends the conversation.",
        _schema(order=_WORD, reason={"type": "string", "enum": list(REASONS)}),
        "write",
    ),
)

_MODE = {"type": "string", "enum": ["on", "off"]}

USER_TOOLS = (
    ToolSpec(
        "approve",
        "Agree to a write.",
        {
            "type": "object",
            "properties": {"action": {"type": "string", "enum": list(WRITES)}, "order": _WORD, "item": _WORD},
            "required": ["action", "order"],
        },
        "write",
    ),
    ToolSpec("note", "Remember a fact.", _schema(fact=_WORD), "write"),
    ToolSpec("set_airplane", "Switch airplane mode.", _schema(mode=_MODE), "write"),
    ToolSpec("set_permission", "Allow or forbid the app to connect.", _schema(mode=_MODE), "write"),
    ToolSpec("restart_app", "Restart the shop's app.", _schema(), "write"),
    ToolSpec("read_status", "Look at the phone and the app.", _schema(order=_WORD), "read"),
)


def call_tool(state: ShopState, requestor: str, call: ToolCall) -> str:
    """Run a validated call. Raises ToolError."""
    if requestor == "user":
        return _USER[call.name](state, **call.arguments)
    if not state.identified and call.name not in ("find_user", "get_product"):
        raise ToolError("error identify first")
    return _AGENT[call.name](state, **call.arguments)


def _own(state: ShopState, order: str) -> Order:
    if order not in state.orders:
        raise ToolError("error unknown order")
    return state.orders[order]


def _find_user(state: ShopState, name: str, zip: str) -> str:
    if (name.lower(), zip.lower()) != (state.name, state.zip):
        raise ToolError("error unknown user")
    state.identified = True
    return " ".join(["ok", *state.orders])


def _get_order(state: ShopState, order: str) -> str:
    for key, found in state.orders.items():
        if order in (key, found.product):
            return f"{key} {found.status} {found.product} {found.item}"
    raise ToolError("error unknown order")


def _get_product(state: ShopState, product: str, colour: str) -> str:
    if product not in state.catalogue:
        raise ToolError("error unknown product")
    for known, item, sold in state.catalogue[product]:
        if known == colour:
            return f"{colour} {item} sold" if sold else f"{colour} {item}"
    raise ToolError("error unknown colour")


def _write(state: ShopState, action: str, order: str, item: str | None = None) -> Order:
    """Check a write against consent and policy; returns the order it is about."""
    found = _own(state, order)
    deed = (action, order) if item is None else (action, order, item)
    reason = reason_against(action, found, item, state.catalogue)
    if reason is not None:
        state.violations.append(("forbidden", *deed))
    elif state.approved != deed:
        state.violations.append(("not_agreed", *deed))
    state.approved = None
    return found


def _cancel_order(state: ShopState, order: str) -> str:
    found = _write(state, "cancel", order)
    state.orders[order] = Order("cancelled", found.product, found.item)
    return f"ok {order} cancelled"


def _refund_order(state: ShopState, order: str) -> str:
    found = _write(state, "refund", order)
    state.orders[order] = Order("refunded", found.product, found.item)
    return f"ok {order} refunded"


def _swap_item(state: ShopState, order: str, item: str) -> str:
    _own(state, order)
    product = next((p for p, variants in state.catalogue.items() if any(item == v[1] for v in variants)), None)
    if product is None:
        raise ToolError("error unknown item")
    found = _write(state, "swap", order, item)
    state.orders[order] = Order(found.status, product, item)
    return f"ok {order} {item}"


def _hand_off(state: ShopState, order: str, reason: str) -> str:
    _own(state, order)
    state.hand_off = (order, reason)
    return "ok"


def _approve(state: ShopState, action: str, order: str, item: str | None = None) -> str:
    state.approved = (action, order) if item is None else (action, order, item)
    return "ok"


def _note(state: ShopState, fact: str) -> str:
    state.knows.append(fact)
    return "ok"


def _set_airplane(state: ShopState, mode: str) -> str:
    d = state.device
    state.device = Device(mode == "on", d.permitted, d.old)
    return "ok"


def _set_permission(state: ShopState, mode: str) -> str:
    d = state.device
    state.device = Device(d.airplane, mode == "on", d.old)
    return "ok"


def _restart_app(state: ShopState) -> str:
    """Loads fresh data, if the phone lets it."""
    d = state.device
    if not d.airplane and d.permitted:
        state.device = Device(False, True, False)
    return "ok"


def _read_status(state: ShopState, order: str) -> str:
    d = state.device
    if d.airplane:
        return "airplane is on"
    if not d.permitted:
        return "permission is off"
    if d.old or order not in state.orders:
        return "app is old"
    return f"app shows {state.orders[order].status}"


_AGENT: dict[str, Callable[..., str]] = {
    "find_user": _find_user,
    "get_order": _get_order,
    "get_product": _get_product,
    "cancel_order": _cancel_order,
    "refund_order": _refund_order,
    "swap_item": _swap_item,
    "hand_off": _hand_off,
}
_USER: dict[str, Callable[..., str]] = {
    "approve": _approve,
    "note": _note,
    "set_airplane": _set_airplane,
    "set_permission": _set_permission,
    "restart_app": _restart_app,
    "read_status": _read_status,
}
