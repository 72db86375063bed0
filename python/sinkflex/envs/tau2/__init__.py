"""tau2-bench behind `DualControlEnv`: the suites `tau2-*`, with the real package's data, tools and scoring.

Nothing of the package is imported before `load`.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

DOMAINS = {
    "tau2-retail": ("retail", "RetailDomain"),
    "tau2-airline": ("airline", "AirlineDomain"),
    "tau2-telecom": ("telecom", "TelecomDomain"),
    "tau2-telecom-solo": ("telecom", "SoloDomain"),
}
"""Suite to the room and the class of its domain."""


def load(suite: str, levels: Sequence[int] | None = None, natural: bool = True) -> Any:
    """The domain of `suite`. Raises MissingExtra where the package is absent, ValueError for levels."""
    if levels is not None:
        raise ValueError(f"{suite} has no levels")
    room, name = DOMAINS[suite]
    return getattr(importlib.import_module(f".{room}.domain", __package__), name)()
