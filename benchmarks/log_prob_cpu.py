"""Log-probs of 1024 tokens at gpt-oss's head (vocabulary 201 088, hidden 2880) on the CPU: `linear_log_prob` of
sinkflex.kernels against the naive path, logits then log-softmax then gather. Forward and backward, float32.

Per head (frozen: the gradient of the hidden states; trained: of the weight too), each in a fresh process:
  parity and time   both sides in one process; log-probs and gradients are compared first, and above a difference of
                    1e-5 nothing is timed; then alternating repetitions, process-CPU seconds of all threads, and wall
  memory            a process per side: high-water mark of its resident memory during one forward and backward, above
                    what it held with the inputs made and the libraries loaded (by a small run of both sides); with a
                    trained head also less the weight's own gradient
ratio = naive / linear, above 1 in favour of linear. The allocator and the threads are set as the command line sets them
for the worker. At the full size this takes about 12 GB and several minutes, and wants an idle machine. Linux only.
  PYTHONPATH=python python -P benchmarks/log_prob_cpu.py [--out docs/benchmarks/log_prob_cpu.json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ENVIRONMENT = {  # read when a process starts
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "4294967296",
    "MALLOC_TOP_PAD_": "67108864",
    "OMP_WAIT_POLICY": "passive",
}
SIDES = ("naive", "linear")
LIMIT = 1e-5  # of log-probs absolutely, of gradients relative to their norm
TARGETS = {  # docs/kernels.md; time is linear / naive, memory linear / naive
    "frozen": {"time": 1.25, "memory": 1 / 8},
    "trained": {"time": 1.5, "memory": None},
}


class Problem:
    """The inputs of both sides, and one forward and backward of either."""

    def __init__(self, given: argparse.Namespace, head: str, small: bool = False) -> None:
        import torch
        from sinkflex.kernels.api import linear_log_prob

        torch.manual_seed(0)
        torch.set_num_threads(given.threads)
        self.torch, self.linear = torch, linear_log_prob
        tokens, vocabulary, hidden = (64, 256, 64) if small else (given.tokens, given.vocabulary, given.hidden)
        self.hidden = torch.randn(tokens, hidden, requires_grad=True)
        self.weight = torch.randn(vocabulary, hidden).mul_(hidden**-0.5)
        self.weight.requires_grad_(head == "trained")
        self.targets = torch.randint(vocabulary, (tokens,))
        self.pull = torch.randn(tokens)

    def run(self, side: str) -> list[Any]:
        """[log-probs, gradient of hidden, gradient of the weight if it is trained]."""
        if side == "linear":
            chosen = self.linear(self.hidden, self.weight, self.targets).log_prob
        else:
            logits = self.hidden @ self.weight.T
            chosen = self.torch.log_softmax(logits, -1).gather(1, self.targets[:, None])[:, 0]
            del logits  # as in a model, where it goes out of scope
        leaves = [leaf for leaf in (self.hidden, self.weight) if leaf.requires_grad]
        return [chosen.detach(), *self.torch.autograd.grad(chosen, leaves, self.pull)]


def measure_time(given: argparse.Namespace, head: str) -> dict[str, Any]:
    problem = Problem(given, head)
    names = ("log_prob", "dhidden", "dweight")
    ours, theirs = problem.run("linear"), problem.run("naive")
    error = {}
    for name, a, b in zip(names, ours, theirs, strict=False):
        difference = a.sub_(b)
        error[name] = float(difference.abs().max() if name == "log_prob" else difference.norm() / b.norm())
    del ours, theirs, a, b, difference
    cpu: dict[str, list[float]] = {side: [] for side in SIDES}
    wall: dict[str, list[float]] = {side: [] for side in SIDES}
    if all(value < LIMIT for value in error.values()):
        for _ in range(given.repeat):
            for side in SIDES:
                cpu_start, wall_start = time.process_time(), time.perf_counter()
                problem.run(side)
                cpu[side].append(round(time.process_time() - cpu_start, 4))
                wall[side].append(round(time.perf_counter() - wall_start, 4))
    return {"error": error, "cpu_s": cpu, "wall_s": wall, "torch": problem.torch.__version__}


def measure_memory(given: argparse.Namespace, head: str, side: str) -> dict[str, Any]:
    for other in SIDES:
        Problem(given, head, small=True).run(other)
    problem = Problem(given, head)
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again from here
    base = _status("VmRSS")
    results = problem.run(side)
    own = sum(gradient.numel() * gradient.element_size() for gradient in results[2:])
    return {"peak_bytes": _status("VmHWM") - base, "dweight_bytes": own}


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":")) * 1024


def child(given: argparse.Namespace, *what: str) -> dict[str, Any]:
    command = [sys.executable, "-P", __file__, "--measure", *what]
    for name in ("tokens", "vocabulary", "hidden", "threads", "repeat"):
        command += [f"--{name}", str(getattr(given, name))]
    environment = {**os.environ, **ENVIRONMENT, "OMP_NUM_THREADS": str(given.threads)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def report(given: argparse.Namespace, head: str) -> dict[str, Any]:
    """All of one head, printed as it comes."""
    timed = child(given, "time", head)
    parity = "   ".join(f"{name} {value:.1e}" for name, value in timed["error"].items())
    print(f"{head:8} differences: {parity}", flush=True)
    if not all(value < LIMIT for value in timed["error"].values()):
        raise SystemExit(f"{head}: the two sides differ by more than {LIMIT}; nothing was timed")
    seconds = {side: statistics.median(timed["cpu_s"][side]) for side in SIDES}
    wall = {side: statistics.median(timed["wall_s"][side]) for side in SIDES}
    print(
        f"{head:8} CPU time: linear {seconds['linear']:8.3f} s   naive {seconds['naive']:8.3f} s   "
        f"ratio {seconds['naive'] / seconds['linear']:5.2f}   (wall {wall['linear']:.3f}, {wall['naive']:.3f})",
        flush=True,
    )
    memory = {side: child(given, "memory", head, side) for side in SIDES}
    peaks = {side: memory[side]["peak_bytes"] for side in SIDES}
    own = memory["linear"]["dweight_bytes"]
    parts = [("memory", peaks)]
    if own:
        parts.append(("less dW", {side: peaks[side] - own for side in SIDES}))
    for name, bytes_ in parts:
        mib = {side: bytes_[side] / 2**20 for side in SIDES}
        print(
            f"{head:8} {name:8}: linear {mib['linear']:8.1f} MiB naive {mib['naive']:8.1f} MiB "
            f"ratio {mib['naive'] / max(mib['linear'], 1e-9):5.1f}",
            flush=True,
        )
    return {
        **timed,
        "cpu_linear_over_naive": round(seconds["linear"] / seconds["naive"], 3),
        "wall_linear_over_naive": round(wall["linear"] / wall["naive"], 3),
        "peak_bytes": peaks,
        "peak_linear_over_naive": round(peaks["linear"] / peaks["naive"], 4),
        "dweight_bytes": own,
        "target": TARGETS[head],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=201_088)
    parser.add_argument("--hidden", type=int, default=2880)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--head", choices=("frozen", "trained", "both"), default="both")
    parser.add_argument("--out", type=Path, help="write the record there, as JSON")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        what, *which = given.measure
        print(json.dumps((measure_time if what == "time" else measure_memory)(given, *which)))
        return
    sizes = {name: getattr(given, name) for name in ("tokens", "vocabulary", "hidden", "threads", "repeat")}
    print("   ".join(f"{name} {value}" for name, value in sizes.items()) + "   float32", flush=True)
    heads = ("frozen", "trained") if given.head == "both" else (given.head,)
    results = {head: report(given, head) for head in heads}
    if given.out:
        record = {
            "command": "PYTHONPATH=python python -P benchmarks/log_prob_cpu.py " + " ".join(sys.argv[1:]),
            **sizes,
            "machine": {"processor": _processor(), "cores": os.cpu_count(), "system": platform.system()},
            "python": platform.python_version(),
            "environment": ENVIRONMENT,
            "heads": results,
        }
        given.out.write_text(json.dumps(record, indent=1) + "\n")


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
