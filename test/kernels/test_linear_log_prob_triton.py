"""The kernels of log_prob_triton.py in place of the torch steps: compiled on a GPU, interpreted on a CPU.

On a CPU the products run in float32; those of narrow operands into float32, which only CUDA has, are written out here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from log_prob_cases import case, plain, run, tiles
from parity import gap
from sinkflex.kernels import log_prob, log_prob_tile
from sinkflex.kernels.api import linear_log_prob
from sinkflex.kernels.log_prob_tile import RowPull, RowState

pytest.importorskip("triton")
from sinkflex.kernels import log_prob_triton

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
KERNELS = log_prob._Steps(log_prob_triton.absorb, log_prob_triton.differentiate, in_torch=False)
HEADS = pytest.mark.parametrize("trained", [False, True], ids=["frozen", "trained"])


@contextmanager
def kernels() -> Iterator[None]:
    with mock.patch.object(log_prob, "_steps", lambda device, exact: KERNELS):
        yield


def written_out(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    assert a.dtype == b.dtype != torch.float32 == out.dtype
    out.copy_(a.float() @ b.float())


@contextmanager
def narrow_products() -> Iterator[None]:
    """Products of bfloat16 and float16 into float32 where torch has none."""
    if ON_GPU:
        yield
        return
    with (
        mock.patch.object(log_prob, "_multiplies_into_float32", lambda device: True),
        mock.patch.object(log_prob, "_multiply_into_float32", written_out),
    ):
        yield


@HEADS
@pytest.mark.parametrize("flows", ["l", "e", "h", "leh"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kernels_equal_the_plain_path(dtype: torch.dtype, flows: str, trained: bool) -> None:
    given_case = case(rows=7, vocabulary=45, temperature=0.7, kept=9, flows=flows)
    with tiles(4, 16), kernels():
        got = run(given_case.to(dtype, DEVICE), trained=trained)
    want = run(given_case, plain, trained=trained)
    assert gap({name: value.cpu() for name, value in got.items()}, want) < (1e-12 if dtype == torch.float64 else 3e-6)


@HEADS
def test_strided_inputs_and_gradients(trained: bool) -> None:
    """A kernel gets pointers, not strides."""
    given_case = case(rows=6, vocabulary=30, flows="leh")
    want = run(given_case, plain, trained=trained)
    strided = given_case.to(torch.float64, DEVICE)
    strided.targets = strided.targets.repeat_interleave(2)[::2]
    strided.hidden = strided.hidden.T.contiguous().T
    strided.pulls = tuple(pull.repeat_interleave(3)[::3] for pull in strided.pulls if pull is not None)  # type: ignore[assignment]
    with tiles(4, 16), kernels():
        got = run(strided, trained=trained)
    assert gap({name: value.cpu() for name, value in got.items()}, want) < 1e-12


@given(st.data())
@settings(max_examples=25, deadline=None, derandomize=True)
def test_any_shape_and_temperature(data: st.DataObject) -> None:
    def draw(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    given_case = case(
        draw(1, 6),
        draw(1, 60),
        draw(1, 10),
        kept=data.draw(st.sampled_from((None, 0, 1, 8))),
        temperature=data.draw(st.sampled_from((0.05, 1.0, 30.0))),
        flows=data.draw(st.sampled_from(("l", "le", "leh"))),
        spread=data.draw(st.sampled_from((0.1, 1.0, 4.0))),
        seed=draw(0, 1000),
    )
    trained = data.draw(st.booleans())
    with tiles(draw(2, 8), draw(10, 80)), kernels():
        got = run(given_case.to(torch.float64, DEVICE), trained=trained)
    want = run(given_case, plain, trained=trained)
    assert gap({name: value.cpu() for name, value in got.items()}, want) < 1e-12


@HEADS
@pytest.mark.parametrize("flows", ["l", "leh"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_operands_keep_float32_logits(dtype: torch.dtype, flows: str, trained: bool) -> None:
    given_case = case(rows=8, vocabulary=90, hidden=16, temperature=0.7, kept=12, flows=flows).to(dtype)
    want = run(given_case.to(torch.float64), plain, trained=trained)
    with tiles(5, 32), kernels(), narrow_products():
        got = run(given_case.to(dtype, DEVICE), trained=trained)
    for name, value in want.items():
        error = got[name].cpu().double() - value
        if name.startswith("d"):
            assert got[name].dtype == dtype
            assert float(error.norm() / value.norm()) < torch.finfo(dtype).eps, name
        else:
            assert got[name].dtype == torch.float32
            assert float(error.abs().max()) < 3e-6, name


def test_float16_gradients_do_not_vanish_on_the_way() -> None:
    """p times the incoming gradient is below float16's smallest number here; what the head gets is not."""
    given_case = case(rows=12, vocabulary=400, hidden=8, flows="l", spread=1 / 4096)
    given_case.hidden *= 4096
    given_case.pulls = (torch.full((12,), 1e-5), None, None)
    narrow = given_case.to(torch.float16)
    want = run(narrow.to(torch.float64), plain)["dweight"]
    with kernels(), narrow_products():
        got = run(narrow.to(torch.float16, DEVICE))["dweight"].cpu().double()
    assert float((got - want).norm() / want.norm()) < 2e-3


@pytest.mark.parametrize("columns", [1, 2, 63, 130])
@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("into", [None, torch.float32, torch.bfloat16, torch.float16])
def test_one_tile_is_what_the_torch_step_says(columns: int, entropy: bool, into: torch.dtype | None) -> None:
    """Tile by tile with its row state; outputs are poisoned first, so that what is not written shows."""
    rows, first, scale = 5, 16, 0.83
    dice = torch.Generator().manual_seed(columns)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=dice)

    logits = normal(rows, columns) * 4
    targets = torch.tensor([0, first, first + columns - 1, first + columns, first - 1])
    state = RowState(
        normal(rows),
        normal(rows).exp(),
        normal(rows),
        torch.full((rows,), torch.nan),
        normal(rows) if entropy else None,
    )
    pull = RowPull(normal(rows), normal(rows), normal(rows) if entropy else None, normal(rows))

    def poisoned(logits: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return logits if dtype == logits.dtype else torch.full_like(logits, torch.nan, dtype=dtype)

    results = []
    for steps, device in ((log_prob_tile, "cpu"), (log_prob_triton, DEVICE)):
        own = RowState(*(None if x is None else x.to(device, copy=True) for x in _fields(state)))  # type: ignore[arg-type]
        own_pull = RowPull(*(None if x is None else x.to(device) for x in _fields(pull)))  # type: ignore[arg-type]
        at = targets.to(device)
        with mock.patch.object(log_prob_triton, "_place_for", poisoned):
            tiles_ = [logits.to(device, copy=True) for _ in range(4)]
            weights = steps.absorb(tiles_[0], tiles_[1], at, first, scale, own, into)
            gradient = steps.differentiate(tiles_[2], tiles_[3], at, first, scale, own_pull, into or torch.float32)
        made = [weights, gradient, *_fields(own)]
        results.append([None if x is None else x.cpu() for x in made])
    for ours, theirs in zip(*results, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            assert ours.dtype == theirs.dtype
            eps = torch.finfo(ours.dtype).eps
            torch.testing.assert_close(theirs, ours, rtol=8 * eps, atol=8 * eps)


def _fields(given: RowState | RowPull) -> list[torch.Tensor | None]:
    return [getattr(given, name) for name in given.__slots__]


def test_every_configuration_that_runs_is_in_the_launch_table() -> None:
    """And each entry of the table describes a whole launch: what scripts/codegen.py compiles is what would run."""
    asked: set[str] = set()
    launch = log_prob_triton._launch

    def recorded(kernel: Any, logits: torch.Tensor, tile: torch.Tensor | None, *arguments: Any) -> None:
        written = None if tile is None else {"float32": "fp32"}.get(str(tile.dtype).removeprefix("torch."), "bf16")
        position = kernel.arg_names.index("weighted" if kernel is log_prob_triton.absorb_rows else "slope")
        given = arguments[position - 2] is not None
        asked.add(f"log_prob {kernel.__name__} to {written}" + f" with {kernel.arg_names[position]}" * given)
        launch(kernel, logits, tile, *arguments)

    with mock.patch.object(log_prob_triton, "_launch", recorded), kernels(), narrow_products():
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            small = case(rows=3, vocabulary=5, hidden=4).to(dtype, DEVICE)
            for weight in (small.weight, small.weight.clone().requires_grad_()):
                for entropy in (False, True):
                    hidden = small.hidden.clone().requires_grad_()
                    out = linear_log_prob(hidden, weight, small.targets, return_entropy=entropy)
                    (out.log_prob if out.entropy is None else out.entropy).sum().backward()
                    linear_log_prob(small.hidden, small.weight, small.targets, return_entropy=entropy)
    for arch in (80, 90, 100, 120):
        table = list(log_prob_triton.launches(arch))
        assert asked == {entry.name for entry in table if "ragged" not in entry.name}
        for entry in table:
            assert entry.signature.keys() | entry.constexprs.keys() == set(entry.kernel.arg_names)
            assert not entry.signature.keys() & entry.constexprs.keys()


def test_a_tile_wider_than_a_program_is_refused() -> None:
    assert log_prob.TILES["cuda"][1] <= log_prob_triton.BLOCK
    wide = torch.zeros(1, log_prob_triton.BLOCK + 1)
    state = RowState.start(1, torch.float32, wide.device, False)
    with pytest.raises(ValueError, match=f"logits has {log_prob_triton.BLOCK + 1} columns; a tile has at most"):
        log_prob_triton.absorb(wide, None, torch.tensor([0]), 0, 1.0, state, None)
