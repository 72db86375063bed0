"""The cases that scripts/gpu-check runs on a GPU launch every entry of every architecture's table.

Nothing is computed here: launches are noted and left out, on CPU tensors, with each architecture's table in turn.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

pytest.importorskip("triton")
sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))
from gpu_check import cases, launches, log_prob_parity, parity
from sinkflex.kernels import log_prob, log_prob_triton, triton, triton_launch

CAPABILITIES = [(8, 0), (9, 0), (10, 0), (12, 0)]


def only_noted(table: Sequence[Any]) -> launches.Recorder:
    for kernel in {id(entry.kernel): entry.kernel for entry in table}.values():
        kernel.run = lambda *positional, **named: None  # the recorder removes it again
    return launches.Recorder(table)


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_attention_entry_is_launched_by_a_case(capability: tuple[int, int]) -> None:
    table = [entry for entry in launches.table_of(*capability) if not entry.name.startswith("log_prob")]
    assert table
    family = triton_launch.family_of(capability)
    limits = mock.patch.object(triton, "device_limits", lambda device: (family, triton_launch.SHARED[family]))
    with limits, only_noted(table) as recorder:
        for job in cases.parity_jobs("cuda"):
            for case in job.cases:
                if case["impl"] != "triton" or case["layout"] != "single":
                    continue
                dtype, window = getattr(torch, case["dtype"]), case["window"]
                given = parity.problem(cases.layout("single", False), (16, 2), case["head_dim"], dtype, "cpu",
                                       d_lse=window is not None)  # fmt: skip
                leaves = [x.requires_grad_() for x in (given.q, given.k, given.v, given.sinks)]
                out, lse = triton.attend(*leaves, given.layout, window, 1.0)
                ends, pulls = ([out, lse], [given.d_out, given.d_lse]) if window else ([out], [given.d_out])
                torch.autograd.grad(ends, leaves, pulls)
    assert {entry.name for entry in table} - set(recorder.names) == set()


def test_every_log_prob_entry_is_launched_by_a_case() -> None:
    table = [entry for entry in launches.table_of(9, 0) if entry.name.startswith("log_prob")]
    assert table
    steps = log_prob._Steps(log_prob_triton.absorb, log_prob_triton.differentiate, in_torch=False)
    small = {"rows": 3, "hidden": 16, "device": "cpu"}  # a row is a program: how many there are changes nothing
    with (
        mock.patch.object(log_prob, "_steps", lambda device, exact: steps),
        mock.patch.object(log_prob, "_multiplies_into_float32", lambda device: True),
        mock.patch.object(log_prob, "_multiply_into_float32", lambda a, b, out: None),
        mock.patch.dict(log_prob.TILES, {"cpu": log_prob.TILES["cuda"]}),
        mock.patch.object(log_prob_parity, "table_here", lambda: ()),
        only_noted(table) as recorder,
    ):
        for job in log_prob_parity.jobs("cuda"):
            for case in job.cases:
                log_prob_parity.check({**case, **small})
    assert {entry.name for entry in table} - set(recorder.names) == set()
