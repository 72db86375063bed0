"""One cell: what a child process is told to measure. Standard library only.

A cell is one subject, length, impl and window on one device in one dtype. The child answers with the fields of `blank`.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

ERRORS = {
    "attention": ("out", "dq", "dk", "dv", "da"),
    "log-prob": ("log_prob", "dhidden", "dweight"),
    "model": ("loss", "gradient"),
}


@dataclass(frozen=True, slots=True)
class Spec:
    """`seconds`: how long the timed repetitions may take. `memory_limit`: bytes that the child may take (Linux).
    `allocator`: the settings it is timed with."""

    what: str
    seq: int
    impl: str
    device: str
    dtype: str
    window: int | None
    geometry: dict[str, Any]
    seed: int = 0
    threads: int = 1
    repeat: int | None = None
    seconds: float = 10.0
    memory_limit: int | None = None
    allocator: dict[str, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode() + b"\n"


def decode(line: bytes) -> Spec:
    return Spec(**json.loads(line))


def blank(spec: Spec, status: str, reason: str | None) -> dict[str, Any]:
    """The cell without a figure. A status other than `ok` never carries a time."""
    return {
        "seq": spec.seq,
        "impl": spec.impl,
        "device": spec.device,
        "dtype": spec.dtype,
        "window": spec.window,
        "status": status,
        "reason": reason,
        "fwd_ms": None,
        "bwd_ms": None,
        "fwd_spread": None,
        "bwd_spread": None,
        "cpu_ms": None,
        "repetitions": None,
        "peak_bytes": None,
        "floor_bytes": None,
        "flops": None,
        "tflops_fwd": None,
        "tflops_bwd": None,
        "error": dict.fromkeys(ERRORS[spec.what]),
        "parity_limit": {},
    }
