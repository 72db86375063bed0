"""Launches are matched with the entry of the table that they used, and with no other."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from gpu_check.launches import Recorder, verified


class Kernel:
    """Launches as Triton's functions do: kernel[grid](...) is kernel.run(..., grid=grid, warmup=False)."""

    arg_names = ("x", "y", "rows", "BLOCK")

    def __init__(self) -> None:
        self.ran = 0

    def __getitem__(self, grid: Any) -> Any:
        return lambda *positional, **named: self.run(*positional, grid=grid, warmup=False, **named)

    def run(self, *positional: Any, grid: Any, warmup: bool, **named: Any) -> None:
        self.ran += 1


class Launch(NamedTuple):
    name: str
    kernel: Any
    signature: dict[str, str]
    constexprs: dict[str, Any]
    divisible_by_16: tuple[str, ...]
    num_warps: int
    num_stages: int


def entry(name: str, kernel: Kernel, **changes: Any) -> Launch:
    signature = {"x": "*bf16", "y": "*bf16", "rows": "i32"}
    return Launch(name, kernel, signature, {"BLOCK": 64}, ("x", "y", "rows"), 4, 2)._replace(**changes)


def launched(table: list[Launch], kernel: Kernel, *positional: Any, **named: Any) -> list[str]:
    with Recorder(table) as recorder:
        kernel[(1,)](*positional, **named)
    assert kernel.ran == 1, "the launch itself must happen"
    kernel[(1,)](*positional, **named)  # no longer noted
    assert len(recorder.launched) == 1
    return recorder.names


def test_an_entry_is_told_by_constants_types_warps_and_stages() -> None:
    kernel = Kernel()
    table = [
        entry("this", kernel),
        entry("other block", kernel, constexprs={"BLOCK": 128}),
        entry("other type", kernel, signature={"x": "*fp16", "y": "*bf16", "rows": "i32"}),
        entry("other warps", kernel, num_warps=8),
        entry("other stages", kernel, num_stages=3),
        entry("without y", kernel, signature={"x": "*bf16", "rows": "i32"}, constexprs={"BLOCK": 64, "y": None}),
        entry("other kernel", Kernel()),
    ]
    x, y = (torch.zeros(64, dtype=torch.bfloat16) for _ in range(2))
    assert launched(table, kernel, x, y, 64, BLOCK=64, num_warps=4, num_stages=2) == ["this"]


def test_an_absent_argument_is_a_constant() -> None:
    kernel = Kernel()
    signature = {"x": "*bf16", "rows": "i32"}
    table = [
        entry("both", kernel),
        entry("without y", kernel, signature=signature, constexprs={"BLOCK": 64, "y": None},
              divisible_by_16=("x", "rows")),
    ]  # fmt: skip
    x = torch.zeros(64, dtype=torch.bfloat16)
    assert launched(table, kernel, x, None, 64, BLOCK=64, num_warps=4, num_stages=2) == ["without y"]


def test_alignment_tells_entries_apart_that_differ_in_nothing_else() -> None:
    x, y = (torch.zeros(64, dtype=torch.bfloat16) for _ in range(2))
    for rows, expected in ((64, ["aligned"]), (63, ["ragged"])):
        kernel = Kernel()
        table = [entry("aligned", kernel), entry("ragged", kernel, divisible_by_16=("x", "y"))]
        assert launched(table, kernel, x, y, rows, BLOCK=64, num_warps=4, num_stages=2) == expected
    kernel = Kernel()
    assert launched([entry("aligned", kernel)], kernel, x[1:], y, 64, BLOCK=64, num_warps=4, num_stages=2) == []


def test_an_entry_is_verified_by_cases_that_passed_and_by_no_other() -> None:
    table = [entry(name, Kernel()) for name in ("right", "wrong", "unused")]
    rows = [
        {"status": "passed", "launched": ["right", "wrong"]},
        {"status": "failed", "launched": ["wrong"]},
        {"status": "refused"},
    ]
    found = {name: status for name, status, _ in verified(table, rows)}
    assert found == {"right": "passed", "wrong": "failed", "unused": "skipped"}
