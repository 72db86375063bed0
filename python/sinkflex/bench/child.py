"""The parent's side of a cell: starts the child process, passes on its progress, and says how it ended.

The child leads a process group of its own, so that what it started (compilers) ends with it. It is ended when the
parent leaves `Child`, and ends itself when the parent is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from . import machine
from .spec import Spec, blank


class Child:
    """A running cell. `answers` yields progress and, last, the cell, whatever happened to the process."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._kills = machine.memory_kills()
        threads = {"OMP_NUM_THREADS": str(spec.threads), "MKL_NUM_THREADS": str(spec.threads)}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "sinkflex.bench.cell"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=machine.measuring_environment({**os.environ, **(threads if spec.device == "cpu" else {})}),
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]  # both were asked for

    def answers(self) -> Iterator[dict[str, Any]]:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(self._spec.encode())
            self._process.stdin.flush()
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):  # a line that the end of the process cut short
                yield json.loads(line)
                if b'"status"' in line:
                    return
        yield self._epitaph(self._process.wait())

    def _epitaph(self, code: int) -> dict[str, Any]:
        """The cell of a child that ended without one."""
        if code >= 0:
            return blank(self._spec, "failed", f"its process ended with exit code {code}; the log has its last words")
        name = signal.Signals(-code).name
        if -code == signal.SIGKILL:
            kills = machine.memory_kills()
            if kills is None or self._kills is None:
                return blank(
                    self._spec, "does_not_fit", "tried: ended by SIGKILL, most likely by the system for want of memory"
                )
            if kills > self._kills:
                return blank(self._spec, "does_not_fit", "tried: ended by the kernel for want of memory (SIGKILL)")
            return blank(self._spec, "failed", "its process was ended by SIGKILL, and not for want of memory")
        return blank(self._spec, "failed", f"its process was ended by {name}")


def measure_cell(spec: Spec, on_stage: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """The cell, measured in a fresh child."""
    with Child(spec) as child:
        for answer in child.answers():
            if "status" in answer:
                return answer
            on_stage(answer)
    raise AssertionError("answers() ends with a cell")
