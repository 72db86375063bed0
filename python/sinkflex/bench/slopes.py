"""How memory grows: the least-squares slope of the peak over the lengths of an impl, and what it is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def slopes(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One entry per impl and window with two measured lengths or more; sizes in MB (10^6 bytes).

    mb_per_token and mb_at_zero are the fitted line, last_mb_per_token the slope between the two longest lengths (above
    the line's where memory grows faster than the length). `breakdown` splits the line's slope by what the peak is made
    of; `largest` holds the slopes of the parts' own maxima, which come at different moments of a step.
    """
    groups: dict[tuple[str, int | None], list[Mapping[str, Any]]] = {}
    for cell in cells:
        if cell["status"] == "ok":
            groups.setdefault((cell["impl"], cell["window"]), []).append(cell)
    found = []
    for (impl, window), rows in groups.items():
        if len({row["seq"] for row in rows}) < 2:
            continue
        lengths = [float(row["seq"]) for row in rows]
        slope, start = _line(lengths, [row["peak_bytes"] / 1e6 for row in rows])
        last, before = rows[-1], rows[-2]
        entry: dict[str, Any] = {
            "impl": impl,
            "window": window,
            "seq": [row["seq"] for row in rows],
            "mb_per_token": slope,
            "mb_at_zero": start,
            "last_mb_per_token": (last["peak_bytes"] - before["peak_bytes"]) / 1e6 / (last["seq"] - before["seq"]),
        }
        for name in ("breakdown", "largest"):
            if all(name in row for row in rows):
                entry[name] = {
                    part: _line(lengths, [row[name][part] / 1e6 for row in rows])[0] for part in rows[0][name]
                }
        found.append(entry)
    return found


def _line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """(slope, value at 0) of the least-squares line."""
    middle_x, middle_y = sum(x) / len(x), sum(y) / len(y)
    together = sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y, strict=True))
    slope = together / sum((a - middle_x) ** 2 for a in x)
    return slope, middle_y - slope * middle_x
