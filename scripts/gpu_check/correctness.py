"""Correctness on the device: parity of every implementation, 64-bit offsets, log-prob, every launch configuration."""

from __future__ import annotations

import os

from . import cases, launches, log_prob_parity
from .crew import Case, Job, Result
from .phases import Check, crew

MOST_PROCESSES = 8  # each takes about half a gigabyte of the GPU before it computes anything

MOST_LINES = 20


def run(check: Check, deadline: float) -> None:
    counts: dict[str, int] = {}

    def report(kind: str, case: Case, result: Result) -> None:
        named = {key: value for key, value in case.items() if key != "device"}
        row = check.ledger.add(kind, result["status"], case=named, **{k: v for k, v in result.items() if k != "status"})
        counts[row["status"]] = counts.get(row["status"], 0) + 1
        if row["status"] == "failed":
            check.broken.add(case.get("impl", "linear"))
            if counts["failed"] <= MOST_LINES:
                which = ", ".join(f"{key} {value}" for key, value in named.items())
                print(f"  failed: {kind}: {which}: {result['reason']}", flush=True)
            elif counts["failed"] == MOST_LINES + 1:
                print("  failed: more, all in results.jsonl", flush=True)

    cores = os.cpu_count() or 1
    processes = 1 if check.tiny else max(1, min(MOST_PROCESSES, cores // 2))
    crew(check, processes, deadline, report).run(jobs(check.device))
    print(f"  {', '.join(f'{count} {status}' for status, count in sorted(counts.items()))}", flush=True)
    verify_launches(check)


def jobs(device: str) -> list[Job]:
    """gpt-oss's head_dim in bfloat16 first, then log-prob and offsets, then the rest."""
    parity = cases.parity_jobs(device)
    first = len(cases.IMPLS)
    dtype = "float16" if device == "cpu" else "bfloat16"
    offsets = [
        Job("offsets", [{"impl": impl, "form": form, "dtype": dtype, "device": device}])
        for form in ("strided", "long")
        for impl in cases.IMPLS
    ]
    return [*parity[:first], *log_prob_parity.jobs(device), *offsets, *parity[first:]]


def verify_launches(check: Check) -> None:
    """A row for every entry of this GPU's launch tables."""
    if check.tiny or check.found["packages"]["triton"] is None:
        reason = "the interpreter has no launch table" if check.tiny else "triton is not installed"
        check.ledger.add("launches", "skipped", reason=reason)
        return
    table = launches.table_of(*check.found["gpu"]["capability"])
    for name, status, reason in launches.verified(table, check.ledger.of("parity", "log-prob parity")):
        check.ledger.add("launches", status, case={"entry": name}, **({} if reason is None else {"reason": reason}))
