"""Attention on the CPU, side by side in one process: `flash` of sinkflex.kernels against transformers' eager GptOss.

Subjects, at the geometry of the tiny policy (4 query and 2 key heads, head_dim 24):
  packed   training: 64 segments of 40 to 200 tokens, forward and backward, with and without a window of 32. Eager
           attention gets the same segments as padded rows, in sorted micro-batches of 8 (its fastest way here), ready
           made: gathering and scattering them is not counted.
  decode   one new token for 256 rows over caches of up to 160 slots, and for 8 rows over 8000 to 12000.
  long     one sequence of 2048 tokens, 16 query and 2 key heads of 64, forward and backward.

Times are process-CPU milliseconds at one thread, medians of alternating repetitions; ratio = eager / flash. Both sides
are compared first; a difference above 1e-4 stops the script. The allocator is set as the command line sets it for the
worker (without that, both sides pay for page faults). Run from the repository's root:
  PYTHONPATH=python python -P benchmarks/attention_cpu.py
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import torch
from sinkflex.kernels.api import Layout, decode_attention, sink_attention
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

# glibc reads these when a process starts.
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "4294967296",
    "MALLOC_TOP_PAD_": "67108864",
    "OMP_NUM_THREADS": "1",
}
Tensors = Sequence[torch.Tensor]
Timed = Callable[[], Sequence[torch.Tensor]]
Collect = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]


def cpu_ms(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return (time.process_time() - start) * 1e3


def compare(name: str, ours: Timed, theirs: Timed, repetitions: int = 9, collect: Collect = list) -> None:
    """Parity first (`collect` brings their results into our rows), then the ratio."""
    worst = max(float((a - b).abs().max()) for a, b in zip(ours(), collect(theirs()), strict=True))
    if not worst < 1e-4:
        raise SystemExit(f"{name}: the two sides differ by {worst}; nothing is timed")
    mine, other = [], []
    for _ in range(repetitions):
        mine.append(cpu_ms(ours))
        other.append(cpu_ms(theirs))
    a, b = statistics.median(mine), statistics.median(other)
    print(f"{name:34} flash {a:8.2f} ms   eager {b:8.2f} ms   ratio {b / a:6.2f}   difference {worst:.0e}", flush=True)


def causal(width: int, window: int | None) -> torch.Tensor:
    behind = torch.arange(width)[:, None] - torch.arange(width)[None, :]
    hidden = behind < 0 if window is None else (behind < 0) | (behind >= window)
    return torch.zeros(width, width).masked_fill_(hidden, torch.finfo(torch.float32).min)[None, None]


def module(sinks: torch.Tensor, groups: int) -> SimpleNamespace:
    return SimpleNamespace(sinks=sinks, num_key_value_groups=groups, training=False)


def packed(lengths: list[int], window: int | None, heads: int, kv_heads: int, dim: int, micro: int, name: str) -> None:
    total = sum(lengths)
    q, k, v = (torch.randn(total, h, dim, requires_grad=True) for h in (heads, kv_heads, kv_heads))
    sinks = torch.randn(heads, requires_grad=True)
    weight = torch.randn(total, heads, dim)
    layout = Layout.from_lengths(lengths)
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    batches = []
    for at in range(0, len(order), micro):
        chosen = order[at : at + micro]
        width = max(lengths[i] for i in chosen)
        rows = torch.stack([(starts[i] + torch.arange(width)).clamp(max=starts[i] + lengths[i] - 1) for i in chosen])
        real = torch.stack([torch.arange(width) < lengths[i] for i in chosen])
        padded = [x.detach()[rows].transpose(1, 2).contiguous().requires_grad_() for x in (q, k, v)]
        batches.append((rows, real, padded, weight[rows] * real[..., None, None], causal(width, window)))
    inputs = (q, k, v, sinks)

    def ours() -> Tensors:
        out = sink_attention(q, k, v, sinks, layout=layout, window=window, impl="flash")
        assert isinstance(out, torch.Tensor)
        return (out.detach(), *torch.autograd.grad((out * weight).sum(), inputs))

    def theirs() -> Tensors:
        results: list[torch.Tensor] = []
        for _, _, padded, pull, mask in batches:
            out, _ = eager_attention_forward(module(sinks, heads // kv_heads), *padded, mask, dim**-0.5)
            results += [out.detach(), *torch.autograd.grad((out * pull).sum(), (*padded, sinks))]
        return results

    def collect(results: Tensors) -> Tensors:
        flat = [torch.zeros_like(x) for x in (q, *inputs)]
        for at, (rows, real, *_) in enumerate(batches):
            out, dq, dk, dv, d_sinks = results[5 * at : 5 * at + 5]
            for into, padded in zip(
                flat, (out, dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2)), strict=False
            ):
                into[rows[real]] = padded[real]
            flat[4] += d_sinks
        return flat

    compare(name, ours, theirs, collect=collect)


def decode(batch: int, slots: int, low: int, high: int, window: int | None, name: str) -> None:
    heads, kv_heads, dim = 4, 2, 24
    q = torch.randn(batch, heads, 1, dim)
    k, v = (torch.randn(batch, kv_heads, slots, dim) for _ in range(2))
    sinks = torch.randn(heads)
    lengths = torch.randint(low, high + 1, (batch,))
    longest = int(lengths.max())
    behind = lengths[:, None] - 1 - torch.arange(longest)
    hidden = behind < 0 if window is None else (behind < 0) | (behind >= window)
    mask = torch.zeros(batch, longest).masked_fill_(hidden, torch.finfo(torch.float32).min)[:, None, None]

    def ours() -> Tensors:
        return (decode_attention(q, k, v, sinks, lengths=lengths, window=window),)

    def theirs() -> Tensors:
        keys, values = k[:, :, :longest], v[:, :, :longest]
        out, _ = eager_attention_forward(module(sinks, heads // kv_heads), q, keys, values, mask, dim**-0.5)
        return (out.transpose(1, 2),)

    compare(name, ours, theirs, repetitions=25)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, one thread, process-CPU time, medians of alternating repetitions")
    lengths = torch.randint(40, 201, (64,)).tolist()
    for window in (None, 32):
        packed(lengths, window, 4, 2, 24, 8, f"packed 64 x 40..200, window {window}")
    for window in (None, 32):
        decode(256, 256, 60, 160, window, f"decode 256 x 60..160, window {window}")
    for window in (None, 32):
        decode(8, 12288, 8000, 12000, window, f"decode 8 x 8000..12000, window {window}")
    for window in (None, 128):
        packed([2048], window, 16, 2, 64, 1, f"long 2048, 16/2 heads, window {window}")


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in ALLOCATOR.items()):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **ALLOCATOR})
    main()
