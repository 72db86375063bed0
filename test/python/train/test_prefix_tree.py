"""Shared beginnings in a micro-batch: what is packed once, where it is cut, and that every trained token still has
exactly its own sequence before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sinkflex.rollout.trajectory import Trajectory
from sinkflex.train.batch import MicroBatch, rl_micro_batches, sft_micro_batches
from sinkflex.train.prefix_tree import PAYS_FROM, PrefixTree

Build = Callable[..., Trajectory]


class Row:
    def __init__(self, ids: Sequence[int], loss_mask: Sequence[bool]) -> None:
        self.ids, self.loss_mask = list(ids), list(loss_mask)


def answered(prompt: Sequence[int], answer: Sequence[int]) -> Row:
    return Row([*prompt, *answer], [False] * len(prompt) + [True] * len(answer))


def numbers(start: int, count: int) -> list[int]:
    return list(range(start, start + count))


def cut(micro: MicroBatch) -> list[tuple[int, int, int]]:
    """(length, parent, first position) of every piece."""
    return [(s.q_len, s.parent, s.first_position) for s in micro.layout.segments]


def seen_from(micro: MicroBatch, place: int) -> tuple[list[int], list[int]]:
    """Ids and positions on the path that ends at a place, by the layout alone."""
    segments = micro.layout.segments
    at = next(i for i, s in enumerate(segments) if s.q_start <= place < s.q_start + s.q_len)
    rows = list(range(segments[at].q_start, place + 1))
    while (at := segments[at].parent) != -1:
        rows = [*range(segments[at].q_start, segments[at].q_start + segments[at].q_len), *rows]
    return micro.ids_1T[0, rows].tolist(), micro.positions_1T[0, rows].tolist()


def assert_every_token_sees_its_own_past(sequences: Sequence[Row], micros: Sequence[MicroBatch]) -> None:
    found: list[tuple[int, int, int]] = []
    for micro in micros:
        for place, target, owner in zip(
            micro.rows_N.tolist(), micro.targets_N.tolist(), micro.sequence_N.tolist(), strict=True
        ):
            ids, positions = seen_from(micro, place)
            assert ids == list(sequences[owner].ids[: len(ids)])
            assert positions == list(range(len(ids)))
            found.append((owner, len(ids), target))
    wanted = [(i, p, r.ids[p]) for i, r in enumerate(sequences) for p, trained in enumerate(r.loss_mask) if trained]
    assert sorted(found) == wanted


def test_a_group_shares_its_prompt_and_the_domain_its_system_prompt() -> None:
    """Two groups of two: 50 tokens of system prompt, 40 of each task's, then the answers; the last token is not fed."""
    system = numbers(0, 50)
    rows = [
        answered([*system, *numbers(100 * task, 40)], [1000 * task + 10 * sample + n for n in range(5)])
        for task in (1, 2)
        for sample in (1, 2)
    ]
    (micro,) = sft_micro_batches(rows, tokens_per_micro_batch=4096)
    assert cut(micro) == [(50, -1, 0), (40, 0, 50), (4, 1, 90), (4, 1, 90), (40, 0, 50), (4, 4, 90), (4, 4, 90)]
    assert_every_token_sees_its_own_past(rows, [micro])
    first = [micro.rows_N[micro.sequence_N == i][0].item() for i in range(4)]
    assert first == [89, 89, 137, 137], "the prompt's last hidden state predicts the first token of every answer"


def test_a_trained_token_in_a_shared_piece_counts_for_each_of_its_sequences(trajectory: Build) -> None:
    """Two samples that begin with the same 40 sampled tokens and then part."""
    same = numbers(0, 60)
    rows = [trajectory([*same, 100 + i, 7], [0] * 20 + [1] * 42, float(i), sample=i, logprob=-1.0 - i) for i in (0, 1)]
    (micro,) = rl_micro_batches(rows, torch.tensor([0.5, -0.5]), [0, 1], tokens_per_micro_batch=4096)
    assert cut(micro) == [(60, -1, 0), (1, 0, 60), (1, 0, 60)]
    twice = micro.rows_N.bincount()
    assert twice[19:60].tolist() == [2] * 41 and twice.sum() == 84
    of_first = micro.sequence_N == 0
    assert micro.behaviour_N[of_first].unique().item() == -1.0 and micro.behaviour_N[~of_first].unique().item() == -2.0
    assert micro.advantages_N[of_first].unique().item() == 0.5 and micro.advantages_N[~of_first].unique().item() == -0.5
    assert float(micro.weights_N.double().sum()) == pytest.approx(1.0)
    assert_every_token_sees_its_own_past(rows, [micro])


def test_equal_sequences_and_beginnings_of_others_need_no_tokens_of_their_own() -> None:
    long = answered(numbers(0, 30), numbers(50, 20))
    rows = [answered(numbers(0, 30), numbers(50, 8)), long, answered(numbers(0, 30), numbers(50, 20))]
    (micro,) = sft_micro_batches(rows, tokens_per_micro_batch=49)
    assert cut(micro) == [(49, -1, 0)]
    assert_every_token_sees_its_own_past(rows, [micro])


@pytest.mark.parametrize("sequences", [2, 5])
def test_what_does_not_pay_stays_in_each_sequence(sequences: int) -> None:
    for shared in (PAYS_FROM - 1, PAYS_FROM):
        rows = [answered(numbers(0, shared), [100 + i, 5, 6]) for i in range(sequences)]
        (micro,) = sft_micro_batches(rows, tokens_per_micro_batch=4096)
        assert micro.layout.has_parents == (shared == PAYS_FROM)
        assert_every_token_sees_its_own_past(rows, [micro])


def test_a_piece_that_does_not_pay_is_passed_down_and_may_pay_below() -> None:
    """Three sequences: one token in common, two of them another 60."""
    rows = [answered([1, *numbers(10, 60)], [100 + i, 5]) for i in range(2)] + [answered([1, 2], [3, 4])]
    (micro,) = sft_micro_batches(rows, tokens_per_micro_batch=4096)
    assert cut(micro) == [(3, -1, 0), (61, -1, 0), (1, 1, 61), (1, 1, 61)]
    assert_every_token_sees_its_own_past(rows, [micro])


def test_without_sharing_every_sequence_is_packed_in_full() -> None:
    rows = [answered(numbers(0, 64), [100 + i, 5, 6]) for i in (0, 1, 1)]
    (micro,) = sft_micro_batches(rows, tokens_per_micro_batch=4096, share=False)
    assert cut(micro) == [(66, -1, 0)] * 3
    assert_every_token_sees_its_own_past(rows, [micro])


def test_the_budget_counts_packed_tokens_and_tears_no_group_that_fits() -> None:
    """Three groups of 4 x (100 + 10) tokens, 140 when packed. Two fit into 280; 279 leaves one each."""
    rows = [
        answered(numbers(1000 * task, 100), [*numbers(1000 * task + 200 + 20 * sample, 10), 0])
        for sample in range(4)
        for task in range(3)
    ]
    for budget, groups in ((420, [[0, 1, 2]]), (280, [[0, 1], [2]]), (279, [[0], [1], [2]])):
        micros = sft_micro_batches(rows, tokens_per_micro_batch=budget)
        assert [sorted({i % 3 for i in m.sequences}) for m in micros] == groups
        assert all(m.ids_1T.numel() <= budget for m in micros)
        assert_every_token_sees_its_own_past(rows, micros)
    torn = sft_micro_batches(rows, tokens_per_micro_batch=125)
    assert len(torn) == 6, "a group that does not fit is taken apart, its prompt repeated"
    assert_every_token_sees_its_own_past(rows, torn)


def test_the_order_of_the_rows_given_does_not_matter(trajectory: Build) -> None:
    rows = [
        trajectory([*numbers(100 * (i % 3), 40), 7 + i, 3], [0] * 40 + [1, 1], float(i % 2), task=i % 3, sample=i)
        for i in range(9)
    ]
    advantages = torch.linspace(-1, 1, 9)
    forth, back = (
        rl_micro_batches(rows, advantages, order, tokens_per_micro_batch=90)
        for order in (range(9), list(reversed(range(9))))
    )
    for a, b in zip(forth, back, strict=True):
        assert a.sequences == b.sequences and a.layout == b.layout
        assert torch.equal(a.ids_1T, b.ids_1T) and torch.equal(a.rows_N, b.rows_N)


def tokens(alphabet: int, longest: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, alphabet - 1), min_size=2, max_size=longest)


@st.composite
def trees(draw: st.DrawFn) -> list[Row]:
    """Sequences that begin with pieces of one another, repeat, and are beginnings of others; any tokens trained."""
    made: list[list[int]] = [draw(tokens(2, 60))]
    for _ in range(draw(st.integers(0, 11))):
        base = draw(st.sampled_from(made))
        made.append(base[: draw(st.integers(0, len(base)))] + draw(tokens(2, 40)))
    rows = []
    for ids in made:
        mask = [False, *draw(st.lists(st.booleans(), min_size=len(ids) - 1, max_size=len(ids) - 1))]
        mask[draw(st.integers(1, len(ids) - 1))] = True
        rows.append(Row(ids, mask))
    return rows


@settings(max_examples=150, deadline=None)
@given(trees(), st.integers(0, 300))
def test_any_tree_gives_every_token_its_own_past_within_the_budget(rows: list[Row], spare: int) -> None:
    longest = max(len(r.ids) for r in rows)
    budget = longest + spare
    micros = sft_micro_batches(rows, tokens_per_micro_batch=budget)
    assert_every_token_sees_its_own_past(rows, micros)
    assert all(m.ids_1T.numel() <= budget for m in micros)
    plain = sft_micro_batches(rows, tokens_per_micro_batch=budget, share=False)
    assert_every_token_sees_its_own_past(rows, plain)
    assert sum(m.ids_1T.numel() for m in micros) <= sum(m.ids_1T.numel() for m in plain)


def test_a_chain_of_many_turns_is_no_recursion() -> None:
    """1200 sequences, each parting from the one before it 4 tokens later."""
    trunk = numbers(0, 4 * 1200)
    tree = PrefixTree([[*trunk[: 4 * i], -1] for i in range(1, 1201)])
    _, places = tree.pack(0, 1200)
    assert [len(places[i]) for i in range(1200)] == [4 * i + 5 for i in range(1200)]
    assert tree.tokens(0, 1200) == 4 * 1200 + 1200 + 4 * 600, "every other piece is too short and stays in two"
