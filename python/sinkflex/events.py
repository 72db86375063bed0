"""What the worker says: one JSON object a line on file descriptor 3. Standard library only.

Envelope {"v": 1, "seq": n, "t": seconds since the worker started, "type": ...}. Conventions: `seq` counts from 0
without gaps; a number that is not finite travels as null and its path ("metrics.kl") is listed in `nonfinite`; a line
has at most 64 kB (longer text is cut and says so). Keys ending in _s, _per_second, rss_bytes, pid, t and seq, and every
`beat`, are clocks; the rest is the same for the same config and seed.
A reader that went away ends the run: `on_gone` is called once and later events are dropped. After a signal a blank line
may precede an event: a line that the signal may have cut short is ended before the next one starts.
"""

from __future__ import annotations

import json
import math
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

MAX_LINE_BYTES = 64 * 1024
BEAT_SECONDS = 5.0
_SHORT_TEXT = 512

Phase = Literal["loading", "warm_start", "rollout", "update", "eval", "bench", "checkpoint", "stopping"]


@dataclass(slots=True)
class Status:
    """Where the worker is: what a beat reports and what an `end` after a failure falls back on."""

    phase: Phase = "loading"
    step: int = 0
    waiting_for: str | None = None
    checkpoint: str | None = None


class Events:
    """A sink for events; `emit` may be called from any thread. One of: a file descriptor, a file, a list."""

    def __init__(self, fd: int | None = 3, *, records: list[dict[str, Any]] | None = None) -> None:
        """`fd` must be open (OSError otherwise); `records` collects the decoded events instead, for tests."""
        self.status = Status()
        self.ended = False
        self.gone = False
        self.on_gone: Callable[[], None] = lambda: None
        self._fd = None if records is not None else fd
        self._records = records
        self._lock = threading.Lock()
        self._seq = 0
        self._torn = False
        self._start = time.monotonic()
        if self._fd is not None:
            os.fstat(self._fd)
            os.set_inheritable(self._fd, False)  # a grandchild holding it open would delay the end of the stream

    @classmethod
    def to_file(cls, path: Path) -> Events:
        """Append to `path`; for benchmarks and for running the worker by hand."""
        return cls(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644))

    @classmethod
    def to_list(cls, records: list[dict[str, Any]]) -> Events:
        return cls(None, records=records)

    def emit(self, type: str, **fields: Any) -> None:
        """Write one event; nothing follows an `end`. TypeError when a field is not JSON: metrics are plain numbers."""
        with self._lock:
            if type == "checkpoint":
                self.status.checkpoint = fields["path"]
            if self.gone or self.ended:
                return
            event = {"v": 1, "seq": self._seq, "t": round(time.monotonic() - self._start, 6), "type": type, **fields}
            line = encode(event)
            self._seq += 1
            if self._records is not None:
                self._records.append(json.loads(line))
            elif self._fd is not None:
                self._write(self._fd, line)
            self.ended = type == "end"
        if self.gone:
            self.on_gone()

    def _write(self, fd: int, line: bytes) -> None:
        """A signal handler may raise in between; then the next event starts on a fresh line."""
        torn, self._torn = self._torn, True
        try:
            _write_all(fd, b"\n" + line if torn else line)
            self._torn = False
        except (BrokenPipeError, ConnectionResetError):
            self.gone = True

    def enter(
        self,
        phase: Phase,
        step: int,
        total: int | None = None,
        *,
        detail: str | None = None,
        waiting_for: str | None = None,
    ) -> None:
        """Emit `phase` and let the beats report it from now on."""
        self.status.phase, self.status.step, self.status.waiting_for = phase, step, waiting_for
        extra = {} if detail is None else {"detail": detail}
        self.emit("phase", phase=phase, step=step, total=total, **extra)

    def warn(self, code: str, what: str, fix: str | None = None) -> None:
        self.emit("warn", code=code, what=what, **({} if fix is None else {"fix": fix}))


class Beat:
    """A daemon thread that says every few seconds where the worker is, so that a wait is never silent."""

    def __init__(self, events: Events, seconds: float = BEAT_SECONDS) -> None:
        self._events = events
        self._seconds = seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="beat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when no further beat can follow."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            status = self._events.status
            self._events.emit(
                "beat", phase=status.phase, step=status.step, waiting_for=status.waiting_for, rss_bytes=rss_bytes()
            )


def rss_bytes() -> int:
    """Resident memory now; where the system does not tell (macOS), the peak so far."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def encode(event: dict[str, Any]) -> bytes:
    """One line, newline included, at most MAX_LINE_BYTES."""
    nonfinite: list[str] = []
    finite = _finite(event, "", nonfinite)
    if nonfinite:
        finite["nonfinite"] = nonfinite
    line = _dump(finite)
    if len(line) <= MAX_LINE_BYTES:
        return line
    limit = MAX_LINE_BYTES // 4
    while len(line) > MAX_LINE_BYTES and limit >= _SHORT_TEXT:
        line = _dump(_cut_text(finite, limit))
        limit //= 2
    if len(line) <= MAX_LINE_BYTES:
        return line
    # Not one long text but too many parts: keep the small fields whole and name the ones that had to go.
    kept = _cut_text(finite, _SHORT_TEXT)
    for name in sorted(kept, key=lambda key: len(_dump(kept[key])), reverse=True):
        kept[name] = None
        kept.setdefault("cut_fields", []).append(name)
        line = _dump(kept)
        if len(line) <= MAX_LINE_BYTES:
            break
    return line


def _dump(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", errors="replace") + b"\n"


def _finite(value: Any, path: str, nonfinite: list[str]) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        nonfinite.append(path)
        return None
    if isinstance(value, dict):
        return {k: _finite(v, f"{path}.{k}" if path else str(k), nonfinite) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v, f"{path}[{i}]", nonfinite) for i, v in enumerate(value)]
    return value


def _cut_text(value: Any, limit: int) -> Any:
    if isinstance(value, str) and len(value) > limit:
        return f"{value[:limit]}... [cut: {len(value)} characters]"
    if isinstance(value, dict):
        return {k: _cut_text(v, limit) for k, v in value.items()}
    if isinstance(value, list):
        return [_cut_text(v, limit) for v in value]
    return value


def _write_all(fd: int, line: bytes) -> None:
    rest = memoryview(line)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:  # some parents hand over a non-blocking pipe
            select.select([], [fd], [])
