"""A time limit for code that does not know about it: an environment that hangs must not hang its caller.

`TimedOut` is no `Exception`, so that a tool's or a package's own `except Exception` cannot swallow it; `DualControlEnv`
records it as the fault of whoever was being asked. Uses the interval timer of the process: main thread only, and code
inside a C call that never returns to Python is not interrupted before it does.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class TimedOut(BaseException):
    """The time limit of `deadline` was reached."""


@contextlib.contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Raises TimedOut inside the block after `seconds`; None: no limit. Not to be nested. RuntimeError outside the main
    thread, where no limit could be kept."""
    if seconds is None:
        yield
        return
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("a deadline can be kept in the main thread only")

    def expire(number: int, frame: FrameType | None) -> None:
        raise TimedOut(f"no answer within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
