"""The shop's policy as rules: tools record what breaks them, gold is derived from them, experts obey them."""

from __future__ import annotations

from .state import Catalogue, Order

POLICY = """You serve the customers of a small shop.
1. Identify the customer first: ask for name and zip and look them up with find_user.
2. Cancel only orders that are pending.
3. Refund only orders that are delivered.
4. Swap only in orders that are pending, only to another colour of the same product, and never to one that is sold out.
5. Before every write say the plan (cancel, refund or swap, the order, its item, for a swap the new one) and get a yes.
6. If policy forbids what the customer wants, call hand_off with the order and the reason: the order's status, or sold,
   or other for another product. Hand off nothing else.
7. Money back means: cancel a pending order, refund a delivered one.
8. The customer's phone is theirs: ask them to read status, then for one thing at a time (airplane off, permission on,
   restart app) until the app shows the order."""

_NEEDS = {"cancel": "pending", "refund": "delivered", "swap": "pending"}


def status_against(action: str, status: str) -> str | None:
    """The status itself where it forbids `action`, else None."""
    return None if status == _NEEDS[action] else status


def reason_against(action: str, order: Order, item: str | None, catalogue: Catalogue) -> str | None:
    """Why policy forbids the write, or None. The status is looked at first, then the product, then the stock."""
    reason = status_against(action, order.status)
    if reason is None and action == "swap":
        variants = {variant: sold for _, variant, sold in catalogue[order.product]}
        if item not in variants:
            return "other"
        return "sold" if variants[item] else None
    return reason


def money_back_action(status: str) -> str:
    """The write that money back means for an order of this status; where neither is allowed, the refund is what policy
    forbids."""
    return "cancel" if status == "pending" else "refund"
