"""`bench` in the real worker: its events, its stop, its refusals, and what is left when it is killed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Start = Callable[..., Any]


@pytest.fixture
def bench_json(tmp_path: Path) -> Callable[..., Path]:
    """bench.json as the command line writes it."""

    def write(**given: Any) -> Path:
        nulls = ("seq", "impls", "num_q_heads", "num_kv_heads", "head_dim", "window", "repeat", "threads", "vocabulary",
                 "hidden", "head", "layers", "train", "geometry")  # fmt: skip
        raw = {
            "v": 1, "verb": "bench", "what": "attention", "device": "cpu", "dtype": "auto", **dict.fromkeys(nulls),
            "command": "sinkflex bench", **given,
        }  # fmt: skip
        path = tmp_path / "bench.json"
        path.write_text(json.dumps(raw))
        return path

    return write


SMALL = {"num_q_heads": 4, "num_kv_heads": 2, "head_dim": 16, "window": 16, "repeat": 1}


def test_a_benchmark_is_told_from_hello_to_end(start: Start, bench_json: Callable[..., Path]) -> None:
    worker = start(None, path=bench_json(**SMALL, seq=[64], impls=["flash"]), verb="bench")
    events = worker.rest()
    assert worker.wait() == 0, worker.log()
    hello, phase, *bench, end = [event for event in events if event["type"] != "beat"]
    assert (hello["type"], hello["verb"], hello["run"], hello["attempt"], hello["seed"]) == (
        "hello",
        "bench",
        None,
        None,
        None,
    )
    assert (phase["type"], phase["phase"]) == ("phase", "loading")
    assert {event["type"] for event in bench} == {"bench"}
    assert [event["kind"] for event in bench if event["kind"] != "progress"] == [
        "plan",
        "cell_started",
        "cell",
        "result",
    ]
    assert [event["seq"] for event in events] == list(range(len(events)))  # no field of an event took its number
    assert bench[-1]["result"]["cells"] == [bench[-2]["cell"]]
    assert bench[-1]["result"]["command"] == "sinkflex bench"
    assert (end["type"], end["status"], end["exit_code"], end["error"]) == ("end", "completed", 0, None)


def test_nothing_that_fits_is_exit_code_1_with_the_table(start: Start, bench_json: Callable[..., Path]) -> None:
    worker = start(None, path=bench_json(**SMALL, seq=[2_000_000], impls=["eager"]), verb="bench")
    events = worker.rest()
    assert worker.wait() == 1
    assert events[-2]["result"]["cells"][0]["status"] == "does_not_fit"
    assert (events[-1]["status"], events[-1]["exit_code"], events[-1]["error"]) == ("completed", 1, None)


def test_a_stop_keeps_the_cells_so_far(start: Start, bench_json: Callable[..., Path]) -> None:
    worker = start(None, path=bench_json(**SMALL, seq=[64, 80, 96], impls=["flash"]), verb="bench")
    while worker.until("bench")["kind"] != "cell_started":
        pass
    worker.say(b'{"type":"stop"}\n')
    events = worker.rest()
    assert worker.wait() == 130
    result = next(event["result"] for event in events if event.get("kind") == "result")
    assert result["stopped"] and [(cell["seq"], cell["status"]) for cell in result["cells"]] == [(64, "ok")]
    assert (events[-1]["status"], events[-1]["exit_code"]) == ("stopped", 130)


@pytest.mark.parametrize(
    ("given", "code", "exit_code"),
    [({"impls": ["flsh"]}, "SF-BENCH-REQUEST", 2), ({"impls": ["flex"]}, "SF-BENCH-DEVICE", 3)],
)
def test_a_request_that_cannot_be_met_is_refused(
    start: Start, bench_json: Callable[..., Path], given: dict[str, Any], code: str, exit_code: int
) -> None:
    worker = start(None, path=bench_json(**given), verb="bench")
    assert worker.wait() == exit_code
    end = worker.rest()[-1]
    assert (end["status"], end["exit_code"], end["error"]["code"]) == ("failed", exit_code, code)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_cell_outlives_the_worker(start: Start, bench_json: Callable[..., Path], number: signal.Signals) -> None:
    worker = start(None, path=bench_json(seq=[4096], impls=["flash"], repeat=100), verb="bench")
    while worker.until("bench")["kind"] != "progress":
        pass
    cells = children(worker.process.pid)
    assert cells
    os.kill(worker.process.pid, number)
    worker.wait()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in cells) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in cells)


def children(parent: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(status.parent.name))
    return found
