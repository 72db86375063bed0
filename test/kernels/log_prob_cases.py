"""Cases of linear_log_prob, the plain path over whole logits that it must equal, and small tiles to take every way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

import torch
from sinkflex.kernels import log_prob
from sinkflex.kernels.api import LogProb, linear_log_prob
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

NAMES = ("log_prob", "lse", "entropy", "dhidden", "dweight")


@dataclass
class Case:
    """Inputs in float64, and what flows into log_prob, lse and entropy (None: nothing)."""

    hidden: Tensor
    weight: Tensor
    targets: Tensor
    keep: Tensor | None
    temperature: float
    pulls: tuple[Tensor | None, Tensor | None, Tensor | None]

    def to(self, dtype: torch.dtype, device: str = "cpu") -> Case:
        keep = None if self.keep is None else self.keep.to(device)
        pulls = tuple(None if pull is None else pull.to(device) for pull in self.pulls)
        hidden, weight = self.hidden.to(device, dtype), self.weight.to(device, dtype)
        return Case(hidden, weight, self.targets.to(device), keep, self.temperature, pulls)  # type: ignore[arg-type]


def case(
    rows: int = 7,
    vocabulary: int = 23,
    hidden: int = 12,
    *,
    kept: int | None = None,
    temperature: float = 1.0,
    flows: str = "le",
    spread: float = 1.0,
    seed: int = 0,
) -> Case:
    """Random inputs; logits have a deviation of `spread`. `flows`: l log_prob, e lse, h entropy have a gradient."""
    dice = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=dice, dtype=torch.float64)

    count = rows if kept is None else kept
    return Case(
        normal(rows, hidden),
        normal(vocabulary, hidden) * (spread / hidden**0.5),
        torch.randint(vocabulary, (count,), generator=dice),
        None if kept is None else torch.randint(rows, (kept,), generator=dice),
        temperature,
        tuple(normal(count) if name in flows else None for name in "leh"),  # type: ignore[arg-type]
    )


def plain(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    temperature: float = 1.0,
    return_entropy: bool = False,
    keep: Tensor | None = None,
) -> LogProb:
    """The specification: all logits, log-softmax, gather."""
    rows = hidden if keep is None else hidden[keep]
    logits = rows @ weight.T / temperature
    log_p = logits.log_softmax(-1)
    entropy = -(log_p.exp() * log_p).sum(-1) if return_entropy else None
    return LogProb(log_p.gather(1, targets[:, None])[:, 0], logits.logsumexp(-1), entropy)


def run(given: Case, operator: Callable[..., LogProb] = linear_log_prob, *, trained: bool = True) -> dict[str, Tensor]:
    """Outputs and gradients by name."""
    hidden = given.hidden.detach().clone().requires_grad_()
    weight = given.weight.detach().clone().requires_grad_(trained)
    leaves = [hidden, weight] if trained else [hidden]
    outs = operator(hidden, weight, given.targets, temperature=given.temperature, return_entropy=True, keep=given.keep)
    pulled = [(out, pull.to(out.dtype)) for out, pull in zip(outs, given.pulls, strict=True) if pull is not None]
    gradients = torch.autograd.grad([out for out, _ in pulled], leaves, [pull for _, pull in pulled])
    return dict(zip(NAMES, (*(out.detach() for out in outs), *gradients), strict=False))


@contextmanager
def tiles(rows: int, columns: int, slice_: int = 5) -> Iterator[None]:
    """Tiles so small that few rows and a small vocabulary need several."""
    with (
        mock.patch.dict(log_prob.TILES, dict.fromkeys(log_prob.TILES, (rows, columns))),
        mock.patch.object(log_prob, "SLICE", slice_),
    ):
        yield


class Products(TorchDispatchMode):
    """Counts the multiplications of matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.multiplications = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name = func._schema.name
        if "mm" in name or "linear" in name or "dot" in name:
            assert name in ("aten::addmm_", "aten::mm"), name
            a, b = [x for x in args if isinstance(x, torch.Tensor)][-2:]
            self.multiplications += a.shape[0] * a.shape[1] * b.shape[1]
        return func(*args, **(kwargs or {}))
