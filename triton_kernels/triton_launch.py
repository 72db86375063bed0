"""Launch tables: the tile sizes, warps and pipeline stages of each kernel, for each family of GPUs.

One configuration per launch, looked up and never tuned at run time, so that results do not depend on what else the GPU
did. Where a table's entry does not fit the shared memory of a device, `choose` takes that of the table for small GPUs.

How they were chosen, without a GPU at hand: every entry was compiled ahead of time and spills nothing, and on Hopper
ptxas does not serialise its wgmma instructions (both with Triton 3.6 and 3.9). Among those: tiles of 128 rows, because
64 rows make a kernel at head_dim 64 read twice the keys and values from L2; in the forward 4 warps, so that two blocks
share an SM and one computes exponentials while the other multiplies; in the backward 8 warps, where accumulators leave
room for one block only. scripts/codegen.py records what the compiler makes of them. Nothing here is timed yet.

float32 multiplies exactly (`ieee`), on the plain cores: small tiles and many warps, for tests and checks rather than
for speed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch

MAX_HEAD_DIM = 128
KERNELS = ("forward", "backward_queries", "backward_keys")


class Config(NamedTuple):
    """block_q query rows by block_k key rows; shared memory holds num_stages of the tiles that stream by."""

    block_q: int
    block_k: int
    num_warps: int
    num_stages: int


class Launch(NamedTuple):
    """One kernel as it is compiled for a launch, for checks of the generated code."""

    name: str
    kernel: Any
    signature: dict[str, str]
    constexprs: dict[str, Any]
    divisible_by_16: tuple[str, ...]
    num_warps: int
    num_stages: int


Table = Mapping[str, Mapping[tuple[int, int], Config]]  # kernel -> (element size, padded head_dim) -> tile sizes
Row = tuple[Config, Config, Config, Config]  # for a head_dim of up to 16, 32, 64 and 128

SINGLE: Mapping[str, Row] = {  # float32, the same on every family
    "forward": (Config(64, 32, 8, 2), Config(64, 32, 8, 2), Config(64, 32, 8, 2), Config(64, 32, 8, 2)),
    "backward_queries": (Config(32, 32, 8, 2), Config(32, 32, 4, 2), Config(64, 32, 8, 2), Config(32, 32, 8, 2)),
    "backward_keys": (Config(32, 32, 8, 2), Config(32, 32, 8, 2), Config(32, 64, 8, 2), Config(32, 32, 8, 2)),
}


def _table(forward: Row, queries: Row, keys: Row) -> Table:
    """The table of a family from its rows for half precision."""
    return {
        kernel: {(size, 16 << i): row[i] for size, row in ((2, half), (4, SINGLE[kernel])) for i in range(4)}
        for kernel, half in zip(KERNELS, (forward, queries, keys), strict=True)
    }


TABLES: Mapping[str, Table] = {
    "ampere": _table(
        (Config(128, 64, 4, 3), Config(128, 64, 4, 3), Config(128, 64, 4, 3), Config(128, 32, 8, 3)),
        (Config(64, 64, 4, 2), Config(64, 64, 4, 2), Config(128, 64, 8, 3), Config(64, 32, 4, 3)),
        (Config(32, 128, 8, 3), Config(32, 128, 8, 3), Config(32, 128, 8, 3), Config(64, 64, 8, 2)),
    ),
    "hopper": _table(
        (Config(128, 64, 4, 3), Config(128, 64, 4, 3), Config(128, 64, 4, 3), Config(128, 64, 8, 3)),
        (Config(128, 64, 8, 3), Config(128, 64, 8, 3), Config(128, 64, 8, 3), Config(128, 64, 8, 2)),
        (Config(64, 128, 8, 3), Config(64, 128, 8, 3), Config(64, 128, 8, 3), Config(32, 128, 8, 2)),
    ),
    "blackwell": _table(
        (Config(128, 64, 8, 3), Config(128, 64, 8, 3), Config(128, 64, 8, 3), Config(128, 64, 8, 3)),
        (Config(128, 64, 8, 3), Config(128, 64, 8, 3), Config(128, 64, 8, 3), Config(128, 64, 8, 2)),
        (Config(32, 128, 8, 2), Config(32, 128, 8, 2), Config(32, 128, 8, 2), Config(64, 64, 8, 2)),
    ),
    "consumer": _table(
        (Config(128, 64, 4, 2), Config(128, 64, 4, 2), Config(128, 64, 4, 2), Config(128, 32, 8, 3)),
        (Config(64, 64, 4, 2), Config(64, 64, 4, 2), Config(128, 64, 8, 2), Config(64, 32, 4, 2)),
        (Config(32, 128, 8, 3), Config(32, 128, 8, 3), Config(32, 128, 8, 3), Config(64, 64, 8, 2)),
    ),
    "interpreter": {
        kernel: {(size, 16 << i): Config(32, 32, 4, 1) for size in (2, 4) for i in range(4)} for kernel in KERNELS
    },
}
SMALLEST = Config(16, 16, 4, 1)
ARCHITECTURES = {80: "ampere", 90: "hopper", 100: "blackwell", 120: "consumer"}
SHARED = {"ampere": 163 << 10, "hopper": 227 << 10, "blackwell": 227 << 10, "consumer": 99 << 10}


def padded_width(head_dim: int) -> int:
    """The power of two that a tile of head_dim columns occupies; a product needs at least 16."""
    return max(16, 1 << (head_dim - 1).bit_length())


def precision(element_size: int) -> str:
    """What a product does with float32 operands; half-precision operands are not affected."""
    return "ieee" if element_size == 4 else "tf32"


def shared_bytes(kernel: str, config: Config, family: str, head_dim: int, element_size: int) -> int:
    """Upper bound of the shared memory of a block: what stays, what streams by, and a tile of scores in passing."""
    row = padded_width(head_dim) * element_size
    if kernel == "backward_keys":
        held, streamed = 2 * config.block_k * row, 2 * config.block_q * (row + 4)
    else:
        held, streamed = (1 if kernel == "forward" else 2) * config.block_q * row, 2 * config.block_k * row
    # Asynchronous tensor-core instructions read a tile while the next ones arrive; the others copy it to registers.
    asynchronous = family in ("hopper", "blackwell") and element_size == 2
    buffers = config.num_stages if asynchronous else max(1, config.num_stages - 1)
    if family == "blackwell" and kernel == "backward_keys":
        buffers += 1  # Triton keeps a transposed copy of what streams by
    return held + buffers * streamed + config.block_q * config.block_k * element_size + 1024


def choose(kernel: str, family: str, head_dim: int, element_size: int, limit: int) -> Config:
    """The tile sizes for a device with `limit` bytes of shared memory per block; ValueError when none fit."""
    if not 1 <= head_dim <= MAX_HEAD_DIM:
        raise ValueError(f"head_dim is {head_dim}; the triton kernels take 1 to {MAX_HEAD_DIM}")
    key = (element_size, padded_width(head_dim))
    for config in (TABLES[family][kernel][key], TABLES["consumer"][kernel][key], SMALLEST):
        needed = shared_bytes(kernel, config, family, head_dim, element_size)
        if needed <= limit:
            return config
    raise ValueError(
        f"head_dim is {head_dim}; {kernel} needs {needed} bytes of shared memory per block, and the GPU has {limit}"
    )


def family_of(capability: tuple[int, int]) -> str:
    """The launch table of a compute capability. Ampere and Ada cards with 99 KiB share that of consumer Blackwell."""
    if capability < (8, 0):
        raise ValueError(f"the GPU has compute capability {capability[0]}.{capability[1]}; triton needs 8.0 or later")
    if capability[0] == 8:
        return "ampere" if capability in ((8, 0), (8, 7)) else "consumer"
    return {9: "hopper", 10: "blackwell"}.get(capability[0], "consumer")


def device_limits(device: torch.device) -> tuple[str, int]:
    """(launch table, bytes of shared memory per block) of a device."""
    if device.type != "cuda":
        return "interpreter", 1 << 30
    return _cuda_limits(torch.cuda.current_device() if device.index is None else device.index)


@functools.cache
def _cuda_limits(index: int) -> tuple[str, int]:
    properties = torch.cuda.get_device_properties(index)
    return family_of((properties.major, properties.minor)), int(properties.shared_memory_per_block_optin)


def launches(arch: int) -> Iterator[Launch]:
    """Every launch that a GPU of this architecture can be asked for; where dtypes compile alike, one of them."""
    from . import triton_backward, triton_forward

    functions = {
        "forward": triton_forward.forward,
        "backward_queries": triton_backward.backward_queries,
        "backward_keys": triton_backward.backward_keys,
    }
    family = ARCHITECTURES[arch]
    for element_type, element_size in (("bf16", 2), ("fp32", 4)):
        for head_dim in (16, 32, 64, 128, 96) if element_size == 2 else (16, 32, 64, 128):
            for kernel, function in functions.items():
                config = choose(kernel, family, head_dim, element_size, SHARED[family])
                yield _described(f"{kernel} {element_type} {head_dim}", function, element_type, head_dim, config)
    config = choose("backward_queries", family, 64, 2, SHARED[family])
    named = "backward_queries bf16 64 with d_lse"
    yield _described(named, functions["backward_queries"], "bf16", 64, config, d_lse=True)


def _described(
    name: str, function: Any, element_type: str, head_dim: int, config: Config, *, d_lse: bool = False
) -> Launch:
    """A launch with sinks and contiguous operands, as a model makes it."""
    from . import triton_forward

    kinds = {
        **dict.fromkeys(("q", "k", "v", "out", "d_out", "dq", "dk", "dv"), f"*{element_type}"),
        **dict.fromkeys(("sinks", "lse", "lse2", "d_lse", "delta", "d_sinks"), "*fp32"),
        **dict.fromkeys(("tiles", "ranges", "edges"), "*i32"),
        "scale": "fp32",
    }
    constants: dict[str, Any] = {
        "HEAD_DIM": head_dim,
        "WIDTH": padded_width(head_dim),
        "BLOCK_Q": config.block_q,
        "BLOCK_K": config.block_k,
        "PRECISION": precision(4 if element_type == "fp32" else 2),
    }
    if not d_lse and "d_lse" in function.arg_names:
        constants["d_lse"] = None
    arguments = [name for name in function.arg_names if name not in constants]
    odd = {"scale", *triton_forward.VARYING, "d_lse_row", "d_lse_head"}
    return Launch(
        name,
        function,
        {argument: kinds.get(argument, "i32") for argument in arguments},
        constants,
        tuple(argument for argument in arguments if argument not in odd),
        config.num_warps,
        config.num_stages,
    )
