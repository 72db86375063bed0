"""Which implementation runs a request: what each can honour, and the order in which `auto` tries them.

Nothing heavy is imported here: an implementation is loaded when it is first used. To add one, write its module with an
`attend` like those of reference.py and flash.py, say below what it refuses, and name it in IMPLS and AUTO_ORDER.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
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
    if request.device.type == "cuda":
        return _flash_cuda_refusal(request)
    if request.device.type != "cpu":
        return f"flash does not run on {request.device}"
    return None


def _flash_cuda_refusal(request: Request) -> str | None:
    if request.dtype not in (torch.bfloat16, torch.float16):
        return f"flash on a GPU computes in bfloat16 and float16, not {request.dtype}"
    if request.head_dim is not None and (request.head_dim % 8 or not 8 <= request.head_dim <= 256):
        return f"flash on a GPU needs a head_dim that is a multiple of 8, up to 256, not {request.head_dim}"
    if torch.version.hip is not None:
        return "flash on a GPU is built on NVIDIA's operators, which a ROCm build does not have"
    if torch.cuda.is_available() and torch.cuda.get_device_capability(request.device) < (8, 0):
        return "flash on a GPU needs compute capability 8.0 or later (Ampere)"
    return None


def _flex_refusal(request: Request) -> str | None:
    if request.device.type != "cuda":
        where = "has no backward pass on a CPU" if request.device.type == "cpu" else f"does not run on {request.device}"
        return f"flex {where}"
    if importlib.util.find_spec("triton") is None:
        return "flex needs the package triton, which is not installed here"
    if request.dtype == torch.float64:
        return f"flex computes in float32 at most, not {request.dtype}"
    if request.head_dim is not None and not 16 <= request.head_dim <= 256:
        return f"flex needs a head_dim of 16 to 256, not {request.head_dim}"
    return None


def _triton_refusal(request: Request) -> str | None:
    if importlib.util.find_spec("triton") is None:
        return "triton needs the package triton, which is not installed here"
    if request.device.type == "cpu":
        if os.environ.get("TRITON_INTERPRET") != "1":
            return "triton runs on a CPU only under its interpreter, for tests (TRITON_INTERPRET=1)"
        if request.dtype not in (torch.float32, torch.float16):
            return f"triton's interpreter multiplies float32 and float16, not {request.dtype}"
    elif request.device.type != "cuda":
        return f"triton does not run on {request.device}"
    elif torch.cuda.is_available() and torch.cuda.get_device_capability(request.device) < (8, 0):
        return "triton needs compute capability 8.0 or later (Ampere)"
    if request.dtype == torch.float64:
        return f"triton computes in float32 at most, not {request.dtype}"
    if request.head_dim is not None and not 1 <= request.head_dim <= 128:
        return f"triton needs a head_dim of 1 to 128, not {request.head_dim}"
    return None


# Why an implementation cannot honour a request, or None. The order is the one in which errors list them.
REFUSALS: Mapping[str, Callable[[Request], str | None]] = {
    "eager": _eager_refusal,
    "flash": _flash_refusal,
    "flex": _flex_refusal,
    "triton": _triton_refusal,
}
IMPLS = tuple(REFUSALS)

# What `auto` tries first on a kind of device, with the clause that says why it is the choice.
AUTO_ORDER: Mapping[str, Mapping[str, str]] = {
    "cpu": {"flash": "linear memory on the CPU, every mask"},
    "cuda": {
        "triton": "linear memory on a GPU, every mask; the order of implementations there is not measured yet",
        "flex": "linear memory on a GPU, every mask; the order of implementations there is not measured yet",
        "flash": "linear memory on a GPU, every mask; the order of implementations there is not measured yet",
    },
}


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
    for impl, clause in AUTO_ORDER.get(request.device.type, {}).items():
        refusal = REFUSALS[impl](request)
        if refusal is None:
            return Choice(impl, clause)
        reasons.append(refusal)
    return Choice("eager", "; ".join(reasons) or f"no other implementation runs on {request.device}")


def load(impl: str) -> Attend:
    """The `attend` of an implementation, imported on first use."""
    module = importlib.import_module("." + {"eager": "reference"}.get(impl, impl), __package__)
    attend: Attend = module.attend
    return attend
