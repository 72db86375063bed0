"""The telecom domains: tools and who owns them, states and their isolation, solo mode, and the benchmark's traps."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from gymnasium.utils.env_checker import check_env
from sinkflex import envs
from sinkflex.envs import DualControlEnv
from sinkflex.envs.conversation import AgentAction, ToolCall
from sinkflex.envs.domain import ToolError
from sinkflex.envs.tau2.telecom.domain import SoloDomain
from sinkflex.envs.tau2.telecom.state import entities
from telecom_play import SERVICE, call, play_to_the_end, say, tasks_with


def test_splits_and_tools_are_the_data_s(telecom: Any, solo: Any) -> None:
    counts = dict(telecom.splits())
    counts.pop("generated", None)
    assert counts == {"train": 74, "test": 40, "base": 114, "small": 20, "full": 2285}
    assert not set(telecom.task_ids("train")) & set(telecom.task_ids("test"))
    assert (len(telecom.agent_tools), len(telecom.user_tools)) == (13, 30)
    kinds = [tool.kind for tool in telecom.agent_tools]
    assert (kinds.count("read"), kinds.count("write"), kinds.count("generic")) == (6, 6, 1)
    assert [tool.name for tool in solo.agent_tools[:43]] == [
        tool.name for tool in (*telecom.agent_tools, *telecom.user_tools)
    ]
    assert [tool.name for tool in solo.agent_tools[43:]] == ["done"] and solo.user_tools == ()
    assert telecom.policy_text != solo.policy_text and "check_status_bar" in solo.policy_text
    assert telecom.score_mode == solo.score_mode == "official" and telecom.dropped_components() == {}


def test_the_prompt_prefix_is_the_same_for_every_task(env: DualControlEnv) -> None:
    prefixes = set()
    for task_id in env.domain.task_ids("base")[::6]:
        _, info = env.reset(seed=1, options={"task_id": task_id})
        prefixes.add(json.dumps([info["policy_text"], info["tools"]]))
    assert len(prefixes) == 1


@pytest.mark.parametrize("suite", ["tau2-telecom", "tau2-telecom-solo"])
def test_gymnasium_accepts_the_environment(suite: str, telecom: Any) -> None:
    check_env(envs.make(suite), skip_render_check=True)


def test_doing_nothing_is_never_rewarded(env: DualControlEnv, solo_env: DualControlEnv) -> None:
    for task_id in env.domain.task_ids("base"):
        assert play_to_the_end(solo_env, task_id, "noop")[0] == 0.0
    for task_id in env.domain.task_ids("base")[::5]:
        assert play_to_the_end(env, task_id, "noop")[0] == 0.0


def test_replies_are_the_package_s_byte_for_byte(solo: Any) -> None:
    """But for the random id of a new bill, which the package's environment is lent ours for."""
    from tau2.data_model.message import ToolCall as PackageCall
    from tau2.domains.telecom.environment import get_environment

    for task_id in solo.task_ids("base")[::8]:
        task = solo.task(task_id)
        state = solo.start(task)
        theirs = get_environment(solo_mode=True)
        theirs.tools.__class__ = solo.package.tools_type
        theirs.user_tools.default_vpn_details = solo.package.vpn_details.model_copy(deep=True)
        theirs.set_state(None, task.data.initial_state.initialization_actions, [])
        moves = [(a.name, dict(a.arguments)) for a in task.gold]
        stranger = solo.agent("random", task, 3)
        moves += [(c.name, c.arguments) for c in (stranger.call() for _ in range(25)) if c.name != "done"]
        for name, arguments in moves:
            try:
                ours = solo.call(state, "agent", ToolCall(name, arguments))
            except ToolError as refused:
                ours = str(refused)
            assert ours == theirs.get_response(PackageCall(id="x", name=name, arguments=arguments)).content
        assert state.environment.get_db_hash() == theirs.get_db_hash()
        assert state.environment.get_user_db_hash() == theirs.get_user_db_hash()


def test_the_user_s_tools_are_the_user_s_alone(env: DualControlEnv) -> None:
    """The manual tells the agent to use them (34 times): a call is an error, counted, and changes nothing."""
    env.reset(seed=0, options={"task_id": SERVICE})
    before = entities(env.state.environment)
    reply, info = call(env, "toggle_airplane_mode")
    assert "belongs to the user" in reply
    assert (info["user_tool_calls_by_agent"], info["errors"]) == (1, 1)
    _, info = call(env, "make_payment", requestor="user")
    assert info["user_tool_calls_by_agent"] == 2
    assert entities(env.state.environment) == before
    with pytest.raises(ToolError, match="the user has no tool named"):
        env._user_calls(ToolCall("resume_line", {"customer_id": "C1001", "line_id": "L1002"}))


def test_arguments_are_coerced_by_schema_only_and_counted(env: DualControlEnv) -> None:
    env.reset(seed=0, options={"task_id": SERVICE})
    reply, info = call(env, "refuel_data", customer_id="C1001", line_id="L1002", gb_amount="2.0")
    assert "Successfully added 2.0 GB" in reply and info["coerced_arguments"] == 1
    reply, _ = call(env, "refuel_data", customer_id="C1001", line_id="L1002", gb_amount="two")
    assert "must be number" in reply
    reply, _ = call(env, "no_such_tool")
    assert "there is no tool named" in reply


def test_vpn_details_are_not_shared_between_environments(telecom: Any) -> None:
    """In the package they belong to the class: breaking one phone's VPN breaks every other's."""
    broken = telecom.start(telecom.task(tasks_with(telecom, "bad_vpn")[0]))
    other = telecom.start(telecom.task(SERVICE))
    telecom.call(other, "user", ToolCall("connect_vpn", {}))
    details = [state.environment.user_tools.db.device.vpn_details.server_performance.value for state in (broken, other)]
    assert details == ["poor", "excellent"]
    assert telecom.package.vpn_details.server_performance.value == "excellent"
    # Within one environment they stay one object, as in the package: a broken VPN comes back broken.
    telecom.call(broken, "user", ToolCall("disconnect_vpn", {}))
    telecom.call(broken, "user", ToolCall("connect_vpn", {}))
    assert "poor" in telecom.call(broken, "user", ToolCall("check_vpn_status", {}))


def test_states_are_independent_of_one_another_and_of_the_base(telecom: Any, solo: Any) -> None:
    base = pickle.dumps((telecom.package.database, telecom.package.user_database))
    task = solo.task(SERVICE)
    one, two = solo.start(task), solo.start(task)
    half = [(a.name, dict(a.arguments)) for a in task.gold]
    for name, arguments in half[:3]:
        solo.call(one, "agent", ToolCall(name, arguments))
    copied, pickled = solo.copy_state(one), pickle.loads(pickle.dumps(one))
    for name, arguments in half[3:]:
        solo.call(one, "agent", ToolCall(name, arguments))
    assert entities(copied.environment) == entities(pickled.environment) != entities(one.environment)
    assert entities(two.environment) == entities(solo.start(task).environment)
    for other in (copied, pickled):
        for name, arguments in half[3:]:
            solo.call(other, "agent", ToolCall(name, arguments))
        assert entities(other.environment) == entities(one.environment)
    # Every tool that writes, on everything: plans and devices, which all episodes share, must stay.
    stranger = solo.agent("random", task, 0)
    for _ in range(400):
        move = stranger.call()
        try:
            solo.call(one, "agent", move)
        except ToolError:
            continue
    assert pickle.dumps((telecom.package.database, telecom.package.user_database)) == base


def test_a_snapshot_replays_to_the_same_end(env: DualControlEnv, telecom: Any) -> None:
    env.reset(seed=4, options={"task_id": SERVICE})
    say(env, "Please turn airplane mode off and re-insert the SIM card.")
    saved = env.snapshot()
    ends = []
    for _ in range(2):
        env.restore(saved)
        agent = telecom.agent("gold", env.task, 0)
        agent.left = [action for action in agent.left if action.name not in ("toggle_airplane_mode", "reseat_sim_card")]
        terminated = False
        while not terminated:
            _, reward, terminated, _, _ = env.step(agent.act(()))
        ends.append((reward, env.transcript))
    assert ends[0] == ends[1] and ends[0][0] == 1.0


def test_equal_seeds_give_equal_episodes(env: DualControlEnv) -> None:
    def transcript(seed: int) -> Any:
        play_to_the_end(env, SERVICE, "random", seed)
        return env.transcript

    assert transcript(1) == transcript(1) != transcript(2)


def test_solo_shows_the_ticket_and_ends_with_done(solo_env: DualControlEnv) -> None:
    observation, _ = solo_env.reset(seed=0, options={"task_id": SERVICE})
    assert [(m.role, m.content) for m in observation] == [("user", solo_env.task.data.ticket)]
    call(solo_env, "transfer_to_human_agents", summary="x")
    _, _, terminated, truncated, info = solo_env.step(AgentAction(tool_calls=(ToolCall("done", {}),)))
    assert (terminated, truncated, info["reason"], info["outcome"]) == (True, False, "done", "scored")


def test_solo_answers_words_with_an_error_observation(solo_env: DualControlEnv) -> None:
    solo_env.reset(seed=0, options={"task_id": SERVICE})
    observation, _, terminated, truncated, info = solo_env.step(AgentAction(text="Please turn it off and on again."))
    assert (observation[-1].role, observation[-1].is_error, info["errors"]) == ("env", True, 1)
    assert not terminated and not truncated and "no user" in observation[-1].content


def test_an_empty_turn_is_an_error_observation(env: DualControlEnv, solo_env: DualControlEnv) -> None:
    for each in (env, solo_env):
        each.reset(seed=0, options={"task_id": SERVICE})
        observation, _, _, _, info = each.step(AgentAction())
        assert observation[-1].is_error and info["errors"] == 1


def test_the_mms_ticket_keeps_its_gap_unless_it_is_asked_to_be_filled(solo: Any) -> None:
    """The package's ticket about MMS omits that the user would refuel 2.0 GB, which some of these tasks need."""
    task = solo.task(tasks_with(solo, "data_usage_exceeded", "bad_wifi_calling")[0])
    assert "2.0 GB" not in solo.user(task, "scripted", 0).open().text
    patched = SoloDomain(full_tickets=True)
    assert "refuel 2.0 GB" in patched.user(task, "scripted", 0).open().text
    assert patched.score_mode == "offline", "a changed ticket is not the official benchmark"
    service = solo.task(SERVICE)
    assert patched.user(service, "scripted", 0).open().text == service.data.ticket
    assert pickle.loads(pickle.dumps(patched)).full_tickets


def test_a_gold_list_that_skips_what_gold_needs_scores_nothing(solo: Any) -> None:
    """The line is resumed but the bill is unpaid: service is back, and the second assertion is not."""
    task = solo.task(SERVICE)
    state = solo.start(task)
    for action in task.gold:
        if action.name not in ("send_payment_request", "make_payment"):
            solo.call(state, "agent", ToolCall(action.name, dict(action.arguments)))
    score = solo.score(task, state, ())
    assert (score.reward, score.parts["ENV_ASSERTION"]) == (0.0, 0.0) and 0.0 < score.graded < 1.0


def test_an_evaluation_of_the_solo_suite_says_that_there_was_no_user(solo: Any, telecom: Any) -> None:
    from sinkflex.eval.request import parse
    from sinkflex.eval.suite import load_domain

    for suite, kind in (("tau2-telecom-solo", "solo"), ("tau2-telecom", "scripted")):
        raw = {"suite": suite, "split": "base", "agent": {"kind": "scripted", "name": "gold"}, "results": "/nowhere"}
        domain, request = load_domain(parse({"v": 1, "verb": "eval", "command": "sinkflex eval", "seed": 0, **raw}))
        assert (domain.name, request.user.kind) == (suite, kind)
