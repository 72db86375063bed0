"""SinkFlex worker: the Python half that learns. See README.md for the picture of the house.

In a checkout the kernels live in the folder triton_kernels beside python/. That name belongs to other packages,
so the folder is never put on the path: the finder below serves it as `sinkflex.kernels` and under no other name.
An installed wheel has the same mapping from pyproject.toml and does not need it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

__version__ = "0.1.0"

_KERNELS = Path(__file__).resolve().parents[2] / "triton_kernels"


class _CheckoutKernels(importlib.abc.MetaPathFinder):
    """Finds `sinkflex.kernels` in the checkout; leaves every other name alone."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "sinkflex.kernels":
            return None
        return importlib.util.spec_from_file_location(
            fullname, _KERNELS / "__init__.py", submodule_search_locations=[str(_KERNELS)]
        )


if (_KERNELS / "__init__.py").is_file() and not (Path(__file__).parent / "kernels").exists():
    sys.meta_path.insert(0, _CheckoutKernels())
