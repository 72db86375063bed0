"""What the phases share: the device, what was found, where results go, what must not be measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from .crew import Case, Crew, Result
from .ledger import Ledger, Row

SILENCE_S = 150.0  # of a worker at one case: compiling takes half a minute at worst


@dataclass(slots=True)
class Check:
    device: str
    found: Row
    ledger: Ledger
    log: Path
    broken: set[str] = field(default_factory=set)  # what failed its parity: an impl, or `linear`

    @property
    def tiny(self) -> bool:
        return self.device == "cpu"


class Phase(NamedTuple):
    """`share` of the whole time; `run` gets the check and its deadline (time.monotonic)."""

    name: str
    share: float
    run: Callable[[Check, float], None]


def crew(
    check: Check,
    processes: int,
    deadline: float,
    report: Callable[[str, Case, Result], None],
    event: Callable[[Any], None] = lambda event: None,
) -> Crew:
    """Workers with one thread each, told to interpret kernels where there is no GPU."""
    settings = {
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TRITON_INTERPRET": "1" if check.tiny else "0",
    }
    return Crew(processes, deadline, SILENCE_S, settings, check.log, report, event)
