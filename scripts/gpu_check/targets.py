"""What was aimed for on an H200 with gpt-oss's geometry, against the records: hit, missed, or not measured.

The figures are those of the operators' specification; peak memory is compared with the floor of a layer (what its
backward must hold), window layers with full ones at 8192 tokens, speed with the same card's compiled flex.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .ledger import Row

MIB, GIB = 1 << 20, 1 << 30
Cell = dict[str, Any]


class Target(NamedTuple):
    what: str
    verdict: str  # hit, missed, not measured
    measured: str


def of(rows: Sequence[Row]) -> list[Target]:
    cells = {
        (row["phase"], cell["impl"], cell["seq"], cell["window"], *_geometry(row["phase"], cell)): cell
        for row in rows
        if (cell := row.get("cell")) is not None and cell["status"] == "ok"
    }
    attention = {key[1:4]: cell for key, cell in cells.items() if key[0] == "attention"}
    log_prob = {key[1:]: cell for key, cell in cells.items() if key[0] == "log-prob"}
    model = sorted((key[2], cell) for key, cell in cells.items() if key[:2] == ("model", "ours"))
    ours = attention.get(("triton", 16384, None))
    flex = attention.get(("flex", 16384, None))
    sinks = next((row for row in rows if row["phase"] == "sink cost" and row["status"] == "done"), None)
    return [
        _limit("attention forward at 16384, TFLOP/s", ours, lambda cell: cell["tflops_fwd"], least=340.0),
        _limit("attention backward at 16384, TFLOP/s", ours, lambda cell: cell["tflops_bwd"], least=265.0),
        _ratio("attention at 16384, time over compiled flex", ours, flex, _time, most=1.0),
        _limit("attention memory, most over the floor", attention_cells(attention), _most_over_floor, most=1.10),
        _growth("attention memory from 16384 to 32768", attention, None, lambda cell: cell["peak_bytes"], (1.95, 2.05)),
        _ratio("window 128 over full at 8192, time", attention.get(("triton", 8192, 128)),
               attention.get(("triton", 8192, None)), _time, most=0.125),
        _growth("window 128, time from 16384 to 32768", attention, 128, _time, (0.0, 2.2)),
        _limit("sinks, forward, time over none", sinks, lambda row: row["forward_ratio"], most=1.02),
        _limit("sinks, backward, time over none", sinks, lambda row: row["backward_ratio"], most=1.02),
        _limit("log-prob, 8192 tokens, 152064 x 4096, frozen head, ms",
               log_prob.get(("linear", 8192, None, 152_064, 4096, "frozen")), _time, most=80.0),
        _limit("log-prob, the same, peak in GiB",
               log_prob.get(("linear", 8192, None, 152_064, 4096, "frozen")),
               lambda cell: cell["peak_bytes"] / GIB, most=6.0),
        _limit("model, MB per token", model if len(model) > 1 else None, _slope, most=0.30),
    ]  # fmt: skip


def _geometry(what: str, cell: Cell) -> tuple[Any, ...]:
    return tuple(cell["geometry"][name] for name in ("vocabulary", "hidden", "head")) if what == "log-prob" else ()


def attention_cells(attention: dict[Any, Cell]) -> list[Cell] | None:
    return [cell for (impl, _, window), cell in attention.items() if impl == "triton" and window is None] or None


def _time(cell: Cell) -> float:
    return float(cell["fwd_ms"] + cell["bwd_ms"])


def _most_over_floor(cells: list[Cell]) -> float:
    return max(cell["peak_bytes"] / cell["floor_bytes"] for cell in cells)


def _slope(model: list[tuple[int, Cell]]) -> float:
    (first, low), (last, high) = model[0], model[-1]
    return float(high["peak_bytes"] - low["peak_bytes"]) / 1e6 / (last - first)


def _limit(
    what: str, given: Any, value: Callable[[Any], float], *, least: float | None = None, most: float | None = None
) -> Target:
    aim = f"{what}: at least {least:g}" if least is not None else f"{what}: at most {most:g}"
    if given is None:
        return Target(aim, "not measured", "")
    found = value(given)
    hit = found >= least if least is not None else most is not None and found <= most
    return Target(aim, "hit" if hit else "missed", f"{found:.3g}")


def _ratio(what: str, one: Cell | None, other: Cell | None, value: Callable[[Cell], float], *, most: float) -> Target:
    pair = None if one is None or other is None else value(one) / value(other)
    return _limit(what, pair, lambda ratio: ratio, most=most)


def _growth(
    what: str,
    attention: dict[Any, Cell],
    window: int | None,
    value: Callable[[Cell], float],
    allowed: tuple[float, float],
) -> Target:
    aim = f"{what}: {allowed[0]:g} to {allowed[1]:g} times"
    low, high = (attention.get(("triton", seq, window)) for seq in (16384, 32768))
    if low is None or high is None:
        return Target(aim, "not measured", "")
    found = value(high) / value(low)
    return Target(aim, "hit" if allowed[0] <= found <= allowed[1] else "missed", f"{found:.3g}")
