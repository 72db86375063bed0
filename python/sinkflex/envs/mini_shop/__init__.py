"""mini-shop: a generated dual-control domain, small enough to learn in minutes and honest enough to be worth it."""

from __future__ import annotations

from collections.abc import Sequence

from ..domain import Domain


def load(suite: str, levels: Sequence[int] | None = None, natural: bool = False) -> Domain:
    from .domain import MiniShop

    return MiniShop(levels, natural)
