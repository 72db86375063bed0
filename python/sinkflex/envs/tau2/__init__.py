"""tau2-bench behind `DualControlEnv`: the suite `tau2-retail`, with the real package's data, tools and scoring.

Nothing of the package is imported before `load`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .retail.domain import RetailDomain


def load(suite: str, levels: Sequence[int] | None = None) -> RetailDomain:
    """The domain of `suite`. Raises MissingExtra where the package is absent, ValueError for levels."""
    if levels is not None:
        raise ValueError(f"{suite} has no levels; leave env.levels out")
    from .retail.domain import RetailDomain

    return RetailDomain()
