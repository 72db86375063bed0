"""One request to `sinkflex bench`, in a worker: its events pass through, its record is the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from sinkflex.bench.run import measure

from .worker import say


class Watch:
    """Passes events on, and says when to stop: when a cell as long as the longest so far would end after `until`."""

    def __init__(self, until: float, clock: Callable[[], float] = time.time) -> None:
        self.until, self.clock = until, clock
        self.longest, self._begun = 0.0, clock()

    def note(self, body: Mapping[str, Any]) -> None:
        if body["kind"] == "cell_started":
            self._begun = self.clock()
        elif body["kind"] == "cell":
            self.longest = max(self.longest, self.clock() - self._begun)

    def stop(self) -> bool:
        return self.clock() + self.longest > self.until


def check(case: dict[str, Any]) -> dict[str, Any]:
    """`until` is a time of time.time."""
    watch = Watch(case["until"])

    def emit(body: Mapping[str, Any]) -> None:
        watch.note(body)
        say(body)

    return {"status": "done", "record": measure(case["request"], emit, watch.stop)}
