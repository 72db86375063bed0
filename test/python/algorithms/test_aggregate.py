"""From token losses to one number: denominators over the whole optimiser step, whatever the split."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from sinkflex.algorithms.aggregate import Aggregate, step_counts, token_weights

B11: dict[Aggregate, float] = {
    "token_mean": 13 / 7,
    "seq_mean_token_mean": 2.5,
    "seq_mean_token_sum": 6.5,
    "constant_length": 0.65,
}


def _aggregate(losses: list[list[float]], aggregate: Aggregate, constant_length: int | None = 10) -> float:
    tokens = torch.tensor([len(row) for row in losses])
    weights = token_weights(tokens, step_counts(tokens), aggregate, constant_length)
    return sum(float(w) * sum(row) for w, row in zip(weights, losses, strict=True))


@pytest.mark.parametrize("aggregate", B11)
def test_B11_the_four_aggregations(aggregate: Aggregate) -> None:
    assert _aggregate([[3.0, 5.0], [1.0] * 5], aggregate) == pytest.approx(B11[aggregate])


@pytest.mark.parametrize("aggregate", B11)
def test_B21_a_row_without_trained_tokens_adds_nothing_and_is_not_counted(aggregate: Aggregate) -> None:
    assert _aggregate([[3.0, 5.0], [], [1.0] * 5], aggregate) == pytest.approx(B11[aggregate])
    assert _aggregate([[], []], aggregate) == 0.0


def test_B11_the_constant_never_comes_from_the_batch() -> None:
    for missing in (None, 0):
        with pytest.raises(ValueError, match="constant_length"):
            _aggregate([[1.0]], "constant_length", missing)


def test_B09_the_normaliser_counts_the_tokens_of_its_own_optimiser_step() -> None:
    """Four micro-steps of ten tokens, loss 1.0 each, an optimiser step every two of them: 20/20, not 20/40."""
    for window in ([10, 10], [10, 10]):
        assert _aggregate([[1.0] * n for n in window], "token_mean") == pytest.approx(1.0)


RANK = """
import sys
import torch, torch.distributed as dist
from sinkflex.algorithms.aggregate import step_counts, token_weights
torch.set_num_threads(1)
rank, rendezvous = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=2)
tokens, gradient = [(100, 1.0), (300, 3.0)][rank]
w = torch.zeros((), dtype=torch.float64, requires_grad=True)
lengths = torch.tensor([tokens])
weights = token_weights(lengths, step_counts(lengths), "token_mean").repeat_interleave(lengths)
(weights * gradient * w).sum().backward()
dist.all_reduce(w.grad)
assert abs(w.grad.item() - 2.5) < 1e-12, w.grad
print(w.grad.item())
"""


@pytest.mark.slow
def test_B08_two_ranks_share_one_token_mean(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", RANK, str(rank), str(tmp_path / "rendezvous")],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        for process in ranks:
            out, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
            assert float(out) == pytest.approx(2.5)
    finally:
        for process in ranks:
            process.kill()
