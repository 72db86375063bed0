"""The worker's side of crew.py: reads jobs from standard input, writes one line of JSON per case, events between."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import IO, Any

from .ledger import finite

# kind -> module of this package whose `check(case)` returns the result
JOBS = {
    "environment": "environment",
    "parity": "parity",
    "offsets": "offsets",
    "log-prob parity": "log_prob_parity",
    "bench": "measuring",
    "sink cost": "sink_cost",
}


_channel: IO[str] | None = None


def serve() -> int:
    global _channel
    _channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints belongs into the log
    for line in sys.stdin:
        job = json.loads(line)
        check = importlib.import_module(f"gpu_check.{JOBS[job['kind']]}").check
        for case in job["cases"]:
            _write(answer(check, case))
    return 0


def say(event: Mapping[str, Any]) -> None:
    """Progress of the case at hand."""
    _write({"event": event})


def _write(body: Mapping[str, Any]) -> None:
    assert _channel is not None
    _channel.write(json.dumps(finite(body)) + "\n")
    _channel.flush()


def answer(check: Callable[[dict[str, Any]], dict[str, Any]], case: dict[str, Any]) -> dict[str, Any]:
    """The result of one case; whatever it raises is a failure of that case alone."""
    import torch

    try:
        return check(case)
    except torch.OutOfMemoryError as error:
        return {"status": "skipped", "reason": f"out of memory: {first_line(error)}"}
    except Exception as error:
        failure = {"status": "failed", "reason": f"{type(error).__name__}: {first_line(error)}"}
        # After an illegal access everything fails in this process: the next case needs another one.
        return {**failure, "unfit": True} if "CUDA error" in str(error) else failure


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else "no message"
