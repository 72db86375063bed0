"""What scripts/gpu-check asks of `sinkflex bench`: requests that it accepts, without what must not be measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpu_check import records
from gpu_check.ledger import Ledger
from gpu_check.phases import Check
from sinkflex.bench.request import parse

PACKAGES = {"triton": "1", "transformers": "1", "peft": "1", "flash-linear-attention": None}
PLANS = {"attention": records.ATTENTION, "model": records.MODEL, "log-prob": records.LOG_PROB}


def check(folder: Path, device: str = "cuda", **packages: Any) -> Check:
    return Check(device, {"packages": PACKAGES | packages}, Ledger(folder), folder / "log.txt")


@pytest.mark.parametrize("what", PLANS)
def test_the_plan_for_a_gpu_is_what_bench_accepts(what: str) -> None:
    asked = [parse({**request, "what": what}) for request in PLANS[what]]
    lengths = {seq for request in asked for seq in request.seq or ()}
    wanted = {
        "attention": {4096, 8192, 16384, 32768}, "model": {1024, 2048, 4096, 8192, 16384}, "log-prob": {8192},
    }  # fmt: skip
    assert lengths == wanted[what]
    if what == "log-prob":
        assert {(request.vocabulary, request.hidden) for request in asked} == {(152_064, 4096), (201_088, 2880)}


def test_what_failed_its_parity_is_not_measured(tmp_path: Path) -> None:
    one = check(tmp_path)
    request = {"impls": ["triton", "flex"]}
    assert records.usable(one, "attention", request) == (request, {})
    one.broken.add("triton")
    kept, left_out = records.usable(one, "attention", request)
    assert kept == {"impls": ["flex"]} and left_out == {"triton": "parity failed: triton"}
    # Ours, in a model, runs what failed.
    kept, left_out = records.usable(one, "model", {"impls": ["ours", "eager"]})
    assert kept == {"impls": ["eager"]} and "triton" in left_out["ours"]


def test_missing_packages_are_said(tmp_path: Path) -> None:
    lora = {"impls": ["ours", "eager"], "train": "lora"}
    for package, request in (("triton", {"impls": ["triton"]}), ("transformers", lora), ("peft", lora)):
        kept, left_out = records.usable(check(tmp_path, **{package: None}), "model", request)
        assert kept["impls"] == [] and all(package in reason for reason in left_out.values())


def test_a_record_is_whole_after_every_cell(tmp_path: Path) -> None:
    one = check(tmp_path)
    book = records.Book(one, "attention")
    book.event({"kind": "plan", "what": "attention", "device": "cuda", "geometry": {"head_dim": 64}, "cells": 2})
    for seq, status in ((4096, "ok"), (8192, "ok"), (16384, "does_not_fit"), (32768, "failed")):
        cell = {
            "seq": seq, "impl": "triton", "window": None, "status": status, "reason": None if status == "ok" else "why",
            "fwd_ms": 1.0, "bwd_ms": 2.0, "peak_bytes": seq * 1000, "floor_bytes": seq * 1000,
        }  # fmt: skip
        book.event({"kind": "cell_started"})
        book.event({"kind": "cell", "cell": cell})
        record = json.loads((tmp_path / "attention.json").read_text())
        assert record["cells"][-1] == {**cell, "geometry": {"head_dim": 64}} and record["device"] == "cuda"
    assert record["slopes"][0]["mb_per_token"] == pytest.approx(0.001)
    assert [row["status"] for row in one.ledger.rows] == ["done", "done", "done", "failed"]
