"""scripts/gpu-check end to end without a GPU: the whole plan on tiny shapes, and what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "scripts" / "gpu-check"


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-P", str(PROGRAM), "--device", "cpu", *(str(argument) for argument in arguments)]


def environment() -> dict[str, str]:
    """As a person's shell has it: the package is not on the path of modules. Tools of the checks (Triton) may be."""
    kept = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    folders = [Path(entry).resolve() for entry in kept.pop("PYTHONPATH", "").split(os.pathsep) if entry]
    return kept | {"PYTHONPATH": os.pathsep.join(str(folder) for folder in folders if folder != ROOT / "python")}


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_the_whole_plan_runs_on_a_cpu(tmp_path: Path) -> None:
    out = tmp_path / "a folder"
    done = subprocess.run(command("--out", out), capture_output=True, text=True, env=environment(), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = rows(out)
    assert found[0]["phase"] == "environment" and found[0]["device"] == "cpu"
    assert not any(row["status"] == "failed" for row in found)

    passed = [row["case"] for row in found if row["phase"] == "parity" and row["status"] == "passed"]
    for impl, dtypes in (("flash", {"bfloat16", "float16", "float32"}), ("triton", {"float16", "float32"})):
        if impl == "triton" and found[0]["packages"]["triton"] is None:
            continue
        cases = [case for case in passed if case["impl"] == impl]
        assert {case["dtype"] for case in cases} == dtypes
        assert {case["head_dim"] for case in cases} >= {16, 24, 64, 80, 96, 128}
        assert {case["window"] for case in cases} == {None, 1, 7}
    refused = {row["case"]["impl"] for row in found if row["phase"] == "parity" and row["status"] == "refused"}
    assert "flex" in refused  # it has no gradient on a CPU, and is not silently left out
    for phase in ("offsets", "log-prob parity"):
        assert any(row["phase"] == phase and row["status"] == "passed" for row in found)

    for what in ("attention", "model", "log-prob"):
        record = json.loads((out / f"{what}.json").read_text())
        assert record["type"] == "bench" and record["what"] == what
        assert [cell["status"] for cell in record["cells"]] == ["ok"] and record["versions"]["torch"]
        assert [row["cell"] for row in found if row["phase"] == what and "cell" in row] == record["cells"]

    assert "tiny shapes" in done.stdout and "not a record" not in done.stderr
    assert (out / "summary.txt").read_text().strip() in done.stdout
    assert "Targets" not in done.stdout


def test_ctrl_c_saves_what_is_there_and_leaves_no_process(tmp_path: Path) -> None:
    with subprocess.Popen(
        command("--out", tmp_path, "--only", "correctness"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
    ) as process:
        deadline = time.monotonic() + 60
        results = tmp_path / "results.jsonl"
        while time.monotonic() < deadline and process.poll() is None:
            if results.is_file() and '"status": "passed"' in results.read_text():
                break
            time.sleep(0.02)
        workers = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=30)
    assert process.returncode == 130, text
    assert workers and not any(worker.is_running() for worker in workers)
    assert "stopped; what there is has been saved" in text
    found = rows(tmp_path)
    assert any(row["phase"] == "parity" and row["status"] == "passed" for row in found)
    assert any(row["status"] == "skipped" and row["reason"] == "stopped" for row in found)
    assert (tmp_path / "summary.txt").is_file()


def test_asking_for_a_gpu_where_there_is_none_is_an_error(tmp_path: Path) -> None:
    wanted = [*command("--out", tmp_path), "--device", "cuda"]
    hidden = {**environment(), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(wanted, capture_output=True, text=True, env=hidden)
    assert done.returncode == 1 and "sees no CUDA device" in done.stderr
