"""Time and peak memory of one forward and backward, in this process.

Time: wall-clock and process-CPU seconds, device synchronised, on CUDA by events with the cache flushed before each
repetition. Peak: bytes above what was held before, on CUDA by the allocator, on a CPU by the kernel's high-water mark
of the process (VmHWM, reset first; ru_maxrss where it cannot be reset, which then may understate what hides below an
older peak), less the pages of libraries that were first touched meanwhile. On a CPU a fresh heap is part of the method:
the peak is taken before anything of that size has been freed.
"""

from __future__ import annotations

import contextlib
import gc
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from .machine import return_free_memory

L2_FLUSH_BYTES = 1 << 28
MOST_REPETITIONS = 20


class Pass(Protocol):
    """What is measured: `backward` takes what `forward` returned and gives the gradients."""

    def forward(self) -> Any: ...
    def backward(self, result: Any) -> Sequence[torch.Tensor]: ...


class Sample(NamedTuple):
    """Seconds of one repetition."""

    forward: float
    backward: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Peak:
    bytes: int
    seconds: float
    result: Any
    gradients: Sequence[torch.Tensor]


def peak(subject: Pass, device: torch.device) -> Peak:
    """Runs the subject once; what it returns is alive while the peak is read, gradients included."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    else:
        before = reset_high_water() - mapped_files()
    start = time.perf_counter()
    result = subject.forward()
    gradients = subject.backward(result)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    seconds = time.perf_counter() - start
    after = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else high_water() - mapped_files()
    return Peak(max(after - before, 0), seconds, result, gradients)


def samples(
    subject: Pass,
    device: torch.device,
    *,
    repeat: int | None,
    seconds: float,
    guess: float,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> list[Sample]:
    """`repeat` repetitions, or as many as `seconds` hold when one takes about `guess`: 3 to 20, one if it is longer."""
    count = repeat or repetitions(guess, seconds)
    flush = torch.empty(L2_FLUSH_BYTES, dtype=torch.int8, device=device) if device.type == "cuda" else None
    taken: list[Sample] = []
    while len(taken) < count:
        tell(len(taken), count)
        taken.append(_on_cuda(subject, flush) if flush is not None else _on_cpu(subject))
        if len(taken) == 1 and repeat is None:
            count = repetitions(taken[0].forward + taken[0].backward, seconds)
    tell(count, count)
    return taken


def repetitions(one: float, seconds: float) -> int:
    if one > seconds:
        return 1
    return max(3, min(MOST_REPETITIONS, int(seconds / max(one, 1e-6))))


def summary(taken: Sequence[Sample]) -> dict[str, float | int | None]:
    """Medians in ms; spreads are (largest - smallest) / median, None for a single repetition."""
    forward, backward, cpu = ([getattr(one, name) for one in taken] for name in ("forward", "backward", "cpu"))
    return {
        "fwd_ms": statistics.median(forward) * 1e3,
        "bwd_ms": statistics.median(backward) * 1e3,
        "fwd_spread": _spread(forward),
        "bwd_spread": _spread(backward),
        "cpu_ms": statistics.median(cpu) * 1e3,
        "repetitions": len(taken),
    }


def _spread(values: Sequence[float]) -> float | None:
    middle = statistics.median(values)
    return (max(values) - min(values)) / middle if len(values) > 1 and middle > 0 else None


def _on_cpu(subject: Pass) -> Sample:
    gc.collect()
    cpu, start = time.process_time(), time.perf_counter()
    result = subject.forward()
    middle = time.perf_counter()
    subject.backward(result)
    return Sample(middle - start, time.perf_counter() - middle, time.process_time() - cpu)


def _on_cuda(subject: Pass, flush: torch.Tensor) -> Sample:
    marks: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(3)]  # type: ignore[no-untyped-call]
    flush.zero_()
    torch.cuda.synchronize(flush.device)
    cpu = time.process_time()
    marks[0].record()
    result = subject.forward()
    marks[1].record()
    subject.backward(result)
    marks[2].record()
    torch.cuda.synchronize(flush.device)
    return Sample(
        marks[0].elapsed_time(marks[1]) / 1e3, marks[1].elapsed_time(marks[2]) / 1e3, time.process_time() - cpu
    )


def reset_high_water() -> int:
    """Sets the process's high-water mark to what it holds now, where that is possible, and returns what it holds.

    Freed blocks that the allocator keeps go back first: what is later put into them would not be seen.
    """
    return_free_memory()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        return high_water()
    return _status("VmRSS") or high_water()


def high_water() -> int:
    """The most memory that this process has held since the last reset, in bytes."""
    told = _status("VmHWM")
    if told is not None:
        return told
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def mapped_files() -> int:
    """Bytes of this process's memory that are files, the code of libraries above all; 0 where the system is silent."""
    return _status("RssFile") or 0


def limit_memory(more: int) -> None:
    """Lets this process have `more` bytes above what it has now: then it is told, not killed. Linux only."""
    data = _status("VmData")
    if data is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (data + more, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _status(name: str) -> int | None:
    try:
        text = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return None
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None
