"""Cells in real child processes: their peak, their memory limit, and every way to end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cells
import pytest
from sinkflex.bench import child as children
from sinkflex.bench import machine
from sinkflex.bench.child import Child, measure_cell
from sinkflex.bench.spec import Spec

LINUX = sys.platform.startswith("linux")


def last(spec: Spec, at: str, act: Any) -> dict[str, Any]:
    """The cell of a child to which `act` is done when it comes to a stage."""
    with Child(spec) as child:
        for answer in child.answers():
            if answer.get("stage") == at:
                act(child.pid)
            if "status" in answer:
                return answer
    raise AssertionError("no cell")


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def test_a_cell_is_measured_in_the_order_that_is_promised() -> None:
    stages: list[str] = []
    cell = measure_cell(cells.attention("flash", 512), lambda stage: stages.append(stage["stage"]))
    assert cell["status"] == "ok", cell["reason"]
    assert list(dict.fromkeys(stages)) == ["parity", "memory", "warm-up", "time"]
    assert cell["repetitions"] == 2 and cell["fwd_ms"] > 0 and cell["bwd_ms"] > 0 and cell["cpu_ms"] > 0
    assert cell["error"].keys() == cell["parity_limit"].keys() == {"out", "dq", "dk", "dv", "da"}
    assert all(0 < cell["error"][name] <= cell["parity_limit"][name] for name in cell["error"])


@pytest.mark.skipif(not LINUX, reason="elsewhere the high-water mark cannot be reset")
def test_the_peak_is_what_the_pass_holds() -> None:
    """Eager holds several tensors of T x T scores, flash none; floors bound both from below."""
    scores = 4 * 512 * 512 * 4
    eager, flash = (measure_cell(cells.attention(impl, 512), lambda stage: None) for impl in ("eager", "flash"))
    assert 3 * scores < eager["peak_bytes"] < 12 * scores
    inputs = 512 * (2 * 4 + 2 * 2) * 16 * 4
    assert flash["floor_bytes"] - inputs < flash["peak_bytes"] < scores


@pytest.mark.skipif(not LINUX, reason="the limit is Linux's")
def test_a_child_that_may_not_have_the_memory_says_so() -> None:
    cell = measure_cell(cells.attention("eager", 1024, memory_limit=40_000_000), lambda stage: None)
    assert (cell["status"], cell["fwd_ms"]) == ("does_not_fit", None)
    assert cell["reason"].startswith("tried: out of memory")


def test_a_child_that_is_killed_is_a_failed_cell() -> None:
    cell = last(cells.attention(), "memory", kill)
    expected = "failed" if machine.memory_kills() is not None else "does_not_fit"
    assert cell["status"] == expected and "SIGKILL" in cell["reason"] and cell["fwd_ms"] is None


def test_a_child_that_the_kernel_killed_for_memory_does_not_fit(monkeypatch: Any) -> None:
    counts = iter([4, 5])
    monkeypatch.setattr(children.machine, "memory_kills", lambda: next(counts))
    cell = last(cells.attention(), "memory", kill)
    assert cell["status"] == "does_not_fit" and "want of memory" in cell["reason"]


def test_a_child_that_crashes_names_its_signal() -> None:
    cell = last(cells.attention(), "memory", lambda pid: os.kill(pid, signal.SIGSEGV))
    assert (cell["status"], cell["reason"]) == ("failed", "its process was ended by SIGSEGV")


def test_a_cell_that_cannot_be_set_up_is_a_failed_cell() -> None:
    cell = measure_cell(cells.attention(dtype="float24"), lambda stage: None)
    assert cell["status"] == "failed" and "float24" in cell["reason"]


def test_leaving_ends_the_child_and_its_group() -> None:
    with Child(cells.attention("flash", 4096, repeat=1000)) as child:
        next(child.answers())
        pid = child.pid
        assert os.getpgid(pid) == pid
    assert not alive(pid)


PARENT = """
import sys
sys.path.insert(0, sys.argv[1])
import cells
from sinkflex.bench.child import Child
child = Child(cells.attention("flash", 65536))
for answer in child.answers():
    if answer["stage"] == "memory":
        print(child.pid, flush=True)
"""


def test_a_child_ends_when_its_parent_is_gone() -> None:
    """SIGKILL leaves the parent no time to end anything, and the child is in a pass that takes minutes."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(Path(__file__).parent)], stdout=subprocess.PIPE, env={**os.environ}
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert alive(pid)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 20
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    gone = not alive(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    assert gone


def alive(pid: int) -> bool:
    """Running; a process that only waits to be collected is not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        if LINUX:
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True
    return state != "Z"
