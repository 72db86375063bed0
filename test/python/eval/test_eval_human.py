"""A person at the terminal as the user and as the agent, through the real worker."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from eval_samples import own_model, raw, report_of, run
from human_worker import HumanWorker
from sinkflex import envs
from sinkflex.control import Control
from sinkflex.envs.conversation import AgentAction, Message
from sinkflex.eval.human_calls import BadLine, read_call, readable
from sinkflex.eval.results import read_trials
from sinkflex.refusal import Refusal

HUMAN = {"kind": "human"}
DATA_SAVER = "[mobile_data_issue]data_saver_mode_on|user_abroad_roaming_enabled_off[PERSONA:Easy]"


def telecom(folder: Path, **more: Any) -> dict[str, Any]:
    asked = {"suite": "tau2-telecom", "split": "test", "trials": 1, "task_ids": [DATA_SAVER], "tasks": None}
    return raw(folder / "results", **(asked | {"user": HUMAN} | more))


def shop(folder: Path, **more: Any) -> dict[str, Any]:
    return raw(folder / "results", **({"agent": HUMAN, "tasks": 1, "trials": 1} | more))


def only_trial(folder: Path) -> Any:
    [trial] = read_trials(folder / "results")[1].values()
    return trial


def test_a_person_plays_the_user_with_tools_of_their_own(tmp_path: Path) -> None:
    with HumanWorker(tmp_path, telecom(tmp_path)) as worker:
        opening = worker.asked()
        assert "You are John Smith with phone number 555-123-2002" in opening
        assert "toggle_data_saver_mode" in opening and "/done ends the conversation" in opening
        assert opening.endswith("[assistant] \nHi! How can I help you today?")
        assert "has not begun" in worker.answer("/done") and "has not begun" in worker.answer("/run check_status_bar")
        assert "name and phone" in worker.answer("My mobile data is slow.")
        assert "Data Saver" in worker.answer("/run check_status_bar")
        assert "Did you mean check_vpn_status?" in worker.answer("/run check_vpn_state")
        assert "needs the argument 'app_name'" in worker.answer("/run check_app_status")
        worker.answer("/run toggle_data_saver_mode", "/run toggle_roaming")
        assert "/run check_status_bar" in worker.answer("/help")
        worker.say("/done it works, thank you")
        [report] = [event["report"] for event in worker.rest() if event["type"] == "eval_report"]
    assert worker.process.wait(timeout=60) == 0
    assert (report["mean"], report["user"], report["scripted_user"], report["prompt_sha256"]) == (
        1,
        "human",
        False,
        None,
    )
    trial = only_trial(tmp_path)
    assert (trial.reason, trial.turns) == ("user_stop", 1)
    assert [call["name"] for m in trial.transcript if m["role"] == "user" for call in m.get("tool_calls", ())] == [
        "check_status_bar",
        "toggle_data_saver_mode",
        "toggle_roaming",
    ]
    assert trial.transcript[-1]["content"] == "it works, thank you"


def test_what_only_the_user_sees_never_reaches_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent is handed words only: neither the scenario nor results of the user's tools."""
    from sinkflex.eval import play

    heard: list[str] = []
    act = play.Scripted.act

    async def listening(self: Any, observation: Any) -> AgentAction:
        heard.extend(message.content for message in observation)
        return await act(self, observation)

    monkeypatch.setattr(play.Scripted, "act", listening)
    control = Typist("Help.", "/run check_status_bar", "/run check_network_status", "Yes.", "/done")
    code, _ = run(telecom(tmp_path), control)
    assert code == 0
    greeting = "Hi! How can I help you today?"
    start = len(heard) - heard[::-1].index(greeting) - 1  # before, the baseline was played
    assert heard[start:] == [greeting, "Help.", "Yes."]


class Typist(Control):
    """A control channel on which these lines are typed; a stop behind the last."""

    def __init__(self, *lines: str) -> None:
        super().__init__(None)
        self.lines = list(lines)

    def next_line(self) -> str | None:
        if not self.lines:
            self.request_stop()
        return self.lines.pop(0) if self.lines else None


def test_a_person_plays_the_agent_and_what_they_type_is_what_is_done(tmp_path: Path) -> None:
    """The suite's expert holds the keyboard: its actions, as lines, must reach the reward that it reaches itself."""
    domain = envs.domain("mini-shop")
    [task_id] = domain.task_ids("tune")[2:3]
    expert = domain.agent("expert", domain.task(task_id), 0)
    with HumanWorker(tmp_path, shop(tmp_path, task_ids=[task_id], tasks=None)) as worker:
        opening = worker.asked()
        assert domain.policy_text.strip() in opening and "get_product" in opening
        assert "/call hand_off does" in opening
        asked, told = 1, [worker.seen[-2]]
        while asked:
            seen = tuple(Message("tool" if m["what"] == "error" else m["what"], m["text"]) for m in told)
            action = expert.act(seen)
            line = action.text
            for call in action.tool_calls:
                line = " ".join(["/call", call.name, *(f"{k}={v}" for k, v in call.arguments.items())])
            worker.say(line)
            before = len(worker.seen)
            try:
                worker.asked()
            except AssertionError:
                asked = 0
            told = [e for e in worker.seen[before:] if e["type"] == "human" and e["kind"] == "shown"]
    trial = only_trial(tmp_path)
    assert (trial.reward, trial.parse_failures, trial.tool_errors) == (1.0, 0, 0)
    assert told, "what ended the conversation is shown, though nothing is asked any more"


@pytest.mark.parametrize(
    ("line", "explained"),
    [
        ("/call get_ordr order=A1", "Did you mean get_order?"),
        ("/call", "Name a tool"),
        ("/call get_order", "needs the argument 'order'"),
        ("/call get_order A1", "field=value pairs or one JSON object"),
        ("/call get_order id=A1", "has no argument 'id'"),
        ('/call get_order {"order": 5}', "must be string"),
        ("/call read_status order=A1", "belongs to the other side"),
        ("/cal get_order order=A1", "Did you mean /call?"),
        ("/tools get_ordr", "Did you mean get_order?"),
    ],
)
def test_a_line_that_cannot_be_obeyed_is_explained_and_asked_again(line: str, explained: str, tmp_path: Path) -> None:
    control = Typist("", line, "useless", "useless", "useless")
    code, events = run(shop(tmp_path), control)
    shown = [event for event in events if event["type"] == "human" and event["kind"] == "shown"]
    assert any(event["what"] == "problem" and explained in event["text"] for event in shown)
    trial = only_trial(tmp_path)
    assert code == 0 and (trial.turns, trial.tool_errors, trial.parse_failures) == (3, 0, 0)


def test_where_nobody_hears_words_the_person_is_told_so(tmp_path: Path) -> None:
    request = raw(tmp_path / "results", suite="tau2-telecom-solo", split="test", tasks=1, trials=1, agent=HUMAN)
    _, events = run(request, Typist("hello?", "/call done"))
    problems = [e["text"] for e in events if e["type"] == "human" and e.get("what") == "problem"]
    assert len(problems) == 1 and "Nobody is there" in problems[0]
    assert (only_trial(tmp_path).turns, report_of(events)["agent_kind"]) == (1, "human")


@pytest.mark.parametrize("side", ["user", "agent"])
def test_no_limit_cuts_a_person_who_thinks(side: str, tmp_path: Path) -> None:
    request = (telecom if side == "user" else shop)(tmp_path, trial_timeout_s=0.5)
    lines = ["Help.", "/done"] if side == "user" else ["useless"] * 3
    with HumanWorker(tmp_path, request) as worker:
        for number, line in enumerate(lines):
            worker.asked()
            time.sleep(0.8 if number < 2 else 0)
            worker.say(line)
        worker.rest()
    assert only_trial(tmp_path).outcome == "scored"


@pytest.mark.parametrize("how", ["stop", "signal"])
def test_a_stop_drops_the_trial_under_way_keeps_the_finished_and_can_be_resumed(how: str, tmp_path: Path) -> None:
    request = shop(tmp_path, tasks=2, concurrency=8)
    with HumanWorker(tmp_path, request) as worker:
        worker.asked()
        worker.answer("useless", "useless", "useless", "one word in the second")
        if how == "stop":
            worker.tell({"type": "stop"})
        else:
            worker.process.send_signal(2)
        end = worker.rest()[-1]
    assert (end["status"], end["exit_code"]) == ("stopped", 130)
    [plan] = [event for event in worker.seen if event["type"] == "eval_plan"]
    assert plan["concurrency"] == 1
    assert len(read_trials(tmp_path / "results")[1]) == 1
    code, events = run(request, Typist("useless", "useless", "useless"))
    assert code == 0 and report_of(events)["complete"] is True
    assert [e["task_id"] for e in events if e["type"] == "trial" and e["kind"] == "started"] == [
        next(e["task_id"] for e in reversed(worker.seen) if e["type"] == "human")
    ]


def test_a_stop_in_the_middle_of_a_users_turn_is_no_fault_of_the_user(tmp_path: Path) -> None:
    code, events = run(telecom(tmp_path), Typist("Help."))
    assert (code, report_of(events)["infra_errors"], report_of(events)["complete"]) == (130, {}, False)
    assert read_trials(tmp_path / "results")[1] == {}


def test_an_own_model_talks_to_a_person_in_one_conversation_after_the_other(tmp_path: Path) -> None:
    request = raw(
        tmp_path / "results",
        suite="tau2-retail",
        split="test",
        tasks=2,
        trials=1,
        agent=own_model(tmp_path / "m", "tau2-retail"),
        user=HUMAN,
        system_prompt="none",
        max_new_tokens=3,
        max_turns=2,
    )
    code, events = run(request, Typist(*["Hello."] * 6))
    told = [e for e in events if e["type"] in ("human", "trial") and e["kind"] in ("ask", "started", "finished")]
    assert code == 0 and report_of(events)["coverage"] == 1.0
    order = [(e["kind"], e["task_id"]) for e in told]
    tasks = list(dict.fromkeys(task for _, task in order))
    assert len(tasks) == 2 and order == sorted(order, key=lambda one: tasks.index(one[1]))


def test_mini_shop_has_no_customer_for_a_person(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="mini-shop has no user 'human'"):
        run(raw(tmp_path / "results", user=HUMAN))


def test_calls_are_read_as_they_are_typed() -> None:
    tools = {tool.name: tool for tool in envs.domain("tau2-retail").agent_tools}
    call = read_call(
        "return_delivered_order_items order_id=#W1 item_ids=12, 34 payment_method_id='paypal_1'", [*tools.values()]
    )
    assert call.arguments == {"order_id": "#W1", "item_ids": ["12", "34"], "payment_method_id": "paypal_1"}
    same = "return_delivered_order_items " + json.dumps(call.arguments)
    assert read_call(same, [*tools.values()]).arguments == call.arguments
    typed = 'return_delivered_order_items order_id=#W1 item_ids=["12", "34"] payment_method_id=paypal_1'
    assert read_call(typed, [*tools.values()]).arguments == call.arguments
    found = read_call("find_user_id_by_name_zip first_name=Anna Maria last_name=Silva zip=01234", [*tools.values()])
    assert found.arguments == {"first_name": "Anna Maria", "last_name": "Silva", "zip": "01234"}
    with pytest.raises(BadLine, match=r"no argument 'x'(.|\n)*calculate expression=text"):
        read_call("calculate x=1", [*tools.values()])


def test_results_are_laid_out_without_changing_a_value() -> None:
    value = {"price": 100.0, "items": [{"name": "a lamp with a rather long name", "id": "7", "n": 1e20}] * 2}
    text = readable(json.dumps(value))
    assert text.count("\n") > 3 and json.loads(text) == value and "100.0" in text
    assert readable("Status Bar: {") == "Status Bar: {" and readable("[not json") == "[not json"
