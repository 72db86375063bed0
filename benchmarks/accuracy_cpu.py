"""Errors of sink_attention's implementations on a CPU against the formula in float64, as a table.

Every row: one implementation in one dtype, forward and backward, sinks on, full causal or windowed; its inputs are the
same numbers, rounded to that dtype, and the truth is `eager` in float64 on the rounded inputs. Errors as in
sinkflex.bench.attention_check: root mean square relative to the truth's, the worst head; da relative to
||p * delta||_2. Sinks are spread from -5 to 5: sinks of zero would hide that an implementation drops them.

`triton` runs under its interpreter, on fewer rows and in float32 and float16 only: it is the same kernel file that runs
compiled on a GPU. Exit code 1 when a limit is passed. About a minute.
  PYTHONPATH=python python -P benchmarks/accuracy_cpu.py [--out docs/benchmarks/accuracy_cpu.json]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported

import torch
from sinkflex.bench.attention_check import NAMES, Problem, compare
from sinkflex.kernels.api import Layout, sink_attention

LIMITS = {  # out; dq, dk, dv; da
    torch.float64: (1e-12, 1e-12, 1e-12),
    torch.float32: (1e-6, 1e-5, 1e-5),
    torch.bfloat16: (5e-3, 1e-2, 6e-3),
    torch.float16: (1e-3, 2e-3, 1e-3),
}
WIDE = {"tokens": 1024, "num_q_heads": 16, "num_kv_heads": 2, "head_dim": 64}
INTERPRETED = {"tokens": 160, "num_q_heads": 4, "num_kv_heads": 2, "head_dim": 64}
PLAN: tuple[tuple[str, torch.dtype, dict[str, int]], ...] = (
    ("flash", torch.float64, WIDE),  # eager in float64 is the truth
    *((impl, dtype, WIDE) for dtype in (torch.float32, torch.bfloat16) for impl in ("eager", "flash")),
    *(("triton", dtype, INTERPRETED) for dtype in (torch.float32, torch.float16)),
)


def problem(dtype: torch.dtype, window: int | None, sizes: dict[str, int]) -> Problem:
    random = torch.Generator().manual_seed(0)

    def normal(heads: int) -> torch.Tensor:
        return torch.randn(sizes["tokens"], heads, sizes["head_dim"], generator=random).to(dtype)

    heads, kv_heads = sizes["num_q_heads"], sizes["num_kv_heads"]
    q, k, v = (normal(count).requires_grad_() for count in (heads, kv_heads, kv_heads))
    sinks = torch.linspace(-5, 5, heads).to(dtype).requires_grad_()
    return Problem(q, k, v, sinks, normal(heads), window)


def run(given: Problem, impl: str) -> list[torch.Tensor]:
    """out, dq, dk, dv, da."""
    layout = Layout.single(given.q.shape[0])
    out = sink_attention(*given.leaves, layout=layout, window=given.window, impl=impl)
    return [out.detach(), *torch.autograd.grad(out, given.leaves, given.d_out)]


def row(impl: str, dtype: torch.dtype, window: int | None, sizes: dict[str, int]) -> dict[str, Any]:
    given = problem(dtype, window, sizes)
    exact = given.to(torch.float64)
    errors = compare(exact, run(given, impl), run(exact, "eager"))
    out, gradient, sink = LIMITS[dtype]
    limits = dict(zip(NAMES, (out, gradient, gradient, gradient, sink), strict=True))
    held = all(errors[name] <= limits[name] for name in NAMES)  # false for NaN
    name = str(dtype).removeprefix("torch.")
    return {"impl": impl, "dtype": name, "window": window, **sizes, "errors": errors, "limits": limits, "held": held}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the record there, as JSON")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'impl':8}{'dtype':10}{'window':>8}{'tokens':>8}" + "".join(f"{name:>10}" for name in NAMES), flush=True)
    rows = []
    for impl, dtype, sizes in PLAN:
        if impl == "triton" and importlib.util.find_spec("triton") is None:
            print(f"{impl:8}{str(dtype).removeprefix('torch.'):10}skipped: the package triton is not installed")
            continue
        for window in (None, 128):
            rows.append(found := row(impl, dtype, window, sizes))
            errors = "".join(f"{found['errors'][name]:10.1e}" for name in NAMES)
            verdict = "" if found["held"] else "   above its limit"
            print(f"{impl:8}{found['dtype']:10}{window or 'full':>8}{sizes['tokens']:8}{errors}{verdict}", flush=True)
    if given.out:
        record = {
            "command": "PYTHONPATH=python python -P benchmarks/accuracy_cpu.py " + " ".join(sys.argv[1:]),
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "rows": rows,
        }
        given.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if all(found["held"] for found in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
