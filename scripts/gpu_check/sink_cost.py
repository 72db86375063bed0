"""What sinks cost: the same implementation with and without them, in turns in one process, forward and backward."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import torch
from sinkflex.bench import measure
from sinkflex.kernels.api import Layout, sink_attention

ROUNDS, REPEAT = 5, 4


class Pass:
    """One layer of `heads` (query, key) heads; `sinks` or None."""

    def __init__(self, case: dict[str, Any], sinks: bool) -> None:
        device, dtype, (heads, kv_heads) = case["device"], getattr(torch, case["dtype"]), case["heads"]
        random = torch.Generator(device).manual_seed(0)
        tokens, head_dim = case["seq"], case["head_dim"]
        sizes = (heads, kv_heads, kv_heads, heads)
        rows = [torch.randn(tokens, n, head_dim, generator=random, device=device).to(dtype) for n in sizes]
        self.leaves = [x.requires_grad_() for x in rows[:3]]
        self.d_out = rows[3]
        if sinks:
            self.leaves.append(torch.linspace(-5.0, 10.0, heads, device=device).to(dtype).requires_grad_())
        self.layout, self.impl = Layout.single(tokens), case["impl"]

    def forward(self) -> torch.Tensor:
        out: torch.Tensor = sink_attention(*self.leaves, layout=self.layout, impl=self.impl)
        return out

    def backward(self, result: torch.Tensor) -> Sequence[torch.Tensor]:
        return torch.autograd.grad(result, self.leaves, self.d_out)


def check(case: dict[str, Any]) -> dict[str, Any]:
    """Medians in ms and their ratios. Rounds alternate, so that both sides meet the same clocks."""
    passes = {name: Pass(case, name == "with") for name in ("with", "without")}
    taken: dict[str, list[measure.Sample]] = {name: [] for name in passes}
    for one in passes.values():
        one.backward(one.forward())
    for _ in range(ROUNDS):
        for name, one in passes.items():
            taken[name] += measure.samples(one, torch.device(case["device"]), repeat=REPEAT, seconds=1.0, guess=0.1)
    result: dict[str, Any] = {"status": "done"}
    for part in ("forward", "backward"):
        medians = {name: statistics.median(getattr(one, part) for one in some) for name, some in taken.items()}
        result |= {f"{part}_{name}_ms": seconds * 1e3 for name, seconds in medians.items()}
        result[f"{part}_ratio"] = medians["with"] / medians["without"]
    return result
