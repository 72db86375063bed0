"""The end of a check for people: what passed, failed, was refused or skipped and why, and which targets were hit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from . import targets
from .ledger import Row

TESTS = ("parity", "offsets", "log-prob parity", "launches")
STATUSES = ("passed", "failed", "refused", "skipped")


def exit_code(rows: Sequence[Row]) -> int:
    return int(any(row["status"] == "failed" for row in rows))


def text(rows: Sequence[Row], tiny: bool) -> str:
    parts = [["", "Correctness", *_tests(rows)], ["", "Records", *_records(rows)]]
    if not tiny:
        parts.append(["", f"Targets (set for an H200; this is {_card(rows)})", *_targets(rows)])
    for status, title in (("failed", "Failed"), ("refused", "Refused"), ("skipped", "Skipped")):
        reasons = _reasons(rows, status)
        parts.append(["", title, *(reasons or ["  nothing"])])
    return "\n".join(line for part in parts for line in part).lstrip("\n")


def _tests(rows: Sequence[Row]) -> list[str]:
    """One line per kind of test and implementation."""
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        if row["phase"] in TESTS and "case" in row:
            name = " ".join(filter(None, (row["phase"], row["case"].get("impl"))))
            counts.setdefault(name, Counter())[row["status"]] += 1
    width = max((len(name) for name in counts), default=0)
    return [
        f"  {name.ljust(width)}  {', '.join(f'{found[status]} {status}' for status in STATUSES if found[status])}"
        for name, found in counts.items()
    ] or ["  nothing was run"]


def _records(rows: Sequence[Row]) -> list[str]:
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        measured = row.get("cell") or row.get("row")
        if measured is not None:
            counts.setdefault(row["phase"], Counter())[measured["status"].replace("_", " ")] += 1
    return [
        f"  {what}: {', '.join(f'{count} {status}' for status, count in found.items())}"
        for what, found in counts.items()
    ] or ["  nothing was measured"]


def _targets(rows: Sequence[Row]) -> list[str]:
    """Ours, then those of the comparison with rivals, which measured them again side by side."""
    lines = [f"  {t.verdict:13}{t.what}{f'; {t.measured}' if t.measured else ''}" for t in targets.of(rows)]
    for row in rows:
        for target in row.get("targets", ()):
            measured = "" if target["value"] is None else f"; {target['value']:.3g}"
            lines.append(f"  {target['verdict']:13}beside rivals: {target['what']}{measured}")
    return lines


def _card(rows: Sequence[Row]) -> str:
    return next((row["gpu"]["name"] for row in rows if row["phase"] == "environment"), "unknown")


def _reasons(rows: Sequence[Row], status: str) -> list[str]:
    """The reasons of all rows with this status, each with how often it occurs; what they share stands for many."""
    reasons = Counter(
        f"{row['phase']}: {row.get('reason', 'no reason given')}" for row in rows if row["status"] == status
    )
    return [f"  {count} x {reason}" if count > 1 else f"  {reason}" for reason, count in reasons.most_common()]
