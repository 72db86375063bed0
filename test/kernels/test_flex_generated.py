"""impl "flex" without a GPU, beyond its definition: the kernels that Inductor generates for it (flex_generated.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from module_path import module_path

PROGRAM = Path(__file__).with_name("flex_generated.py")
SHARED = {"80": 166_912, "90": 232_448}  # bytes of shared memory that a block may have

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not torch.__version__.startswith("2.13.") or torch.cuda.is_available(),
        reason="pretends a GPU to Inductor, by names inside torch 2.13",
    ),
]


def program(*arguments: object, **more: str) -> Any:
    environment = {
        **os.environ,
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "TRITON_INTERPRET": "0",
        **more,
    }
    environment["PYTHONPATH"] = module_path(PROGRAM.parent)
    command = [sys.executable, "-P", str(PROGRAM), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout) if done.stdout.startswith(("{", "[")) else None


def test_the_generated_kernels_are_exact_under_the_interpreter(tmp_path: Path) -> None:
    """Forward and backward, three query heads on one key head, a tree, with and without a window, in float32."""
    program("generate", tmp_path, 3, 1, 16, "float32")
    for errors in program("interpret", tmp_path, TRITON_INTERPRET="1"):
        assert set(errors) == {"out", "lse", "dq", "dk", "dv", "da"}
        assert all(error < 2e-6 for error in errors.values()), errors


def test_the_generated_kernels_fit_a_gpu(tmp_path: Path) -> None:
    """gpt-oss's heads in bfloat16: they compile, fit into shared memory, use Hopper's matrix instructions."""
    program("generate", tmp_path, 64, 8, 64, "bfloat16")
    found = program("compile", tmp_path, TRITON_DEFAULT_FP_FUSION="1")
    for direction in ("forward", "backward"):
        assert found[direction] == {"precision": "ieee", "divisible": True}
        assert all(found[f"{direction} {capability}"]["shared"] <= most for capability, most in SHARED.items())
        assert found[f"{direction} 90"]["wgmma"] > 0
