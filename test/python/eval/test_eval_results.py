"""The results folder: nothing lost, nothing twice, nothing mixed."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path

import pytest
from eval_samples import faulty, raw, report_of, run, scored, start_worker
from sinkflex.control import Control
from sinkflex.eval.results import Results, read_trials
from sinkflex.refusal import Refusal

HEADER = {"suite": "mini-shop", "seed": 0}


def test_a_line_that_a_kill_cut_short_is_dropped_and_written_again(tmp_path: Path) -> None:
    results = Results(tmp_path, HEADER)
    results.add(scored("a", 0, 1.0))
    results.add(scored("b", 0, 0.0))
    results.close()
    path = tmp_path / "trials.jsonl"
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        again = Results(tmp_path, HEADER)
        assert len(again.trials) == whole[:cut].count(b"\n")
        again.add(scored("c", 0, 1.0))
        again.close()
        assert all(json.loads(line) for line in path.read_bytes().splitlines())


def test_another_measurement_is_not_continued(tmp_path: Path) -> None:
    Results(tmp_path, HEADER).close()
    with pytest.raises(Refusal, match=r"[Ss]eed was 0, now 1") as refused:
        Results(tmp_path, {**HEADER, "seed": 1})
    assert refused.value.exit_code == 2


def test_B134_a_folder_with_foreign_results_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(Refusal, match="holds files of something else"):
        Results(tmp_path, HEADER)


def test_two_writers_are_one_too_many(tmp_path: Path) -> None:
    first = Results(tmp_path, HEADER)
    with pytest.raises(Refusal, match="being written by another evaluation"):
        Results(tmp_path, HEADER)
    first.close()
    Results(tmp_path, HEADER).close()


def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path) -> None:
    Results(tmp_path, HEADER).close()
    (tmp_path / "trials.jsonl").write_text('{"task_id": "a"}\n')
    with pytest.raises(Refusal, match=r"[Ll]ine 1 of trials.jsonl is no trial"):
        Results(tmp_path, HEADER)


def test_a_disk_that_is_full_is_told_and_what_was_written_stays(tmp_path: Path) -> None:
    results = Results(tmp_path, HEADER)
    results.add(scored("a", 0, 1.0))
    full = open("/dev/full", "w")  # noqa: SIM115
    written, results._file = results._file, full.fileno()
    with pytest.raises(Refusal, match="No space left"):
        results.add(scored("b", 0, 1.0))
    results._file = written
    results.close()
    full.close()
    assert list(read_trials(tmp_path)[1]) == [("a", 0)]


def test_a_resume_plays_only_what_is_missing_and_reports_the_same(tmp_path: Path) -> None:
    code, events = run(raw(tmp_path / "whole"))
    assert code == 0
    want = report_of(events)

    class StopsAfterFive(Control):
        @property
        def stop_requested(self) -> bool:
            return len(read_trials(tmp_path / "parts")[1]) >= 5

    code, events = run(raw(tmp_path / "parts"), StopsAfterFive(None))
    assert code == 130 and report_of(events)["complete"] is False
    before = (tmp_path / "parts" / "trials.jsonl").read_bytes()
    code, events = run(raw(tmp_path / "parts"))
    [plan] = [event for event in events if event["type"] == "eval_plan"]
    assert code == 0 and plan["done_before"] == 5
    assert (tmp_path / "parts" / "trials.jsonl").read_bytes().startswith(before)
    got = report_of(events)
    assert {**got, "results_path": ""} == {**want, "results_path": ""}


def test_retry_errors_plays_the_faulty_trials_again_and_counts_the_attempt(tmp_path: Path) -> None:
    run(raw(tmp_path, tasks=2))
    header, trials = read_trials(tmp_path)
    broken = faulty(next(iter(trials))[0], 0)
    results = Results(tmp_path, header)
    results.add(broken)
    results.close()
    assert report_of(run(raw(tmp_path, tasks=2))[1])["infra_errors"] == {"user": 1}
    got = report_of(run(raw(tmp_path, tasks=2, retry_errors=True))[1])
    assert got["infra_errors"] == {} and got["coverage"] == 1.0
    assert read_trials(tmp_path)[1][broken.key].attempts == 2


@pytest.mark.slow
def test_killed_at_ten_moments_and_resumed_the_report_is_the_same(tmp_path: Path) -> None:
    request = raw(tmp_path / "whole", tasks=10, trials=4)
    want = report_of(run(request)[1])
    assert want["trials"] * want["tasks"] == 40
    folder = tmp_path / "killed"
    dice = random.Random(0)
    for kill in range(10):
        worker = start_worker(tmp_path, request | {"results": str(folder)})
        target = kill * 4 + dice.randint(0, 3)
        trials = folder / "trials.jsonl"
        while worker.poll() is None and (not trials.exists() or trials.read_bytes().count(b"\n") < target):
            time.sleep(0.001)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    got = report_of(run(request | {"results": str(folder)})[1])
    assert {**got, "results_path": ""} == {**want, "results_path": ""}
    lines = [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]
    assert len(lines) == len({(line["task_id"], line["trial"]) for line in lines}) == 40
