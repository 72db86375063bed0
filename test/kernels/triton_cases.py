"""Accuracy of the triton implementation against float64, measured as the targets are stated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
import torch
from parity import NAMES, Problem, run

triton = pytest.importorskip("triton")

from sinkflex.kernels import triton as implementation  # noqa: E402
from sinkflex.kernels.triton_launch import Config  # noqa: E402

# Root-mean-square errors relative to float64; da relative to the size of the terms it sums.
LIMITS = {
    torch.float32: {"out": 1e-6, "lse": 1e-6, "dq": 1e-5, "dk": 1e-5, "dv": 1e-5, "da": 1e-5},
    torch.float16: {"out": 1e-3, "lse": 1e-6, "dq": 2e-3, "dk": 2e-3, "dv": 2e-3, "da": 2e-3},
}


def errors(given: Problem, got: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> dict[str, float]:
    """Error of every result; infinite where one is not finite."""
    found = {}
    for name in NAMES:
        if name not in exact or not exact[name].numel():
            continue
        difference = got[name].double() - exact[name]
        if name == "da":
            assert given.sinks is not None
            delta = (given.d_out.double() * exact["out"]).sum(-1)
            delta = delta if given.d_lse is None else delta - given.d_lse.double()
            terms = torch.exp(given.sinks.double() - exact["lse"]) * delta
            # Below the normal range of its dtype (sinks may be float16) a gradient has no digits to keep.
            beyond = (difference.abs() - torch.finfo(got[name].dtype).tiny).clamp(min=0.0)
            value = float((beyond / terms.norm(dim=0).clamp(min=1e-300)).max())
        else:
            value = float(difference.norm() / exact[name].norm().clamp(min=1e-300))
        found[name] = value if value == value else float("inf")
    return found


def check(given: Problem, window: int | None = None, scale: float | None = None) -> dict[str, torch.Tensor]:
    """Runs triton and holds it to the limits of its dtype; returns what it computed."""
    got = run(given, "triton", window, scale)
    exact = run(given.to(torch.float64), "eager", window, scale)
    assert got.keys() == exact.keys()
    assert got["out"].dtype == given.q.dtype and got["lse"].dtype == torch.float32
    limits = LIMITS[given.q.dtype]
    measured = errors(given, got, exact)
    assert all(value <= limits[name] for name, value in measured.items()), measured
    return got


@contextmanager
def tiles(block_q: int, block_k: int) -> Iterator[None]:
    """Runs the kernels with other tile sizes than the interpreter's own."""

    def chosen(*_: object) -> Config:
        return Config(block_q, block_k, 4, 1)

    with mock.patch.object(implementation, "choose", chosen):
        yield
