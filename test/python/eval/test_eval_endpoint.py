"""Evaluations of agents and users behind a server, faults of the server included."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from eval_samples import raw, report_of, run
from sinkflex import envs
from sinkflex.endpoint import ChatServer
from sinkflex.eval.results import read_trials
from sinkflex.refusal import Refusal
from stub_server import Reply, calls, failure, says, serve


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ChatServer.__init__

    def init(self: ChatServer, *given: Any, **named: Any) -> None:
        original(self, *given, **{"pause_s": 0.01, "on_retry": lambda text: None, **named})

    monkeypatch.setattr(ChatServer, "__init__", init)


def endpoint(url: str, folder: Path, **changes: Any) -> dict[str, Any]:
    return raw(folder, agent={"kind": "endpoint", "url": url, "model": "stub"}, **changes)


class ExpertBehindAServer:
    """mini-shop's expert as a server: it replays each conversation that it is sent, so it needs no memory."""

    def __init__(self) -> None:
        self.domain = envs.domain("mini-shop", natural=True)

    def __call__(self, asked: dict[str, Any], number: int) -> Reply:
        agent = self.domain.agent("expert", self.domain.task(self.domain.task_ids("tune")[0]), 0)
        action, observation = None, []
        for message in [*asked["messages"][1:], None]:
            if message is not None and message["role"] != "assistant":
                observation.append(self.heard(message))
            elif observation:
                action, observation = agent.act(tuple(observation)), []
        assert action is not None
        if action.tool_calls:
            return calls(*((c.name, c.arguments) for c in action.tool_calls))
        return says(action.text)

    def heard(self, message: dict[str, Any]) -> Any:
        role = "tool" if message["role"] == "tool" else "user"
        return envs.conversation.Message(role, message["content"], tool_call_id=message.get("tool_call_id"))


def test_examples_reach_a_server_as_calls_with_results(tmp_path: Path) -> None:
    """Servers refuse a call without a result; tool-calls' examples have none of their own."""
    asked: list[dict[str, Any]] = []

    def answer(body: dict[str, Any], number: int) -> Reply:
        asked.append(body)
        return says("no")

    with serve(answer) as stub:
        code, events = run(endpoint(stub.url, tmp_path, suite="tool-calls", tasks=1, examples=2))
    assert (code, report_of(events)["mean"]) == (0, 0.0)
    body = asked[0]
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "user", "assistant", "tool", "user"]
    for call, result in ((2, 3), (5, 6)):
        made = body["messages"][call]["tool_calls"][0]
        assert made["id"] == body["messages"][result]["tool_call_id"]
        assert made["function"]["name"] in {tool["function"]["name"] for tool in body["tools"]}


def test_an_agent_behind_a_server_plays_and_is_counted(tmp_path: Path) -> None:
    with serve(ExpertBehindAServer()) as stub:
        code, events = run(endpoint(stub.url, tmp_path, prices={"prompt": 1.0, "completion": 2.0}))
    got = report_of(events)
    assert (code, got["mean"], got["coverage"]) == (0, 1.0, 1.0)
    assert got["tokens"] == {"completion": 10 * len(stub.requests), "prompt": 100 * len(stub.requests)}
    assert got["cost"] == pytest.approx(len(stub.requests) * (100 * 1.0 + 10 * 2.0) / 1e6)
    assert all(m["role"] != "agent" for m in stub.requests[0]["messages"]) and stub.requests[0]["tools"]


def test_without_prices_the_cost_is_unknown(tmp_path: Path) -> None:
    with serve(ExpertBehindAServer()) as stub:
        _, events = run(endpoint(stub.url, tmp_path, tasks=1, trials=1))
    assert report_of(events)["cost"] is None


@pytest.mark.slow
def test_a_server_with_faults_in_a_fifth_of_its_answers_costs_no_score(tmp_path: Path) -> None:
    """500, 429, hanging, empty and malformed answers by turns: none is scored, and the run ends in bounded time."""
    expert = ExpertBehindAServer()
    faults = [
        failure(500),
        failure(429, retry_after="0.1"),
        Reply(hang_s=30.0),
        Reply({}),
        Reply({"choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": [{"id": "1"}]}}]}),
        Reply(cut=True),
    ]

    def answer(asked: dict[str, Any], number: int) -> Reply:
        return faults[number // 5 % len(faults)] if number % 5 == 4 else expert(asked, number)

    began = time.monotonic()
    with serve(answer) as stub:
        code, events = run(endpoint(stub.url, tmp_path, tasks=8, trials=2, call_timeout_s=3.0))
    got = report_of(events)
    assert time.monotonic() - began < 120
    assert (code, got["mean"], got["coverage"], got["infra_errors"]) == (0, 1.0, 1.0, {})
    assert len(stub.requests) > 50


def test_B135_a_server_that_fails_for_one_trial_is_a_fault_of_that_trial(tmp_path: Path) -> None:
    expert = ExpertBehindAServer()
    ids = envs.domain("mini-shop").task_ids("tune")[:4]
    broken: list[str] = []

    def answer(asked: dict[str, Any], number: int) -> Reply:
        opening = json.dumps(asked["messages"][1:3])
        if not broken:
            broken.append(opening)
        return failure(429) if opening == broken[0] else expert(asked, number)

    with serve(answer) as stub:
        code, events = run(endpoint(stub.url, tmp_path, task_ids=list(ids), trials=1, concurrency=1))
    got = report_of(events)
    trials = list(read_trials(tmp_path)[1].values())
    assert code == 0 and got["infra_errors"] == {"engine": 1} and got["coverage"] == 0.75 and got["mean"] == 1.0
    [fault] = [t for t in trials if t.outcome == "infra_error"]
    assert fault.reward is None and "HTTP 429" in str(fault.error)


def test_B78_a_late_answer_to_a_call_that_was_given_up_is_dropped(tmp_path: Path) -> None:
    expert = ExpertBehindAServer()

    def answer(asked: dict[str, Any], number: int) -> Reply:
        reply = expert(asked, number)
        reply.hang_s = 1.5 if number == 0 else 0.0
        return reply

    with serve(answer) as stub:
        code, events = run(endpoint(stub.url, tmp_path, tasks=1, trials=1, call_timeout_s=0.5))
    assert code == 0 and report_of(events)["mean"] == 1.0
    assert len((tmp_path / "trials.jsonl").read_text().splitlines()) == 1


def test_a_conversation_that_no_longer_fits_is_truncated_and_not_retried(tmp_path: Path) -> None:
    full = failure(400, "maximum context length is 10 tokens")
    with serve(lambda asked, n: full) as stub:
        _, events = run(endpoint(stub.url, tmp_path, tasks=1, trials=1))
    got = report_of(events)
    assert (got["mean"], got["truncated"], got["coverage"]) == (0.0, {"context": 1}, 1.0)
    assert len(stub.requests) == 1


def test_B139_empty_answers_are_failures_by_the_rules(tmp_path: Path) -> None:
    with serve(lambda asked, n: says("", tool_calls=[])) as stub:
        code, events = run(endpoint(stub.url, tmp_path, tasks=2, trials=1))
    got = report_of(events)
    assert (code, got["mean"], got["coverage"]) == (0, 0.0, 1.0)
    assert got["truncated"] == {"too_many_errors": 2}


def test_a_wrong_address_ends_the_evaluation_with_nothing_scored(tmp_path: Path) -> None:
    with serve(lambda asked, n: failure(404, "no model")) as stub, pytest.raises(Refusal, match="no such model"):
        run(endpoint(stub.url, tmp_path))
    assert read_trials(tmp_path)[1] == {}
