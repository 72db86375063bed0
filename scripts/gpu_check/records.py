"""The records: what `sinkflex bench` measures on this device, request by request, the most valuable first.

Every cell is a fresh process with its own parity check. A record is saved after every cell, and holds the cells of all
requests of its subject, in one file. An implementation that failed its parity is not measured.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from typing import Any

from sinkflex.bench.slopes import slopes

from .crew import Case, Job, Result
from .ledger import finite
from .phases import Check, crew

Request = dict[str, Any]
COMMAND = "python -P scripts/gpu-check"
OVERTIME_S = 8.0  # for the cell that is being measured when its phase's time is up

ATTENTION = (
    {"impls": ["triton"], "seq": [4096, 8192, 16384, 32768]},
    {"impls": ["flex", "flash"], "seq": [16384]},
    {"impls": ["eager"], "seq": [4096]},
    {"impls": ["flex", "flash"], "seq": [4096, 8192, 32768]},
)
MODEL = tuple(
    {"geometry": "gpt-oss-20b", "train": "lora", "impls": ["ours", "eager"], "seq": seq}
    for seq in ([4096, 8192], [16384], [1024, 2048])
)
LOG_PROB = tuple(
    {"seq": [8192], "impls": ["linear", "naive"], "vocabulary": vocabulary, "hidden": hidden, "head": head}
    for head, vocabulary, hidden in (("frozen", 152_064, 4096), ("frozen", 201_088, 2880), ("trained", 152_064, 4096))
)
SINK_COST = {"impl": "triton", "seq": 16384, "heads": [64, 8], "head_dim": 64, "dtype": "bfloat16", "device": "cuda"}
# Nothing below is a record: the program is tested.
TINY = {"device": "cpu", "dtype": "float32", "repeat": 1, "seconds_per_cell": 60}
TINY_ATTENTION = ({**TINY, "impls": ["flash"], "seq": [64], "window": 16, "num_q_heads": 4, "num_kv_heads": 2},)
TINY_SINK_COST = {**SINK_COST, "impl": "flash", "seq": 64, "heads": [4, 2], "dtype": "float32", "device": "cpu"}
TINY_LOG_PROB = ({**TINY, "impls": ["linear"], "seq": [32], "vocabulary": 103, "hidden": 48, "head": "trained"},)
TINY_MODEL = ({**TINY, "impls": ["ours"], "seq": [32], "geometry": "scaled", "layers": 1, "train": "lora"},)


class Book:
    """The record of one subject, saved whenever a cell arrives."""

    def __init__(self, check: Check, what: str) -> None:
        self.check, self.what, self.path = check, what, check.ledger.folder / f"{what}.json"
        self.head: dict[str, Any] = {}
        self.cells: list[dict[str, Any]] = []
        self.requests: list[Request] = []
        self._geometry: dict[str, Any] = {}

    def event(self, body: dict[str, Any]) -> None:
        if body["kind"] == "plan":
            skipped = ("kind", "impls", "seq", "lengths", "windows", "cells", "geometry")
            self.head = {key: value for key, value in body.items() if key not in skipped}
            self._geometry = body["geometry"]
        elif body["kind"] == "cell":
            cell = {**body["cell"], "geometry": self._geometry}
            self.cells.append(cell)
            status = "failed" if cell["status"] == "failed" else "done"
            reason = {} if cell["reason"] is None else {"reason": cell["reason"]}
            self.check.ledger.add(self.what, status, cell=cell, **reason)
            print(f"  {cell_text(self.what, cell)}", flush=True)
            self.save()

    def save(self) -> None:
        record = {
            "type": "bench", **self.head, "what": self.what, "command": COMMAND, "requests": self.requests,
            "slopes": [] if self.what == "log-prob" else slopes(sorted(self.cells, key=lambda cell: cell["seq"])),
            "cells": self.cells,
        }  # fmt: skip
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(finite(record), indent=2) + "\n")
        os.replace(temporary, self.path)


def measure(check: Check, book: Book, requests: Sequence[Request], deadline: float) -> None:
    """Sends the requests one after the other; what the deadline leaves out is a row of its own."""
    what = book.what
    for given in requests:
        request, left_out = usable(check, what, given)
        for impl, reason in left_out.items():
            check.ledger.add(what, "skipped", impl=impl, request=given, reason=reason)
        if not request["impls"]:
            continue
        left = deadline - time.monotonic()
        if left <= 0:
            check.ledger.add(what, "skipped", request=request, reason="the time for this phase was used up")
            continue
        book.requests.append(request)
        cells = len(book.cells)
        ended: list[dict[str, Any]] = []
        case = {"request": {**request, "what": what, "command": COMMAND}, "until": time.time() + left}
        one = crew(check, 1, deadline + OVERTIME_S, lambda kind, case, result, to=ended: to.append(result), book.event)
        one.run([Job("bench", [case])])
        result = ended[0] if ended else {"status": "skipped", "reason": "stopped"}
        if result["status"] != "done":
            check.ledger.add(what, result["status"], request=request, reason=result["reason"])
        elif result["record"]["stopped"]:
            reason = f"the time for this phase was used up after {len(book.cells) - cells} cells"
            check.ledger.add(what, "skipped", request=request, reason=reason)


def usable(check: Check, what: str, request: Request) -> tuple[Request, dict[str, str]]:
    """The request without the implementations that cannot or must not be measured, and why not."""
    packages = check.found["packages"]
    left_out = {}
    for impl in request["impls"]:
        broken = check.broken & ({"triton", "linear"} if impl == "ours" and not check.tiny else {impl})
        if broken:
            left_out[impl] = f"parity failed: {', '.join(sorted(broken))}"
        elif impl == "triton" and packages["triton"] is None:
            left_out[impl] = "triton is not installed"
        elif what == "model" and packages["transformers"] is None:
            left_out[impl] = "transformers is not installed"
        elif request.get("train") == "lora" and packages["peft"] is None:
            left_out[impl] = "peft is not installed: no LoRA"
    return {**request, "impls": [impl for impl in request["impls"] if impl not in left_out]}, left_out


def cell_text(what: str, cell: dict[str, Any]) -> str:
    """One line for people."""
    window = "" if cell["window"] is None else f", window {cell['window']}"
    head = f"{what} {cell['seq']} {cell['impl']}{window}"
    if cell["status"] != "ok":
        return f"{head}: {cell['status'].replace('_', ' ')}: {cell['reason']}"
    rates = ""
    if cell.get("tflops_fwd") is not None:
        rates = f", {cell['tflops_fwd']:.1f} / {cell['tflops_bwd']:.1f} TFLOP/s"
    peak = cell["peak_bytes"] / 2**20
    floor = f" ({cell['peak_bytes'] / cell['floor_bytes']:.2f} of the floor)" if cell["floor_bytes"] else ""
    return f"{head}: {cell['fwd_ms']:.2f} + {cell['bwd_ms']:.2f} ms{rates}, {peak:.0f} MiB{floor}"


def attention(check: Check, deadline: float) -> None:
    requests = TINY_ATTENTION if check.tiny else ATTENTION
    book = Book(check, "attention")
    measure(check, book, requests[:1], deadline)
    sink_cost(check, deadline)
    measure(check, book, requests[1:], deadline)


def sink_cost(check: Check, deadline: float) -> None:
    case = TINY_SINK_COST if check.tiny else SINK_COST
    _, left_out = usable(check, "attention", {"impls": [case["impl"]]})

    def report(kind: str, case: Case, result: Result) -> None:
        check.ledger.add(kind, case=case, **result)

    if left_out:
        check.ledger.add("sink cost", "skipped", reason=left_out[case["impl"]])
    else:
        crew(check, 1, deadline, report).run([Job("sink cost", [case])])


def model(check: Check, deadline: float) -> None:
    measure(check, Book(check, "model"), TINY_MODEL if check.tiny else MODEL, deadline)


def log_prob(check: Check, deadline: float) -> None:
    measure(check, Book(check, "log-prob"), TINY_LOG_PROB if check.tiny else LOG_PROB, deadline)
