"""The trap of prompts: the ids of every turn begin with all ids before it, whatever a template does with history.

Parallel tool results stay in one observation, and exactly the agent's tokens carry the mask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sinkflex.envs import DualControlEnv
from sinkflex.envs.conversation import AgentAction, Message, ToolCall
from sinkflex.policy.chat import message_dict
from sinkflex.policy.template import TemplateFormat
from sinkflex.policy.tokenizer import build_bpe_tokenizer
from sinkflex.rollout.scheduler import EpisodeJob, demonstrate
from sinkflex.rollout.trajectory import Trajectory

READS = (
    ToolCall("get_order_details", {"order_id": "#W2378156"}),
    ToolCall("list_all_product_types", {}),
)


class Parallel:
    """Two calls in one turn, then words, then a call alone."""

    def __init__(self) -> None:
        self.plan: Iterator[AgentAction] = iter(
            (AgentAction(tool_calls=READS), AgentAction("Which one?"), AgentAction(tool_calls=READS[:1]))
        )

    def act(self, observation: Any) -> AgentAction:
        return next(self.plan, AgentAction("Unfortunately that is not possible."))


@pytest.fixture(scope="module")
def tokenizer(retail: Any) -> Any:
    return build_bpe_tokenizer([retail.policy_text, *(str(tool.as_function()) for tool in retail.agent_tools)], 600)


@pytest.fixture
def episode(retail: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    def play(chat: TemplateFormat, system_prompt: bool = False) -> Trajectory:
        monkeypatch.setattr(retail, "agent", lambda name, task, seed: Parallel())
        env = DualControlEnv(retail, split="base", max_turns=12, max_errors=10)
        t = demonstrate(chat, env, "gold", EpisodeJob("e0", "0", "base", 0, 0, 3), system_prompt=system_prompt)
        t.transcript = env.transcript
        return t

    return play


def rendered(tokenizer: Any, messages: list[Message], header: bool) -> list[int]:
    text = tokenizer.apply_chat_template(
        [message_dict(message) for message in messages], add_generation_prompt=header, tokenize=False
    )
    return list(tokenizer.encode(text, add_special_tokens=False))


def conversation(t: Trajectory) -> list[tuple[list[Message], AgentAction]]:
    """Before each agent turn: the messages so far, and what the agent then does. The greeting is not the agent's."""
    turns, messages = [], list(t.transcript[:1])
    for message in t.transcript[1:]:
        if message.role == "assistant":
            turns.append((list(messages), AgentAction(message.content, tool_calls=message.tool_calls)))
        messages.append(message)
    return turns


def test_every_prompt_is_the_whole_conversation_so_far_and_the_next_begins_with_it(
    tokenizer: Any, episode: Any
) -> None:
    chat = TemplateFormat(tokenizer, "bpe")
    t = episode(chat)
    turns = conversation(t)
    starts = [span.start for span in t.spans if span.kind == "text"]
    assert len(turns) == len(starts) >= 5
    for (messages, action), start in zip(turns, starts, strict=True):
        assert t.ids[:start] == rendered(tokenizer, messages, header=True)
        written = chat.write(action)
        assert t.ids[start : start + len(written)] == written and all(t.loss_mask[start : start + len(written)])
    assert sum(t.loss_mask) == sum(len(chat.write(action)) for _, action in turns)


def test_results_of_parallel_calls_are_one_observation_between_two_turns(tokenizer: Any, episode: Any) -> None:
    t = episode(TemplateFormat(tokenizer, "bpe"))
    after_first = [span for span in t.spans if span.turn == 0 and span.kind not in ("text", "header")]
    assert [span.kind for span in after_first] == ["tool"]
    [span] = after_first
    text = TemplateFormat(tokenizer, "bpe").text(t.ids[span.start : span.stop])
    assert text.index('"order_id": "#W2378156"') < text.index('"Laptop"')
    assert not any(t.loss_mask[span.start : span.stop])


def test_a_template_that_forgets_history_later_on_cannot_change_what_was_seen(
    tokenizer: Any, episode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows only the last five messages once there are more: a rendering anew would lose the beginning, and with it
    the positions that the mask names. Nothing is ever rendered anew."""
    right = episode(TemplateFormat(tokenizer, "right"))
    template = tokenizer.chat_template
    assert "messages" in template
    forgetting = "{%- set messages = messages[-5:] if messages|length > 5 else messages -%}" + template
    monkeypatch.setattr(tokenizer, "chat_template", forgetting)
    anew = rendered(tokenizer, conversation(right)[-1][0], header=True)
    assert anew != right.ids[: len(anew)]
    got = episode(TemplateFormat(tokenizer, "forgetting"))
    assert (got.ids, got.loss_mask) == (right.ids, right.loss_mask)


def test_the_policy_and_the_tools_stand_first_and_are_the_same_for_every_turn(
    tokenizer: Any, episode: Any, retail: Any
) -> None:
    chat = TemplateFormat(tokenizer, "bpe")
    whole, bare = episode(chat, system_prompt=True), episode(chat)
    more = len(whole.ids) - len(bare.ids)
    assert whole.ids[more:][-1000:] == bare.ids[-1000:]
    text = chat.text(whole.ids[: more + 50])
    assert retail.policy_text in text and all(tool.name in text for tool in retail.agent_tools)
    assert not any(whole.loss_mask[:more])
