"""What the customer says: two or three ways for each thing, at most ten words."""

from __future__ import annotations

from .tasks import Wish


def reference(wish: Wish) -> str:
    return {"id": wish.order, "product": f"my {wish.product}", "none": "an order"}[wish.ref]


def requests(wish: Wish) -> tuple[str, ...]:
    """The wish in full sentences."""
    ref = reference(wish)
    match wish.kind:
        case "swap":
            what = ref if wish.shy else f"{ref} to {wish.target}"
            return f"please swap {what}", f"can you swap {what}"
        case "money":
            return f"money back for {ref}", f"i want money back for {ref}"
        case "status":
            return f"where is {ref} ?", f"how is {ref} ?"
        case "item":
            return f"what item is {ref} ?", f"which item has {ref} ?"
        case "order":
            return f"which order has {ref} ?", f"what order is {ref} in ?"
        case "app":
            return f"my app does not show {wish.order}", f"the app is wrong about {wish.order}"
        case kind:
            return f"please {kind} {ref}", f"i want to {kind} {ref}", f"can you {kind} {ref}"


def insistence(wish: Wish) -> str:
    """The wish after the agent has done something useless: short, and with all the customer knows to say."""
    return f"no {requests(wish)[0]}"


def changes(wish: Wish) -> tuple[str, ...]:
    """A change of mind to `wish`."""
    return f"wait rather {wish.kind} {wish.order}", f"sorry no {wish.kind} {wish.order}"


GREETINGS = ("hi", "hello")
FOLLOW_UPS = ("ok now", "thanks also")
AGREEMENTS = ("yes", "yes please")
FAREWELLS = ("thanks bye", "ok bye")
