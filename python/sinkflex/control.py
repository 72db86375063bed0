"""What the worker is told: JSON lines on standard input, and signals. Standard library only.

Idea: one daemon thread waits for standard input and for signals at the C level (a wake-up descriptor), so that it acts
even while the main thread is inside a long torch call.

    {"type": "stop"}    finish the step, write a checkpoint, exit 130          (also the first SIGINT)
    {"type": "say"}     `text` is a line that a person typed: the answer to an event `ask`
    end of input        the parent is gone: the process and its group are gone GRACE_SECONDS later
    SIGTERM, SIGHUP     `Terminated` is raised in the main thread; exit 128 + signal at the latest GRACE_SECONDS later
    second SIGINT       the same with exit 130

A stop sent before Python was up waits in the pipe and is honoured. Bytes are read with os.read: a buffered reader would
hold a line back or hold the lock that interpreter shutdown needs.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

GRACE_SECONDS = 3.0


class Terminated(BaseException):
    """The worker was told to end at once. Not an `Exception`: nothing that survives a failed episode may catch it."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"terminated, exit code {exit_code}")
        self.exit_code = exit_code


class Control:
    """`stop_requested` is what the loop asks between steps. Without `start` nothing is read: tests set it by hand."""

    def __init__(self, fd: int | None = 0, *, grace: float = GRACE_SECONDS) -> None:
        """`fd` None: listen to signals only (a run by hand, without a parent)."""
        self._fd = fd
        self._grace = grace
        self._stop = threading.Event()
        self._said: queue.SimpleQueue[str | None] = queue.SimpleQueue()  # reentrant: signal handlers put into it
        self._finished = threading.Event()
        self._orphaned = threading.Event()
        self._interrupts = 0
        self._terminated = False
        self._wake_read, self._wake_write = -1, -1

    @property
    def stop_requested(self) -> bool:
        return self._stop.is_set()

    def request_stop(self) -> None:
        self._stop.set()
        self._said.put(None)

    def next_line(self) -> str | None:
        """Waits for the next line that a person typed; None once a stop was asked for. Signals are still obeyed."""
        return None if self.stop_requested else self._said.get()

    def start(self) -> None:
        """Install the signal handlers and start the thread. Main thread only."""
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        if self._fd is not None and not _is_open(self._fd):
            self._fd = None
            self.parent_gone()
        threading.Thread(target=self._listen, name="control", daemon=True).start()

    def finished(self, exit_code: int) -> None:
        """The work is over: end of input means nothing any more, and a shutdown that hangs ends with `exit_code`."""
        self._finished.set()
        self._after_grace(os._exit, exit_code)

    def parent_gone(self) -> None:
        """Nobody listens any more. Leaves time to finish a write, then ends the process group."""
        if self._finished.is_set() or self._orphaned.is_set():
            return
        self._orphaned.set()
        self.request_stop()
        _note("the command line is gone; the worker ends")
        self._after_grace(_end_group)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts == 1:
                self.request_stop()
                return
        if not self._terminated:  # once: a second signal must not cut short the telling of the end
            self._terminated = True
            raise Terminated(128 + number)

    def _listen(self) -> None:
        """The thread: control lines and wake-ups until end of input, then wake-ups only."""
        pending = b""
        sources = [self._wake_read] if self._fd is None else [self._wake_read, self._fd]
        interrupts = 0
        while True:
            ready, _, _ = select.select(sources, [], [])
            if self._wake_read in ready:
                for number in os.read(self._wake_read, 64):
                    interrupts += number == signal.SIGINT
                    if number in (signal.SIGTERM, signal.SIGHUP) or interrupts == 2:
                        self._after_grace(os._exit, 128 + number)
            if self._fd is not None and self._fd in ready:
                chunk = _read(self._fd)
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines if chunk else [*lines, pending]:
                    self._obey(line)
                if not chunk:
                    sources.remove(self._fd)
                    self.parent_gone()

    def _obey(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        match message:
            case {"type": "stop"}:
                self.request_stop()
            case {"type": "say", "text": str(text)}:
                self._said.put(text)
            case _:
                _note(f"control line not understood and ignored: {line[:200]!r}")

    def _after_grace(self, end: Callable[..., object], *arguments: int) -> None:
        def wait() -> None:
            time.sleep(self._grace)
            end(*arguments)

        threading.Thread(target=wait, name="grace", daemon=True).start()


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:  # a terminal that went away reads as an error, which means the same
        return b""


def _end_group() -> NoReturn:
    """Kill the worker's own group, so that its children go too; never a group that somebody else leads."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _note(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(f"sinkflex: {text}", file=sys.stderr, flush=True)
