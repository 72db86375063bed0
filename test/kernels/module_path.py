"""PYTHONPATH for a program that a test starts."""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "python"


def module_path(*folders: Path) -> str:
    """The package and `folders`, then this process's own path: Triton, a tool of the checks, may be only there."""
    return os.pathsep.join(map(str, filter(None, (PACKAGE, *folders, os.environ.get("PYTHONPATH")))))
