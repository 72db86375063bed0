"""The judges of scripts/gpu-check: a right implementation passes, each kind of wrong one fails and is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from gpu_check import cases, log_prob_parity, offsets, parity, worker
from sinkflex.kernels.api import LogProb, linear_log_prob, sink_attention

CASE = {"impl": "flash", "dtype": "float32", "head_dim": 16, "layout": "varlen", "window": 7, "device": "cpu"}


def with_attention(monkeypatch: pytest.MonkeyPatch, change: Callable[..., Any]) -> dict[str, Any]:
    """The result of CASE where the implementation is `change`; the specification stays as it is."""

    def attention(*tensors: torch.Tensor, impl: str, **options: Any) -> Any:
        if impl == "eager":
            return sink_attention(*tensors, impl=impl, **options)
        return change(*tensors, **options)

    monkeypatch.setattr(parity, "sink_attention", attention)
    return parity.check(CASE)


def test_a_right_implementation_passes_in_every_dtype_and_layout() -> None:
    for job in cases.parity_jobs("cpu"):
        if job.cases[0]["impl"] == "flash" and job.cases[0]["head_dim"] in (24, 64):
            for case in job.cases:
                result = parity.check(case)
                assert result["status"] in ("passed", "refused"), (case, result)
                assert result["status"] == "passed" or "parent" in result["reason"]


def test_the_matrix_covers_every_value_of_every_axis() -> None:
    full = [case for job in cases.parity_jobs("cuda") for case in job.cases]
    assert len(full) == 3 * (3 * 6 + 1) * len(cases.LAYOUTS) * 3
    thin = [case for job in cases.parity_jobs("cpu") for case in job.cases if case["impl"] == "triton"]
    for axis, values in (("layout", cases.LAYOUTS), ("head_dim", cases.HEAD_DIMS), ("window", (None, 1, 7))):
        assert {case[axis] for case in thin if case["dtype"] != "bfloat16"} == set(values)


@pytest.mark.parametrize("name", cases.LAYOUTS)
def test_full_layouts_fit_one_compilation_of_flex(name: str) -> None:
    layout = cases.layout(name, tiny=False)
    assert 896 < layout.num_queries <= 1024 and 896 < layout.num_keys <= 1024


def test_dropped_sinks_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor, **options: Any) -> Any:
        out, lse = sink_attention(q, k, v, None, impl="flash", **options)
        return out + 0 * sinks.sum(), lse

    result = with_attention(monkeypatch, without)
    assert result["status"] == "failed" and "out" in result["reason"] and "da" in result["reason"]


def test_a_window_off_by_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def off_by_one(*tensors: torch.Tensor, window: int, **options: Any) -> Any:
        return sink_attention(*tensors, window=window + 1, impl="flash", **options)

    assert with_attention(monkeypatch, off_by_one)["status"] == "failed"


def test_a_dropped_gradient_of_the_log_sum_exp_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def dropped(*tensors: torch.Tensor, **options: Any) -> Any:
        out, lse = sink_attention(*tensors, impl="flash", **options)
        return out, lse.detach() + 0 * out.sum()

    result = with_attention(monkeypatch, dropped)
    assert result["status"] == "failed" and "dq" in result["reason"] and "dv" not in result["reason"]


def test_not_a_number_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def poisoned(*tensors: torch.Tensor, **options: Any) -> Any:
        out, lse = sink_attention(*tensors, impl="flash", **options)
        return out, torch.where(lse > 1e9, lse, lse * torch.nan)

    assert with_attention(monkeypatch, poisoned)["status"] == "failed"


def test_a_sink_gradient_that_changes_from_run_to_run_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    def wavering(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor, **options: Any) -> Any:
        runs.append(0)
        return sink_attention(q, k, v, sinks * (1 + len(runs) * 2.0**-23), impl="flash", **options)

    result = with_attention(monkeypatch, wavering)
    assert result["status"] == "failed" and result["reason"] == "da differs between two equal runs"


def test_a_refusal_is_no_failure_and_an_error_no_refusal() -> None:
    refused = parity.check({**CASE, "impl": "flex"})
    assert refused["status"] == "refused" and "CPU" in refused["reason"] and "impl" not in refused["reason"]
    failed = worker.answer(parity.check, {**CASE, "impl": "sdpa"})
    assert failed["status"] == "failed" and "allowed are" in failed["reason"]


@pytest.mark.parametrize("form", ["strided", "long"])
def test_offsets_compare_what_they_say(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = {"impl": "flash", "form": form, "dtype": "float32", "device": "cpu"}
    assert offsets.check(case)["status"] == "passed"

    def wrapped(q: torch.Tensor, *tensors: torch.Tensor, impl: str, **options: Any) -> Any:
        """Reads the first row where it should read the last, as an offset that wrapped does."""
        if impl != "eager":
            q = torch.cat([q[:-1], q[:1]])
        return sink_attention(q, *tensors, impl=impl, **options)

    monkeypatch.setattr(parity, "sink_attention", wrapped)
    assert offsets.check(case)["status"] == "failed"


def test_log_prob_is_compared_in_every_output_and_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    case = {
        "dtype": "float32", "rows": 9, "hidden": 32, "vocabulary": 53, "head": "trained", "entropy": True, "keep": True,
        "temperature": 0.7, "device": "cpu",
    }  # fmt: skip
    right = log_prob_parity.check(case)
    assert right["status"] == "passed"
    assert list(right["error"]) == ["log_prob", "lse", "entropy", "dhidden", "dweight"]

    def without_temperature(*tensors: torch.Tensor, temperature: float, **options: Any) -> LogProb:
        return linear_log_prob(*tensors, **options)

    monkeypatch.setattr(log_prob_parity, "linear_log_prob", without_temperature)
    wrong = log_prob_parity.check(case)
    assert wrong["status"] == "failed" and all(name in wrong["reason"] for name in right["error"])
