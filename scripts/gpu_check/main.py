"""The order of things: environment, correctness, then records, each with a share of the time.

A phase may use what the phases before it left; what is not done when its time is up is skipped, and said. Correctness
comes first, and an implementation that fails it has no row in the records. Exit code: 0, 1 when anything failed, 130
after Ctrl-C (what there is has been saved).
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import correctness, environment, records, rivals, summary
from .crew import Crew, Job
from .ledger import Ledger, Row
from .phases import Check, Phase

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "runs" / "gpu-check"  # what libraries say names folders of this machine: no part of a record
DEFAULT_SECONDS = 480.0
PHASES = [
    Phase("correctness", 0.33, correctness.run),
    Phase("attention", 0.20, records.attention),
    Phase("rivals", 0.15, rivals.run),
    Phase("model", 0.22, records.model),
    Phase("log-prob", 0.08, records.log_prob),
]


def main(argv: list[str]) -> int:
    given = _arguments(argv)
    signal.signal(signal.SIGTERM, _stop)  # as Ctrl-C: what there is is saved
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sinkflex-gpu-check-") as folder:
        try:
            found = ask_environment(Path(folder) / "log.txt", start + 60)
        except KeyboardInterrupt:
            return 130
    if found["status"] == "failed":
        print(f"torch cannot be used: {found['reason']}", file=sys.stderr)
        return 1
    if given.device == "cuda" and not found["cuda"]:
        print("--device cuda: torch sees no CUDA device", file=sys.stderr)
        return 1
    device = "cuda" if found["cuda"] and given.device != "cpu" else "cpu"
    out = given.out or default_folder(device, found)
    ledger = Ledger(out)
    check = Check(device, found, ledger, (given.out or LOGS) / "log.txt")
    check.log.parent.mkdir(parents=True, exist_ok=True)
    check.log.write_text("")
    print("\n".join(environment.lines(found)))
    if check.tiny:
        print("on the CPU: tiny shapes, to test this program; nothing here is a record")
    print(f"saving to {out}", flush=True)
    ledger.add("environment", **found, device=device, seconds=given.seconds)
    code = _run_phases(check, start, given.seconds, given.only)
    text = summary.text(check.ledger.rows, check.tiny)
    print(text, flush=True)
    (out / "summary.txt").write_text(text + "\n")
    ledger.close()
    return code or summary.exit_code(check.ledger.rows)


def _stop(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _run_phases(check: Check, start: float, seconds: float, only: list[str] | None) -> int:
    share = 0.0
    for phase in PHASES:
        share += phase.share
        if only is not None and phase.name not in only:
            check.ledger.add(phase.name, "skipped", reason="not asked for (--only)")
            continue
        deadline = start + seconds * share
        left = deadline - time.monotonic()
        if left <= 0:
            check.ledger.add(phase.name, "skipped", reason="the time was used up before it began")
            continue
        print(f"{phase.name}: at most {left:.0f} s", flush=True)
        try:
            phase.run(check, deadline)
        except KeyboardInterrupt:
            check.ledger.add(phase.name, "skipped", reason="stopped")
            print("stopped; what there is has been saved", flush=True)
            return 130
        except Exception as error:  # a phase that breaks must not take the others with it
            check.ledger.add(phase.name, "failed", reason=f"{type(error).__name__}: {error}")
    return 0


def ask_environment(log: Path, deadline: float) -> Row:
    answers: list[Row] = []
    crew = Crew(1, deadline, 60.0, {}, log, lambda _kind, _case, result: answers.append(result))
    crew.run([Job("environment", [{}])])
    return answers[0] if answers else {"status": "failed", "reason": "no answer"}


def default_folder(device: str, found: dict[str, Any]) -> Path:
    """Records of a GPU are committed, by its name; what runs on a CPU is not kept."""
    if device == "cpu":
        return LOGS
    name = re.sub(r"[^a-z0-9]+", "-", found["gpu"]["name"].lower()).strip("-")
    return ROOT / "docs" / "benchmarks" / "gpu" / name


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu-check",
        description="Checks every kernel on this GPU, then measures: parity, launch tables, records, in under 8 "
        "minutes. Without a GPU the same plan runs on tiny shapes on the CPU. Needs no network.",
    )
    where = "docs/benchmarks/gpu/<gpu name>, without a GPU runs/gpu-check"
    parser.add_argument("--out", type=Path, help=f"folder for results.jsonl and the records (default: {where})")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--seconds", type=float, default=DEFAULT_SECONDS, help="for all of it (default: %(default).0f)")
    names = [phase.name for phase in PHASES]
    parser.add_argument("--only", nargs="+", metavar="PHASE", choices=names, help=f"only these: {', '.join(names)}")
    return parser.parse_args(argv)
