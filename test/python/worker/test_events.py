"""The event stream: envelope, odd numbers, long lines, many threads, slow and vanished readers."""

from __future__ import annotations

import json
import math
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sinkflex.events import MAX_LINE_BYTES, Beat, Events, encode, rss_bytes


def _piped() -> tuple[Events, int]:
    read_fd, write_fd = os.pipe()
    return Events(write_fd), read_fd


def _drain(read_fd: int, into: list[bytes]) -> threading.Thread:
    def run() -> None:
        while chunk := os.read(read_fd, 4096):
            into.append(chunk)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_the_envelope_counts_from_zero_and_the_fields_follow_it() -> None:
    records: list[dict[str, Any]] = []
    events = Events.to_list(records)
    events.emit("hello", pid=1)
    events.enter("rollout", 3, 60, detail="tune", waiting_for="policy")
    events.warn("SF-X", "what", "fix")
    assert [(r["v"], r["seq"], r["type"]) for r in records] == [(1, 0, "hello"), (1, 1, "phase"), (1, 2, "warn")]
    assert list(records[0]) == ["v", "seq", "t", "type", "pid"]
    assert records[1] | {"t": 0} == {"v": 1, "seq": 1, "t": 0, "type": "phase", "phase": "rollout", "step": 3, "total": 60, "detail": "tune"}  # fmt: skip # noqa: E501
    assert (events.status.phase, events.status.step, events.status.waiting_for) == ("rollout", 3, "policy")
    assert all(r["t"] >= 0 for r in records)


def test_numbers_that_are_not_finite_travel_as_null_and_are_named() -> None:
    records: list[dict[str, Any]] = []
    Events.to_list(records).emit("step", metrics={"kl": math.nan, "loss": 1.0}, mean=math.inf, each=[1.0, -math.inf])
    assert records[0]["metrics"] == {"kl": None, "loss": 1.0}
    assert records[0]["each"] == [1.0, None]
    assert sorted(records[0]["nonfinite"]) == ["each[1]", "mean", "metrics.kl"]


def test_a_long_text_is_cut_visibly_and_the_rest_of_the_event_is_whole() -> None:
    error = "x" * 300_000 + "é" * 100_000
    line = encode({"v": 1, "type": "end", "error": {"code": "SF-BUG", "what": error}, "step": 3})
    assert len(line) <= MAX_LINE_BYTES
    event = json.loads(line)
    assert event["error"]["what"].endswith("... [cut: 400000 characters]")
    assert (event["error"]["code"], event["step"]) == ("SF-BUG", 3)


def test_an_event_of_too_many_parts_names_what_it_had_to_leave_out() -> None:
    line = encode({"v": 1, "seq": 5, "type": "plan", "notes": ["n" * 100] * 2000, "steps": 60})
    assert len(line) <= MAX_LINE_BYTES
    event = json.loads(line)
    assert event["cut_fields"] == ["notes"]
    assert (event["notes"], event["steps"], event["seq"]) == (None, 60, 5)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(st.characters()), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))  # fmt: skip # noqa: E501
def test_every_value_becomes_one_line_of_strict_json(value: Any) -> None:
    line = encode({"v": 1, "type": "x", "value": value})
    assert line.count(b"\n") == 1
    json.loads(line.decode("utf-8"), parse_constant=lambda name: pytest.fail(name))


def test_what_is_not_json_is_a_mistake_of_the_caller() -> None:
    records: list[dict[str, Any]] = []
    events = Events.to_list(records)
    with pytest.raises(TypeError):
        events.emit("step", metrics={"loss": object()})
    events.emit("step", metrics={})
    assert [r["seq"] for r in records] == [0]


def test_lines_of_many_threads_are_whole_and_counted_without_gaps() -> None:
    events, read_fd = _piped()
    chunks: list[bytes] = []
    reader = _drain(read_fd, chunks)
    writers = [
        threading.Thread(target=lambda k=k: [events.emit("beat", who=k, pad="p" * 900) for _ in range(300)])
        for k in range(4)
    ]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    os.close(events._fd)
    reader.join()
    decoded = [json.loads(line) for line in b"".join(chunks).splitlines()]
    assert [d["seq"] for d in decoded] == list(range(1200))
    os.close(read_fd)


def test_a_slow_reader_of_a_non_blocking_pipe_loses_nothing() -> None:
    events, read_fd = _piped()
    os.set_blocking(events._fd, False)
    writer = threading.Thread(target=lambda: [events.emit("warn", what="w" * 30_000) for _ in range(20)])
    writer.start()
    collected = b""
    while collected.count(b"\n") < 20:
        collected += os.read(read_fd, 1000)
    writer.join()
    assert [json.loads(line)["seq"] for line in collected.splitlines()] == list(range(20))
    for fd in (read_fd, events._fd):
        os.close(fd)


def test_a_reader_that_went_away_is_told_once_and_the_worker_goes_on() -> None:
    events, read_fd = _piped()
    told: list[str] = []
    events.on_gone = lambda: told.append("gone")
    events.emit("hello")
    os.close(read_fd)
    for _ in range(3):
        events.emit("beat")
    assert told == ["gone"]
    os.close(events._fd)


def test_after_a_torn_line_the_next_event_starts_on_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler may raise between two partial writes; the `end` event that follows must still be readable."""
    events, read_fd = _piped()
    real = os.write

    def half(fd: int, data: Any) -> int:
        real(fd, bytes(data)[:10])
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(KeyboardInterrupt):
        events.emit("step", step=1)
    events.emit("end", status="stopped")
    torn, end = os.read(read_fd, 4096).splitlines()
    assert len(torn) == 10
    assert json.loads(end)["type"] == "end"
    for fd in (read_fd, events._fd):
        os.close(fd)


def test_the_newest_checkpoint_and_the_end_are_remembered() -> None:
    records: list[dict[str, Any]] = []
    events = Events.to_list(records)
    events.emit("checkpoint", step=10, path="checkpoints/step-000010", bytes=5)
    assert (events.status.checkpoint, events.ended) == ("checkpoints/step-000010", False)
    events.emit("end", status="completed")
    events.emit("beat")  # of the other thread, in the same moment
    assert events.ended
    assert [r["type"] for r in records] == ["checkpoint", "end"]


def test_beats_say_where_the_worker_is_and_stop_before_the_end() -> None:
    records: list[dict[str, Any]] = []
    events = Events.to_list(records)
    events.status.phase, events.status.step, events.status.waiting_for = "rollout", 4, "policy"
    beat = Beat(events, seconds=0.001)
    beat.start()
    while len(records) < 3:
        threading.Event().wait(0.001)
    beat.stop()
    count = len(records)
    assert records[0]["type"] == "beat"
    assert (records[0]["phase"], records[0]["step"], records[0]["waiting_for"]) == ("rollout", 4, "policy")
    assert 2**20 < records[0]["rss_bytes"] < 2**45
    assert beat._thread.is_alive() is False
    assert len(records) == count


def test_memory_is_counted_in_bytes() -> None:
    block = bytearray(64 * 2**20)
    grown = rss_bytes()
    assert grown > len(block)


def test_a_file_takes_the_events_of_a_run_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for _ in range(2):
        Events.to_file(path).emit("hello")
    assert [json.loads(line)["type"] for line in path.read_text().splitlines()] == ["hello", "hello"]


def test_a_closed_descriptor_is_noticed_at_once() -> None:
    read_fd, write_fd = os.pipe()
    os.close(write_fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        Events(write_fd)
    os.close(read_fd)


def test_the_event_pipe_is_not_handed_to_programs_that_the_worker_starts() -> None:
    events, read_fd = _piped()
    assert os.get_inheritable(events._fd) is False
    for fd in (read_fd, events._fd):
        os.close(fd)
