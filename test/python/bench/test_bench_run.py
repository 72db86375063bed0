"""Whole benchmarks through the door for scripts, with real children, and what leads up to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cells
import pytest
import torch
from sinkflex.bench import plan as planning
from sinkflex.bench import run as running
from sinkflex.bench.request import parse
from sinkflex.bench.run import measure
from sinkflex.refusal import Refusal

CPU = not torch.cuda.is_available()
ATTENTION = {"what": "attention", "num_q_heads": 4, "num_kv_heads": 2, "head_dim": 16, "device": "cpu", "repeat": 2}


def run(request: Mapping[str, Any], **more: Any) -> tuple[dict[str, Any], list[Mapping[str, Any]]]:
    told: list[Mapping[str, Any]] = []
    return measure(request, told.append, **more), told


def test_attention_is_measured_by_window_length_and_impl() -> None:
    result, told = run({**ATTENTION, "seq": [64, 128], "impls": ["eager", "flash"], "window": 16, "command": "by hand"})
    kinds = [body["kind"] for body in told if body["kind"] != "progress"]
    assert kinds == ["plan", *["cell_started", "cell"] * 4, "result"]
    assert [(c["seq"], c["impl"], c["window"]) for c in result["cells"]] == [
        (64, "eager", 16), (64, "flash", 16), (128, "eager", 16), (128, "flash", 16),
    ]  # fmt: skip
    assert [c["status"] for c in result["cells"]] == ["ok"] * 4
    plan, started = told[0], [body for body in told if body["kind"] == "cell_started"]
    assert (plan["lengths"], plan["impls"], plan["dtype"], plan["threads"]) == (
        [64, 128],
        ["eager", "flash"],
        "float32",
        1,
    )
    assert "seq" not in plan and "seq" not in started[0]  # that is the envelope's
    assert (started[1]["index"], started[1]["total"], started[1]["length"], started[1]["window"]) == (1, 4, 64, 16)
    assert {body["stage"] for body in told if body["kind"] == "progress"} == {"parity", "memory", "warm-up", "time"}
    assert (result["type"], result["what"], result["device"], result["command"]) == (
        "bench",
        "attention",
        "cpu",
        "by hand",
    )
    assert result["machine"]["cores"] >= 1 and result["versions"]["torch"] == torch.__version__
    assert [(line["impl"], line["window"]) for line in result["slopes"]] == [("eager", 16), ("flash", 16)]
    assert not result["stopped"]


def test_log_probs_and_models_are_measured_the_same_way() -> None:
    result, _ = run(
        {
            "what": "log-prob",
            "seq": [48],
            "vocabulary": 301,
            "hidden": 32,
            "head": "trained",
            "device": "cpu",
            "repeat": 1,
        }
    )
    assert [(c["impl"], c["status"], c["fwd_spread"]) for c in result["cells"]] == [
        ("naive", "ok", None),
        ("linear", "ok", None),
    ]
    assert result["geometry"] == {"vocabulary": 301, "hidden": 32, "head": "trained"}
    assert set(result["cells"][0]["error"]) == {"log_prob", "dhidden", "dweight"}


def test_a_model_is_measured_with_what_its_peak_is_made_of() -> None:
    sizes = {"what": "model", "layers": 1, "train": "lora", "device": "cpu"}
    result, told = run({**sizes, "seq": [48], "impls": ["ours"], "repeat": 1})
    (cell,) = result["cells"]
    assert cell["status"] == "ok", cell["reason"]
    assert set(cell["error"]) == {"loss", "gradient"} and cell["tokens_per_second"] > 0
    assert cell["attention_impl"] == "flash"
    assert set(cell["largest"]) == set(cell["breakdown"]) - {"rest"} >= {"scores", "logits", "hidden", "experts"}
    assert sum(cell["breakdown"].values()) == cell["peak_bytes"]
    assert cell["breakdown"]["scores"] == 0 < cell["breakdown"]["experts"]
    assert result["geometry"]["name"] == "scaled" and any("random weights" in note for note in told[0]["notes"])


def test_a_stop_ends_after_the_cell_at_hand() -> None:
    stops = iter([False, True])
    result, told = run({**ATTENTION, "seq": [32, 48, 64], "impls": ["flash"], "window": 8}, stop=lambda: next(stops))
    assert result["stopped"] and [c["status"] for c in result["cells"]] == ["ok"]
    assert told[-1]["kind"] == "result"


def test_what_cannot_fit_is_not_tried() -> None:
    result, told = run({**ATTENTION, "seq": [1_000_000], "impls": ["eager"]})
    cell = result["cells"][0]
    assert cell["status"] == "does_not_fit" and cell["peak_bytes"] is None
    assert cell["reason"].startswith("not tried: it needs about ") and "GB are free" in cell["reason"]
    assert not any(body["kind"] == "progress" for body in told)


def test_what_would_take_too_long_is_not_tried(monkeypatch: Any) -> None:
    spent = {"fwd_ms": 40_000.0, "bwd_ms": 60_000.0, "peak_bytes": 10, "status": "ok"}
    monkeypatch.setattr(running, "measure_cell", lambda spec, on_stage: {**running.blank(spec, "ok", None), **spent})
    result, _ = run({**ATTENTION, "seq": [1024, 2048], "impls": ["flash"], "window": None, "seconds_per_cell": 300})
    full = [cell for cell in result["cells"] if cell["window"] is None]
    assert [cell["status"] for cell in full] == ["ok", "does_not_fit"]
    assert full[1]["reason"] == "not tried: it would take about 800 s, and a cell may take 300 s"


def test_the_limit_of_a_cell_is_what_is_free(monkeypatch: Any) -> None:
    seen: list[Any] = []

    def measured(spec: Any, on_stage: Any) -> dict[str, Any]:
        seen.append(spec.memory_limit)
        return dict(running.blank(spec, "failed", "not really measured"))

    monkeypatch.setattr(running, "measure_cell", measured)
    monkeypatch.setattr(running.machine, "free_bytes", lambda: 1_000_000_000)
    run({**ATTENTION, "seq": [64], "impls": ["flash"], "window": 8})
    run({**ATTENTION, "seq": [64], "impls": ["flash"], "window": 8, "memory_limit": 500_000_000})
    assert seen == [950_000_000, 500_000_000]


@pytest.mark.skipif(not CPU, reason="a CUDA device is here")
def test_without_a_gpu_one_that_is_asked_for_is_refused(monkeypatch: Any) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)  # kernel tests of the same process set it
    for request in ({"device": "cuda"}, {"impls": ["flex"]}, {"impls": ["eager", "triton"]}, {"impls": ["fla"]}):
        with pytest.raises(Refusal) as caught:
            run(request)
        assert (caught.value.code, caught.value.exit_code) == ("SF-BENCH-DEVICE", 3)
        assert caught.value.why and caught.value.fix


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_what_an_implementation_cannot_honour_is_refused_or_left_out(dtype: str, monkeypatch: Any) -> None:
    def resolve(impl: str, request: Any) -> str:
        if impl == "flash":
            raise ValueError(
                f"impl is 'flash', but flash does not compute in {request.dtype}; impl='eager' supports it"
            )
        return impl

    monkeypatch.setattr(planning, "resolve", resolve)
    plan = planning.make(parse({"device": "cpu", "dtype": dtype}))
    assert plan.impls == ("eager",)
    assert f"flash is left out: flash does not compute in torch.{dtype}" in plan.notes
    with pytest.raises(Refusal) as caught:
        planning.make(parse({"device": "cpu", "dtype": dtype, "impls": ["flash"]}))
    assert (caught.value.code, caught.value.exit_code) == ("SF-BENCH-REQUEST", 2)
    assert caught.value.why == f"Flash does not compute in torch.{dtype}."


@pytest.mark.skipif(not CPU, reason="a CUDA device is here")
def test_triton_is_measured_on_a_cpu_where_its_interpreter_was_asked_for(monkeypatch: Any) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert planning.make(parse({"impls": ["triton"]})).impls == ("triton",)


@pytest.mark.skipif(not CPU, reason="a CUDA device is here")
def test_a_laptop_gets_defaults_that_it_can_carry(monkeypatch: Any) -> None:
    monkeypatch.setattr(planning.machine, "free_bytes", lambda: 16 * 10**9)
    plan = planning.make(parse({"seq": [4096, 8192]}))
    assert (plan.device, plan.dtype, plan.impls, plan.windows) == ("cpu", "float32", ("eager", "flash"), (None, 128))
    assert plan.geometry == {"num_q_heads": 16, "num_kv_heads": 2, "head_dim": 64, "sinks": True}
    assert any("reduced from gpt-oss's 64 and 8" in note for note in plan.notes)
    assert planning.make(parse({"what": "attention"})).seq == (1024, 2048, 4096)
    assert planning.make(parse({"what": "log-prob"})).geometry["vocabulary"] == 201_088
    assert planning.make(parse({"what": "model"})).geometry["layers"] == 4


def test_little_memory_asks_for_a_smaller_vocabulary_and_says_so(monkeypatch: Any) -> None:
    monkeypatch.setattr(planning.machine, "free_bytes", lambda: 6 * 10**9)
    plan = planning.make(parse({"what": "log-prob", "device": "cpu"}))
    assert plan.geometry["vocabulary"] == 50_272 and any(
        "a quarter of gpt-oss's: 6.0 GB are free" in n for n in plan.notes
    )
    asked = planning.make(parse({"what": "log-prob", "device": "cpu", "vocabulary": 201_088}))
    assert asked.geometry["vocabulary"] == 201_088


def test_cells_are_told_in_json() -> None:
    from sinkflex.bench.cell import _finite
    from sinkflex.bench.spec import decode

    spec = cells.model("ours", memory_limit=7)
    assert decode(spec.encode()) == spec
    assert _finite({"a": float("nan"), "b": [float("inf"), 1.5]}) == {"a": None, "b": [None, 1.5]}
