"""Our attention beside its rivals on the same card, in one process: benchmarks/attention_gpu.py under a deadline.

Its rows are kept as they come, in rivals.jsonl, and repeated in results.jsonl. An implementation that failed its parity
before has no row. A rival that fails is a fact about the rival; one of ours that does is a failure.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .phases import Check

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "attention_gpu.py"
LAST_CELL_S = 15.0  # the script begins no cell later than this before the deadline
OVERTIME_S = 8.0


def run(check: Check, deadline: float) -> None:
    path = check.ledger.folder / "rivals.jsonl"
    path.unlink(missing_ok=True)
    left = deadline - time.monotonic()
    command = [sys.executable, "-P", str(SCRIPT), "--out", str(path), "--seconds", str(max(left - LAST_CELL_S, 1.0))]
    if check.tiny:
        command.append("--tiny")
    environment = {**os.environ, "TRITON_INTERPRET": "1" if check.tiny else "0"}
    with check.log.open("ab") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, env=environment, start_new_session=True)
    reason = None
    try:
        code = process.wait(timeout=left + OVERTIME_S)
        if code != 0:
            reason = f"exit code {code}; see {check.log.name}"
    except subprocess.TimeoutExpired:
        reason = "the time for this phase was used up; the script was ended"
    finally:  # also on Ctrl-C
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        _collect(check, path)
    if reason is not None:
        check.ledger.add("rivals", "skipped" if "time" in reason else "failed", reason=reason)


def _collect(check: Check, path: Path) -> None:
    """The script's rows, without those of broken implementations, into the ledger and back into its file."""
    if not path.is_file():
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = [row for row in map(_row, lines) if row is not None and row.get("subject") not in check.broken]
    path.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    for row in kept:
        if row["kind"] == "skipped":
            check.ledger.add("rivals", "skipped", reason=_skipped(row))
        elif row["kind"] == "row":
            failed = row["status"] == "failed"
            status = "done" if not failed else "failed" if row["ours"] else "skipped"
            why = {"reason": f"{row['subject']}, {_cell(row)}: {row['reason']}"} if row["status"] != "ok" else {}
            check.ledger.add("rivals", status, row=row, **why)
            print(f"  {_text(row)}", flush=True)
        elif row["kind"] == "targets":
            check.ledger.add("rivals", "done", targets=row["targets"])


def _row(line: str) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError):  # the end of the process cut it short
        row: dict[str, Any] = json.loads(line)
        return row
    return None


def _cell(row: dict[str, Any]) -> str:
    return f"{row['seq']} tokens" + ("" if row["window"] is None else f", window {row['window']}")


def _skipped(row: dict[str, Any]) -> str:
    return f"{row['subject']}: {row['reason']}" if "subject" in row else f"{_cell(row)}: {row['reason']}"


def _text(row: dict[str, Any]) -> str:
    head = f"{_cell(row)}: {row['subject']}"
    if row["status"] != "ok":
        return f"{head}: {row['status'].replace('_', ' ')}: {row['reason']}"
    rates = f"{row['tflops_fwd']:.1f} / {row['tflops_bwd']:.1f} TFLOP/s"
    return f"{head}: {row['fwd_ms']:.3f} + {row['bwd_ms']:.3f} ms, {rates}, {row['peak_bytes'] / 2**20:.0f} MiB"
