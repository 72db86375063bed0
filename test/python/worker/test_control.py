"""Stop, end of input and signals, each against a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Waits for the stop at the place where the real loop asks: between steps.
OBEDIENT = """
import time
def train(run, events, control):
    events.emit("plan")
    while not control.stop_requested:
        time.sleep(0.01)
    return 130
"""

# One torch call that takes minutes: no Python code runs in the main thread meanwhile, no signal handler either.
BUSY = """
import subprocess, sys
def train(run, events, control):
    import torch
    torch.set_num_threads(1)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    x = torch.randn(5000, 5000)
    events.emit("plan", child=child.pid)
    torch.linalg.svd(x)
"""


def _gone(pid: int) -> bool:
    """Whether the process ends within a minute (a zombie that its new parent has not collected yet counts as gone)."""
    for _ in range(600):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


def test_a_stop_sent_before_python_is_up_is_honoured(start: Callable[..., Any]) -> None:
    worker = start(OBEDIENT, early=b'{"type":"stop"}\n')
    assert worker.wait() == 130
    end = worker.rest()[-1]
    assert (end["type"], end["status"], end["exit_code"]) == ("end", "stopped", 130)


def test_control_lines_may_arrive_in_pieces_and_nonsense_is_passed_over(start: Callable[..., Any]) -> None:
    worker = start(OBEDIENT)
    worker.until("plan")
    for piece in (b"\n", b"stop\n", b'{"type":"dance"}\n', b'["stop"]\n', b'{"type"', b':"sto', b'p"}', b"\n"):
        worker.say(piece)
    assert worker.wait() == 130
    log = worker.log()
    assert log.count("not understood") == 3
    assert "dance" in log


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_killed_parent_takes_the_worker_and_its_children_along(run_json: Path) -> None:
    """The command line dies by SIGKILL while the worker is inside torch: nothing of the group is left."""
    parent = subprocess.Popen(
        [sys.executable, "-P", "-c", PARENT, str(Path(__file__).parent), BUSY, str(run_json)],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert parent.stdout is not None
    worker, child = (int(pid) for pid in parent.stdout.readline().split())
    try:
        parent.kill()
        parent.wait()
        assert _gone(worker)
        assert _gone(child)
    finally:
        for pid in (worker, child):
            if not _gone_now(pid):
                os.kill(pid, signal.SIGKILL)
        parent.stdout.close()


PARENT = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from conftest import Worker
worker = Worker(sys.argv[2], Path(sys.argv[3]))
print(worker.process.pid, worker.until("plan")["child"], flush=True)
time.sleep(600)
"""


def _gone_now(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
def test_the_end_of_input_ends_a_busy_worker(start: Callable[..., Any]) -> None:
    worker = start(BUSY)
    worker.until("plan")
    worker.close_control()
    assert worker.wait() == -signal.SIGKILL
    assert "the command line is gone" in worker.log()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_termination_signal_is_told_and_cleans_up(start: Callable[..., Any], number: int, code: int) -> None:
    worker = start(
        """
import time
def train(run, events, control):
    events.emit("checkpoint", step=2, path="checkpoints/step-000002", bytes=1)
    events.enter("rollout", 3)
    try:
        time.sleep(600)
    except Exception:
        raise SystemError("termination was caught as a failed episode")
    finally:
        (run.run_dir / "cleaned").touch()
"""
    )
    while worker.until("phase")["phase"] != "rollout":
        pass
    os.kill(worker.process.pid, number)
    assert worker.wait() == code
    end = worker.rest()[-1]
    assert (end["type"], end["status"], end["exit_code"], end["step"]) == ("end", "stopped", code, 3)
    assert end["checkpoint"] == "checkpoints/step-000002"


@pytest.mark.slow
def test_a_termination_signal_ends_a_worker_that_is_inside_torch(start: Callable[..., Any]) -> None:
    worker = start(BUSY)
    worker.until("plan")
    os.kill(worker.process.pid, signal.SIGTERM)
    assert worker.wait() == 143


def test_the_first_interrupt_asks_and_the_second_insists(start: Callable[..., Any]) -> None:
    worker = start(
        """
import time
def train(run, events, control):
    events.emit("plan")
    while not control.stop_requested:
        time.sleep(0.01)
    events.enter("stopping", 1)
    time.sleep(600)
"""
    )
    worker.until("plan")
    os.kill(worker.process.pid, signal.SIGINT)
    while worker.until("phase")["phase"] != "stopping":
        pass
    os.kill(worker.process.pid, signal.SIGINT)
    assert worker.wait() == 130
    assert worker.rest()[-1]["status"] == "stopped"


@pytest.mark.slow
def test_a_reader_of_events_that_is_gone_ends_the_worker(start: Callable[..., Any]) -> None:
    worker = start(
        """
import time
def train(run, events, control):
    events.emit("plan")
    while True:
        events.emit("beat")
        time.sleep(0.01)
"""
    )
    worker.until("plan")
    worker.stop_reading()
    assert worker.wait() == -signal.SIGKILL


@pytest.mark.slow
def test_a_thread_that_never_ends_does_not_keep_a_finished_worker(start: Callable[..., Any]) -> None:
    worker = start(
        """
import threading, time
def train(run, events, control):
    threading.Thread(target=time.sleep, args=(600,)).start()
    return 0
"""
    )
    assert worker.wait() == 0
    assert worker.rest()[-1]["status"] == "completed"
