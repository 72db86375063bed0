"""The child of `sinkflex bench`: measures one cell. `python -P -m sinkflex.bench.cell`, spoken to by child.py.

Reads one line (Spec) on standard input, answers with JSON lines on standard output: {"stage", "done", "total"} while it
works, then the cell. Order: parity of a short problem; the peak, on a heap that nothing has fragmented yet (CUDA
compiles first); parity at the cell's own length with what that pass returned; warm-up; time. Without green parity there
are no figures. What libraries print goes to standard error. When standard input ends, the parent is gone, and this
process ends its group, whatever it is doing.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from .spec import Spec, blank, decode

Tell = Callable[[str, int, int], None]

# How running out of memory reads, where it does not come as a MemoryError.
_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "std::bad_alloc", "Cannot allocate")
SLOW_SECONDS = 20.0
"""A pass that takes longer is not warmed up once more: the pass that was measured for memory has done it."""


class Subject(Protocol):
    """What a cell measures. `work` holds floor_bytes and flops; `forget` drops what a pass has kept for the next;
    `trace` may say what memory is made of: `breakdown` of the peak, and `largest`, each part when it is itself."""

    @property
    def limits(self) -> dict[str, float]: ...
    @property
    def work(self) -> dict[str, Any]: ...
    def short_errors(self) -> dict[str, float]: ...
    def allocate(self) -> None: ...
    def forward(self) -> Any: ...
    def backward(self, result: Any) -> Sequence[Any]: ...
    def forget(self) -> None: ...
    def errors(self, result: Any, gradients: Sequence[Any]) -> dict[str, float]: ...
    def rates(self, work: Mapping[str, Any], times: Mapping[str, Any]) -> dict[str, float | None]: ...
    def trace(self) -> dict[str, dict[str, int]] | None: ...


def measure(spec: Spec, subject: Subject, tell: Tell = lambda stage, done, total: None) -> dict[str, Any]:
    """The finished cell. An exception of the implementation is a failed cell with its reason; so is a red parity."""
    try:
        return _measure(spec, subject, tell)
    except Exception as error:
        text = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
        if is_out_of_memory(error):
            return blank(spec, "does_not_fit", f"tried: out of memory ({text[:300]})")
        return blank(spec, "failed", text[:500])


def _measure(spec: Spec, subject: Subject, tell: Tell) -> dict[str, Any]:
    import torch

    from . import flops
    from . import measure as meter
    from .machine import set_allocator

    device = torch.device(spec.device)
    tell("parity", 0, 2)
    errors = subject.short_errors()
    subject.allocate()
    red = _red(errors, subject.limits)
    if red is not None:
        return _failed(spec, subject, errors, f"parity of a short problem: {red}")
    if device.type == "cuda":
        tell("warm-up", 0, 1)
        subject.backward(subject.forward())
        subject.forget()
    tell("memory", 0, 1)
    peak = meter.peak(subject, device)
    tell("parity", 1, 2)
    for name, error in subject.errors(peak.result, peak.gradients).items():
        errors[name] = max(errors.get(name, 0.0), error)
    red = _red(errors, subject.limits)
    if red is not None:
        return _failed(spec, subject, errors, f"parity at {spec.seq} tokens: {red}")
    seconds, peak_bytes = peak.seconds, peak.bytes
    del peak
    gc.collect()
    set_allocator(spec.allocator)
    if seconds < SLOW_SECONDS:
        tell("warm-up", 0, 1)
        subject.backward(subject.forward())
    taken = meter.samples(
        subject,
        device,
        repeat=spec.repeat,
        seconds=spec.seconds,
        guess=seconds,
        tell=lambda done, total: tell("time", done, total),
    )
    times, work = meter.summary(taken), subject.work
    rates = subject.rates(work, times)
    most = flops.most_of(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    if most is not None and any(rate is not None and rate > most for rate in rates.values()):
        return _failed(spec, subject, errors, f"{rates} TFLOP/s; the card has {most}: the clock is wrong")
    parts = subject.trace() or {}
    if "breakdown" in parts:
        parts["breakdown"]["rest"] = peak_bytes - sum(parts["breakdown"].values())
    return {
        **blank(spec, "ok", None),
        **times,
        **work,
        **rates,
        "peak_bytes": peak_bytes,
        "error": {**blank(spec, "ok", None)["error"], **errors},
        "parity_limit": subject.limits,
        "first_pass_s": seconds,
        **parts,
    }


def _red(errors: Mapping[str, float], limits: Mapping[str, float]) -> str | None:
    """What is above its limit; a NaN is."""
    over = [f"{name} {error:.1e}, at most {limits[name]:.1e}" for name, error in errors.items()
            if not error <= limits[name]]  # fmt: skip
    return "; ".join(over) or None


def _failed(spec: Spec, subject: Subject, errors: Mapping[str, float], reason: str) -> dict[str, Any]:
    empty = blank(spec, "failed", reason)
    return {**empty, "error": {**empty["error"], **errors}, "parity_limit": subject.limits}


def is_out_of_memory(error: BaseException) -> bool:
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or any(words in str(error) for words in _OUT_OF_MEMORY)
    )


def subject_of(spec: Spec) -> Subject:
    if spec.what == "attention":
        from .attention import Attention

        return Attention(spec)
    if spec.what == "log-prob":
        from .log_prob import LogProbs

        return LogProbs(spec)
    from .model import Model

    return Model(spec)


def main() -> int:
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print must not mix with the answers
    spec = decode(_first_line())
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()

    def answer(body: Mapping[str, Any]) -> None:
        os.write(answers, json.dumps(_finite(body)).encode() + b"\n")

    def tell(stage: str, done: int, total: int) -> None:
        answer({"stage": stage, "done": done, "total": total})

    def work() -> dict[str, Any]:
        import torch

        from .measure import limit_memory

        torch.set_num_threads(spec.threads)
        torch.manual_seed(spec.seed)
        subject = subject_of(spec)
        if spec.memory_limit is not None and spec.device == "cpu":
            limit_memory(spec.memory_limit)
        return measure(spec, subject, tell)

    try:
        cell = work()
    except Exception as error:  # before anything was measured: a package is missing or broken
        cell = blank(spec, "failed", f"{type(error).__name__}: {error}"[:500])
    answer(cell)
    return 0


def _first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        more = os.read(0, 65536)
        if not more:
            sys.exit("the cell to measure comes as one line on standard input; sinkflex bench sends it")
        line += more
    return line


def _end_with_parent() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 65536):
            pass
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _finite(value: Any) -> Any:
    """Numbers that are not finite are null, as in every event."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


if __name__ == "__main__":
    sys.exit(main())
