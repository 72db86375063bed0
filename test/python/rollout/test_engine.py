"""The engine against one plain forward: same tokens, same log-probs, however they were fed."""

from __future__ import annotations

import random

import pytest
import torch
from sinkflex.kernels.layout import Layout
from sinkflex.policy.attention import IMPL_NAME, AttentionContext
from sinkflex.policy.model import Policy, tiny_config
from sinkflex.rollout.engine import LocalEngine, _trunks
from transformers import GptOssForCausalLM, LlamaConfig, LlamaForCausalLM

VOCABULARY = 50


def make_policy(kind: str = "gpt-oss") -> Policy:
    torch.manual_seed(0)
    if kind == "gpt-oss":
        model = GptOssForCausalLM(tiny_config(VOCABULARY, 512))
        with torch.no_grad():
            for layer in model.model.layers:
                layer.self_attn.sinks.uniform_(-5, 20)
    else:
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=VOCABULARY,
                hidden_size=32,
                intermediate_size=48,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                initializer_range=0.2,
                pad_token_id=0,
            )
        )
    model.config._attn_implementation = IMPL_NAME
    model.eval()
    return Policy(model, None, None, kind, "eager")  # type: ignore[arg-type]


def packed_logits(policy: Policy, rows: list[list[int]]) -> list[torch.Tensor]:
    ids = torch.tensor([[t for row in rows for t in row]])
    positions = torch.tensor([[p for row in rows for p in range(len(row))]])
    lengths = [len(row) for row in rows]
    with torch.no_grad():
        states = policy.hidden(ids, positions, AttentionContext(policy.impl, layout=Layout.from_lengths(lengths)))
        return list(policy.logits(states).split(lengths))


@pytest.mark.parametrize("kind", ["gpt-oss", "llama"])
def test_ragged_feeding_equals_one_forward(kind: str) -> None:
    policy = make_policy(kind)
    dice = random.Random(1)
    rows = [[dice.randrange(3, VOCABULARY) for _ in range(n)] for n in (90, 41, 7, 63)]
    expected = packed_logits(policy, rows)
    engine = LocalEngine(policy, rows=4, capacity=16)
    at = [0] * 4
    while any(at[r] < len(rows[r]) for r in range(4)):
        order = [r for r in range(4) if at[r] < len(rows[r])]
        work = [(r, rows[r][at[r] : at[r] + dice.choice([1, 1, 1, 5, 30])]) for r in order]
        logits = engine.feed(work, list(range(len(work))))
        for (r, tokens), got in zip(work, logits, strict=True):
            at[r] += len(tokens)
            torch.testing.assert_close(got, expected[r][at[r] - 1], atol=2e-5, rtol=1e-4)


def test_moved_rows_and_a_shared_prefix_change_nothing() -> None:
    policy = make_policy()
    dice = random.Random(2)
    prefix = [dice.randrange(3, VOCABULARY) for _ in range(100)]
    rows = [prefix + [dice.randrange(3, VOCABULARY) for _ in range(n)] for n in (5, 9, 3)]
    expected = packed_logits(policy, rows)
    engine = LocalEngine(policy, rows=3, capacity=32)
    engine.expect(rows)
    shared = 100
    assert engine.open(list(enumerate(rows))) == [shared] * 3
    engine.feed([(r, rows[r][shared:-1]) for r in range(3)], [])
    engine.assert_holds(2, rows[2][:-1])
    engine.move(2, 0)  # row 2 takes the place of a finished row 0
    logits = engine.feed([(0, rows[2][-1:]), (1, rows[1][-1:])], [0, 1])
    torch.testing.assert_close(logits[0], expected[2][-1], atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(logits[1], expected[1][-1], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["gpt-oss", "llama"])
@pytest.mark.parametrize("trunk", [0, 100])
def test_what_some_prompts_share_is_computed_once(kind: str, trunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks of three samples, one of them with a longer beginning of its own, then two late comers."""
    policy = make_policy(kind)
    dice = random.Random(3)

    def draw(n: int) -> list[int]:
        return [dice.randrange(3, VOCABULARY) for _ in range(n)]

    start, a, b = draw(trunk), [3, *draw(20)], [4, *draw(30)]
    inner = draw(15)
    rows = [start + x for x in (a, b, a + draw(2), b + inner + draw(3), b + inner + draw(4), a)]
    late = [start + x for x in (b + inner + draw(9), [5, *draw(6)])]
    expected = packed_logits(policy, rows + late)
    fed: list[int] = []
    engine = LocalEngine(policy, rows=6, capacity=16)
    forward = engine._forward

    def counted(cache: object, work: list[tuple[int, list[int]]], wanted: list[int]) -> torch.Tensor:
        fed.append(sum(len(tokens) for _, tokens in work))
        return forward(cache, work, wanted)  # type: ignore[arg-type]

    monkeypatch.setattr(engine, "_forward", counted)
    engine.expect(rows + late)
    held = engine.open(list(enumerate(rows)))
    # Everything but one token of the shortest prompt is shared; `inner` is shared by two.
    assert held == [trunk + n for n in (20, 30, 20, 46, 46, 20)]
    assert sum(fed) == trunk + 20 + 30 + 16
    logits = engine.feed([(r, ids[held[r] :]) for r, ids in enumerate(rows)], list(range(6)))
    for got, want in zip(logits, expected, strict=False):
        torch.testing.assert_close(got, want[-1], atol=2e-5, rtol=1e-4)
    engine.move(5, 1)
    held = engine.open([(0, late[0]), (5, late[1])])
    assert held == [trunk + 46, trunk]  # copied from a row that is still live; nothing to copy
    logits = engine.feed([(0, late[0][held[0] :]), (5, late[1][held[1] :]), (1, [7])], [0, 1, 2])
    torch.testing.assert_close(logits[0], expected[6][-1], atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(logits[1], expected[7][-1], atol=2e-5, rtol=1e-4)
    again = packed_logits(policy, [[*rows[5], 7]])[0][-1]
    torch.testing.assert_close(logits[2], again, atol=2e-5, rtol=1e-4)


def test_trunks_are_the_beginnings_that_save_most() -> None:
    a, b, c = ([k] * 100 for k in (3, 4, 5))
    assert _trunks(sorted([[3, 4, 5], [3, 4, 6]])) == (0, [])  # short
    assert _trunks([a]) == (0, [])  # lonely
    assert _trunks(sorted([[*a, 7], [*a, 8], [*b, 7]])) == (100, [(a, 2)])
    # Four tasks of two families: one trunk for each family where tasks differ little, one for each task where much.
    tasks = [[*a, *[7] * 20, 9], [*a, *[8] * 20, 9], [*b, *[7] * 20, 9], [*b, *[8] * 20, 9]]
    assert _trunks(sorted(tasks * 2)) == (600, [(a, 4), (b, 4)])
    long = [[*a, *c, 9], [*a, *b, 9]]
    assert _trunks(sorted(long * 3)) == (800, [([*a, *b], 3), ([*a, *c], 3)])
    assert _trunks(sorted([a] * 3)) == (198, [(a[:99], 3)])


def test_trunks_come_when_they_are_needed_and_go_with_their_last_row() -> None:
    policy = make_policy()
    dice = random.Random(4)
    start = [dice.randrange(3, VOCABULARY) for _ in range(70)]
    families = [[*start, k, *[dice.randrange(3, VOCABULARY) for _ in range(80)]] for k in (3, 4)]
    prompts = [[*family, dice.randrange(3, VOCABULARY)] for family in families for _ in range(3)]
    expected = packed_logits(policy, prompts)
    engine = LocalEngine(policy, rows=2, capacity=16)
    engine.expect(prompts)
    assert [(t.prompts, t.cache) for t in engine._trunks] == [(3, None), (3, None)]
    for first, second in ((0, 1), (2, 3), (4, 5)):
        held = engine.open([(0, prompts[first]), (1, prompts[second])])
        assert all(n >= 151 for n in held)
        logits = engine.feed([(0, prompts[first][held[0] :]), (1, prompts[second][held[1] :])], [0, 1])
        torch.testing.assert_close(logits[0], expected[first][-1], atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(logits[1], expected[second][-1], atol=2e-5, rtol=1e-4)
        if first == 2:  # the last of one family, the first of the other: two trunks in one forward
            assert [t.cache is not None for t in engine._trunks] == [True, True]
    engine.open([(0, prompts[0])])
    assert [t.ids for t in engine._trunks] == [families[1]]


def test_the_engine_knows_what_it_was_fed() -> None:
    engine = LocalEngine(make_policy(), rows=1)
    engine.open([(0, [3, 4, 5])])
    engine.feed([(0, [3, 4])], [])
    engine.assert_holds(0, [3, 4])
    with pytest.raises(AssertionError):
        engine.assert_holds(0, [3, 5])


@pytest.mark.parametrize("impl", ["eager", "flash"])
def test_B48_sinks_reach_the_logits_on_every_accepted_impl(impl: str) -> None:
    policy = make_policy()
    policy.impl = impl
    rows = [[3, 4, 5, 6, 7]]
    before = packed_logits(policy, rows)[0]
    with torch.no_grad():
        for layer in policy.model.model.layers:
            layer.self_attn.sinks += 5
    assert (packed_logits(policy, rows)[0] - before).abs().max() > 1e-3


def test_attention_without_a_context_is_refused() -> None:
    policy = make_policy()
    with pytest.raises(ValueError, match="without sinkflex=AttentionContext"):
        policy.model(input_ids=torch.tensor([[3, 4]]))


def test_B70_a_changed_output_head_is_used_at_once() -> None:
    policy = make_policy()
    engine = LocalEngine(policy, rows=1)
    before = engine.feed([(0, [3, 4, 5])], [0])[0]
    with torch.no_grad():
        policy.model.lm_head.weight[7] += 0.5
        embedding = policy.model.model.embed_tokens.weight.clone()
    engine.open([(0, [3, 4, 5])])
    after = engine.feed([(0, [3, 4, 5])], [0])[0]
    assert after[7] != before[7]
    assert torch.equal(torch.cat([after[:7], after[8:]]), torch.cat([before[:7], before[8:]]))
    assert torch.equal(policy.model.model.embed_tokens.weight, embedding)
