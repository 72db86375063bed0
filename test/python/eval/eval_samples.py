"""Requests, trials and a worker for the evaluation tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from sinkflex import envs
from sinkflex.control import Control
from sinkflex.eval.results import Trial
from sinkflex.eval.runner import evaluate
from sinkflex.events import Events
from sinkflex.policy.model import build_tiny

SOURCE = Path(__file__).resolve().parents[3] / "python"


def raw(folder: Path, **changes: Any) -> dict[str, Any]:
    """A request for mini-shop's expert, as the command line writes it."""
    return {
        "v": 1,
        "verb": "eval",
        "suite": "mini-shop",
        "split": "tune",
        "tasks": 6,
        "trials": 2,
        "agent": {"kind": "scripted", "name": "expert"},
        "results": str(folder),
        "command": "sinkflex eval mini-shop",
        **changes,
    }


def own_model(folder: Path, suite: str) -> dict[str, str]:
    """The agent of a request: a tiny policy that has learned nothing, as a transformers folder."""
    policy = build_tiny(envs.domain(suite), impl="flash", seed=1, max_positions=512)
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    return {"kind": "model", "path": str(folder)}


def run(request: dict[str, Any], control: Control | None = None) -> tuple[int, list[dict[str, Any]]]:
    """(exit code, events) of an evaluation in this process."""
    records: list[dict[str, Any]] = []
    code = evaluate(request, Events.to_list(records), control or Control(None))
    return code, records


def report_of(events: list[dict[str, Any]]) -> dict[str, Any]:
    [found] = [event["report"] for event in events if event["type"] == "eval_report"]
    return found


def scored(task_id: str, trial: int, reward: float, **more: Any) -> Trial:
    return Trial(task_id, trial, seed=0, reward=reward, graded=reward, outcome="scored", **more)


def faulty(task_id: str, trial: int, owner: str = "user") -> Trial:
    return Trial(task_id, trial, seed=0, outcome="infra_error", owner=owner, error="HTTP 429", reason="user_error")


def start_worker(folder: Path, request: dict[str, Any]) -> subprocess.Popen[bytes]:
    """The real worker on a request file beside the results."""
    path = folder / "request.json"
    path.write_text(json.dumps(request))
    command = [sys.executable, "-P", "-m", "sinkflex", "eval", str(path), "--events", str(folder / "events.jsonl")]
    path = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
