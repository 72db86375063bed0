"""The launch tables: complete, within every GPU's limits, and what happens on a GPU with less."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from module_path import module_path
from sinkflex.kernels import triton_launch as launch
from sinkflex.kernels.api import Layout, sink_attention
from triton_cases import implementation

RECORD = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "codegen.json"
SIZES = [(16, 2), (32, 2), (64, 2), (80, 2), (128, 2), (16, 4), (32, 4), (64, 4), (96, 4), (128, 4)]


@pytest.mark.parametrize("family", launch.SHARED)
@pytest.mark.parametrize("kernel", launch.KERNELS)
def test_every_family_has_an_entry_that_fits_it(family: str, kernel: str) -> None:
    for head_dim, size in SIZES:
        config = launch.choose(kernel, family, head_dim, size, launch.SHARED[family])
        assert config == launch.TABLES[family][kernel][size, launch.padded_width(head_dim)]
        assert config == launch.choose(kernel, family, head_dim, size, launch.SHARED[family])
        assert launch.shared_bytes(kernel, config, family, head_dim, size) <= launch.SHARED[family]
        assert min(config.block_q, config.block_k) >= 16 and config.num_warps in (4, 8)


@pytest.mark.parametrize("kernel", ["backward_queries", "backward_keys"])
def test_B64_a_small_gpu_gets_smaller_tiles(kernel: str) -> None:
    large = launch.choose(kernel, "hopper", 128, 2, 227 << 10)
    small = launch.choose(kernel, "hopper", 128, 2, 101_376)
    assert launch.shared_bytes(kernel, large, "hopper", 128, 2) > 101_376
    assert launch.shared_bytes(kernel, small, "hopper", 128, 2) <= 101_376
    assert small.block_q * small.block_k < large.block_q * large.block_k


@pytest.mark.parametrize("head_dim", [0, 192, 256])
def test_B64_head_dims_that_are_too_large_are_refused_in_one_line(head_dim: int) -> None:
    with pytest.raises(ValueError, match=rf"^head_dim is {head_dim}; the triton kernels take 1 to 128$"):
        launch.choose("backward_keys", "consumer", head_dim, 2, 101_376)


def test_B64_the_operator_refuses_them_naming_who_can() -> None:
    q = torch.zeros(2, 1, 192)
    with pytest.raises(ValueError, match="triton needs a head_dim of 1 to 128, not 192; impl='flash' supports"):
        sink_attention(q, q, q, layout=Layout.single(2), impl="triton")


def test_B64_a_gpu_too_small_for_any_tile_is_told_the_bytes() -> None:
    with pytest.raises(
        ValueError, match=r"^head_dim is 128; forward needs \d+ bytes of shared memory per block, and the GPU has 4096$"
    ):
        launch.choose("forward", "consumer", 128, 2, 4096)


def test_compute_capabilities_have_their_table() -> None:
    expected = {
        (8, 0): "ampere", (8, 6): "consumer", (8, 7): "ampere", (8, 9): "consumer", (9, 0): "hopper",
        (10, 0): "blackwell", (10, 3): "blackwell", (12, 0): "consumer", (12, 1): "consumer",
    }  # fmt: skip
    assert {capability: launch.family_of(capability) for capability in expected} == expected
    with pytest.raises(ValueError, match=r"compute capability 7\.5; triton needs 8.0 or later"):
        launch.family_of((7, 5))
    assert launch.device_limits(torch.device("cpu"))[0] == "interpreter"


@pytest.mark.parametrize("arch", launch.ARCHITECTURES)
def test_launches_for_the_check_of_generated_code(arch: int) -> None:
    entries = list(launch.launches(arch))
    assert len({entry.name for entry in entries}) == len(entries) <= 40
    for entry in entries:
        assert {*entry.signature, *entry.constexprs} == set(entry.kernel.arg_names)
        assert set(entry.divisible_by_16) <= set(entry.signature)
        # float32 products must not be rounded to TF32, the default on NVIDIA GPUs.
        assert entry.constexprs["PRECISION"] == ("ieee" if "fp32" in entry.name else "tf32")
        assert entry.signature["q"] == ("*fp32" if "fp32" in entry.name else "*bf16")


def test_the_estimate_of_shared_memory_is_an_upper_bound() -> None:
    """Against what the compiler took, where scripts/codegen.py has recorded it."""
    if not RECORD.is_file():
        pytest.skip("docs/benchmarks/codegen.json is not written yet")
    recorded = {(entry["arch"], entry["name"]): entry for entry in json.loads(RECORD.read_text())["entries"]}
    compared = 0
    for arch, family in launch.ARCHITECTURES.items():
        for entry in launch.launches(arch):
            if (arch, entry.name) not in recorded:
                continue
            tile = launch.Config(
                entry.constexprs["BLOCK_Q"], entry.constexprs["BLOCK_K"], entry.num_warps, entry.num_stages
            )
            size = 4 if entry.signature["q"] == "*fp32" else 2
            kernel = entry.name.split()[0]
            bound = launch.shared_bytes(kernel, tile, family, entry.constexprs["HEAD_DIM"], size)
            assert recorded[arch, entry.name]["shared"] <= bound, (arch, entry.name)
            compared += 1
    assert compared > 50


def test_launches_bind_and_compile_as_on_a_gpu_once_for_batches_of_all_sizes(tmp_path: Path) -> None:
    program = Path(__file__).with_name("triton_dry_launch.py")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment.update(PYTHONPATH=module_path(), TRITON_CACHE_DIR=str(tmp_path))
    done = subprocess.run([sys.executable, "-P", str(program)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [entry["kernel"] for entry in found] == list(launch.KERNELS) * 3
    assert [entry["new"] for entry in found] == [True] * 3 + [False] * 6
    # What runs is what scripts/codegen.py compiles.
    described = {entry.name.split()[0]: entry for entry in launch.launches(90) if entry.name.endswith(" bf16 64")}
    for entry in found[:3]:
        expected = described[entry["kernel"]]
        signature = {name: kind for name, kind in entry["signature"].items() if kind != "constexpr"}
        assert signature == expected.signature
        # ptxas did not give up on overlapping products (its warning C7515): then each would begin on its own.
        assert 0 < 2 * entry["begins"] <= entry["products"], entry
    # Tiles of 128 queries (300 + 77 tokens: 3 + 1) times 4 heads, tiles of 128 keys times 2 heads.
    assert [entry["programs"] for entry in found[:3]] == [16, 16, 8]


def test_a_tile_size_is_looked_up_once_per_launch_and_never_tuned() -> None:
    config, constants = implementation._launch("backward_keys", torch.zeros(1, 1, 48))
    assert constants["WIDTH"] == 64 and constants["HEAD_DIM"] == 48
    assert (constants["BLOCK_Q"], constants["BLOCK_K"]) == (config.block_q, config.block_k)
