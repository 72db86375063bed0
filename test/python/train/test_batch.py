"""From trajectories to micro-batches: which tokens are trained, where their log-prob is read, what they weigh."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sinkflex.algorithms.advantages import AdvantageResult, group_advantages
from sinkflex.algorithms.losses import policy_loss, token_log_probs
from sinkflex.refusal import Refusal
from sinkflex.rollout.trajectory import Trajectory
from sinkflex.train.batch import (
    MicroBatch,
    RlMicroBatch,
    learned_rewards,
    rl_micro_batches,
    select,
    sft_micro_batches,
    split,
)
from torch import nn

Build = Callable[..., Trajectory]


def _result(trajectories: Sequence[Trajectory]) -> AdvantageResult:
    rewards = [math.nan if t.reward is None else t.reward for t in trajectories]
    return group_advantages(torch.tensor(rewards).double(), torch.tensor([t.task_index for t in trajectories]))


def _micros(trajectories: Sequence[Trajectory], budget: int = 4096, **options: object) -> list[RlMicroBatch]:
    """All trajectories that `select` keeps, as one optimiser step."""
    result = _result(trajectories)
    keep = {k: options.pop(k) for k in ("zero_variance", "mask_truncated") if k in options}
    rows = select(trajectories, result, **keep).rows  # type: ignore[arg-type]
    return rl_micro_batches(trajectories, result.advantages, rows, tokens_per_micro_batch=budget, **options)  # type: ignore[arg-type]


def lengths(micro: MicroBatch) -> list[int]:
    return [segment.q_len for segment in micro.layout.segments]


class _Bigram(nn.Module):
    """Next-token logits that depend on the token alone, so that a log-prob tells which place it was read from."""

    def __init__(self, vocabulary: int = 32) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, vocabulary, dtype=torch.float64)
        with torch.no_grad():
            self.table.weight.copy_(torch.randn(vocabulary, vocabulary, generator=torch.Generator().manual_seed(2)))

    def log_probs(self, micro: MicroBatch) -> torch.Tensor:
        return token_log_probs(self.table(micro.ids_1T)[0, micro.rows_N], micro.targets_N)[0]


def _step(model: _Bigram, micros: Sequence[RlMicroBatch], lr: float = 0.1) -> tuple[float, torch.Tensor]:
    """One plain SGD step; the loss and the change of the table."""
    before = model.table.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    total = 0.0
    for micro in micros:
        loss = policy_loss(
            model.log_probs(micro), micro.behaviour_N, micro.advantages_N, micro.weights_N, clip_low=0.2, clip_high=0.28
        )
        loss.total.backward()  # type: ignore[no-untyped-call]
        total += loss.total.item()
    optimizer.step()
    return total, model.table.weight.detach() - before


def test_a_group_without_success_learns_from_sub_goals_when_told_to(trajectory: Build) -> None:
    rows = [trajectory([1, 2], [0, 1], reward, sample=i) for i, reward in enumerate([0.0, 0.0, 1.0, None])]
    for row, graded in zip(rows, (0.25, 1.0, 1.0, None), strict=True):
        row.graded = graded
    torch.testing.assert_close(
        learned_rewards(rows, "exact"), torch.tensor([0.0, 0.0, 1.0, math.nan]).double(), equal_nan=True
    )
    torch.testing.assert_close(
        learned_rewards(rows, "graded"), torch.tensor([0.125, 0.5, 1.0, math.nan]).double(), equal_nan=True
    )


def test_B01_an_unscored_episode_carries_no_loss_and_is_in_no_denominator(trajectory: Build) -> None:
    rows = [
        trajectory([1, 2, 3], [0, 1, 1], r, sample=i, logprob=-1.0 - i) for i, r in enumerate([1.0, None, 0.0, 1.0])
    ]
    (micro,) = _micros(rows)
    assert sorted(micro.sequences) == [0, 2, 3]
    assert set(micro.sequence_N.tolist()) == {0, 2, 3}
    assert micro.weights_N.tolist() == pytest.approx([1 / 6] * 6)
    assert micro.advantages_N.isfinite().all()
    chosen = select(rows, _result(rows))
    assert (chosen.rows, chosen.unscored) == ((0, 2, 3), 1)


def test_B05_rows_that_do_not_divide_evenly_are_shared_out_and_none_is_dropped() -> None:
    parts = split(range(7), 3, seed=1, step=4)
    assert sorted(len(p) for p in parts) == [2, 2, 3]
    assert sorted(i for p in parts for i in p) == list(range(7))
    assert [len(p) for p in split([5, 6], 4, seed=1, step=4)] == [1, 1]
    assert split([], 4, seed=1, step=4) == []


def test_mini_batches_follow_from_seed_step_and_epoch_alone() -> None:
    once = split(range(40), 2, seed=1, step=4)
    assert once == split(range(40), 2, seed=1, step=4)
    assert len({str(split(range(40), 2, seed=s, step=k, epoch=e)) for s, k, e in [(1, 4, 0), (2, 4, 0), (1, 5, 0), (1, 4, 1)]}) == 4  # fmt: skip # noqa: E501


def test_B09_each_optimiser_step_has_a_denominator_of_its_own(trajectory: Build) -> None:
    """Four rows of ten tokens, every token loss 1.0, an optimiser step every two rows: 20/20 and not 20/40."""
    rows = [trajectory(range(i, i + 11), [0] + [1] * 10, float(i % 2), sample=i) for i in range(4)]
    result = _result(rows)
    for members in split(select(rows, result).rows, 2, seed=0, step=1):
        micros = rl_micro_batches(rows, result.advantages, members, tokens_per_micro_batch=10)
        assert len(micros) == 2
        assert sum(float(m.weights_N.sum()) for m in micros) == pytest.approx(1.0)


@pytest.mark.parametrize("aggregate", ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant_length"])
def test_B10_the_split_into_micro_batches_changes_neither_loss_nor_weights(trajectory: Build, aggregate: str) -> None:
    dice = torch.Generator().manual_seed(1)
    rows = [
        trajectory(torch.randint(32, (4 + i,), generator=dice).tolist(), [0, 0] + [1] * (2 + i), float(i % 2), sample=i)
        for i in range(8)
    ]
    options = {"aggregate": aggregate, "constant_length": 12}
    whole, fine = _micros(rows, 4096, **options), _micros(rows, 17, **options)
    assert len(whole) == 1 < len(fine)
    loss, delta = _step(_Bigram(), whole)
    loss_of_four, delta_of_four = _step(_Bigram(), fine)
    assert loss_of_four == pytest.approx(loss, rel=1e-6)
    assert delta.abs().max() > 1e-4
    assert torch.allclose(delta, delta_of_four, rtol=1e-5, atol=1e-9)


def test_B12_groups_without_variance_are_in_the_denominator_or_not_as_the_config_says(trajectory: Build) -> None:
    rows = [
        *(trajectory(range(11), [0] + [1] * 10, r, task=0, sample=i) for i, r in enumerate([1.0, 0.0])),
        *(trajectory(range(101), [0] + [1] * 100, 1.0, task=1, sample=i) for i in range(2)),
    ]
    assert _result(rows).zero_variance_fraction == 0.5
    (without,), (kept,) = _micros(rows, zero_variance="exclude"), _micros(rows, zero_variance="keep")
    of_a = kept.sequence_N < 2
    assert without.weights_N.tolist() == pytest.approx([1 / 20] * 20)
    assert kept.weights_N[of_a].tolist() == pytest.approx([1 / 220] * 20)
    assert (without.weights_N[0] / kept.weights_N[of_a][0]).item() == pytest.approx(11.0)
    assert kept.advantages_N[~of_a].abs().max().item() == 0.0
    assert select(rows, _result(rows)).zero_variance == 2


def test_B21_a_row_with_an_empty_completion_adds_nothing(trajectory: Build) -> None:
    rows = [
        trajectory([1, 2, 3], mask, r, sample=i)
        for i, (mask, r) in enumerate([([0, 1, 1], 1.0), ([0, 0, 0], 0.0), ([0, 1, 1], 0.0), ([0, 1, 1], 1.0)])
    ]
    micros = _micros(rows, aggregate="seq_mean_token_mean")
    loss, delta = _step(_Bigram(), micros)
    assert math.isfinite(loss)
    assert delta.isfinite().all()
    assert micros[0].weights_N.tolist() == pytest.approx([1 / 6] * 6)  # three sequences of two tokens
    assert select(rows, _result(rows)).without_tokens == 1


def test_B21_without_any_trained_token_there_is_no_micro_batch(trajectory: Build) -> None:
    rows = [trajectory([1, 2], [0, 0], float(i % 2), sample=i) for i in range(4)]
    assert select(rows, _result(rows)).rows == ()
    assert _micros(rows) == []
    assert sft_micro_batches(rows, tokens_per_micro_batch=64) == []


def test_B31_every_per_token_list_has_the_length_of_the_ids(trajectory: Build) -> None:
    """An episode cut at 16 tokens in the middle of a 9-token tool result: ids, mask, log-probs and positions agree."""
    cut = trajectory(range(16), [0, 0, 0, 0] + [1] * 6 + [0] * 6, 0.0, truncated=True, reason="max_total_tokens")
    whole = trajectory(range(9), [0] * 4 + [1] * 5, 1.0, sample=1)
    cut.check()
    (micro,) = _micros([cut, whole])
    assert len(cut.ids) == len(cut.loss_mask) == len(cut.logprobs) == 16
    assert micro.ids_1T.shape == micro.positions_1T.shape == (1, micro.layout.num_queries)
    cut.ids.append(3)
    with pytest.raises(AssertionError, match="differ in length"):
        cut.check()
    with pytest.raises(ValueError, match="17 ids and 16 mask entries"):
        _micros([cut, whole])


def test_B37_the_end_token_is_trained_although_it_is_also_the_padding_id(trajectory: Build) -> None:
    pad = eos = 0
    row = trajectory([9, 0, 7, 5, 6, eos], [0, 0, 0, 1, 1, 1], 1.0)
    longer = trajectory([8, 8, 7, 6, 5, 4, 3, eos], [0, 0, 0, 1, 1, 1, 1, 1], 0.0, sample=1)
    (micro,) = _micros([row, longer])
    mine = micro.sequence_N == 0
    assert micro.targets_N[mine].tolist() == [5, 6, eos]
    assert micro.ids_1T[0, -5:].tolist() == [9, pad, 7, 5, 6]  # the prompt's own 0 is fed, and nothing is padded
    assert lengths(micro) == [7, 5]


def test_B38_truncated_episodes_can_be_masked_and_keep_their_reward_in_the_baseline(trajectory: Build) -> None:
    rows = [
        trajectory(range(6), [0, 1, 1, 0, 1, 1], 1.0, sample=0),
        trajectory(range(4), [0, 0, 1, 1], 0.0, sample=1),
        trajectory(range(8), [0, 1, 1, 0, 1, 1, 1, 1], 0.0, sample=2, truncated=True, reason="max_total_tokens"),
    ]
    (micro,) = _micros(rows, mask_truncated=True)
    assert set(micro.sequence_N.tolist()) == {0, 1}
    assert micro.weights_N.tolist() == pytest.approx([1 / 6] * 6)
    # The mean is over all three rewards (1/3, deviation sqrt(2)/3), not over the two that are trained on.
    assert sorted(set(micro.advantages_N.tolist())) == pytest.approx([-0.7071, 1.4142], abs=1e-4)
    assert select(rows, _result(rows), mask_truncated=True).truncated == 1
    (all_three,) = _micros(rows)
    assert all_three.weights_N.tolist() == pytest.approx([1 / 12] * 12)


def test_B42_a_token_that_was_appended_and_not_sampled_changes_nothing(trajectory: Build) -> None:
    plain = [trajectory([3, 4, 5, 6], [0, 0, 1, 1], r, sample=i, logprob=-2.5) for i, r in enumerate([1.0, 0.0])]
    appended = [trajectory([*t.ids, 31], [0, 0, 1, 1, 0], t.reward, sample=t.sample, logprob=-2.5) for t in plain]
    outcomes = []
    for rows in (plain, appended):
        (micro,) = _micros(rows)
        assert 31 not in micro.targets_N.tolist()
        loss = policy_loss(
            _Bigram().log_probs(micro), micro.behaviour_N, micro.advantages_N, micro.weights_N,
            clip_low=0.2, clip_high=0.28,
        )  # fmt: skip
        outcomes.append((loss.total.item(), loss.tokens, loss.gap, loss.clipped))
    assert outcomes[0] == outcomes[1]


def test_B44_a_log_prob_is_read_at_the_place_of_the_token_before(trajectory: Build) -> None:
    ids, mask = [10, 11, 1, 2, 20, 21, 3], [0, 0, 1, 1, 0, 0, 1]
    rows = [trajectory(ids, mask, 1.0), trajectory([17, 8, 9], [0, 1, 1], 0.0, sample=1)]
    (micro,) = _micros(rows)
    model = _Bigram()
    mine = micro.sequence_N == 0
    assert micro.rows_N[mine].tolist() == [1, 2, 5]
    assert micro.rows_N[~mine].tolist() == [6, 7]  # the second sequence starts where the first one's 6 fed tokens end
    table = torch.log_softmax(model.table.weight.detach(), -1)
    expected = torch.stack([table[11, 1], table[1, 2], table[21, 3]])
    assert torch.allclose(model.log_probs(micro)[mine], expected)
    logits = model.table(micro.ids_1T)[0]
    shifted = token_log_probs(logits[micro.rows_N - 1], micro.targets_N)[0]
    assert not torch.allclose(shifted[mine], expected)


def test_positions_restart_and_the_tail_after_the_last_trained_token_is_not_fed(trajectory: Build) -> None:
    rows = [trajectory(range(9), [0, 1, 1, 0, 1, 0, 0, 0, 0], 1.0), trajectory([4, 1, 2], [0, 0, 1], 0.0, sample=1)]
    (micro,) = _micros(rows)
    assert lengths(micro) == [4, 2]
    assert micro.ids_1T.tolist() == [[0, 1, 2, 3, 4, 1]]
    assert micro.positions_1T.tolist() == [[0, 1, 2, 3, 0, 1]]


def test_an_episode_longer_than_the_budget_is_refused_and_never_cut(trajectory: Build) -> None:
    rows = [trajectory(range(100), [0] * 60 + [1] * 40, 1.0, task=3), trajectory([1, 2], [0, 1], 0.0, task=3)]
    with pytest.raises(Refusal) as caught:
        _micros(rows, 98)
    assert caught.value.code == "SF-EPISODE-TOO-LONG"
    assert "t3-g0 has 99 tokens" in caught.value.what
    assert "tokens_per_micro_batch" in caught.value.fix
    assert len(_micros(rows, 99)) == 2


def test_a_first_token_cannot_be_trained(trajectory: Build) -> None:
    rows = [trajectory([1, 2], [1, 1], float(i), sample=i) for i in range(2)]
    with pytest.raises(ValueError, match="nothing predicts"):
        _micros(rows)


def test_supervised_batches_take_the_mean_over_the_marked_tokens(trajectory: Build) -> None:
    rows = [trajectory([5, 6, 7, 8], [0, 0, 1, 1]), trajectory([5, 6], [0, 0]), trajectory([6, 9, 4], [0, 1, 0])]
    (micro,) = sft_micro_batches(rows, tokens_per_micro_batch=64)
    assert type(micro) is MicroBatch
    assert micro.targets_N.tolist() == [7, 8, 9]
    assert micro.weights_N.tolist() == pytest.approx([1 / 3] * 3)
    assert micro.sequences == (0, 2)


def test_moving_to_a_device_moves_every_tensor(trajectory: Build) -> None:
    (micro,) = _micros([trajectory([1, 2], [0, 1], float(i), sample=i) for i in range(2)])
    moved = micro.to("meta")
    tensors = [getattr(moved, n) for c in type(moved).__mro__ for n in getattr(c, "__slots__", ())]
    assert {t.device.type for t in tensors if isinstance(t, torch.Tensor)} == {"meta"}
    assert sum(isinstance(t, torch.Tensor) for t in tensors) == 8


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(2, 40), min_size=1, max_size=30), st.integers(40, 120))
def test_packing_keeps_every_sequence_once_within_the_budget(sizes: list[int], budget: int) -> None:
    rows = [_Row(list(range(i, i + n)), [False] * (n - 1) + [True]) for i, n in enumerate(sizes)]
    micros = sft_micro_batches(rows, tokens_per_micro_batch=budget)
    assert sorted(i for m in micros for i in m.sequences) == list(range(len(rows)))
    packed = [m.ids_1T.numel() for m in micros]
    assert packed == [sum(sizes[i] - 1 for i in m.sequences) for m in micros]
    assert max(packed) <= budget
    assert packed == sorted(packed, reverse=True), "the largest comes first: a budget too large fails at once"
    assert sum(float(m.weights_N.double().sum()) for m in micros) == pytest.approx(1.0, rel=1e-6)


class _Row:
    def __init__(self, ids: list[int], loss_mask: list[bool]) -> None:
        self.ids, self.loss_mask = ids, loss_mask
