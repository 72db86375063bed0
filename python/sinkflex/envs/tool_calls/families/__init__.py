"""The six tool families, each of three tools, with their phrases.

Four occur in every split; `devices` only in tune and `travel` only in report, so that a choice made on tune has already
met a family that training never showed, and the report's family decided nothing.
"""

from .calendar import CALENDAR
from .devices import DEVICES
from .files import FILES
from .messages import MESSAGES
from .shop import SHOP
from .travel import TRAVEL

__all__ = ["FAMILIES", "HELD_OUT"]

FAMILIES = (SHOP, CALENDAR, FILES, MESSAGES)
HELD_OUT = {"tune": DEVICES, "report": TRAVEL}
