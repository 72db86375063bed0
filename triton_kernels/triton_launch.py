"""Launch tables: the tile sizes, warps and pipeline stages of each kernel, for each family of GPUs.

One configuration per launch, chosen from the table and never tuned at run time, so that results do not depend on what
else the GPU did. A table lists configurations per kernel, element size and padded head_dim, the preferred one first;
`choose` takes the first whose shared memory fits the device, then looks through the table for small GPUs.

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


Table = Mapping[str, Mapping[tuple[int, int], tuple[Config, ...]]]


def _table(forward: tuple[Config, ...], queries: tuple[Config, ...], keys: tuple[Config, ...]) -> Table:
    """Each kernel's configurations for 2 bytes and head_dim up to 64, 2 and 128, 4 and 64, 4 and 128."""
    result = {}
    for kernel, configs in zip(KERNELS, (forward, queries, keys), strict=True):
        half, half_wide, single, single_wide = configs
        result[kernel] = {
            **{(2, width): (half,) for width in (16, 32, 64)},
            (2, 128): (half_wide,),
            **{(4, width): (single,) for width in (16, 32, 64)},
            (4, 128): (single_wide,),
        }
    return result


TABLES: Mapping[str, Table] = {
    "ampere": _table(
        (Config(128, 64, 4, 3), Config(128, 64, 8, 3), Config(64, 32, 8, 2), Config(32, 32, 8, 2)),
        (Config(128, 64, 8, 3), Config(64, 32, 4, 3), Config(32, 32, 8, 2), Config(32, 16, 8, 2)),
        (Config(64, 64, 8, 3), Config(64, 64, 8, 2), Config(32, 32, 8, 2), Config(16, 32, 8, 2)),
    ),
    "hopper": _table(
        (Config(128, 64, 4, 3), Config(128, 64, 8, 3), Config(64, 32, 8, 2), Config(32, 32, 8, 2)),
        (Config(128, 64, 8, 3), Config(128, 64, 8, 2), Config(32, 32, 8, 2), Config(32, 16, 8, 2)),
        (Config(64, 128, 8, 3), Config(32, 128, 8, 2), Config(32, 32, 8, 2), Config(16, 32, 8, 2)),
    ),
    "blackwell": _table(
        (Config(128, 64, 8, 3), Config(128, 64, 8, 3), Config(64, 32, 8, 2), Config(32, 32, 8, 2)),
        (Config(128, 64, 8, 3), Config(128, 64, 8, 2), Config(32, 32, 8, 2), Config(32, 16, 8, 2)),
        (Config(64, 128, 8, 3), Config(64, 64, 8, 2), Config(32, 32, 8, 2), Config(16, 32, 8, 2)),
    ),
    "consumer": _table(
        (Config(128, 64, 4, 2), Config(128, 64, 8, 2), Config(64, 32, 8, 2), Config(32, 32, 8, 2)),
        (Config(128, 64, 8, 2), Config(64, 32, 4, 2), Config(32, 32, 8, 2), Config(32, 16, 8, 2)),
        (Config(64, 128, 8, 2), Config(64, 64, 8, 2), Config(32, 32, 8, 2), Config(16, 32, 8, 2)),
    ),
    "interpreter": _table(*((Config(32, 32, 4, 1),) * 4 for _ in KERNELS)),
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


def shared_bytes(kernel: str, config: Config, head_dim: int, element_size: int) -> int:
    """Upper bound of the shared memory of a block: what stays, what streams by, and a tile of scores in passing."""
    row = padded_width(head_dim) * element_size
    if kernel == "backward_keys":
        held, streamed = 2 * config.block_k * row, 2 * config.block_q * (row + 4)
    else:
        held, streamed = (1 if kernel == "forward" else 2) * config.block_q * row, 2 * config.block_k * row
    return held + config.num_stages * streamed + config.block_q * config.block_k * element_size + 1024


def choose(kernel: str, family: str, head_dim: int, element_size: int, limit: int) -> Config:
    """The first configuration that fits `limit` bytes of shared memory per block; ValueError when none does."""
    if not 1 <= head_dim <= MAX_HEAD_DIM:
        raise ValueError(f"head_dim is {head_dim}; the triton kernels take 1 to {MAX_HEAD_DIM}")
    key = (element_size, padded_width(head_dim))
    candidates = (*TABLES[family][kernel][key], *TABLES["consumer"][kernel][key], SMALLEST)
    for config in candidates:
        if shared_bytes(kernel, config, head_dim, element_size) <= limit:
            return config
    needed = shared_bytes(kernel, SMALLEST, head_dim, element_size)
    raise ValueError(
        f"head_dim is {head_dim}; {kernel} needs {needed} bytes of shared memory per block for it, of which this GPU "
        f"has {limit}"
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
    odd = {"scale", "num_tiles", "group", "d_lse_row", "d_lse_head"}
    return Launch(
        name,
        function,
        {argument: kinds.get(argument, "i32") for argument in arguments},
        constants,
        tuple(argument for argument in arguments if argument not in odd),
        config.num_warps,
        config.num_stages,
    )
