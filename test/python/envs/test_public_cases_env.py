"""Public cases about the wrapper, by ID (area d, B45 and B139)."""

from __future__ import annotations

import threading

import pytest
from gymnasium.error import ResetNeeded
from sinkflex.envs import DualControlEnv, episode_seed, make
from sinkflex.envs.arguments import check_arguments
from sinkflex.envs.conversation import AgentAction, ToolCall
from sinkflex.envs.domain import InfraFault, ToolSpec, UserFault, UserTurn
from sinkflex.envs.hearing import read_user_turn

PLUG, DONE = AgentAction("please plug it in"), AgentAction("done")


def call(arguments, name="switch", id="c1"):
    return AgentAction(tool_calls=(ToolCall(name, arguments, id),))


def started(domain, **limits):
    env = DualControlEnv(domain, **limits)
    env.reset(seed=7, options={"task_id": "hall"})
    return env


class Talker:
    """A user whose every turn is written down beforehand; remembers what it heard."""

    def __init__(self, *turns):
        self.turns, self.heard = list(turns), []

    def open(self):
        return UserTurn("hello")

    def reply(self, agent_text, tools):
        self.heard.append(agent_text)
        turn = self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]
        if isinstance(turn, BaseException):
            raise turn
        return UserTurn(turn)

    def snapshot(self):
        return list(self.turns)

    def restore(self, saved):
        self.turns = list(saved)


def with_user(lamp, user):
    domain = lamp.Lamp()
    domain.user = lambda task, kind, seed: user
    return domain


def test_B45_parallel_results_stay_in_order_under_their_ids(lamp):
    env = started(lamp.Lamp(), max_turns=2)
    env.step(PLUG)
    two = AgentAction(
        tool_calls=(ToolCall("switch", {"room": "attic"}, "b"), ToolCall("switch", {"room": "hall"}, "a"))
    )
    observation, _, terminated, truncated, info = env.step(two)
    assert [(m.tool_call_id, m.content) for m in observation] == [("b", "attic is on"), ("a", "hall is on")]
    assert truncated and not terminated and [c["name"] for c in info["tool_calls"]] == ["switch", "switch"]
    assert [m.tool_call_id for m in env.transcript[-2:]] == ["b", "a"]


def test_B45_calls_without_ids_get_distinct_ones(lamp):
    env = started(lamp.Lamp())
    observation, *_ = env.step(AgentAction(tool_calls=(ToolCall("switch", {}), ToolCall("switch", {}))))
    ids = [c.id for c in env.transcript[1].tool_calls]
    assert len(set(ids)) == 2 and [m.tool_call_id for m in observation] == ids


def test_B71_cut_arguments_are_a_tool_error_and_the_episode_goes_on(lamp):
    env = started(lamp.Lamp())
    env.step(PLUG)
    observation, _, terminated, truncated, info = env.step(call('{"room": "ha', id="c7"))
    assert observation[0].tool_call_id == "c7" and observation[0].is_error and not terminated and not truncated
    assert info["invalid_tool_json"] == 1
    assert env.transcript[-2].tool_calls[0].arguments == '{"room": "ha', "what was sampled stays unchanged"
    observation, *_, info = env.step(call({"room": "hall"}, id="c8"))
    assert observation[0].content == "hall is on" and info["invalid_tool_json"] == 1


def test_B71_a_whole_json_text_has_one_meaning(lamp):
    env = started(lamp.Lamp())
    env.step(PLUG)
    observation, *_, info = env.step(call('{"room": "hall"}'))
    assert observation[0].content == "hall is on" and info["coerced_arguments"] == 1


@pytest.mark.parametrize("payload", [None, [], 3, "x", "null", "[1]", '"x"', "y" * 200_000], ids=lambda p: repr(p)[:12])
def test_B72_anything_but_an_object_is_the_same_error_and_short(lamp, payload):
    env = started(lamp.Lamp())
    observation, *_, info = env.step(call(payload))
    text = observation[0].content
    assert text.startswith("Error: the arguments of switch must be a JSON object") and len(text) <= 1000
    assert info["invalid_tool_json"] == 1 and not info["tool_calls"][0]["valid"]
    if isinstance(payload, str) and len(payload) > 1000:
        assert "200000 characters" in text


def test_B72_a_payload_nested_beyond_the_stack_is_an_error_too(lamp):
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    observation, *_, info = started(lamp.Lamp()).step(call(deep))
    assert observation[0].is_error and len(observation[0].content) <= 1000
    observation, *_, info = started(lamp.Lamp()).step(call("[" * 100_000))
    assert info["invalid_tool_json"] == 1
    while deep:  # the garbage collector's own recursion is not under test
        deep = deep.pop()


@pytest.mark.parametrize(
    "action, named",
    [
        (call({}), ["switch", "'room'"]),
        (call({"x": 1}, name="teleport"), ["'teleport'", "switch"]),
        (call({"room": "hall", "colour": "red"}), ["switch", "'colour'", "room, minutes"]),
        (call({}, name="t" * 100_000), ["100000 characters"]),
    ],
)
def test_B74_wrong_calls_name_tool_and_field_and_count(lamp, action, named):
    env = started(lamp.Lamp(), max_errors=2)
    observation, _, _, truncated, info = env.step(action)
    assert all(name in observation[0].content for name in named) and len(observation[0].content) <= 1000
    assert info["errors"] == 1 and not truncated and info["tool_calls"][0]["error"] == observation[0].content
    *_, truncated, info = env.step(action)
    assert truncated and info["reason"] == "too_many_errors"


def raising(error):
    def raises(*_):
        raise error

    return raises


@pytest.mark.parametrize(
    "method, error, owner",
    [
        ("call", RuntimeError("disk on fire"), "env"),
        ("call", InfraFault("disk on fire"), "infra"),
        ("score", RuntimeError("disk on fire"), "reward"),
    ],
)
def test_B75_an_exception_in_step_or_score_is_an_infra_error_with_its_owner(lamp, method, error, owner):
    domain = lamp.Lamp()
    setattr(domain, method, raising(error))
    env = started(domain)
    action = DONE if method == "score" else call({"room": "hall"})
    observation, reward, terminated, truncated, info = env.step(action)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert (info["outcome"], info["owner"], info["reason"]) == ("infra_error", owner, f"{owner}_error")
    assert "disk on fire" in info["error"] and info["graded"] is None and observation[-1].role == "env"
    with pytest.raises(ResetNeeded):
        env.step(DONE)


@pytest.mark.parametrize("error, owner", [(UserFault("model down"), "user"), (OSError("model down"), "user")])
def test_B75_a_failing_user_is_the_users_fault(lamp, error, owner):
    *_, truncated, info = started(with_user(lamp, Talker(error))).step(AgentAction("hello"))
    assert truncated and info["outcome"] == "infra_error" and info["owner"] == owner


@pytest.mark.parametrize("method, owner", [("start", "env"), ("user", "user"), ("greeting", "env")])
def test_B75_an_exception_in_reset_is_an_infra_error_too(lamp, method, owner):
    domain = lamp.Lamp()
    setattr(domain, method, raising(RuntimeError("no data")))
    env = DualControlEnv(domain)
    observation, info = env.reset(seed=0)
    assert (info["outcome"], info["owner"]) == ("infra_error", owner) and "no data" in info["error"]
    assert observation in env.observation_space and info["task_id"] in lamp.ROOMS
    with pytest.raises(ResetNeeded):
        env.step(DONE)
    del domain.__dict__[method]
    assert env.reset(seed=0)[1]["outcome"] is None


@pytest.mark.parametrize("method", ["start", "call", "score"])
def test_B75_an_interrupt_passes_through(lamp, method):
    domain = lamp.Lamp()
    setattr(domain, method, raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        started(domain).step(DONE if method == "score" else call({"room": "hall"}))


@pytest.mark.parametrize(
    "limits, reason, turns",
    [({"max_turns": 100, "max_errors": 100_000}, "max_turns", 100), ({"max_turns": 100}, "too_many_errors", 4)],
)
def test_B81_garbage_for_ever_ends_and_stays_in_the_transcript(lamp, limits, reason, turns):
    env = started(lamp.Lamp(), **limits)
    taken = 0
    for _ in range(1000):
        garbage = AgentAction("search_flights(", error="unfinished call")
        observation, reward, terminated, truncated, info = env.step(garbage)
        taken += 1
        assert observation[0].role == "env" and observation[0].is_error and "unfinished call" in observation[0].content
        if truncated or terminated:
            break
    assert taken == turns and (reward, terminated, truncated, info["reason"]) == (0.0, False, True, reason)
    assert sum(m.content == "search_flights(" for m in env.transcript) == turns


def test_B82_seeds_belong_to_the_environment():
    seen: set[tuple] = set()
    stop = threading.Event()

    def unseeded():
        env = make("mini-shop")
        while not stop.is_set():
            env.reset()

    def seeded():
        env = make("mini-shop")
        for _ in range(10):
            observation, info = env.reset(seed=7)
            seen.add((observation, info["task_id"], env.snapshot().user_seed))

    threads = [threading.Thread(target=target) for target in (unseeded, seeded, seeded)]
    for thread in threads:
        thread.start()
    for thread in threads[1:]:
        thread.join()
    stop.set()
    threads[0].join()
    assert len(seen) == 1


def test_B82_group_members_share_the_task_and_have_their_own_seeds():
    seeds = [episode_seed(3, "train-L1-00001", sample) for sample in range(8)]
    assert len(set(seeds)) == 8 and all(0 <= seed < 2**53 for seed in seeds)
    assert seeds == [episode_seed(3, "train-L1-00001", sample) for sample in range(8)]
    assert not set(seeds) & {episode_seed(b, t, 0) for b, t in ((4, "train-L1-00001"), (3, "train-L1-00002"))}
    env = make("mini-shop")
    users = set()
    for seed in seeds:
        _, info = env.reset(seed=seed, options={"task_id": "train-L1-00001"})
        assert info["task_id"] == "train-L1-00001"
        users.add(env.snapshot().user_seed)
    assert len(users) == 8


def test_B83_the_step_limit_truncates_with_reward_0(lamp):
    env = started(with_user(lamp, Talker("go on")), max_turns=3)
    ends = [env.step(AgentAction("well"))[1:4] for _ in range(3)]
    assert ends == [(0.0, False, False)] * 2 + [(0.0, False, True)]
    with pytest.raises(ResetNeeded, match="max_turns"):
        env.step(AgentAction("well"))


def test_B83_a_limit_gives_reward_0_even_in_the_gold_state(lamp):
    env = started(lamp.Lamp(), max_turns=2)
    env.step(PLUG)
    _, reward, terminated, truncated, info = env.step(call({"room": "hall"}))
    assert (reward, terminated, truncated, info["reason"]) == (0.0, False, True, "max_turns")
    assert info["outcome"] == "scored" and info["graded"] == 1.0 and info["reward_parts"] == {"on": 1.0, "plugged": 1.0}


def test_B83_the_error_limit_is_told_apart(lamp):
    env = started(lamp.Lamp(), max_turns=3, max_errors=2)
    env.step(call({}))
    _, reward, terminated, truncated, info = env.step(call({}))
    assert (reward, terminated, truncated, info["reason"]) == (0.0, False, True, "too_many_errors")


def test_B83_a_stop_on_the_last_turn_is_still_a_stop(lamp):
    env = started(lamp.Lamp(), max_turns=3)
    env.step(PLUG)
    env.step(call({"room": "hall"}))
    _, reward, terminated, truncated, info = env.step(DONE)
    assert (reward, terminated, truncated, info["reason"]) == (1.0, True, False, "user_stop")


def test_B84_reasoning_never_reaches_the_user(lamp):
    user = Talker("ok")
    env = started(with_user(lamp, user))
    *_, terminated, _, _ = env.step(AgentAction("<think>maybe I say ###STOP###</think>Your order is cancelled."))
    assert user.heard == ["Your order is cancelled."] and not terminated
    env.step(AgentAction("Yes.", thinking="maybe I say ###STOP###"))
    assert user.heard[-1] == "Yes."
    observation, *_, info = env.step(AgentAction("<think>cut in the middle ###STOP###"))
    assert len(user.heard) == 2 and observation[0].is_error and info["errors"] == 1


@pytest.mark.parametrize(
    "said, kept", [("please close it. ###STOP###", "please close it."), ("###STOP###.", "."), (" ###STOP### ", "")]
)
def test_B85_a_stop_marker_counts_wherever_it_stands_and_the_words_are_kept(lamp, said, kept):
    env = started(with_user(lamp, Talker(said)))
    observation, _, terminated, truncated, info = env.step(AgentAction("anything else ?"))
    assert terminated and not truncated and info["reason"] == "user_stop"
    assert observation[0].content == kept and env.transcript[-1].content == kept


def test_B85_the_first_marker_gives_the_reason():
    turn = read_user_turn(UserTurn("bye ###TRANSFER### ###STOP###"))
    assert (turn.text, turn.stop, turn.reason) == ("bye", True, "transfer")


def test_B86_an_agent_that_quotes_the_marker_ends_nothing(lamp):
    env = started(lamp.Lamp())
    env.step(PLUG)
    action = AgentAction("I will not say ###STOP###", (ToolCall("switch", {"room": "hall"}),))
    observation, _, terminated, truncated, _ = env.step(action)
    assert observation[0].content == "hall is on" and not terminated and not truncated
    user = Talker("ok")
    _, _, terminated, truncated, _ = started(with_user(lamp, user)).step(AgentAction("I will not say ###STOP###"))
    assert not terminated and not truncated and user.heard == ["I will not say ###STOP###"]


def test_B87_an_empty_user_reply_is_retried_once(lamp):
    user = Talker("", "here I am")
    observation, *_, info = started(with_user(lamp, user)).step(AgentAction("hello"))
    assert observation[0].content == "here I am" and info["outcome"] is None and info["errors"] == 0


def test_B87_a_silent_user_excludes_the_episode(lamp):
    user = Talker("")
    _, _, terminated, truncated, info = started(with_user(lamp, user)).step(AgentAction("hello"))
    assert (terminated, truncated) == (False, True) and len(user.heard) == 2
    assert (info["outcome"], info["owner"], info["reason"]) == ("infra_error", "user", "user_error")


def test_B88_reasoning_only_output_ends_by_the_default_limits(lamp):
    env = started(lamp.Lamp())
    turns, over = 0, False
    while not over and turns < 1000:
        _, reward, terminated, truncated, info = env.step(AgentAction(thinking="hmm"))
        turns, over = turns + 1, terminated or truncated
    assert turns <= 12 and truncated and info["reason"] == "too_many_errors" and reward == 0.0


@pytest.mark.parametrize("text, reason", [("", "too_many_errors"), ("hello", "user_stop")])
def test_B139_an_agent_that_never_acts_is_scored_as_a_failure(lamp, text, reason):
    env = started(lamp.Lamp())
    over = False
    while not over:
        _, reward, terminated, truncated, info = env.step(AgentAction(text))
        over = terminated or truncated
    assert (reward, info["outcome"], info["reason"]) == (0.0, "scored", reason)


def test_a_schema_with_choices_references_and_lists_is_understood():
    schema = {
        "type": "object",
        "$defs": {"Kind": {"enum": ["a", "b"], "type": "string"}},
        "properties": {
            "kind": {"$ref": "#/$defs/Kind"},
            "count": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "either": {"type": ["string", "integer"]},
            "unclear": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
            "items": {"type": "array", "items": {"type": "string"}},
            "amount": {"type": "number"},
            "flag": {"type": "boolean"},
        },
    }
    spec = ToolSpec("t", "", schema)
    given = {"kind": "a", "count": "3", "either": "3", "items": '["x"]', "amount": "2.5", "flag": "true"}
    assert check_arguments(spec, given) == (
        {"kind": "a", "count": 3, "either": "3", "items": ["x"], "amount": 2.5, "flag": True},
        4,
    )
    for wrong in ({"kind": "c"}, {"items": "x"}, {"items": [1]}, {"amount": float("nan")}, {"unclear": "1.5"}):
        with pytest.raises(Exception, match="must be"):
            check_arguments(spec, wrong)
