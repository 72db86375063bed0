"""Attention on a GPU, side by side in one process: triton, flex and flash of sinkflex.kernels against their rivals.

Rivals: compiled FlexAttention with out * sigmoid(lse - sink), as users write it (static shapes, its own causal or
windowed mask); flash-linear-attention's parallel attention with a sink bias; transformers' eager GptOss. One layer of
gpt-oss, 64 query and 8 key heads of 64, bfloat16, sinks on, one sequence.

Everybody gets the same inputs. After a warm-up comes parity: sampled rows and keys at full length against the formula
(sinkflex.bench.attention_check). A rival that disagrees is reported and not timed; one of ours that does makes the exit
code 1. Then everybody who is left runs in turns, forward and backward, timed by CUDA events with the cache flushed.
TFLOP/s by the convention of sinkflex.bench.flops (causal S^2 / 2, backward x 2.5). Peak: the allocator's, of a forward
and a backward pass, above the inputs and above what the warm-up left (masks). A length that does not fit is a result;
a rival that is not installed is skipped, and said.

The rows are saved as JSON lines as they come. Run from the repository's root:
  PYTHONPATH=python python -P benchmarks/attention_gpu.py            (no cell begins after --seconds, 300)
  PYTHONPATH=python python -P benchmarks/attention_gpu.py --tiny     (on the CPU; tests this script, no record)
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from sinkflex.bench import flops, machine, measure
from sinkflex.bench.attention import LIMITS, PEER_SLACK, Attend, Make, maker
from sinkflex.bench.attention_check import Problem, errors_at_length
from sinkflex.kernels.choice import Request, resolve

SEED = 7
MIB = 1 << 20
Row = dict[str, Any]


class Plan(NamedTuple):
    """What is measured: cells are (tokens, window), the most valuable first."""

    device: torch.device
    dtype: torch.dtype
    heads: tuple[int, int, int]  # query heads, key heads, head_dim
    cells: Sequence[tuple[int, int | None]]
    ours: Sequence[str]
    rounds: int


GPU = Plan(
    torch.device("cuda"), torch.bfloat16, (64, 8, 64),
    [(16384, None), (8192, None), (8192, 128), (32768, None), (16384, 128), (32768, 128), (4096, None), (4096, 128)],
    ("triton", "flex", "flash"), 15,
)  # fmt: skip
TINY = Plan(torch.device("cpu"), torch.float32, (4, 2, 16), [(96, None), (96, 16)], ("eager", "flash"), 1)


def compiled_flex(problem: Problem) -> Attend:
    """FlexAttention as users put sinks on it."""
    from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

    tokens, window = problem.q.shape[0], problem.window

    def seen(batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        causal = query >= key
        return causal if window is None else causal & (query - key < window)

    mask = torch.compile(create_block_mask)(seen, None, None, tokens, tokens, device=str(problem.q.device))

    def with_sinks(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
        rows = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
        out, aux = flex_attention(*rows, block_mask=mask, enable_gqa=True, return_aux=AuxRequest(lse=True))
        factor = torch.sigmoid(aux.lse - sinks.float()[None, :, None])
        return (out * factor.unsqueeze(-1)).to(out.dtype)[0].transpose(0, 1)

    compiled: Attend = torch.compile(with_sinks, dynamic=False, fullgraph=True)
    return compiled


RIVALS: Mapping[str, Make] = {
    "compiled flex": compiled_flex,
    "fla": maker("fla"),
    "transformers": maker("transformers"),
}
PACKAGES = {"fla": "flash-linear-attention", "transformers": "transformers"}


def absent(name: str, plan: Plan) -> str | None:
    """Why a subject has no row at all."""
    if name in plan.ours:
        try:
            resolve(name, Request(plan.device, plan.dtype, plan.heads[2], False))
        except ValueError as error:
            return str(error)
        return None
    if name != "transformers" and plan.device.type != "cuda":
        return "runs on a GPU only"
    if name in PACKAGES and importlib.util.find_spec(name) is None:
        return f"{PACKAGES[name]} is not installed"
    return None


class Subject:
    """One implementation on one problem: what sinkflex.bench.measure measures."""

    def __init__(self, name: str, make: Make, problem: Problem) -> None:
        self.name, self._make, self._problem = name, make, problem
        self._attend: Attend | None = None
        self.taken: list[measure.Sample] = []

    def forward(self) -> torch.Tensor:
        if self._attend is None:
            self._attend = self._make(self._problem)
        return self._attend(*self._problem.leaves)

    def backward(self, result: torch.Tensor) -> Sequence[torch.Tensor]:
        return torch.autograd.grad(result, self._problem.leaves, self._problem.d_out)


def draw(plan: Plan, tokens: int, window: int | None) -> Problem:
    random = torch.Generator(plan.device).manual_seed(SEED)
    heads, kv_heads, dim = plan.heads
    q, k, v, d_out = (
        torch.randn(tokens, count, dim, generator=random, device=plan.device).to(plan.dtype)
        for count in (heads, kv_heads, kv_heads, heads)
    )
    sinks = torch.linspace(-5.0, 10.0, heads, device=plan.device).to(plan.dtype)
    return Problem(*(x.requires_grad_() for x in (q, k, v, sinks)), d_out, window)


def limits_of(name: str, plan: Plan) -> dict[str, float]:
    """What parity asks for: the specification's bounds of ours, the same meaning of a rival."""
    dtype = str(plan.dtype).removeprefix("torch.")
    slack = 1.0 if name in plan.ours else PEER_SLACK[dtype]
    return {key: limit * slack for key, limit in LIMITS[dtype].items()}


def check(subject: Subject, problem: Problem, plan: Plan) -> Row:
    """Compiles and warms up, then peak and parity; `status` is ok, failed or does_not_fit."""
    limits = limits_of(subject.name, plan)
    try:
        subject.backward(subject.forward())
        seen = measure.peak(subject, plan.device)
    except (torch.OutOfMemoryError, MemoryError) as error:
        return {"status": "does_not_fit", "reason": str(error).splitlines()[0]}
    except Exception as error:  # a rival's failure is its row
        return {"status": "failed", "reason": f"{type(error).__name__}: {str(error)[:400]}"}
    errors = errors_at_length(problem, (seen.result, *seen.gradients), SEED)
    off = {name: error for name, error in errors.items() if not error <= limits[name]}
    row: Row = {"status": "failed" if off else "ok", "errors": errors, "limits": limits, "peak_bytes": seen.bytes}
    if off:
        row["reason"] = ", ".join(
            f"{name} is off by {error:.2g} (limit {limits[name]:g})" for name, error in off.items()
        )
    return row


def speed(subject: Subject, plan: Plan, tokens: int, window: int | None) -> Row:
    """Medians of the samples, and the work they did."""
    heads, kv_heads, dim = plan.heads
    work = flops.attention_forward(tokens, window, heads, dim)
    times = measure.summary(subject.taken)
    return {
        **times,
        "flops": work,
        "tflops_fwd": flops.rate(work, times["fwd_ms"]),
        "tflops_bwd": flops.rate(flops.BACKWARD * work, times["bwd_ms"]),
        "floor_bytes": tokens * 4 * (heads + kv_heads) * dim * plan.dtype.itemsize + 8 * tokens * heads,
        "input_bytes": tokens * (2 * heads + 2 * kv_heads) * dim * plan.dtype.itemsize,
    }


def cell(plan: Plan, tokens: int, window: int | None, makes: Mapping[str, Make], broken: set[str]) -> list[Row]:
    """All subjects at one length and window: parity one by one, then times in turns."""
    problem = draw(plan, tokens, window)
    rows: dict[str, Row] = {}
    ready = []
    for name, make in makes.items():
        subject = Subject(name, make, problem)
        found = (
            {"status": "skipped", "reason": "it failed its parity before"}
            if name in broken
            else check(subject, problem, plan)
        )
        rows[name] = {
            "kind": "row",
            "seq": tokens,
            "window": window,
            "subject": name,
            "ours": name in plan.ours,
        } | found
        if found["status"] == "ok":
            ready.append(subject)
        elif found["status"] == "failed":
            broken.add(name)
    for turn in range(plan.rounds):
        for subject in ready if turn % 2 == 0 else ready[::-1]:
            subject.taken += measure.samples(subject, plan.device, repeat=1, seconds=1.0, guess=0.1)
    for subject in ready:
        rows[subject.name] |= speed(subject, plan, tokens, window)
    return list(rows.values())


def line(row: Row) -> str:
    """A row for people."""
    name = f"{row['seq']:>6} {'window ' + str(row['window']) if row['window'] else 'full':<10} {row['subject']:<14}"
    if row["status"] != "ok":
        return f"{name} {row['status'].replace('_', ' ')}: {row['reason']}"
    return (
        f"{name} {row['fwd_ms']:8.3f} + {row['bwd_ms']:8.3f} ms {row['tflops_fwd']:7.1f} / {row['tflops_bwd']:6.1f} "
        f"TFLOP/s {row['peak_bytes'] / MIB:8.0f} MiB, errors {max(row['errors'].values()):.1e} at most"
    )


def targets(rows: Sequence[Row], plan: Plan) -> list[Row]:
    """ATTENTION.md section 5 for an H200, of the fastest of ours in each cell; None where it was not measured."""
    good = [row for row in rows if row["status"] == "ok"]

    def best(seq: int, window: int | None, key: Callable[[Row], float]) -> float | None:
        return min((key(r) for r in good if r["ours"] and (r["seq"], r["window"]) == (seq, window)), default=None)

    def total(row: Row) -> float:
        return float(row["fwd_ms"] + row["bwd_ms"])

    def of(subject: str, seq: int, window: int | None, key: Callable[[Row], float]) -> float | None:
        found = [r for r in good if (r["subject"], r["seq"], r["window"]) == (subject, seq, window)]
        return key(found[0]) if found else None

    def ratio(one: float | None, other: float | None) -> float | None:
        return None if one is None or other is None else one / other

    def speed_of(part: str) -> float | None:
        slowest = best(16384, None, lambda r: -float(r[f"tflops_{part}"]))
        return None if slowest is None else -slowest

    def above_inputs(row: Row) -> float:
        return float(row["peak_bytes"] / row["floor_bytes"])

    def all_held(row: Row) -> float:
        return float((row["peak_bytes"] + row["input_bytes"]) / row["floor_bytes"])

    window = best(8192, 128, total)
    asked: list[tuple[str, float | None, float, float]] = [
        ("forward at 16384, TFLOP/s", speed_of("fwd"), 340.0, math.inf),
        ("forward at 16384, TFLOP/s, stretch", speed_of("fwd"), 400.0, math.inf),
        ("backward at 16384, TFLOP/s", speed_of("bwd"), 265.0, math.inf),
        ("backward at 16384, TFLOP/s, stretch", speed_of("bwd"), 330.0, math.inf),
        *(
            (f"time at 16384 over {name}", ratio(best(16384, None, total), of(name, 16384, None, total)), 0.0, 1.0)
            for name in RIVALS
        ),
        ("window 128 at 8192, time over full", ratio(window, best(8192, None, total)), 0.0, 0.125),
        ("window 128, time at 32768 over 16384", ratio(best(32768, 128, total), best(16384, 128, total)), 0.0, 2.2),
        *(
            (f"memory at {seq}{what}, over the floor", best(seq, None, key), 0.0, 1.10)
            for seq in sorted({seq for seq, window in plan.cells if window is None})
            for what, key in (("", above_inputs), (", inputs included", all_held))
        ),
    ]  # fmt: skip
    return [
        {
            "what": what,
            "value": value,
            "least": low,
            "most": None if high == math.inf else high,
            "verdict": "not measured" if value is None else "hit" if low <= value <= high else "missed",
        }
        for what, value, low, high in asked
    ]


def finite(value: Any) -> Any:
    """JSON has no infinities: None."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="on the CPU, small: tests this script")
    parser.add_argument("--seconds", type=float, default=300.0, help="no cell begins after this")
    parser.add_argument("--seq", type=int, nargs="+", help="only these lengths")
    parser.add_argument("--out", type=Path, help="JSON lines (on a GPU: docs/benchmarks/attention_gpu-CARD.jsonl)")
    given = parser.parse_args(argv)
    start = time.monotonic()
    plan = TINY if given.tiny else GPU
    lengths = sorted({tokens for tokens, _ in plan.cells})
    if given.seq and not set(given.seq) <= set(lengths):
        parser.error(f"--seq is {given.seq}; allowed are {lengths}")
    plan = plan._replace(cells=[one for one in plan.cells if not given.seq or one[0] in given.seq])
    if not given.tiny and not torch.cuda.is_available():
        print("torch sees no CUDA device: nothing to measure (--tiny tests this script on the CPU)", file=sys.stderr)
        return 2
    card = "CPU" if given.tiny else torch.cuda.get_device_name()
    out = given.out
    if out is None and not given.tiny:
        slug = re.sub(r"[^a-z0-9]+", "-", card.lower()).strip("-")
        out = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / f"attention_gpu-{slug}.jsonl"
    sink = out.open("w", encoding="utf-8") if out else None

    def save(row: Row) -> None:
        if sink is not None:
            sink.write(json.dumps(finite(row)) + "\n")
            sink.flush()

    if not given.tiny:
        # One entry for each length and window of the rival; torch's default of 8 would end it.
        torch._dynamo.config.recompile_limit = 64
    head: Row = {
        "kind": "plan",
        "card": card,
        "dtype": str(plan.dtype),
        "heads": plan.heads,
        "seed": SEED,
        "command": shlex.join(["python", "-P", "benchmarks/attention_gpu.py", *argv]),
        "convention": flops.CONVENTION,
        "versions": machine.versions(),
        "machine": machine.describe(),
    }
    save(head)
    print(f"{card}, torch {torch.__version__}, {plan.dtype}, heads {plan.heads}; saving to {out}")
    makes = {name: maker(name) for name in plan.ours} | RIVALS
    for name in list(makes):
        reason = absent(name, plan)
        if reason is not None:
            del makes[name]
            save({"kind": "skipped", "subject": name, "reason": reason})
            print(f"skipped: {name}: {reason}")
    rows: list[Row] = []
    broken: set[str] = set()
    for tokens, window in plan.cells:
        if time.monotonic() - start > given.seconds:
            save({"kind": "skipped", "seq": tokens, "window": window, "reason": "the time was used up"})
            print(f"skipped: {tokens}, window {window}: the time was used up")
            continue
        for row in cell(plan, tokens, window, makes, broken):
            rows.append(row)
            save(row)
            print(line(row), flush=True)
        if plan.device.type == "cuda":
            torch.cuda.empty_cache()
    judged = [] if given.tiny else targets(rows, plan)
    save({"kind": "targets", "targets": judged})
    for target in judged:
        value = "" if target["value"] is None else f" ({target['value']:.3g})"
        print(f"{target['verdict']}: {target['what']}{value}")
    if sink is not None:
        sink.close()
    return int(any(row["ours"] and row["status"] == "failed" for row in rows))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
