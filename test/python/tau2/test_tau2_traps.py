"""The traps of tau2-bench, one test each for retail and airline, where no other file tests the row already."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sinkflex.control import Control
from sinkflex.envs import DualControlEnv
from sinkflex.envs.conversation import AgentAction, Message, ToolCall
from sinkflex.envs.domain import ToolError
from sinkflex.envs.tau2 import scoring
from sinkflex.envs.tau2.retail.domain import RetailDomain
from sinkflex.envs.tau2.state import changes
from sinkflex.eval.results import read_trials
from sinkflex.eval.runner import evaluate
from sinkflex.events import Events

WRITING = {"retail": "2", "airline": "14"}
"""A task of each domain whose gold writes."""


@pytest.fixture(params=["retail", "airline"])
def domain(request: pytest.FixtureRequest, retail: Any) -> Any:
    from sinkflex import envs

    return retail if request.param == "retail" else envs.domain("tau2-airline")


@pytest.fixture
def airline(retail: Any) -> Any:
    from sinkflex import envs

    return envs.domain("tau2-airline")


def started(domain: Any, task_id: str, **limits: int) -> DualControlEnv:
    env = DualControlEnv(domain, split="base", **({"max_turns": 100, "max_errors": 10} | limits))
    env.reset(seed=1, options={"task_id": task_id})
    return env


def calling(*calls: tuple[str, Any]) -> AgentAction:
    return AgentAction(tool_calls=tuple(ToolCall(name, arguments) for name, arguments in calls))


def after(domain: Any, calls: Any) -> Any:
    """The state after these calls, those that err skipped."""
    state = domain.start(None)
    for name, arguments in calls:
        try:
            domain.call(state, "agent", ToolCall(name, arguments))
        except ToolError:
            continue
    return state


def gold_calls(task: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(action.name, copy.deepcopy(action.arguments)) for action in task.gold]


def told(task: Any) -> list[Message]:
    return [Message("assistant", " ".join(task.data.evaluation_criteria.communicate_info or ()))]


def evaluation(folder: Path, suite: str, **changes: Any) -> dict[str, Any]:
    """The report of `sinkflex eval` with the gold agent."""
    request = {
        "v": 1,
        "verb": "eval",
        "suite": suite,
        "split": "base",
        "trials": 1,
        "agent": {"kind": "scripted", "name": "gold"},
        "results": str(folder),
        "command": f"sinkflex eval {suite}",
    }
    records: list[dict[str, Any]] = []
    assert evaluate(request | changes, Events.to_list(records), Control(None)) == 0
    [report] = [event["report"] for event in records if event["type"] == "eval_report"]
    return report


def test_a_basis_that_needs_a_judge_never_raises_offline_and_is_reported(domain: Any) -> None:
    from tau2.data_model.tasks import RewardType

    task_id = WRITING[domain.domain]
    task = copy.deepcopy(domain.task(task_id).data)
    task.evaluation_criteria.reward_basis = [RewardType.DB, RewardType.NL_ASSERTION]
    gold = scoring.gold_changes(domain.package, task)
    assert scoring.dropped(task) == ("NL_ASSERTION",)
    assert [scoring.score(task, gold, now, ()).reward for now in (gold, {})] == [1.0, 0.0]
    task.evaluation_criteria.reward_basis = [RewardType.NL_ASSERTION]
    assert scoring.score(task, gold, {}, ()).reward == 1.0, "a product over nothing; score_mode says offline"


def test_gold_actions_are_one_path_a_failed_action_check_is_shown_and_not_scored(domain: Any) -> None:
    """Only the writes, without the look-ups that the gold list makes first."""
    kinds = {tool.name: tool.kind for tool in domain.agent_tools}

    def only_writes(task: Any) -> list[tuple[str, dict[str, Any]]]:
        return [(name, arguments) for name, arguments in gold_calls(task) if kinds[name] == "write"]

    tasks = map(domain.task, domain.task_ids("base"))
    task = next(task for task in tasks if 0 < len(only_writes(task)) < len(task.gold))
    calls = only_writes(task)
    made = [Message("assistant", "", tool_calls=tuple(ToolCall(*call) for call in calls)), *told(task)]
    score = domain.score(task, after(domain, calls), made)
    assert (score.reward, score.parts["DB"], score.parts["ACTION"], score.parts["ACTION_STRICT"]) == (
        1.0,
        1.0,
        0.0,
        0.0,
    )


def test_the_order_inside_airline_s_lists_flips_the_reward_and_not_the_figure_apart(airline: Any) -> None:
    flipped = []
    for task_id in airline.task_ids("base"):
        task = airline.task(task_id)
        calls = gold_calls(task)
        for _, arguments in calls:
            for value in arguments.values():
                if isinstance(value, list):
                    value.reverse()
        score = airline.score(task, after(airline, calls), told(task))
        if score.parts["DB"] == 0.0 and score.parts["DB_UNORDERED"] == 1.0:
            flipped.append(task_id)
            assert score.reward == 0.0
    assert flipped


@pytest.mark.parametrize(
    ("suite", "ids", "odd"),
    [("tau2-retail", ["0", "10", "64", "100", "105"], ["10", "64", "100", "105"]), ("tau2-airline", ["6", "8"], ["6"])],
)
def test_tasks_known_to_be_odd_are_named_with_reasons_in_reports(
    suite: str, ids: list[str], odd: list[str], tmp_path: Path, retail: Any
) -> None:
    report = evaluation(tmp_path, suite, task_ids=ids)
    assert list(report["known_odd"]) == odd and all(len(reason) > 20 for reason in report["known_odd"].values())
    assert report["tasks"] == len(ids) and report["mean"] == 1.0


def test_all_tasks_known_to_be_odd_exist(domain: Any) -> None:
    expected = {"retail": {"10", "64", "100", "105"}, "airline": {"6", "14", "35"}}[domain.domain]
    assert expected <= set(domain.known_odd) <= set(domain.task_ids("base"))


def test_an_empty_call_passes_the_package_s_action_check_and_not_ours(domain: Any) -> None:
    task = domain.task(WRITING[domain.domain])
    empty = [Message("assistant", "", tool_calls=tuple(ToolCall(name, {}) for name, _ in gold_calls(task)))]
    parts = domain.score(task, domain.start(task), empty).parts
    assert (parts["ACTION"], parts["ACTION_STRICT"]) == (1.0, 0.0)
    by_user = [Message("user", "", tool_calls=tuple(ToolCall(*call) for call in gold_calls(task)))]
    strict = scoring.action_parts(task.data, by_user, by_whom=True)
    assert strict == {"ACTION": 1.0, "ACTION_STRICT": 0.0}, "the requestor is compared by ours only"


def test_two_environments_of_one_process_share_nothing(domain: Any) -> None:
    task_id = WRITING[domain.domain]
    one, other = started(domain, task_id), started(domain, task_id)
    for name, arguments in gold_calls(one.task):
        one.step(calling((name, arguments)))
    assert changes(one.state) and not changes(other.state)
    assert not changes(started(domain, task_id).state)


def test_an_error_while_one_episode_is_scored_is_that_episode_s_fault_alone(
    tmp_path: Path, retail: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    score = RetailDomain.score

    def failing(self: Any, task: Any, state: Any, transcript: Any) -> Any:
        if task.id == "3":
            raise ValueError("Tool call returned something else than expected")
        return score(self, task, state, transcript)

    monkeypatch.setattr(RetailDomain, "score", failing)
    report = evaluation(tmp_path, "tau2-retail", task_ids=["2", "3", "5"])
    assert (report["mean"], report["infra_errors"]) == (1.0, {"reward": 1})
    assert report["coverage"] == pytest.approx(2 / 3)
    [fault] = [trial for trial in read_trials(tmp_path)[1].values() if trial.outcome == "infra_error"]
    assert (fault.task_id, fault.owner, fault.reward) == ("3", "reward", None) and "something else" in str(fault.error)


def test_a_hallucinated_tool_is_the_agent_s_failure_and_counts(domain: Any) -> None:
    env = started(domain, WRITING[domain.domain], max_errors=3)
    for turn in range(3):
        observation, reward, terminated, truncated, info = env.step(calling(("get_horoscope", {"sign": "leo"})))
        assert observation[0].is_error and "get_horoscope" in observation[0].content
        assert (terminated, truncated) == (False, turn == 2)
    assert (info["outcome"], info["owner"], info["reason"], reward) == ("scored", None, "too_many_errors", 0.0)


def test_gold_after_a_hallucinated_tool_still_scores(domain: Any) -> None:
    env = started(domain, WRITING[domain.domain])
    env.step(calling(("get_horoscope", {})))
    for call in gold_calls(env.task):
        env.step(calling(call))
    assert env.domain.score(env.task, env.state, [*env.transcript, *told(env.task)]).reward == 1.0


@pytest.mark.parametrize("action", [AgentAction(""), AgentAction("  \n"), AgentAction("", tool_calls=())])
def test_an_empty_completion_is_an_error_observation(action: AgentAction, domain: Any) -> None:
    observation, reward, terminated, truncated, info = started(domain, WRITING[domain.domain]).step(action)
    assert [(message.role, message.is_error) for message in observation] == [("env", True)]
    assert (reward, terminated, truncated, info["errors"], info["outcome"]) == (0.0, False, False, 1, None)


def baggage(airline: Any) -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]], int]]:
    for task_id in airline.task_ids("base"):
        calls = gold_calls(airline.task(task_id))
        for place, (name, arguments) in enumerate(calls):
            if name == "update_reservation_baggages" and arguments["total_baggages"] > 0:
                yield task_id, calls, place


@pytest.mark.parametrize("form", [str, float, int])
def test_a_number_in_another_form_is_coerced_by_the_schema_and_leaves_the_same_state(form: Any, airline: Any) -> None:
    """3 bags, "3" and 3.0 would leave three different databases."""
    task_id, calls, place = next(baggage(airline))
    env = started(airline, task_id)
    for index, (name, arguments) in enumerate(calls):
        if index == place:
            arguments["total_baggages"] = form(arguments["total_baggages"])
        *_, info = env.step(calling((name, arguments)))
        assert all(call["valid"] and call["error"] is None for call in info["tool_calls"])
    assert info["coerced_arguments"] == (form is not int)
    assert airline.score(env.task, env.state, told(env.task)).parts["DB"] == 1.0


@pytest.mark.parametrize("given", ["three", "3.5", True, None])
def test_a_number_that_is_none_is_refused_and_changes_nothing(given: Any, airline: Any) -> None:
    task_id, calls, place = next(baggage(airline))
    env = started(airline, task_id)
    name, arguments = calls[place]
    *_, info = env.step(calling((name, arguments | {"total_baggages": given})))
    assert not info["tool_calls"][0]["valid"] and not changes(env.state)


@pytest.mark.parametrize(
    ("text", "coerced", "bad"),
    [
        ({"order_id": "#W2378156"}, 0, 0),
        ('{"order_id": "#W2378156"}', 1, 0),
        ("{'order_id': '#W2378156'}", 1, 0),
        (" {'order_id': \"#W2378156\",} ", 1, 0),
        ("{'order_id': '#W2378156'", 0, 1),
        ("{'order_id': open('x')}", 0, 1),
        ("{'order_id', '#W2378156'}", 0, 1),
        ("['order_id']", 0, 1),
        ("{" * 5000, 0, 1),
        ("{'order_id': '#W2378156'}" + " " * 20_000, 0, 1),
    ],
    ids=lambda value: str(value)[:30],
)
def test_arguments_as_json_or_as_a_python_dictionary_are_read_and_counted(
    text: Any, coerced: int, bad: int, retail: Any
) -> None:
    env = started(retail, "0")
    observation, *_, info = env.step(calling(("get_order_details", text)))
    assert observation[0].is_error == bool(bad)
    assert (info["coerced_arguments"], info["invalid_tool_json"]) == (coerced, bad)
    if not bad:
        assert '"order_id": "#W2378156"' in observation[0].content


def test_a_calculation_that_could_hang_is_a_tool_error(domain: Any) -> None:
    observation, *_, info = started(domain, WRITING[domain.domain]).step(
        calling(("calculate", {"expression": "9**9**9"}))
    )
    assert observation[0].content == "Error: Power too large"
    assert info["tool_calls"][0]["valid"] and info["outcome"] is None


def test_seeds_belong_to_the_environment_and_the_global_generators_are_left_alone(domain: Any) -> None:
    def talk(env: DualControlEnv) -> Iterator[None]:
        observation, _ = env.reset(seed=7, options={"task_id": WRITING[domain.domain]})
        agent = domain.agent("random", env.task, 3)
        for _ in range(12):
            observation, _, terminated, truncated, _ = env.step(agent.act(observation))
            if terminated or truncated:
                return
            yield

    def new() -> DualControlEnv:
        return DualControlEnv(domain, split="base", max_turns=30, max_errors=30, render_mode="ansi")

    alone = new()
    for _ in talk(alone):
        random.random()
    before, arrays = random.getstate(), np.random.get_state()[1].tolist()
    one, other = new(), new()
    for _ in zip(talk(one), talk(other), strict=False):
        pass
    assert random.getstate() == before and np.random.get_state()[1].tolist() == arrays
    assert one.render() == alone.render()


def test_results_of_parallel_calls_stay_in_one_turn_in_order(domain: Any) -> None:
    calls = gold_calls(domain.task(WRITING[domain.domain]))[:2]
    env = started(domain, WRITING[domain.domain])
    observation, *_, info = env.step(calling(*calls))
    assert [message.role for message in observation] == ["tool", "tool"] and info["turn"] == 1
    assert [message.name for message in observation] == [name for name, _ in calls]
    [asked] = [message for message in env.transcript if message.tool_calls]
    assert [message.tool_call_id for message in observation] == [call.id for call in asked.tool_calls]
