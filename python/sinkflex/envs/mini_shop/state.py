"""The state that agent and user share: the shop, the user's device, and what has been agreed, told and handed off."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

Catalogue = dict[str, tuple[tuple[str, str, bool], ...]]
"""Product to its variants: (colour, item id, sold out). Never changed, so episodes of a task may share it."""


@dataclass(frozen=True, slots=True)
class Order:
    """One order of one item."""

    status: str
    product: str
    item: str


@dataclass(frozen=True, slots=True)
class Device:
    """The user's phone. Its shop app shows the truth only when it is online, permitted and restarted since."""

    airplane: bool = False
    permitted: bool = True
    old: bool = False


@dataclass(slots=True)
class ShopState:
    """`approved` is the one write that the user has said yes to and that has not happened yet. `knows` holds what the
    user has come to believe, in order. `violations` are writes that policy forbids or that nobody agreed to."""

    name: str
    zip: str
    orders: dict[str, Order]
    catalogue: Catalogue
    device: Device
    identified: bool = False
    approved: tuple[str, ...] | None = None
    knows: list[str] = field(default_factory=list)
    hand_off: tuple[str, str] | None = None
    violations: list[tuple[str, ...]] = field(default_factory=list)

    def copy(self) -> ShopState:
        return replace(self, orders=dict(self.orders), knows=list(self.knows), violations=list(self.violations))
