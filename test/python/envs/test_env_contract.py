"""The Gymnasium side of DualControlEnv: reset, step, spaces, snapshots, vector environments."""

from __future__ import annotations

import pickle
import warnings

import gymnasium
import pytest
import sinkflex.envs as envs
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import check_env
from sinkflex.envs import DualControlEnv
from sinkflex.envs.conversation import AgentAction, Message, ToolCall
from sinkflex.envs.spaces import ActionSpace, ObservationSpace

PLUG, DONE = AgentAction("please plug it in"), AgentAction("done")


def switch(room, **more):
    return AgentAction(tool_calls=(ToolCall("switch", {"room": room, **more}),))


def play(env, task_id, *actions, seed=0):
    env.reset(seed=seed, options={"task_id": task_id})
    return [env.step(action) for action in actions][-1]


def test_the_page_shows_a_working_domain(lamp):
    env = DualControlEnv(lamp.Lamp())
    for room in lamp.ROOMS:
        for name, wanted in (("gold", 1.0), ("noop", 0.0)):
            observation, _ = env.reset(seed=1, options={"task_id": room})
            agent = env.domain.agent(name, env.task, 0)
            over = False
            while not over:
                observation, reward, terminated, truncated, info = env.step(agent.act(observation))
                over = terminated or truncated
            assert (reward, terminated, info["outcome"]) == (wanted, True, "scored")
            assert info["graded"] == (1.0 if name == "gold" else 0.0)


def test_the_first_example_of_the_page_runs():
    import re
    from pathlib import Path

    page = Path(__file__).resolve().parents[3] / "docs" / "environments.md"
    block = re.findall(r"```python\n(import sinkflex.envs .*?)```", page.read_text(encoding="utf-8"), re.DOTALL)[0]
    exec(compile(block, str(page), "exec"), {})


def test_check_env_is_clean(lamp):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = DualControlEnv(lamp.Lamp(), render_mode="ansi")
        env.spec = None
        warnings.filterwarnings("ignore", message=".*not having a spec.*")
        check_env(env)


def test_check_env_is_clean_for_the_registered_suite_and_its_spec_pickles():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make("sinkflex/mini-shop-v0", render_mode="ansi", levels=[0, 3])
        check_env(env.unwrapped)
    again = pickle.loads(pickle.dumps(env.spec)).make()
    assert again.reset(seed=5)[0] == env.reset(seed=5)[0]


def test_equal_seeds_give_equal_episodes_and_a_named_task_keeps_the_user(lamp):
    one, two = envs.make("mini-shop"), envs.make("mini-shop")
    first, info = one.reset(seed=11)
    assert (first, info) == two.reset(seed=11)
    assert two.reset(seed=11, options={"task_id": info["task_id"]})[0] == first
    drawn = {one.reset(seed=seed)[1]["task_id"] for seed in range(50)}
    assert len(drawn) > 40


def test_text_beside_calls_is_kept_and_not_delivered(lamp):
    env = DualControlEnv(lamp.Lamp())
    env.reset(seed=0, options={"task_id": "hall"})
    observation, *_ = env.step(AgentAction("plug it in", (ToolCall("switch", {"room": "hall"}),)))
    assert [m.role for m in observation] == ["tool"] and not env.state["plugged"]
    assert env.transcript[1].content == "plug it in"


def test_the_agent_cannot_run_the_users_tools(lamp):
    env = DualControlEnv(lamp.Lamp())
    env.reset(seed=0, options={"task_id": "hall"})
    observation, _, terminated, truncated, info = env.step(AgentAction(tool_calls=(ToolCall("plug_in", {}),)))
    assert not env.state["plugged"] and not terminated and not truncated
    assert "belongs to the user" in observation[0].content and observation[0].is_error
    assert info["user_tool_calls_by_agent"] == 1 and info["errors"] == 1


def test_the_users_own_calls_are_in_the_transcript_and_hidden_from_the_agent(lamp):
    env = DualControlEnv(lamp.Lamp(), render_mode="ansi")
    env.reset(seed=0, options={"task_id": "hall"})
    observation, *_ = env.step(PLUG)
    assert observation == (Message("user", "it is plugged in"),) and env.state["plugged"]
    assert env.transcript[2].role == "user" and env.transcript[2].tool_calls[0].name == "plug_in"
    assert env.render().splitlines() == [
        "user: please light the hall",
        "agent: please plug it in",
        "user calls plug_in {}",
        "plug_in returns: it is plugged in",
        "user: it is plugged in",
    ]


def test_a_tools_refusal_is_a_valid_call_that_counts_as_an_error(lamp):
    env = DualControlEnv(lamp.Lamp())
    *_, info = play(env, "hall", switch("hall"))
    call = info["tool_calls"][0]
    assert call == {"name": "switch", "arguments": {"room": "hall"}, "valid": True, "error": "the lamp has no power"}
    assert info["errors"] == 1


@pytest.mark.parametrize("given, clean", [("100", 100), (100.0, 100), (100, 100)])
def test_a_value_with_one_meaning_is_coerced_and_counted(lamp, given, clean):
    env = DualControlEnv(lamp.Lamp())
    *_, info = play(env, "hall", PLUG, switch("hall", minutes=given))
    assert info["tool_calls"][0]["arguments"] == {"room": "hall", "minutes": clean}
    assert type(info["tool_calls"][0]["arguments"]["minutes"]) is int
    assert info["coerced_arguments"] == (0 if type(given) is int else 1)


@pytest.mark.parametrize("given", ["100", 100.0])
def test_with_strict_arguments_nothing_is_coerced(lamp, given):
    env = DualControlEnv(lamp.Lamp(), strict_arguments=True)
    observation, *_, info = play(env, "hall", PLUG, switch("hall", minutes=given))
    assert "'minutes' of switch must be" in observation[0].content and info["coerced_arguments"] == 0
    for text in ('{"room": "hall"}', "{'room': 'hall'}"):
        observation, *_ = play(env, "hall", PLUG, AgentAction(tool_calls=(ToolCall("switch", text),)))
        assert "must be a JSON object" in observation[0].content
    *_, info = play(env, "hall", PLUG, switch("hall", minutes=100))
    assert info["tool_calls"][0]["valid"]


@pytest.mark.parametrize("given", ["ten", "1e2", "9" * 5000, True, 1.5, None, [], "01"])
def test_any_other_type_is_a_tool_error(lamp, given):
    env = DualControlEnv(lamp.Lamp())
    observation, *_, info = play(env, "hall", PLUG, switch("hall", minutes=given))
    assert observation[0].is_error and "'minutes'" in observation[0].content and len(observation[0].content) < 400
    assert not info["tool_calls"][0]["valid"]


def test_an_enumeration_is_held(lamp):
    observation, *_ = play(DualControlEnv(lamp.Lamp()), "hall", PLUG, switch("cellar"))
    assert "one of hall, attic" in observation[0].content


def test_snapshot_continues_exactly_and_as_often_as_wanted():
    env, other = envs.make("mini-shop"), envs.make("mini-shop")
    for seed in range(12):
        observation, _ = env.reset(seed=seed)
        agent = env.domain.agent("expert", env.task, 0)
        played, over = [], False
        while not over:
            action = agent.act(observation)
            result = env.step(action)
            played.append((action, result))
            observation, over = result[0], result[2] or result[3]
        env.reset(seed=seed)
        for cut in range(len(played)):
            saved = pickle.loads(pickle.dumps(env.snapshot()))
            for again in (other, other):
                again.restore(saved)
                assert [again.step(action) for action, _ in played[cut:]] == [result for _, result in played[cut:]]
            env.restore(saved)
            env.step(played[cut][0])
        assert env.reset(seed=None)[0] == _second_reset(other, saved)


def _second_reset(env, saved):
    env.restore(saved)
    return env.reset(seed=None)[0]


def test_a_snapshot_of_another_domain_is_refused(lamp):
    env, shop = DualControlEnv(lamp.Lamp()), envs.make("mini-shop")
    env.reset(seed=0)
    shop.reset(seed=0)
    with pytest.raises(ValueError, match="snapshot is of mini-shop"):
        env.restore(shop.snapshot())


def test_vector_environments_agree():
    def one():
        import sinkflex.envs

        return sinkflex.envs.make("mini-shop", split="tune")

    sync = gymnasium.vector.SyncVectorEnv([one, one])
    threads = gymnasium.vector.AsyncVectorEnv([one, one], shared_memory=False)
    try:
        assert sync.reset(seed=3)[0] == threads.reset(seed=3)[0]
        sync.action_space.seed(1)
        for _ in range(30):
            actions = sync.action_space.sample()
            ours, theirs = sync.step(actions), threads.step(actions)
            assert ours[0] == theirs[0]
            for a, b in zip(ours[1:4], theirs[1:4], strict=True):
                assert a.tolist() == b.tolist()
    finally:
        sync.close()
        threads.close()


def test_spaces_are_seeded_comparable_and_serialisable(lamp):
    env = DualControlEnv(lamp.Lamp())
    for space, other in (
        (env.action_space, ActionSpace(lamp.Lamp.agent_tools)),
        (env.observation_space, ObservationSpace()),
    ):
        assert space == other and space != ActionSpace(()) and space != ObservationSpace(("x",))
        space.seed(4)
        drawn = [space.sample() for _ in range(40)]
        other.seed(4)
        assert drawn == [other.sample() for _ in range(40)] and len({repr(x) for x in drawn}) > 10
        assert all(x in space for x in drawn)
        assert space.from_jsonable(space.to_jsonable(drawn)) == drawn
        with pytest.raises(ValueError, match="no masks"):
            space.sample(mask=1)
    assert () not in env.observation_space and "hello" not in env.action_space
    assert AgentAction(tool_calls=[ToolCall("x", {})]) not in env.action_space


def test_wrong_use_is_named(lamp):
    env = DualControlEnv(lamp.Lamp())
    for use in (lambda: env.step(DONE), env.snapshot, lambda: env.transcript):
        with pytest.raises(ResetNeeded, match="reset"):
            use()
    with pytest.raises(ValueError, match="no task 'cellar'"):
        env.reset(options={"task_id": "cellar"})
    with pytest.raises(ValueError, match="unknown options of reset: task"):
        env.reset(options={"task": "hall"})
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match="AgentAction"):
        env.step("done")
    for wrong in (
        {"max_turns": 0},
        {"max_errors": 0},
        {"split": "test"},
        {"user": "ghost"},
        {"render_mode": "human"},
        {"examples": 1},
        {"examples": -1},
    ):
        with pytest.raises(ValueError):
            DualControlEnv(lamp.Lamp(), **wrong)
    with pytest.raises(envs.UnknownSuite, match="did you mean 'mini-shop'"):
        envs.make("minishop")
    assert issubclass(envs.MissingExtra, ImportError)
    assert envs.suites() == (
        "mini-shop",
        "tool-calls",
        "tau2-retail",
        "tau2-airline",
        "tau2-telecom",
        "tau2-telecom-solo",
    )
