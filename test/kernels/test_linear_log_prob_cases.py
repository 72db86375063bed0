"""Public cases about log-probs and the output head, on linear_log_prob: temperature, precision, staleness, memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from log_prob_cases import plain, tiles
from module_path import module_path
from parity import Largest
from sinkflex.kernels import log_prob
from sinkflex.kernels.api import linear_log_prob

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "benchmarks" / "log_prob_cpu.py"


def of_logits(
    logits: list[float], token: int, dtype: torch.dtype = torch.float32, temperature: float = 1.0
) -> torch.Tensor:
    """Log-prob of a token where one hidden unit makes the logits."""
    weight = torch.tensor(logits, dtype=dtype).unsqueeze(1)
    hidden = torch.ones(1, 1, dtype=dtype)
    return linear_log_prob(hidden, weight, torch.tensor([token]), temperature=temperature).log_prob


@pytest.mark.parametrize("columns", [1, 2])
def test_B13_the_temperature_is_applied(columns: int) -> None:
    with tiles(1, columns):
        assert of_logits([2.0, 0.0], 0, temperature=0.5).item() == pytest.approx(-0.018150, abs=1e-6)
        assert of_logits([2.0, 0.0], 0).item() == pytest.approx(-0.126928, abs=1e-6)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_B24_bfloat16_is_normalised_in_float32(columns: int) -> None:
    with tiles(1, columns):
        got = of_logits([9.0, 6.75, 0.0], 2, torch.bfloat16)
    assert got.dtype == torch.float32
    assert got.item() == pytest.approx(-9.100318, abs=1e-6)


def test_B24_logits_of_a_bfloat16_head_are_never_bfloat16() -> None:
    """The product itself: logits near 20 have steps of 0.125 in bfloat16."""
    torch.manual_seed(0)
    hidden, weight = torch.randn(16, 256).bfloat16(), (torch.randn(400, 256) * 0.4).bfloat16()
    targets = torch.randint(400, (16,))
    got = linear_log_prob(hidden, weight, targets, return_entropy=True)
    want = plain(hidden.double(), weight.double(), targets, return_entropy=True)
    rounded = plain((hidden @ weight.T).float(), torch.eye(400), targets)
    assert float((rounded.log_prob - want.log_prob).abs().max()) > 0.02
    for a, b in zip(got, want, strict=True):
        assert a is not None and b is not None and float((a - b).abs().max()) < 2e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_B70_a_changed_head_is_seen_at_once(dtype: torch.dtype) -> None:
    """No widened copy of the weight outlives a call; nor is the weight itself touched."""
    torch.manual_seed(0)
    hidden, head = torch.randn(4, 16).to(dtype), torch.nn.Linear(16, 50, bias=False).to(dtype)
    targets = torch.tensor([3, 7, 7, 0])
    for _ in range(2):
        before = head.weight.detach().clone()
        linear_log_prob(hidden, head.weight, targets).log_prob.sum().backward()
        assert torch.equal(before, head.weight) and head.weight.dtype == dtype
        with torch.no_grad():
            head.weight[7] += 0.5
        got = linear_log_prob(hidden, head.weight, targets).log_prob
        want = plain(hidden.double(), head.weight.double(), targets).log_prob
        assert float((got - want).detach().abs().max()) < 2e-6


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_B70_a_tied_embedding_is_left_alone_and_gets_both_gradients(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(40, 12, dtype=dtype)
    ids, targets = torch.randint(40, (9,)), torch.randint(40, (9,))
    before = embedding.weight.detach().clone()
    with tiles(4, 16):
        linear_log_prob(embedding(ids).tanh(), embedding.weight, targets, temperature=0.7).log_prob.sum().backward()
    assert torch.equal(before, embedding.weight) and embedding.weight.dtype == dtype
    wide = before.double().requires_grad_()
    plain(wide[ids].tanh(), wide, targets, temperature=0.7).log_prob.sum().backward()
    assert embedding.weight.grad is not None and wide.grad is not None
    error = (embedding.weight.grad - wide.grad).norm() / wide.grad.norm()
    assert float(error) < (1e-12 if dtype == torch.float64 else 1e-2)


def test_B108_the_published_figures() -> None:
    """Logits of 8 x 4096 tokens over 201 088 entries, against the largest thing that is held of them here."""
    logits = 8 * 4096 * 201_088
    assert round(logits * 2 / 2**30, 2) == 12.27
    assert round(logits * 4 / 2**30, 2) == 24.55
    assert round(1024 * 201_088 * 4 / 2**30, 2) == 0.77  # one chunk of 1024 rows, as others hold it
    for rows, columns in log_prob.TILES.values():
        assert rows * columns * 4 <= 2**27  # bytes of a tile


def test_B108_prompt_positions_are_not_scored() -> None:
    """Of 300 positions 20 are kept: nothing is computed for the others, their gradient is 0, and neither side of the
    operator holds rows x vocabulary."""
    torch.manual_seed(0)
    hidden = torch.randn(300, 16, requires_grad=True)
    weight = torch.randn(5000, 16, requires_grad=True)
    keep = torch.arange(280, 300) - 1
    targets = torch.randint(5000, (20,))
    with tiles(8, 512), Largest() as largest:
        got = linear_log_prob(hidden, weight, targets, keep=keep)
        gradients = torch.autograd.grad(got.log_prob.sum(), (hidden, weight))
    assert got.log_prob.shape == (20,) and largest.elements == weight.numel() < 20 * 5000
    want = plain(hidden, weight, targets, keep=keep).log_prob
    assert float((got.log_prob - want).abs().max().detach()) < 1e-5
    for ours, theirs in zip(gradients, torch.autograd.grad(want.sum(), (hidden, weight)), strict=True):
        assert float((ours - theirs).norm() / theirs.norm()) < 1e-6
    assert not gradients[0][:279].any() and not gradients[0][299].any()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc for the high-water mark of a process")
def test_B108_measured_memory_is_tiles_not_logits(tmp_path: Path) -> None:
    """Scaled down from the published sizes, in fresh processes, by the benchmark itself (its times decide nothing)."""
    out = tmp_path / "record.json"
    sizes = {"tokens": 2048, "vocabulary": 16_384, "hidden": 32, "repeat": 1, "threads": 1}
    options = [text for name, value in sizes.items() for text in (f"--{name}", str(value))]
    environment = {**os.environ, "PYTHONPATH": module_path()}
    command = [sys.executable, "-P", str(PROGRAM), *options, "--head", "frozen", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    record = json.loads(out.read_text())["heads"]["frozen"]
    logits = 2048 * 16_384 * 4
    assert record["peak_bytes"]["naive"] > 2 * logits
    assert record["peak_bytes"]["linear"] < logits / 8
    assert record["peak_linear_over_naive"] < 1 / 16
    assert all(error < 1e-5 for error in record["error"].values())
