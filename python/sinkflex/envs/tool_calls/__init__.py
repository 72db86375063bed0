"""tool-calls: one request, one call. The first suite for a real language model."""

from __future__ import annotations

from collections.abc import Sequence

from ..domain import Domain


def load(suite: str, levels: Sequence[int] | None = None, natural: bool = True) -> Domain:
    from .domain import ToolCalls

    return ToolCalls(levels)
