"""What the customer says: two or three ways for each thing, at most ten words, all of the closed vocabulary.

`Speech` is what the customer asks of a way to talk. This module is one; `sentences` is the other.
"""

from __future__ import annotations

from typing import Protocol

from .tasks import Wish


class Speech(Protocol):
    GREETINGS: tuple[str, ...]
    FOLLOW_UPS: tuple[str, ...]
    AGREEMENTS: tuple[str, ...]
    FAREWELLS: tuple[str, ...]
    BYE: str
    WHICH: str

    def requests(self, wish: Wish) -> tuple[str, ...]: ...

    def insistence(self, wish: Wish) -> str: ...

    def changes(self, wish: Wish) -> tuple[str, ...]: ...

    def arrival(self, name: str, zip: str) -> str: ...

    def identities(self, name: str, zip: str) -> tuple[str, ...]: ...

    def targets(self, target: str) -> tuple[str, ...]: ...

    def asks_for_order(self, said: frozenset[str]) -> bool: ...

    def answer(self, wish: Wish) -> str: ...

    def sight(self, report: str) -> str: ...


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


def arrival(name: str, zip: str) -> str:
    """A greeting that says who it is."""
    return f"{name} {zip} here"


def identities(name: str, zip: str) -> tuple[str, ...]:
    return f"{name} {zip}", f"i am {name} {zip}"


def targets(target: str) -> tuple[str, ...]:
    """What a swap is for: a colour, or another product."""
    return target, f"the {target} one"


def asks_for_order(said: frozenset[str]) -> bool:
    """Whether the agent's words ask which order the wish is about."""
    return "order" in said


def answer(wish: Wish) -> str:
    """Which order the wish is about."""
    return f"my {wish.product}" if wish.ref == "product" else wish.order


def sight(report: str) -> str:
    """What the phone shows, as its tool reports it."""
    return report


GREETINGS: tuple[str, ...] = ("hi", "hello")
FOLLOW_UPS: tuple[str, ...] = ("ok now", "thanks also")
AGREEMENTS: tuple[str, ...] = ("yes", "yes please")
FAREWELLS: tuple[str, ...] = ("thanks bye", "ok bye")
BYE = "bye"
WHICH = "which one ?"
