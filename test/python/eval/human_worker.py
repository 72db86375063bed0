"""The real worker with a person: its control lines are typed, its events read."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

# Gives the worker its end of the pipe as file descriptor 3, whatever 3 is here.
_SHIFT = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.execv(sys.argv[2], sys.argv[2:])"


class HumanWorker:
    """`python -m sinkflex eval` on a request; a context manager that leaves no process behind."""

    def __init__(self, folder: Path, request: dict[str, Any]) -> None:
        path = folder / "request.json"
        path.write_text(json.dumps(request))
        read_fd, write_fd = os.pipe()
        command = [sys.executable, "-S", "-c", _SHIFT, str(write_fd), sys.executable, "-P", "-m", "sinkflex", "eval"]
        self.process = subprocess.Popen(
            [*command, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(write_fd,),
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        os.close(write_fd)
        self.seen: list[dict[str, Any]] = []
        self._events = os.fdopen(read_fd, "rb")
        self._watchdog = threading.Timer(90, self.process.kill)
        self._watchdog.start()

    def __enter__(self) -> HumanWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self._watchdog.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()
        self._events.close()

    def asked(self) -> str:
        """What is shown until the next question; asserts that one comes."""
        shown = []
        for line in self._events:
            event = json.loads(line)
            self.seen.append(event)
            if event["type"] == "human":
                if event["kind"] == "ask":
                    return "\n".join(shown)
                shown.append(f"[{event['what']}] {event['title'] or ''}\n{event['text']}")
        raise AssertionError(f"no question came: {self.seen[-1:]}")

    def say(self, text: str) -> None:
        self.tell({"type": "say", "text": text})

    def tell(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, *lines: str) -> str:
        """Types lines, one a question; what was shown after the last."""
        shown = ""
        for line in lines:
            self.say(line)
            shown = self.asked()
        return shown

    def rest(self) -> list[dict[str, Any]]:
        """The events until the worker is gone."""
        later = [json.loads(line) for line in self._events]
        self.seen += later
        return later
