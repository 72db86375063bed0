"""Draws follow the distribution, and log-probs are those of the distribution drawn from."""

from __future__ import annotations

import math
from random import Random

import pytest
import torch
from sinkflex.rollout.sampling import sample


def test_B13_temperature_is_part_of_the_log_prob() -> None:
    logits = torch.tensor([[2.0, 0.0]])
    token, logprob = sample(logits, 0.5, [Random(0)])
    expected = {0: -0.018150, 1: -4.018150}[token[0]]
    assert logprob[0] == pytest.approx(expected, abs=1e-5)


def test_frequencies_match_the_probabilities() -> None:
    probabilities = [0.5, 0.3, 0.15, 0.05]
    logits = torch.tensor([[math.log(p) for p in probabilities]]).expand(4000, 4)
    tokens, _ = sample(logits, 1.0, [Random(i) for i in range(4000)])
    for token, p in enumerate(probabilities):
        assert tokens.count(token) / 4000 == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / 4000))


def test_greedy_takes_the_first_of_the_largest() -> None:
    tokens, logprobs = sample(torch.tensor([[0.0, 3.0, 3.0]]), 0.0, [Random(0)])
    assert tokens == [1]
    assert logprobs[0] == pytest.approx(3.0 - math.log(1 + 2 * math.exp(3)), abs=1e-6)


def test_an_impossible_token_is_never_drawn() -> None:
    logits = torch.tensor([[0.0, -torch.inf, 0.0]]).expand(500, 3)
    tokens, logprobs = sample(logits, 1.0, [Random(i) for i in range(500)])
    assert set(tokens) == {0, 2}
    assert all(math.isfinite(lp) for lp in logprobs)
