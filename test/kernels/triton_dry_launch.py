"""Run as a program, without TRITON_INTERPRET: the launches of triton.py bound and compiled as on a GPU, but not run.

Triton asks its driver for a target and a device only, so a stand-in that names Hopper is enough to go through argument
binding, specialisation and compilation; `warmup` stops before the launch. Prints a JSON list, one entry per launch:
kernel, programs, signature, whether this call compiled anything, and from the machine code the tensor-core products and
the points at which warps wait to begin some.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from sinkflex.kernels import triton as implementation
from sinkflex.kernels import triton_launch
from sinkflex.kernels.layout import Layout
from triton.backends.compiler import GPUTarget
from triton.runtime import driver


class Hopper:
    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


class Warmup:
    """A kernel that is compiled where it would be launched."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.compiled: set[int] = set()

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*arguments: Any, **options: Any) -> None:
            compiled = self.kernel.warmup(*arguments, grid=grid, **options)
            found.append(
                {
                    "kernel": self.kernel.__name__,
                    "programs": grid[0],
                    "signature": compiled.src.signature,
                    "new": id(compiled) not in self.compiled,
                    "products": compiled.asm["sass"].count("HGMMA"),
                    "begins": compiled.asm["sass"].count("WARPGROUP.ARRIVE"),
                }
            )
            self.compiled.add(id(compiled))

        return launch


found: list[dict[str, Any]] = []
driver.set_active(Hopper())
for name in triton_launch.KERNELS:
    setattr(implementation, name, Warmup(getattr(implementation, name)))
implementation.device_limits = lambda device: ("hopper", triton_launch.SHARED["hopper"])

for lengths, window in (([300, 77], None), ([513, 1], 128), ([16], None)):
    tokens = sum(lengths)
    leaves = [torch.zeros(tokens, heads, 64, dtype=torch.bfloat16, requires_grad=True) for heads in (4, 2, 2)]
    leaves.append(torch.zeros(4, requires_grad=True))
    out, _ = implementation.attend(*leaves, Layout.from_lengths(lengths), window, 0.25)
    torch.autograd.grad(out, leaves, torch.ones_like(out))
print(json.dumps(found))
