"""What was found, saved as it comes: one JSON line per result, in results.jsonl of the record's folder."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class Ledger:
    """Rows have a phase and a status: passed, failed, refused or skipped, or done for what is no test."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.rows = folder, list[Row]()
        self._file = (folder / "results.jsonl").open("w", encoding="utf-8")
        self._start = time.monotonic()

    def add(self, phase: str, status: str, **fields: Any) -> Row:
        row = {"phase": phase, "status": status, "at_s": round(time.monotonic() - self._start, 1), **fields}
        self.rows.append(row)
        self._file.write(json.dumps(finite(row)) + "\n")
        self._file.flush()
        return row

    def of(self, *phases: str) -> list[Row]:
        return [row for row in self.rows if row["phase"] in phases]

    def close(self) -> None:
        self._file.close()


def finite(value: Any) -> Any:
    """The same with null for what JSON has no number for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [finite(entry) for entry in value]
    return value
