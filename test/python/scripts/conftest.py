"""scripts/ holds programs, not a package of the worker: its parts are imported by name from there."""

from __future__ import annotations

import sys
from pathlib import Path

SCRIPTS = str(Path(__file__).resolve().parents[3] / "scripts")
if SCRIPTS not in sys.path:
    sys.path.append(SCRIPTS)
