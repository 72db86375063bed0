"""benchmarks/attention_gpu.py: its whole plan on tiny shapes, what it does with the wrong and the impossible."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "attention_gpu.py"
TENSORS = ("out", "dq", "dk", "dv", "da")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("attention_gpu", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["attention_gpu"] = module
    spec.loader.exec_module(module)
    return module


def run_tiny(script: ModuleType, folder: Path, *more: str) -> tuple[int, list[dict[str, Any]]]:
    path = folder / "rows.jsonl"
    code = script.main(["--tiny", "--out", str(path), *more])
    return code, [json.loads(line) for line in path.read_text().splitlines()]


def test_the_whole_plan_on_tiny_shapes(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = run_tiny(script, tmp_path)
    assert code == 0
    assert [line["kind"] for line in lines] == ["plan", "skipped", "skipped", *["row"] * 6, "targets"]
    assert lines[0]["command"].startswith("python -P benchmarks/attention_gpu.py --tiny")
    assert {line["subject"]: line["reason"] for line in lines[1:3]} == {
        "compiled flex": "runs on a GPU only",
        "fla": "runs on a GPU only",
    }
    rows = lines[3:9]
    assert [(row["seq"], row["window"], row["subject"]) for row in rows] == [
        (96, window, name) for window in (None, 16) for name in ("eager", "flash", "transformers")
    ]
    for row in rows:
        assert row["tflops_bwd"] == pytest.approx(2.5 * row["flops"] / row["bwd_ms"] / 1e9)
        assert row["status"] == "ok" and row["fwd_ms"] > 0 and row["bwd_ms"] > 0 and row["repetitions"] == 1
        assert set(row["errors"]) == set(TENSORS) and all(row["errors"][n] <= row["limits"][n] for n in TENSORS)
        assert row["flops"] == (
            4 * 16 * 4 * 96 * 96 // 2 if row["window"] is None else 4 * 16 * 4 * (16 * 17 // 2 + 80 * 16)
        )
    printed = capsys.readouterr().out
    assert "skipped: fla: runs on a GPU only" in printed and printed.count("transformers") == 2


def windowless(problem: Any) -> Any:
    """An attention that takes its window for one of 4096."""
    from sinkflex.bench.attention import maker

    return maker("eager")(problem._replace(window=None))


def impossible(problem: Any) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 128 GiB\nmore")


def crashing(problem: Any) -> Any:
    raise RuntimeError("no kernel image is available")


@pytest.mark.parametrize(
    ("make", "status", "reason"),
    [
        (windowless, "failed", "out is off by"),
        (crashing, "failed", "RuntimeError: no kernel image is available"),
        (impossible, "does_not_fit", "CUDA out of memory. Tried to allocate 128 GiB"),
    ],
)
def test_a_rival_that_is_wrong_or_impossible_is_reported_and_not_timed(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, status: str, reason: str
) -> None:
    monkeypatch.setattr(script, "RIVALS", {"transformers": make})
    monkeypatch.setattr(script, "TINY", script.TINY._replace(ours=("flash",), cells=[(96, 16), (80, 8)]))
    code, lines = run_tiny(script, tmp_path)
    rows = [line for line in lines if line.get("subject") == "transformers"]
    assert code == 0 and rows[0]["status"] == status and reason in rows[0]["reason"] and "fwd_ms" not in rows[0]
    assert rows[1]["status"] == ("skipped" if status == "failed" else status) and "fwd_ms" not in rows[1]
    assert [line["status"] for line in lines if line.get("subject") == "flash"] == ["ok", "ok"]


def test_one_of_ours_that_is_wrong_fails_the_run(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = script.maker
    monkeypatch.setattr(script, "maker", lambda name: windowless if name == "flash" else real(name))
    monkeypatch.setattr(script, "RIVALS", {})
    monkeypatch.setattr(script, "TINY", script.TINY._replace(ours=("flash",), cells=[(96, 16)]))
    code, lines = run_tiny(script, tmp_path)
    assert code == 1 and lines[1]["status"] == "failed" and "fwd_ms" not in lines[1]


def test_what_is_not_begun_in_time_is_skipped_and_said(script: ModuleType, tmp_path: Path) -> None:
    code, lines = run_tiny(script, tmp_path, "--seconds", "-1")
    left_out = [line for line in lines if line["kind"] == "skipped" and "seq" in line]
    assert code == 0 and [line["reason"] for line in left_out] == ["the time was used up"] * 2
    assert not any(line["kind"] == "row" for line in lines)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main([]) == 2
    assert "torch sees no CUDA device" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        script.main(["--seq", "100"])
    assert "--seq is [100]; allowed are [4096, 8192, 16384, 32768]" in capsys.readouterr().err


def row(subject: str, seq: int, window: int | None, forward: float, backward: float, **more: Any) -> dict[str, Any]:
    flops = 2.199e12 if window is None else 3.4e10
    return {
        "status": "ok", "subject": subject, "ours": subject in ("triton", "flex"), "seq": seq, "window": window,
        "fwd_ms": forward, "bwd_ms": backward, "tflops_fwd": flops / forward / 1e9, "peak_bytes": 100,
        "tflops_bwd": 2.5 * flops / backward / 1e9, "floor_bytes": 100, "input_bytes": 20, **more,
    }  # fmt: skip


def test_verdicts(script: ModuleType) -> None:
    rows = [
        row("triton", 16384, None, 6.0, 22.0),
        row("flex", 16384, None, 7.0, 21.0),
        row("compiled flex", 16384, None, 6.5, 20.0),
        row("fla", 16384, None, 9.0, 40.0, status="failed"),
        row("triton", 8192, None, 1.5, 5.5),
        row("triton", 8192, 128, 0.3, 0.5),
        row("triton", 16384, 128, 0.6, 1.0),
        row("triton", 32768, 128, 1.2, 2.4),
    ]
    found = {one["what"]: (one["verdict"], one["value"]) for one in script.targets(rows, script.GPU)}
    assert found["forward at 16384, TFLOP/s"] == ("hit", pytest.approx(366.5))
    assert found["forward at 16384, TFLOP/s, stretch"][0] == "missed"
    assert found["backward at 16384, TFLOP/s"] == ("missed", pytest.approx(2.5 * 2199 / 21.0))
    assert found["time at 16384 over compiled flex"] == ("missed", pytest.approx(28 / 26.5))
    assert found["time at 16384 over fla"] == ("not measured", None)
    assert found["window 128 at 8192, time over full"] == ("hit", pytest.approx(0.8 / 7.0))
    assert found["window 128, time at 32768 over 16384"] == ("missed", pytest.approx(2.25))
    assert found["memory at 16384, over the floor"] == ("hit", 1.0)
    assert found["memory at 16384, inputs included, over the floor"] == ("missed", 1.2)
    assert found["memory at 32768, over the floor"] == ("not measured", None)


def test_numbers_that_json_cannot_hold_become_null(script: ModuleType) -> None:
    assert script.finite({"a": [float("inf"), 1.0, {"b": float("nan")}]}) == {"a": [None, 1.0, {"b": None}]}
