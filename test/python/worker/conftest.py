"""run.json by hand, and the worker as a real process with its three channels."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from sinkflex.config import Config, Env, Eval, Model, Train

# Gives the worker its end of the pipe as file descriptor 3, whatever 3 is here.
SHIFT = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.execv(sys.argv[2], sys.argv[2:])"

STUB = """
import sys, types
import sinkflex.__main__ as worker
assert not {"torch", "numpy", "transformers"} & set(sys.modules), "a slow import before hello"
loop = types.ModuleType("sinkflex.train.loop")
exec(sys.argv[1], loop.__dict__)
sys.modules["sinkflex.train.loop"] = loop
sys.exit(worker.main(sys.argv[2:]))
"""


class Worker:
    """A worker whose training loop is `loop` (source of a module with `train`); None runs the real module."""

    def __init__(
        self,
        loop: str | None,
        run_json: Path,
        *,
        arguments: tuple[str, ...] = (),
        early: bytes = b"",
        verb: str = "train",
    ) -> None:
        self.read_fd, write_fd = os.pipe()
        control_fd, self.control_fd = os.pipe()
        if early:  # in the pipe before Python is up
            os.write(self.control_fd, early)
        head = ["-m", "sinkflex"] if loop is None else ["-c", STUB, loop]
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", SHIFT, str(write_fd), sys.executable, "-P", *head, verb, str(run_json),
             *arguments],
            stdin=control_fd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=(write_fd,),
            start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        os.close(write_fd)
        os.close(control_fd)
        self._events: IO[bytes] = os.fdopen(self.read_fd, "rb")
        self._watchdog = threading.Timer(90, self.process.kill)
        self._watchdog.start()

    def next(self) -> dict[str, Any]:
        line = self._events.readline()
        while line == b"\n":  # left where a signal cut a write short
            line = self._events.readline()
        assert line, f"no further event; the worker said:\n{self.log()}"
        event: dict[str, Any] = json.loads(line)
        return event

    def until(self, type: str) -> dict[str, Any]:
        while True:
            event = self.next()
            if event["type"] == type:
                return event

    def rest(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._events if line != b"\n"]

    def stop_reading(self) -> None:
        self._events.close()

    def say(self, line: bytes) -> None:
        os.write(self.control_fd, line)

    def close_control(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.control_fd)

    def wait(self) -> int:
        return self.process.wait(timeout=90)

    def log(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.read().decode()

    def end(self) -> None:
        self._watchdog.cancel()
        self.close_control()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._events.close()


@pytest.fixture
def raw_run(tmp_path: Path) -> dict[str, Any]:
    """A complete run.json as the command line writes it."""
    config = Config(
        name="demo",
        model=Model(preset="tiny-gpt-oss"),
        env=Env(suite="mini-shop"),
        train=Train(steps=3),
        eval=Eval(suites=("mini-shop",)),
        seed=7,
    )
    raw = json.loads(json.dumps(dataclasses.asdict(config)))
    del raw["model"]["path"]
    return {
        "v": 1, "verb": "train", "run": "demo-20260102-030405", "run_dir": str(tmp_path), "attempt": 1, "resume": None,
        "config_file": str(tmp_path / "config.yaml"), "config_sha256": "ab" * 32, "config": raw,
    }  # fmt: skip


@pytest.fixture
def run_json(tmp_path: Path, raw_run: dict[str, Any]) -> Path:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(raw_run))
    return path


@pytest.fixture
def start(run_json: Path) -> Iterator[Callable[..., Worker]]:
    """Starts workers on `run_json` and leaves none behind."""
    started: list[Worker] = []

    def launch(loop: str | None, **options: Any) -> Worker:
        started.append(Worker(loop, options.pop("path", run_json), **options))
        return started[-1]

    yield launch
    for worker in started:
        worker.end()
