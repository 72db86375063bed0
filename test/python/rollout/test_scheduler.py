"""Whole rollouts of the tiny policy: what is stored is what was sampled, and faults are data."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
import torch
from rollout_samples import settings
from sinkflex.envs import DualControlEnv
from sinkflex.envs.conversation import AgentAction, ToolCall
from sinkflex.envs.domain import UserFault
from sinkflex.kernels.layout import Layout
from sinkflex.policy.attention import AttentionContext
from sinkflex.policy.model import Policy
from sinkflex.rollout import scheduler
from sinkflex.rollout.scheduler import Collector, EpisodeJob, demonstrate
from sinkflex.rollout.trajectory import Trajectory
from sinkflex.rollout.transcript import record


def jobs(count: int = 6) -> list[EpisodeJob]:
    return [EpisodeJob(f"e{i}", ("hall", "attic")[i % 2], "train", i // 2, i % 2, 100 + i) for i in range(count)]


def force(monkeypatch: pytest.MonkeyPatch, script: Sequence[int]) -> None:
    """Replace the draw: every episode says `script`, token by token, with log-prob -1."""
    said: dict[int, int] = {}

    def forced(logits: torch.Tensor, temperature: float, streams: Sequence[Random]) -> tuple[list[int], list[float]]:
        tokens = []
        for stream in streams:
            at = said.setdefault(id(stream), 0)
            tokens.append(script[at])
            said[id(stream)] = at + 1
        return tokens, [-1.0] * len(tokens)

    monkeypatch.setattr(scheduler, "sample", forced)


def gold_script(policy: Policy, domain: Any, room: str = "hall") -> list[int]:
    agent = domain.agent("gold", domain.task(room), 0)
    return [token for _ in range(3) for token in policy.chat.write(agent.act(()))]


def test_a_policy_that_says_the_right_words_is_rewarded(
    policy: Policy, domain: Any, make_env: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = gold_script(policy, domain)
    force(monkeypatch, script)
    (t,) = Collector(policy, make_env, settings(max_new_tokens=80)).collect(jobs(1))
    assert (t.reward, t.outcome, t.terminated, t.turns) == (1.0, "scored", True, 3)
    assert [i for i, m in zip(t.ids, t.loss_mask, strict=True) if m] == script, "trained ids are the sampled ids (B35)"
    assert [c.name for c in t.calls] == ["switch"] and t.calls[0].valid
    kinds = [s.kind for s in sorted(t.spans, key=lambda s: s.start)]
    assert kinds[:2] == ["user", "header"]
    assert kinds.count("tool") == 1


def test_B30_the_sampled_call_stands_before_its_result(
    policy: Policy, domain: Any, make_env: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    force(monkeypatch, gold_script(policy, domain))
    (t,) = Collector(policy, make_env, settings(max_new_tokens=80)).collect(jobs(1))
    text = policy.chat.text(t.ids)
    call, result = text.index('<|tool_call|>{"name": "switch"'), text.index("hall is on")
    assert call < result


def test_every_token_has_its_mask_and_log_prob_whatever_is_sampled(policy: Policy, make_env: Any) -> None:
    for t in Collector(policy, make_env, settings()).collect(jobs(12)):
        t.check()
        assert sum(t.loss_mask) > 0 and t.outcome == "scored"
        assert all(lp < 0 for lp, m in zip(t.logprobs, t.loss_mask, strict=True) if m)
        covered = sorted(i for s in t.spans for i in range(s.start, s.stop))
        assert covered == list(range(len(t.ids))), "spans cover every token once"


def test_B31_an_episode_that_outgrows_its_limit_is_truncated_whole(policy: Policy, make_env: Any) -> None:
    for t in Collector(policy, make_env, settings(max_total_tokens=40)).collect(jobs(6)):
        t.check()
        assert len(t.ids) <= 40
        assert t.truncated and t.reason in {"max_total_tokens", "too_many_errors"} and t.reward == 0.0


def test_B42_the_end_token_of_a_cut_turn_is_not_trained(policy: Policy, make_env: Any) -> None:
    t = Collector(policy, make_env, settings(max_new_tokens=4)).collect(jobs(1))[0]
    end = policy.tokenizer.convert_tokens_to_ids("<|end|>")
    control = [s for s in t.spans if s.kind == "control" and not t.loss_mask[s.start]]
    assert control and all(t.ids[s.start] == end and s.stop - s.start == 1 for s in control)
    assert t.parse_failures > 0


def test_B43_headers_and_observations_are_not_trained_and_the_record_says_so(policy: Policy, make_env: Any) -> None:
    t = Collector(policy, make_env, settings()).collect(jobs(1))[0]
    for segment in record(t, 1, policy.chat)["segments"]:
        if segment["kind"] in {"user", "tool", "env", "header", "system"}:
            assert not segment["trained"]
        if segment["kind"] in {"text", "tool_name", "tool_args", "think"}:
            assert segment["trained"] and segment["logprob_mean"] < 0
    assert sum(s["tokens"] for s in record(t, 1, policy.chat)["segments"]) == len(t.ids)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_B14_rollout_and_training_log_probs_agree(policy: Policy, make_env: Any, temperature: float) -> None:
    trajectories = Collector(policy, make_env, settings(temperature=temperature)).collect(jobs(8))
    for t in trajectories:
        context = AttentionContext("flash", layout=Layout.single(len(t.ids)))
        with torch.no_grad():
            states = policy.hidden(torch.tensor([t.ids]), torch.arange(len(t.ids))[None], context)
            logp = torch.log_softmax(policy.logits(states) / temperature, -1)
        for p, trained in enumerate(t.loss_mask):
            if trained:
                assert abs(float(logp[p - 1, t.ids[p]]) - t.logprobs[p]) < 1e-4


def test_episodes_do_not_depend_on_which_others_run_beside_them(policy: Policy, make_env: Any) -> None:
    together = Collector(policy, make_env, settings()).collect(jobs(8))
    few_rows = Collector(policy, make_env, settings(max_live_episodes=3)).collect(jobs(8))
    alone = Collector(policy, make_env, settings()).collect(jobs(8)[5:6])
    assert [t.ids for t in together] == [t.ids for t in few_rows]
    assert alone[0].ids == together[5].ids
    assert len({tuple(t.ids) for t in together}) > 2, "members of a group differ"


def test_greedy_is_the_same_for_every_seed_of_a_task(policy: Policy, make_env: Any) -> None:
    a, _, b = Collector(policy, make_env, settings(temperature=0.0)).collect(jobs(3))
    assert a.ids == b.ids


class _Fails:
    """The lamp domain with one failure in one place."""

    def __init__(self, inner: Any, where: str, error: BaseException) -> None:
        self._inner, self._where, self._errors = inner, where, [error]

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if name != self._where:
            return attribute

        def fail(*args: Any, **kwargs: Any) -> Any:
            if self._errors:
                raise self._errors.pop()
            return attribute(*args, **kwargs)

        return fail


@pytest.mark.parametrize(
    ("where", "error", "owner"),
    [
        ("start", RuntimeError("no state"), "env"),
        ("user", UserFault("no model"), "user"),
        ("score", OSError("x"), "reward"),
    ],
)
def test_B75_one_failing_episode_is_recorded_and_the_others_finish(
    policy: Policy,
    domain: Any,
    make_env: Any,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    error: Exception,
    owner: str,
) -> None:
    script = gold_script(policy, domain)
    force(monkeypatch, script)
    made = iter([DualControlEnv(_Fails(domain, where, error), max_turns=5)])  # type: ignore[arg-type]
    collector = Collector(policy, lambda: next(made, None) or make_env(), settings(max_new_tokens=80))
    broken, *fine = collector.collect([EpisodeJob(f"e{i}", "hall", "train", 0, i, i) for i in range(4)])
    assert (broken.outcome, broken.reward, broken.owner) == ("infra_error", None, owner)
    assert [t.reward for t in fine] == [1.0, 1.0, 1.0]


def test_B75_an_interrupt_still_stops(policy: Policy, domain: Any) -> None:
    env = DualControlEnv(_Fails(domain, "start", KeyboardInterrupt()))  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        Collector(policy, lambda: env, settings()).collect(jobs(1))


def test_demonstrations_train_exactly_the_agents_tokens(policy: Policy, domain: Any, make_env: Any) -> None:
    t: Trajectory = demonstrate(policy.chat, make_env(), "gold", jobs(1)[0], system_prompt=True)
    assert [i for i, m in zip(t.ids, t.loss_mask, strict=True) if m] == gold_script(policy, domain)
    assert t.reward == 1.0
    assert domain.policy_text in policy.chat.text(t.ids)


def test_B45_two_calls_in_one_turn_get_both_results_in_order(
    policy: Policy, domain: Any, make_env: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = AgentAction(tool_calls=(ToolCall("switch", {"room": "attic"}), ToolCall("switch", {"room": "hall"})))
    script = [*policy.chat.write(AgentAction("plug it in")), *policy.chat.write(pair)]
    force(monkeypatch, [*script, *policy.chat.write(AgentAction("done"))])
    (t,) = Collector(policy, make_env, settings(max_new_tokens=120)).collect(jobs(1))
    text = policy.chat.text(t.ids)
    assert text.index("attic is on") < text.index("hall is on")
    assert not any(t.loss_mask[p] for s in t.spans if s.kind == "tool" for p in range(s.start, s.stop))
