"""`sinkflex bench` in the worker: plan the cells, have each measured by a child of its own, and sum up.

`measure` is the door for scripts; `bench` is the same for the command line, with its events and its stop. Every cell
ends as a row: measured, failed with the reason, or does_not_fit, tried or not, with what was expected and what is free.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from sinkflex.control import Control
from sinkflex.events import Events

from . import machine
from . import plan as planning
from .child import measure_cell
from .flops import CONVENTION
from .forecast import Forecast
from .plan import Plan
from .request import parse
from .slopes import slopes
from .spec import Spec, blank

Emit = Callable[[Mapping[str, Any]], None]

SECONDS_PER_CELL = 600
RESERVE = 0.95
"""Of the free memory, what a cell may take: the rest is for the system."""


def measure(request: Mapping[str, Any], emit: Emit, stop: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """Measures what `request` (the keys of bench.json) asks for and returns the record.

    `emit` gets the bodies of the `bench` events: plan, cell_started, progress, cell, result. `stop` is asked between
    cells; the record then holds the cells so far and `stopped`. Refusal where the request cannot be met.
    """
    asked = parse(request)
    plan = planning.make(asked)
    about = {"versions": machine.versions(), "machine": _machine(plan)}
    emit({"kind": "plan", **plan.fields(), **about})
    forecast = Forecast()
    cells: list[dict[str, Any]] = []
    stopped = False
    for index, spec in enumerate(plan.cells):
        if stop():
            stopped = True
            break
        emit(
            {"kind": "cell_started", "index": index, "total": len(plan.cells), "length": spec.seq, "impl": spec.impl,
             "window": spec.window}
        )  # fmt: skip
        cell = _cell(spec, forecast, asked.seconds_per_cell or SECONDS_PER_CELL, _progress(emit, index))
        forecast.learn(spec, cell)
        cells.append(cell)
        emit({"kind": "cell", "index": index, "cell": cell})
    result = {
        "type": "bench",
        "what": plan.what,
        "cells": cells,
        "slopes": slopes(cells),
        "device": plan.device,
        "device_name": plan.device_name,
        "dtype": plan.dtype,
        "threads": plan.threads,
        "geometry": plan.geometry,
        "notes": list(plan.notes),
        **about,
        "command": asked.command,
        "seed": asked.seed,
        "convention": CONVENTION,
        "stopped": stopped,
    }
    emit({"kind": "result", "result": result})
    return result


def bench(raw: Mapping[str, Any], events: Events, control: Control) -> int:
    """For the command line. Its exit code: 0 measured, 1 a cell failed or none was measured, 130 stopped in between."""
    events.status.phase = "bench"

    def emit(body: Mapping[str, Any]) -> None:
        if body["kind"] == "cell_started":
            cell = f"cell {body['index'] + 1} of {body['total']}"
            events.status.waiting_for = f"{cell}: {body['impl']}, {body['length']} tokens"
        events.emit("bench", **body)

    result = measure(raw, emit, lambda: control.stop_requested)
    events.status.waiting_for = None
    if result["stopped"]:
        return 130
    statuses = [cell["status"] for cell in result["cells"]]
    return 0 if "ok" in statuses and "failed" not in statuses else 1


def _cell(spec: Spec, forecast: Forecast, limit: float, on_stage: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Measured, or left out with the forecast that says why."""
    free = free_on(spec.device)
    if spec.memory_limit is not None:
        free = min(free, spec.memory_limit)
    need = forecast.memory(spec)
    if need > free:
        return blank(
            spec,
            "does_not_fit",
            f"not tried: it needs about {need / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free",
        )
    one = forecast.seconds(spec)
    if one is not None and 2 * one > limit:  # once for the memory, once for the time
        return blank(
            spec, "does_not_fit", f"not tried: it would take about {2 * one:.0f} s, and a cell may take {limit:.0f} s"
        )
    return measure_cell(dataclasses.replace(spec, memory_limit=free), on_stage)


def free_on(device: str) -> int:
    """Bytes that a cell may take."""
    if device == "cpu":
        return int(machine.free_bytes() * RESERVE)
    import torch

    return int(torch.cuda.mem_get_info()[0] * RESERVE)


def _progress(emit: Emit, index: int) -> Callable[[dict[str, Any]], None]:
    return lambda stage: emit({"kind": "progress", "index": index, **stage})


def _machine(plan: Plan) -> dict[str, Any]:
    about = machine.describe()
    if plan.device == "cuda":
        import torch

        card = torch.cuda.get_device_properties(0)
        about["gpu"] = {
            "name": card.name,
            "memory_bytes": card.total_memory,
            "capability": f"{card.major}.{card.minor}",
            "cuda": torch.version.cuda,
        }
    return about
