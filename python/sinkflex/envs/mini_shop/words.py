"""Every word of the shop's world: ids, goods, statuses, and the closed vocabulary of all text in an episode.

An id is one word and every kind has a range of its own, so a word says by itself what it names.
"""

from __future__ import annotations

_NAMES = "ana ben cleo dan eva finn gus hana ivan jo kim leo mia noa otto pia quin rosa sam tess uma vic wes zoe"
_PRODUCTS = "mug lamp desk chair bag coat shoe hat ring book"
_COLOURS = "red blue green black white pink"

NAMES = tuple(_NAMES.split())
ZIPS = tuple(f"z{n}" for n in range(10, 34))
ORDERS = tuple(f"W{n}" for n in range(10, 50))
ITEMS = tuple(f"v{n}" for n in range(10, 50))
PRODUCTS = tuple(_PRODUCTS.split())
COLOURS = tuple(_COLOURS.split())

STATUSES = ("pending", "shipped", "delivered", "cancelled", "refunded")
"""The first four are what a task starts from; refunded is reached by a refund only."""

WRITES = ("cancel", "refund", "swap")
"""The agent's plan names one of these; the tool is cancel_order, refund_order, swap_item."""

REASONS = ("pending", "shipped", "delivered", "cancelled", "sold", "other")
"""Why policy forbids a write: the order's status, a colour that is sold out, another product."""

_TOOLS = "find_user get_order get_product cancel_order refund_order swap_item hand_off"
_USER_TOOLS = "approve note set_airplane set_permission restart_app read_status"
_ARGUMENTS = "name zip order product colour item reason action fact mode"
_AGENT = "? which colour done read status airplane permission restart app on off"
_USER = """hi hello i am here please want to can you my an the one is in has for about also now ok thanks bye no yes
    wait rather sorry money back where how what show shows does not wrong old"""
_RESULTS = "ok error identify first unknown user missing unexpected unreadable silent tool arguments run"

_SETS = (NAMES, ZIPS, ORDERS, ITEMS, PRODUCTS, COLOURS, STATUSES, WRITES, REASONS)
VOCABULARY: tuple[str, ...] = tuple(
    dict.fromkeys(
        [word for group in _SETS for word in group]
        + [w for text in (_TOOLS, _USER_TOOLS, _ARGUMENTS, _AGENT, _USER, _RESULTS) for w in text.split()]
    )
)
