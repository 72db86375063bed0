"""What the plan of an evaluation says beforehand about how far its score can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from eval_samples import raw, run
from sinkflex import envs
from sinkflex.eval.request import parse
from sinkflex.eval.suite import FEW_TRIALS, what_is_known
from sinkflex.refusal import Refusal

ENDPOINT = {"kind": "endpoint", "url": "http://127.0.0.1:9/v1", "model": "m"}
MODEL = {"kind": "model", "path": "/nowhere"}
LLM = {"kind": "llm", "url": "http://127.0.0.1:9/v1", "model": "u"}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"agent": ENDPOINT, "trials": 3}, True),
        ({"agent": ENDPOINT, "trials": 4}, False),
        ({"agent": MODEL, "trials": 1}, False),
        ({"agent": MODEL, "trials": 1, "temperature": 0.7}, True),
        ({"agent": {"kind": "scripted", "name": "expert"}, "trials": 1}, False),
        ({"agent": MODEL, "trials": 2, "user": LLM}, True),
        ({"agent": {"kind": "human"}, "trials": 1}, False),
    ],
)
def test_fewer_than_four_trials_of_what_is_sampled_are_remarked_on(
    changes: dict[str, Any], told: bool, tmp_path: Path
) -> None:
    """Two equal runs of a model differ by 7 to 8 points in tau2-retail and 10 to 11 in tau2-airline."""
    domain = envs.domain("mini-shop")
    known = what_is_known(domain, parse(raw(tmp_path, **changes)), domain.task_ids("tune")[:3])
    assert known["notes"] == ([FEW_TRIALS] if told else [])


@pytest.mark.parametrize("paid", [{"agent": ENDPOINT}, {"user": LLM}, {"judge": {"url": LLM["url"], "model": "j"}}])
def test_a_budget_in_money_without_prices_is_refused_whoever_is_paid(paid: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"needs prices.*--prices") as refused:
        run(raw(tmp_path / "none", budget={"money": 1.0}, prices={"prompt": 0.5}, **paid))
    assert refused.value.exit_code == 2 and not (tmp_path / "none").exists()
    listed = {"models": {"m": {"prompt": 1.0, "completion": 1.0}}}
    if paid != {"agent": ENDPOINT}:
        with pytest.raises(Refusal, match=r"those of [uj] too"):
            run(raw(tmp_path / "none", budget={"money": 1.0}, prices=listed, **paid))
    code, _ = run(raw(tmp_path / "free", budget={"money": 1.0}, tasks=1, trials=1))
    assert code == 0, "scripted agents cost nothing, and that is known"
