"""The worker: `python -P -m sinkflex VERB REQUEST_JSON`, VERB train, eval, bench, models or export.

`hello` is out before torch is imported, so that the command line knows within milliseconds that Python is up. Every
way to end becomes one `end` event and one exit code: 0 completed · 1 failed · 2 a config only Python can judge ·
3 something is not installed · 130 stopped · 128 + signal when told to end at once.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import traceback
from pathlib import Path
from typing import Any

from sinkflex.config import Run, load_run, read_json
from sinkflex.control import Control, Terminated
from sinkflex.events import Beat, Events
from sinkflex.refusal import Refusal, disk_is_full

_PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "gymnasium", "numpy")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -P -m sinkflex", description="The SinkFlex worker.", allow_abbrev=False
    )
    parser.add_argument("verb", choices=["train", "eval", "bench", "models", "export"])
    parser.add_argument("request", type=Path, help="run.json of a run; what the command line wrote for another verb")
    parser.add_argument(
        "--events",
        type=Path,
        help="append events to this file instead of file descriptor 3 and do not read standard input (a run by hand)",
    )
    options = parser.parse_args(arguments)
    try:
        events = Events() if options.events is None else Events.to_file(options.events)
    except OSError as error:
        parser.error(f"cannot write events ({error}): open file descriptor 3 or pass --events FILE")
    control = Control(0 if options.events is None else None)
    events.on_gone = control.parent_gone
    control.start()
    beat = Beat(events)
    try:
        code = _run(options.verb, options.request, events, control, beat)
    except KeyboardInterrupt:
        code = _end(events, "stopped", 130)
    except Terminated as order:
        code = _end(events, "stopped", order.exit_code)
    except Refusal as refusal:
        print(f"{refusal.code}: {refusal}", file=sys.stderr)
        code = _end(events, "failed", refusal.exit_code, refusal.as_error())
    except BaseException as error:
        traceback.print_exc()
        meaning = explain(error)
        code = _end(events, "failed", meaning.exit_code, meaning.as_error())
    beat.stop()
    control.finished(code)
    return code


def _run(verb: str, path: Path, events: Events, control: Control, beat: Beat) -> int:
    raw = read_json(path)
    config = raw.get("config")
    events.emit(
        "hello",
        pid=os.getpid(),
        python=platform.python_version(),
        platform=platform.platform(),
        verb=verb,
        attempt=raw.get("attempt"),
        run=raw.get("run"),
        seed=config.get("seed") if isinstance(config, dict) else None,
    )
    beat.start()
    if verb != "train":
        events.enter("loading", 0)
        code = {"eval": _eval, "bench": _bench, "models": _models, "export": _export}[verb](raw, events, control)
        if not events.ended:
            _end(events, {130: "stopped"}.get(code, "completed"), code)
        return code
    run = load_run(path)
    events.status.checkpoint = _resumed_from(run)
    events.enter("loading", 0)
    from sinkflex.train.loop import train

    code = train(run, events, control)
    if not events.ended:
        _end(events, {0: "completed", 130: "stopped"}.get(code, "failed"), code)
    return code


def _eval(raw: dict[str, Any], events: Events, control: Control) -> int:
    from sinkflex.eval.runner import evaluate

    code: int = evaluate(raw, events, control)
    return code


def _bench(raw: dict[str, Any], events: Events, control: Control) -> int:
    from sinkflex.bench.run import bench

    return bench(raw, events, control)


def _models(raw: dict[str, Any], events: Events, control: Control) -> int:
    from sinkflex.models import get

    return get(raw, events)


def _export(raw: dict[str, Any], events: Events, control: Control) -> int:
    from sinkflex.train.export import export

    return export(raw, events)


def _resumed_from(run: Run) -> str | None:
    if run.resume is None:
        return None
    checkpoint = run.resume.checkpoint
    return str(checkpoint.relative_to(run.run_dir) if checkpoint.is_relative_to(run.run_dir) else checkpoint)


def _end(events: Events, status: str, code: int, error: dict[str, Any] | None = None) -> int:
    """The last event. It names the newest checkpoint, so that a reader knows what state was left."""
    if not events.ended:
        at = events.status
        events.emit("end", status=status, exit_code=code, step=at.step, checkpoint=at.checkpoint, error=error)
    return code


def explain(error: BaseException) -> Refusal:
    """What an unexpected exception means to the user; a bug unless it is one of a few known kinds."""
    if _is_missing_package(error):
        return Refusal(
            "SF-PYTHON-PACKAGE",
            f"A Python package cannot be imported: {error}.",
            why=f"This Python ({sys.executable}) does not have all that the run needs, or a broken copy of it.",
            fix="Run `sinkflex doctor --fix`, or install the requirements into the Python that SINKFLEX_PYTHON names.",
            exit_code=3,
        )
    if disk_is_full(error):
        return Refusal(
            "SF-DISK-FULL",
            f"The disk is full: {error}.",
            why="A file of the run could not be written.",
            fix="Free some space or choose another folder with --runs, then resume from the last checkpoint.",
        )
    text = str(error)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in text:
        return Refusal(
            "SF-MEMORY",
            f"Out of memory: {text.splitlines()[0] if text else 'the system gave none'}",
            why="An episode or a micro-batch needs more memory than is free.",
            fix="Lower train.tokens_per_micro_batch or rollout.max_live_episodes, then resume the run.",
        )
    return Refusal(
        "SF-BUG",
        f"{type(error).__name__}: {text}",
        why="SinkFlex did not foresee this; it is a bug in SinkFlex or in a package it uses.",
        fix="The trace is at the end of stderr.log: report it with run.json. The last checkpoint can be resumed.",
        where=_innermost(error),
    )


def _is_missing_package(error: BaseException) -> bool:
    """An import outside SinkFlex that failed, also by a library that the imported package cannot load."""
    if isinstance(error, ImportError):
        return not (error.name or "").startswith("sinkflex")
    frames = traceback.extract_tb(error.__traceback__)
    importing = {Path(frame.filename).parts for frame in frames if frame.name == "<module>"}
    return isinstance(error, OSError) and any(package in parts for parts in importing for package in _PACKAGES)


def _innermost(error: BaseException) -> str | None:
    """file:line of the deepest frame inside SinkFlex."""
    home = str(Path(__file__).resolve().parent)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(home)]
    return f"{Path(frames[-1].filename).relative_to(home)}:{frames[-1].lineno}" if frames else None


if __name__ == "__main__":
    sys.exit(main())
