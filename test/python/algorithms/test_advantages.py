"""Group-relative advantages: the values of the public cases, and properties over random groups."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sinkflex.algorithms.advantages import EPSILON, AdvantageResult, group_advantages, step_advantages

NAN, INF = math.nan, math.inf


def advantages(rewards: list[float], groups: list[int] | None = None, normalize: str = "std") -> AdvantageResult:
    index = torch.tensor(groups if groups is not None else [0] * len(rewards))
    return group_advantages(torch.tensor(rewards, dtype=torch.float64), index, normalize)  # type: ignore[arg-type]


def test_B01_an_unscored_episode_is_left_out_of_the_statistics_of_its_group() -> None:
    result = advantages([1.0, NAN, 0.0, 1.0])
    assert result.advantages.tolist() == pytest.approx([0.7071, 0.0, -1.4142, 0.7071], abs=1e-4)
    assert result.advantages[1].item() == 0.0
    assert result.valid.tolist() == [True, False, True, True]
    assert result.reward_mean == pytest.approx(2 / 3)
    assert result.reward_std == pytest.approx(math.sqrt(2 / 9))


def test_B02_a_group_of_one_has_advantage_exactly_zero() -> None:
    alone = advantages([0.7])
    assert alone.advantages.tolist() == [0.0]
    assert (alone.groups, alone.zero_variance_groups, alone.zero_variance_fraction) == (1, 1, 1.0)


def test_B02_a_group_with_one_scored_episode_left_has_advantage_exactly_zero() -> None:
    left = advantages([NAN, NAN, NAN, 0.7])
    assert left.advantages.tolist() == [0.0, 0.0, 0.0, 0.0]
    assert left.varied.tolist() == [False] * 4


def test_B02_an_infinite_reward_counts_as_not_scored() -> None:
    result = advantages([1.0, INF, 3.0])
    assert result.advantages.tolist() == pytest.approx([-1.0, 0.0, 1.0], abs=2e-6)
    assert result.valid.tolist() == [True, False, True]


def test_B05_rows_left_over_after_the_last_full_group_are_a_group_of_one() -> None:
    result = advantages([1.0, 2.0, 3.0], [0, 0, 1])
    assert result.advantages.tolist() == pytest.approx([-1.0, 1.0, 0.0], abs=1e-5)
    assert result.advantages[2].item() == 0.0


def test_B06_statistics_are_per_group_and_groups_do_not_touch_one_another() -> None:
    groups = [0, 0, 0, 0, 1, 1, 1, 1]
    a, b = [1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.2]
    result = advantages([*a, *b], groups).advantages.tolist()
    assert result[:4] == pytest.approx([1.0, 1.0, -1.0, -1.0], abs=1e-5)
    assert result[4:] == pytest.approx([-0.5774, -0.5774, -0.5774, 1.7321], abs=1e-4)
    scaled = advantages([*a, *(10 * r for r in b)], groups).advantages.tolist()
    assert scaled[:4] == result[:4]
    assert scaled[4:] == pytest.approx(result[4:], abs=2e-5)  # but for EPSILON the scale of a group means nothing


def test_B12_the_share_of_groups_without_variance_is_over_groups() -> None:
    assert advantages([1.0, 0.0, 1.0, 1.0], [0, 0, 1, 1]).zero_variance_fraction == 0.5


@pytest.mark.parametrize(("group_size", "expected"), [(2, 0.7024), (8, 0.2006)])
def test_B28_the_measured_share_of_flat_groups_is_the_expected_one(group_size: int, expected: float) -> None:
    dice = random.Random(0)
    groups = [g for g in range(1000) for _ in range(group_size)]
    rewards = [float(dice.random() < 0.1819) for _ in groups]
    assert advantages(rewards, groups).zero_variance_fraction == pytest.approx(expected, abs=0.05)


def test_equal_rewards_that_binary_fractions_cannot_hold_give_exactly_zero() -> None:
    assert advantages([0.1] * 3 + [0.7] * 7, [0] * 3 + [1] * 7).advantages.abs().max().item() == 0.0


def test_without_normalising_the_advantage_is_the_distance_from_the_mean() -> None:
    assert advantages([1.0, NAN, 0.0, 0.5], normalize="none").advantages.tolist() == [0.5, 0.0, -0.5, 0.0]


def test_a_group_that_was_never_scored_is_not_counted_as_flat() -> None:
    result = advantages([1.0, 0.0, NAN, NAN], [0, 0, 1, 1])
    assert (result.groups, result.zero_variance_groups) == (1, 0)
    nothing = advantages([NAN, NAN])
    assert (nothing.groups, nothing.zero_variance_fraction) == (0, 1.0)
    assert math.isnan(nothing.reward_mean)


def test_no_rows_at_all() -> None:
    assert advantages([], []).advantages.shape == (0,)


def test_rewards_and_groups_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="must be equal vectors"):
        group_advantages(torch.zeros(3), torch.zeros(2, dtype=torch.int64))


@st.composite
def _groups(draw: st.DrawFn) -> tuple[list[float], list[int]]:
    count = draw(st.integers(1, 24))
    reward = st.one_of(st.just(NAN), st.floats(-100, 100, allow_nan=False))
    return draw(st.lists(reward, min_size=count, max_size=count)), draw(
        st.lists(st.integers(-3, 3), min_size=count, max_size=count)
    )


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_groups(), st.randoms())
def test_each_group_follows_the_definition_in_any_order(
    case: tuple[list[float], list[int]], dice: random.Random
) -> None:
    rewards, groups = case
    result = advantages(rewards, groups).advantages.tolist()
    for label in set(groups):
        members = [i for i, g in enumerate(groups) if g == label]
        scored = [rewards[i] for i in members if not math.isnan(rewards[i])]
        mean = math.fsum(scored) / len(scored) if scored else 0.0
        std = math.sqrt(math.fsum((r - mean) ** 2 for r in scored) / len(scored)) if scored else 0.0
        for i in members:
            flat = math.isnan(rewards[i]) or max(scored) == min(scored)
            assert result[i] == pytest.approx(
                0.0 if flat else (rewards[i] - mean) / (std + EPSILON), rel=1e-6, abs=1e-6
            )
    order = list(range(len(rewards)))
    dice.shuffle(order)
    shuffled = advantages([rewards[i] for i in order], [groups[i] for i in order]).advantages.tolist()
    assert shuffled == pytest.approx([result[i] for i in order], rel=1e-9, abs=1e-9)


def test_compared_with_the_whole_step_a_task_on_which_all_fail_alike_is_pushed_down() -> None:
    rewards = torch.tensor([0.0, 0.0, 1.0, 1.0, NAN, 1.0], dtype=torch.float64)
    result = step_advantages(rewards)
    apart = (0.6**2 * 2 + 0.4**2 * 3) / 5
    down, up = -0.6 / math.sqrt(apart), 0.4 / math.sqrt(apart)
    assert result.advantages.tolist() == pytest.approx([down, down, up, up, 0.0, up], abs=1e-5)
    assert (result.groups, result.zero_variance_groups) == (1, 0) and result.varied.tolist() == result.valid.tolist()
    alike = group_advantages(rewards, torch.tensor([0, 0, 1, 1, 2, 2]))
    assert alike.advantages.tolist() == [0.0] * 6, "where GRPO learns nothing"
    assert step_advantages(torch.ones(4)).zero_variance_fraction == 1.0
