"""Which implementation runs a request: what each can honour, and the order in which `auto` tries them.

Nothing heavy is imported here: an implementation is loaded when it is first used. To add one, write its module with an
`attend` like those of reference.py and flash.py, say below what it refuses, and name it in IMPLS and AUTO_ORDER.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

from .layout import Layout

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

Attend = Callable[
    [torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None, Layout, int | None, float],
    tuple[torch.Tensor, torch.Tensor],
]


class Choice(NamedTuple):
    """An implementation and the reason for it, as a clause for people."""

    impl: str
    reason: str


class Request(NamedTuple):
    """What an implementation is asked to honour. head_dim and has_parents are None where they are not known yet."""

    device: torch.device
    dtype: torch.dtype
    head_dim: int | None = None
    has_parents: bool | None = None


def _eager_refusal(request: Request) -> str | None:
    return None


def _flash_refusal(request: Request) -> str | None:
    if request.device.type != "cpu":
        return f"flash runs on the CPU only, not on {request.device.type}"
    if request.has_parents:
        return "flash does not support segments with a parent"
    return None


# Why an implementation cannot honour a request, or None. The order is the one in which errors list them.
REFUSALS: Mapping[str, Callable[[Request], str | None]] = {"eager": _eager_refusal, "flash": _flash_refusal}
IMPLS = tuple(REFUSALS)

# What `auto` tries first, with the clause that says why it is the choice.
AUTO_ORDER: Mapping[str, str] = {"flash": "linear memory on the CPU, with and without sinks and windows"}


def choose(
    device: torch.device | str,
    dtype: torch.dtype,
    layout: Layout | None = None,
    head_dim: int | None = None,
) -> Choice:
    """What `impl="auto"` runs for this request."""
    request = Request(torch.device(device), dtype, head_dim, None if layout is None else layout.has_parents)
    return _auto(request)


def resolve(impl: str, request: Request) -> str:
    """The implementation that runs; ValueError when `impl` is unknown or cannot honour the request."""
    if impl == "auto":
        return _auto(request).impl
    if impl not in REFUSALS:
        raise ValueError(f"impl is {impl!r}; allowed are auto, {', '.join(IMPLS)}")
    refusal = REFUSALS[impl](request)
    if refusal is not None:
        other = _auto(request).impl
        raise ValueError(f"impl is {impl!r}, but {refusal}; impl={other!r} supports this request")
    return impl


def _auto(request: Request) -> Choice:
    reasons = []
    for impl, clause in AUTO_ORDER.items():
        refusal = REFUSALS[impl](request)
        if refusal is None:
            return Choice(impl, clause)
        reasons.append(refusal)
    return Choice("eager", "; ".join(reasons))


def load(impl: str) -> Attend:
    """The `attend` of an implementation, imported on first use."""
    module = importlib.import_module("." + {"eager": "reference"}.get(impl, impl), __package__)
    attend: Attend = module.attend
    return attend
