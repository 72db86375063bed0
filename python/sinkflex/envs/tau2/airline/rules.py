"""The airline's policy as far as the scripted expert needs it, over reservations and users as the tools show them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

Entity = Mapping[str, Any]

FREE_BAGS = {
    "regular": {"basic_economy": 0, "economy": 1, "business": 2},
    "silver": {"basic_economy": 1, "economy": 2, "business": 3},
    "gold": {"basic_economy": 2, "economy": 3, "business": 4},
}
BAG = 50
INSURANCE = 30
PASSENGERS = 5
_NOW = re.compile(r"The current time is (\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)")


def now(policy: str) -> datetime:
    """The present moment that the policy states. ValueError where it states none."""
    found = _NOW.search(policy)
    if found is None:
        raise ValueError("the policy does not say what time it is, which cancelling depends on")
    return datetime.fromisoformat(f"{found[1]}T{found[2]}")


def free_bags(user: Entity, cabin: str, passengers: int) -> int:
    return FREE_BAGS[user["membership"]][cabin] * passengers


def flown(reservation: Entity, moment: datetime) -> bool:
    """Whether some flight of it belongs to a day gone by."""
    return any(flight["date"] < moment.date().isoformat() for flight in reservation["flights"])


def may_cancel(reservation: Entity, moment: datetime, unwell: bool) -> bool:
    """Of a reservation that has not been flown. That the airline cancelled a flight is for the caller to say."""
    recent = moment - datetime.fromisoformat(reservation["created_at"]) <= timedelta(hours=24)
    return recent or reservation["cabin"] == "business" or (reservation["insurance"] == "yes" and unwell)


def may_pay(methods: tuple[str, ...]) -> bool:
    """At most one certificate, one credit card and three gift cards."""
    most = (("certificate", 1), ("credit_card", 1), ("gift_card", 3))
    return bool(methods) and all(sum(m.startswith(kind) for m in methods) <= limit for kind, limit in most)
