"""What scripts/gpu-check makes of its rows: targets, counts, reasons, exit code."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from gpu_check import summary, targets
from gpu_check.ledger import Ledger, Row


def cell(impl: str, seq: int, window: int | None = None, **figures: Any) -> Row:
    body = {"impl": impl, "seq": seq, "window": window, "status": "ok", "geometry": {}, "reason": None, **figures}
    return {"phase": "attention", "status": "done", "cell": body}


def attention(seq: int, *, window: int | None = None, ms: float, peak: float = 1.0, impl: str = "triton") -> Row:
    """Forward takes a third of `ms`; `peak` in floors."""
    floor = 1000 * seq
    rates = {"tflops_fwd": 350.0, "tflops_bwd": 250.0}
    figures = {"fwd_ms": ms / 3, "bwd_ms": ms * 2 / 3, "peak_bytes": peak * floor, "floor_bytes": floor}
    return cell(impl, seq, window, **figures, **rates)


def verdicts(rows: list[Row]) -> dict[str, tuple[str, str]]:
    return {target.what.split(":")[0]: (target.verdict, target.measured) for target in targets.of(rows)}


def test_without_records_nothing_is_hit() -> None:
    assert {verdict for verdict, _ in verdicts([]).values()} == {"not measured"}


def test_targets_of_attention() -> None:
    rows = [
        attention(8192, ms=8.0), attention(16384, ms=30.0), attention(32768, ms=120.0, peak=1.2),
        attention(8192, ms=1.1, window=128), attention(16384, ms=2.0, window=128), attention(32768, ms=4.0, window=128),
        attention(16384, ms=31.0, impl="flex"),
    ]  # fmt: skip
    found = verdicts(rows)
    assert found["attention forward at 16384, TFLOP/s"] == ("hit", "350")
    assert found["attention backward at 16384, TFLOP/s"] == ("missed", "250")
    assert found["attention at 16384, time over compiled flex"] == ("hit", "0.968")
    assert found["attention memory, most over the floor"] == ("missed", "1.2")
    assert found["attention memory from 16384 to 32768"] == ("missed", "2.4")
    assert found["window 128 over full at 8192, time"] == ("missed", "0.138")
    assert found["window 128, time from 16384 to 32768"] == ("hit", "2")


def test_a_cell_that_failed_is_no_measurement() -> None:
    row = attention(16384, ms=30.0)
    row["cell"]["status"] = "failed"
    assert verdicts([row])["attention forward at 16384, TFLOP/s"] == ("not measured", "")


def test_targets_of_log_prob_and_model() -> None:
    def log_prob(head: str, ms: float) -> Row:
        geometry = {"vocabulary": 152_064, "hidden": 4096, "head": head}
        row = cell("linear", 8192, geometry=geometry, fwd_ms=ms, bwd_ms=1.0, peak_bytes=7 << 30, floor_bytes=1)
        return {**row, "phase": "log-prob"}

    def model(seq: int) -> Row:
        row = cell("ours", seq, peak_bytes=1e9 + 0.25e6 * seq, floor_bytes=1, fwd_ms=1.0, bwd_ms=1.0)
        return {**row, "phase": "model"}

    found = verdicts([log_prob("trained", 500.0), log_prob("frozen", 70.0), model(16384), model(1024)])
    assert found["log-prob, 8192 tokens, 152064 x 4096, frozen head, ms"] == ("hit", "71")
    assert found["log-prob, the same, peak in GiB"] == ("missed", "7")
    assert found["model, MB per token"] == ("hit", "0.25")
    assert verdicts([model(1024)])["model, MB per token"][0] == "not measured"


def test_the_summary_counts_and_names_reasons(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.add("environment", "done", gpu={"name": "Some GPU"})
    for status in ("passed", "passed", "failed"):
        reason = {"reason": "out 1e-2 > 5e-3"} if status == "failed" else {}
        ledger.add("parity", status, case={"impl": "triton"}, error={"out": math.inf}, **reason)
    ledger.add("parity", "refused", case={"impl": "flash"}, reason="no parents")
    ledger.add("model", "skipped", reason="peft is not installed: no LoRA")
    ledger.close()
    text = summary.text(ledger.rows, tiny=False)
    assert "parity triton  2 passed, 1 failed" in text and "parity flash   1 refused" in text
    assert "Some GPU" in text and "not measured" in text
    assert "  parity: out 1e-2 > 5e-3" in text and "  model: peft is not installed: no LoRA" in text
    assert summary.exit_code(ledger.rows) == 1
    assert summary.exit_code([row for row in ledger.rows if row["status"] != "failed"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert len(lines) == len(ledger.rows) and lines[1]["error"] == {"out": None}
