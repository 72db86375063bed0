"""The results folder: what was measured so far, such that a kill at any moment neither repeats nor loses a trial.

    request.json   what was asked for last, to ask for it again
    eval.json      the identity (request.py): what a score of this folder means; written once, compared at a resume
    trials.jsonl   one finished trial a line, only ever appended to, on the disk before it is reported
    report.json    the report, a function of the two above (simulations.json too: export.py)

A line that a kill cut short is dropped when the folder is opened again. (task, trial) occurs once; a retried trial is
a later line that replaces the earlier one, whose number of attempts it carries on.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sinkflex.refusal import Refusal

HEADER, TRIALS, REPORT, REQUEST = "eval.json", "trials.jsonl", "report.json", "request.json"
Key = tuple[str, int]


@dataclass(slots=True)
class Trial:
    """One finished trial. `reward` is None unless `outcome` is "scored"; `owner` and `error` say what failed instead.

    `tokens` are prompt and completion tokens of the agent and, apart, of a user and a judge behind an endpoint; `cost`
    is None where it is not known. `length_finishes` counts answers cut by max_new_tokens. `transcript`: the dialogue
    as messages {role, content, name, tool_call_id, tool_calls, is_error}.
    """

    task_id: str
    trial: int
    seed: int
    level: str = ""
    reward: float | None = None
    graded: float | None = None
    reward_parts: dict[str, float] = field(default_factory=dict)
    outcome: str = "unscorable"
    owner: str | None = None
    error: str | None = None
    reason: str | None = None
    terminated: bool = False
    truncated: bool = False
    turns: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    parse_failures: int = 0
    user_owned_calls: int = 0
    coerced_arguments: int = 0
    length_finishes: int = 0
    tokens: dict[str, int] = field(default_factory=dict)
    cost: float | None = None
    attempts: int = 1
    wall_s: float = 0.0
    transcript: list[dict[str, Any]] = field(default_factory=list)

    @property
    def key(self) -> Key:
        return self.task_id, self.trial


class Results:
    """An open results folder; `trials` are the finished ones by (task, trial)."""

    def __init__(self, folder: Path, header: Mapping[str, Any]) -> None:
        """Opens or creates `folder`. Refusal: it belongs to another measurement, is in use, or cannot be written."""
        self.folder = folder
        self.trials: dict[Key, Trial] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refusal(
                "SF-EVAL-IN-USE",
                f"{folder} is being written by another evaluation.",
                why="Two writers would mix their trials.",
                fix="Wait for it, or choose another folder with --out.",
                exit_code=2,
            ) from None
        except OSError as error:
            raise _unwritable(folder, error) from error
        self._check_header(dict(header))
        self._file = self._open_trials()

    def add(self, trial: Trial) -> None:
        """Writes a finished trial to the disk, then counts it."""
        line = json.dumps(asdict(trial), ensure_ascii=False, allow_nan=False) + "\n"
        try:
            view = memoryview(line.encode())
            while view:
                view = view[os.write(self._file, view) :]
            os.fsync(self._file)
        except OSError as error:
            raise _unwritable(self.folder / TRIALS, error) from error
        self.trials[trial.key] = trial

    def write_report(self, report: Mapping[str, Any]) -> Path:
        return self.write(REPORT, report)

    def write(self, name: str, content: Mapping[str, Any]) -> Path:
        """A file of the folder that follows from the trials, replaced as a whole."""
        path = self.folder / name
        _replace(path, dict(content))
        return path

    def close(self) -> None:
        os.close(self._file)
        os.close(self._lock)

    def _check_header(self, header: dict[str, Any]) -> None:
        path = self.folder / HEADER
        if not path.exists():
            if any((self.folder / name).exists() for name in (TRIALS, REPORT)):
                raise Refusal(
                    "SF-EVAL-FOREIGN",
                    f"{self.folder} holds files of something else.",
                    why=f"It has no {HEADER}, so nothing says what its results mean.",
                    fix="Choose another folder with --out.",
                    exit_code=2,
                )
            _replace(path, header)
            return
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise _foreign(self.folder, f"its {HEADER} cannot be read: {error}") from error
        changed = sorted(name for name in header.keys() | found.keys() if header.get(name) != found.get(name))
        if changed:
            words = "; ".join(f"{name} was {found.get(name)!r}, now {header.get(name)!r}" for name in changed)
            raise _foreign(self.folder, f"{words}: trials of both would be mixed")

    def _open_trials(self) -> int:
        path = self.folder / TRIALS
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                trial = Trial(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise _foreign(self.folder, f"line {number} of {TRIALS} is no trial: {error}") from error
            self.trials[trial.key] = trial
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        if len(whole) != len(data):
            os.ftruncate(file, len(whole))
        os.lseek(file, 0, os.SEEK_END)
        return file


def read_trials(folder: Path) -> tuple[dict[str, Any], dict[Key, Trial]]:
    """(identity, trials) of a folder, for reading only. Refusal when it is no results folder."""
    try:
        header = json.loads((folder / HEADER).read_text(encoding="utf-8"))
        text = (folder / TRIALS).read_text(encoding="utf-8") if (folder / TRIALS).exists() else ""
    except (OSError, ValueError) as error:
        raise _foreign(folder, f"it is no results folder of an evaluation: {error}") from error
    whole = text[: text.rfind("\n") + 1]
    trials = [Trial(**json.loads(line)) for line in whole.splitlines()]
    return header, {trial.key: trial for trial in trials}


def _replace(path: Path, content: dict[str, Any]) -> None:
    """Written beside its place, flushed, renamed: whole or absent."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error


def _foreign(folder: Path, why: str) -> Refusal:
    return Refusal(
        "SF-EVAL-OTHER",
        f"{folder} cannot be continued.",
        why=f"{why[0].upper()}{why[1:]}.",
        fix="Repeat the command it was begun with, or choose another folder with --out.",
        exit_code=2,
    )


def _unwritable(path: Path, error: OSError) -> Refusal:
    return Refusal(
        "SF-EVAL-WRITE",
        f"{path} cannot be written: {error.strerror or error}.",
        why="A trial that is not on the disk would be lost; those written before are safe.",
        fix="Free some space or choose another folder with --out, then resume.",
    )
