"""The linear layers of a large float32 model on a CPU, by the faster of torch's two libraries (kernels/linear.py).

Idea: the class of the model's own layers is changed in place, so parameters, names, checkpoints, peft's layers around
them and copies of the model stay what they are. While a policy samples, its weights do not change, and each layer holds
a packed copy (`packed`).
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from sinkflex.kernels import api

LARGE = 5_000_000
"""Parameters from which on it pays: below, a layer costs little beside the call."""

LEAD = 1.3
"""How many times faster the other library must be: libraries that are alike measure within a few hundredths."""

PROBE = (64, 1536, 576)  # rows, outputs, inputs
ROUNDS = 7


class QuickLinear(nn.Linear):
    """nn.Linear, computed by `api.linear`; from a packed copy of the weight while there is one and no gradient."""

    _packed: torch.Tensor | None = None
    _instead = False  # the packed weight is another one than `weight`

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight
        if x.dtype != torch.float32 or weight.dtype != torch.float32 or not x.is_cpu:
            return super().forward(x)  # moved or converted since
        if self._packed is not None and not torch.is_grad_enabled():
            weight = self._packed
        elif self._instead:
            raise RuntimeError("a layer with merged weights was used with gradient: these weights are for sampling")
        out: torch.Tensor = api.linear(x, weight, self.bias)
        return out


@functools.cache
def pays() -> bool:
    """Whether `api.linear` is clearly faster here. Measured once a process, by the processor's own clock, so that other
    work on the machine does not decide."""
    if not api.linear_available():
        return False
    rows, outputs, inputs = PROBE
    x, weight = torch.ones(rows, inputs), torch.ones(outputs, inputs)
    with torch.no_grad():
        return _least(lambda: F.linear(x, weight)) >= LEAD * _least(lambda: api.linear(x, weight))


def _least(work: Callable[[], object]) -> float:
    """CPU seconds of this thread, the least of a few rounds: with several threads each has about the same share."""
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.thread_time()
        work()
        best = min(best, time.thread_time() - begun)
    return best


def quicken(model: Any) -> None:
    """Change the layers of `model` where that pays: a large one in float32 on a CPU."""
    first = next(model.parameters())
    if first.device.type != "cpu" or first.dtype != torch.float32 or not pays():
        return
    if sum(p.numel() for p in model.parameters()) < LARGE:
        return
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = QuickLinear


def quickened(model: Any) -> list[str]:
    """What the plan says about it. No speed: that differs from run to run."""
    count = sum(isinstance(module, QuickLinear) for module in model.modules())
    if count == 0:
        return []
    return [f"{count} linear layers go through oneDNN, measured faster on this processor than torch's default"]


@contextmanager
def packed_as(layer: QuickLinear, weight: torch.Tensor) -> Iterator[None]:
    """Inside, the layer computes with `weight`, of which only the packed copy is kept, and without gradient only."""
    layer._packed, layer._instead = api.pack_linear(weight), True
    del weight  # else this frame would keep it
    try:
        yield
    finally:
        layer._packed, layer._instead = None, False


@contextmanager
def packed(model: Any) -> Iterator[None]:
    """Inside, forwards without gradient use packed copies of the weights as they are now; they must not change."""
    layers = [m for m in model.modules() if isinstance(m, QuickLinear) and m._packed is None]
    try:
        for layer in layers:
            layer._packed = api.pack_linear(layer.weight)
        yield
    finally:
        for layer in layers:
            layer._packed = None


def give_back(model: Any) -> None:
    """Hand free memory back to the system, after packed copies or the activations of a micro-batch. The C library keeps
    it, in holes that what follows does not fit into: the peak of a step of SmolLM2-135M was 0.9 GB above what was ever
    in use. For a small model it does nothing: its memory is not worth the time of asking for it again."""
    if not any(isinstance(m, QuickLinear) for m in model.modules()):
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
