"""The suites of sentences through a real model's chat format: what the expert does survives writing and reading, the
prompt's examples are turns like any other, and what is outside the template's form is a parse failure that is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chat_samples import chatml_tokenizer
from sinkflex import envs
from sinkflex.envs.conversation import AgentAction
from sinkflex.policy.chat import WORD_TEMPLATE, WordFormat
from sinkflex.policy.chatml import CHATML_TEMPLATE
from sinkflex.policy.template import TemplateFormat
from sinkflex.policy.tokenizer import build_word_tokenizer, closed_words, word_list
from sinkflex.rollout.scheduler import EpisodeJob, act, append_sampled, begin, demonstrate, opening


@pytest.fixture(scope="module")
def chat() -> TemplateFormat:
    return TemplateFormat(chatml_tokenizer(CHATML_TEMPLATE), "test")


def job(task_id: str, split: str) -> EpisodeJob:
    return EpisodeJob(f"x-{task_id}", task_id, split, 0, 0, 7)


def ids_of(pieces: Any) -> list[int]:
    return [i for piece in pieces for i in piece.ids]


@pytest.mark.parametrize("suite", ["mini-shop", "tool-calls"])
def test_the_experts_turns_survive_writing_and_reading(chat: TemplateFormat, suite: str) -> None:
    domain = envs.domain(suite, natural=True)
    env = envs.DualControlEnv(domain, split="tune")
    kinds = set()
    for task_id in domain.task_ids("tune")[:40]:
        observation, _ = env.reset(seed=7, options={"task_id": task_id})
        agent, over, reward = domain.agent("expert", domain.task(task_id), 0), False, 0.0
        while not over:
            action = agent.act(observation)
            read = chat.read(chat.write(action)).action
            assert read == action, task_id
            kinds.add(bool(action.tool_calls))
            observation, reward, terminated, truncated, _ = env.step(read)
            over = terminated or truncated
        assert reward == 1.0, task_id
    assert kinds == ({True, False} if suite == "mini-shop" else {True})


def test_mini_shop_plays_the_same_in_words_and_in_sentences(chat: TemplateFormat) -> None:
    """One task, two policies: the tiny one's closed vocabulary, and a template's text. The same calls, the same end."""
    words, sentences = envs.domain("mini-shop"), envs.domain("mini-shop", natural=True)
    tools = [tool.as_function() for tool in words.agent_tools]
    tiny = WordFormat(build_word_tokenizer(word_list(words.closed_vocabulary(), tools)).get_vocab())
    for agent in ("expert", "faulty", "hand_off"):
        for task_id in words.task_ids("tune")[:25]:
            small = demonstrate(tiny, envs.DualControlEnv(words), agent, job(task_id, "tune"), False)
            large = demonstrate(chat, envs.DualControlEnv(sentences), agent, job(task_id, "tune"), True)
            assert (small.reward, small.graded, small.reason) == (large.reward, large.graded, large.reason)
            assert [c.name for c in small.calls] == [c.name for c in large.calls]
            lowered = [{key: value.lower() for key, value in c.arguments.items()} for c in large.calls]
            assert [{key: value.lower() for key, value in c.arguments.items()} for c in small.calls] == lowered


@pytest.mark.parametrize("suite", ["mini-shop", "tool-calls"])
def test_examples_are_turns_between_system_message_and_task(chat: TemplateFormat, suite: str) -> None:
    domain = envs.domain(suite, natural=True)
    task_id = domain.task_ids("train")[0]
    bare, info = envs.DualControlEnv(domain).reset(seed=7, options={"task_id": task_id})
    without = chat.text(ids_of(opening(chat, info, bare, True)))
    observation, info = envs.DualControlEnv(domain, examples=2).reset(seed=7, options={"task_id": task_id})
    prompt = ids_of(opening(chat, info, observation, True))
    text = chat.text(prompt)
    head, tail = without.split("<|im_end|>\n", 1)
    assert text.startswith(head) and text.endswith(tail) and text.count("<|im_start|>system") == 1
    between = text[len(head) : -len(tail)]
    assert between.count("<tool_call>") == sum(len(message.tool_calls) for message in info["examples"]) >= 2
    assert between.count("<|im_start|>assistant\n") == sum(m.role == "assistant" for m in info["examples"])
    assert info["examples"][-1].role == "assistant"
    demonstration = demonstrate(chat, envs.DualControlEnv(domain, examples=2), "expert", job(task_id, "train"), True)
    assert demonstration.ids[: len(prompt)] == prompt, "whoever plays begins with the same prompt"
    assert not any(demonstration.loss_mask[: len(prompt)]), "examples carry no loss"


def test_examples_speak_of_nobody_in_a_task() -> None:
    from sinkflex.envs.mini_shop import words

    domain = envs.domain("mini-shop", natural=True)
    said = domain.examples(8, domain.task(domain.task_ids("train")[0]))
    text = " ".join(
        [m.content for m in said] + [str(v) for m in said for c in m.tool_calls for v in c.arguments.values()]
    )
    found = set(text.lower().replace(".", " ").replace(",", " ").replace("?", " ").replace(":", " ").split())
    for group in (words.NAMES, words.ZIPS, words.ORDERS, words.ITEMS):
        assert found.isdisjoint(word.lower() for word in group)
    with pytest.raises(ValueError, match="has 8 example conversations, 9 were asked for"):
        envs.DualControlEnv(domain, examples=9)
    with pytest.raises(ValueError, match="closed vocabulary has no example conversations"):
        envs.DualControlEnv("mini-shop", examples=1)


@pytest.mark.parametrize(
    "said",
    [
        '<tool_call>{"name": "find_user", "arguments": {"name": "Ana", "zip": "z10"}}',  # not closed
        "<tool_call>find_user(Ana, z10)</tool_call>",
        '<tool_call>["find_user"]</tool_call>',
        "<tool_call></tool_call>",
        "",
    ],
)
def test_what_the_template_would_not_write_is_a_failure_that_is_counted_and_shown(
    chat: TemplateFormat, said: str
) -> None:
    domain = envs.domain("mini-shop", natural=True)
    env = envs.DualControlEnv(domain)
    t, _, _ = begin(env, job(domain.task_ids("train")[1], "train"))
    ids = [*chat._encode(said), chat._end_id]
    for token in ids:
        append_sampled(t, token, 0.0)
    reading = chat.read(ids)
    assert isinstance(reading.action, AgentAction) and reading.action.error is not None
    observation, over = act(t, env, reading.action)
    assert (t.parse_failures, t.counters["errors"], over) == (1, 1, False)
    shown = chat.text(ids_of(chat.following(ids[-1], observation)))
    assert "could not be read" in shown and reading.action.error in shown


def test_who_plays_decides_how_mini_shop_is_spoken(tmp_path: Path) -> None:
    for name, template in (("tiny", WORD_TEMPLATE), ("real", CHATML_TEMPLATE)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "chat_template.jinja").write_text(template)
    (tmp_path / "old").mkdir()  # its template is in tokenizer_config.json: no tokenizer of ours does that
    assert [closed_words(tmp_path / name) for name in ("tiny", "real", "old")] == [True, False, False]
    spoken = [envs.domain("mini-shop", natural=natural) for natural in (False, True)]
    assert [domain.version for domain in spoken] == ["1", "1 natural"]
    assert [domain.closed_vocabulary() is None for domain in spoken] == [False, True]
