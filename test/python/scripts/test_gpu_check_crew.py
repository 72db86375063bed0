"""Workers that crash, hang or become unfit cost one case each; a deadline skips what is left, and says so."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from gpu_check import crew
from gpu_check.crew import Crew, Job
from gpu_check.measuring import Watch

# Speaks the protocol of gpu_check/worker.py, and does what its cases say.
STUB = """
import json, os, sys, time
assert sys.argv[1:] == ["--worker"]
for line in sys.stdin:
    for case in json.loads(line)["cases"]:
        if case["do"] == "crash":
            os._exit(3)
        if case["do"] == "kill":
            os.kill(os.getpid(), 9)
        if case["do"] == "hang":
            time.sleep(60)
        if case["do"] == "event":
            print(json.dumps({"event": {"case": case["name"]}}), flush=True)
        body = {"status": "passed", "pid": os.getpid()}
        if case["do"] == "unfit":
            body = {"status": "failed", "reason": "CUDA error", "unfit": True}
        print(json.dumps(body), flush=True)
"""


def run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    jobs: list[list[str]],
    *,
    processes: int = 1,
    seconds: float = 30.0,
    silence: float = 20.0,
    events: list[Any] | None = None,
) -> dict[str, dict[str, Any]]:
    """The result of each case; cases are named by what they do and their place."""
    program = tmp_path / "stub.py"
    program.write_text(STUB)
    monkeypatch.setattr(crew, "PROGRAM", program)
    found: dict[str, dict[str, Any]] = {}

    def report(kind: str, case: dict[str, Any], result: dict[str, Any]) -> None:
        assert kind == "stub" and case["name"] not in found
        found[case["name"]] = result

    note = events.append if events is not None else lambda event: None
    some = Crew(processes, time.monotonic() + seconds, silence, {}, tmp_path / "log.txt", report, note)
    some.run(
        [
            Job("stub", [{"do": do, "name": f"{do} {index}.{at}"} for at, do in enumerate(job)])
            for index, job in enumerate(jobs)
        ]
    )
    assert len(found) == sum(len(job) for job in jobs)
    return found


def test_a_worker_that_ends_fails_the_case_it_was_at_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run(tmp_path, monkeypatch, [["pass", "crash", "pass"], ["kill", "pass"]])
    statuses = {name: result["status"] for name, result in found.items()}
    assert statuses == {
        "pass 0.0": "passed", "crash 0.1": "failed", "pass 0.2": "passed", "kill 1.0": "failed", "pass 1.1": "passed",
    }  # fmt: skip
    assert "exit code 3" in found["crash 0.1"]["reason"] and "signal 9" in found["kill 1.0"]["reason"]
    assert found["pass 0.0"]["pid"] != found["pass 0.2"]["pid"]


def test_a_silent_worker_fails_its_case_and_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(tmp_path, monkeypatch, [["hang", "pass"]], silence=1.0)
    assert found["hang 0.0"]["status"] == "failed" and "no answer within 1 s" in found["hang 0.0"]["reason"]
    assert found["pass 0.1"]["status"] == "passed"


def test_at_the_deadline_the_rest_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = time.monotonic()
    found = run(tmp_path, monkeypatch, [["pass", "hang", "pass"], ["pass"]], seconds=2.0)
    assert time.monotonic() - begun < 20
    assert found["pass 0.0"]["status"] == "passed"
    for name in ("hang 0.1", "pass 0.2", "pass 1.0"):
        assert found[name] == {"status": "skipped", "reason": "the time for this phase was used up"}


def test_after_a_broken_device_another_process_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(tmp_path, monkeypatch, [["pass", "unfit", "pass"]])
    assert found["unfit 0.1"] == {"status": "failed", "reason": "CUDA error"}
    assert found["pass 0.0"]["pid"] != found["pass 0.2"]["pid"]


def test_events_pass_through_and_jobs_are_shared_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Any] = []
    found = run(tmp_path, monkeypatch, [["event", "pass"], ["event"]], processes=2, events=events)
    assert sorted(event["case"] for event in events) == ["event 0.0", "event 1.0"]
    assert all(result["status"] == "passed" for result in found.values())


def test_no_cell_is_begun_that_would_end_too_late() -> None:
    now = [0.0]
    watch = Watch(10.0, lambda: now[0])
    assert not watch.stop()
    for begin, end, stop in ((0.0, 3.0, False), (3.0, 5.0, False), (5.0, 7.5, True)):
        now[0] = begin
        watch.note({"kind": "cell_started"})
        now[0] = end
        watch.note({"kind": "cell"})
        assert watch.stop() == stop, end
