"""Small real runs of the loop: mini-shop, the tiny policy, a handful of steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sinkflex.config import Run, load_run
from sinkflex.control import Control
from sinkflex.events import Events
from sinkflex.train.loop import train

CONFIG: dict[str, Any] = {
    "name": "small",
    "seed": 5,
    "device": "auto",
    "threads": 1,
    "model": {"preset": "tiny-gpt-oss", "dtype": "float32", "lora": None},
    "attention": {"impl": "auto"},
    "env": {
        "suite": "mini-shop",
        "split": "train",
        "user": "scripted",
        "max_turns": 6,
        "max_errors": 3,
        "levels": [3],
        "tasks": None,
        "system_prompt": "none",
        "examples": 0,
    },
    "rollout": {
        "engine": "local",
        "group_size": 4,
        "tasks_per_step": 3,
        "max_live_episodes": 8,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "max_new_tokens": 16,
        "max_total_tokens": 400,
    },
    "algorithm": {
        "reward": "exact",
        "advantage": "grpo",
        "normalize": "std",
        "loss": "clip",
        "clip_low": 0.2,
        "clip_high": 0.28,
        "aggregate": "token_mean",
        "constant_length": None,
        "zero_variance": "keep",
        "mask_truncated": False,
        "mini_batches": 2,
        "epochs": 1,
        "kl": {"coef": 0.0, "estimator": "k3"},
    },
    "optim": {
        "lr": 1e-3,
        "betas": [0.9, 0.95],
        "weight_decay": 0.01,
        "warmup_steps": 10,
        "schedule": "constant",
        "grad_clip": 1.0,
    },
    "warm_start": {
        "sft": {
            "lr": 1e-4,
            "episodes_per_step": 8,
            "grad_clip": 1.0,
            "demonstrations": [
                {"agent": "expert", "steps": 4, "levels": None},
                {"agent": "faulty", "steps": 2, "levels": [3]},
            ],
        }
    },
    "train": {
        "steps": 4,
        "activation_checkpointing": False,
        "tokens_per_micro_batch": 2048,
        "logprob_gap_limit": 0.01,
        "max_infra_rate": 0.2,
        "zero_variance_warn": 1.0,
    },
    "eval": {
        "suites": ["mini-shop"],
        "every": 2,
        "split": "tune",
        "tasks": 4,
        "report_split": "report",
        "report_tasks": 6,
        "trials": 1,
        "temperature": 1.0,
    },
    "checkpoint": {"every": 1, "keep": 9},
    "launch": {"engine": "local"},
}


LEARN = {
    "warm_start.sft.demonstrations": [{"agent": "expert", "steps": 160, "levels": None}],
    "warm_start.sft.episodes_per_step": 12,
    "warm_start.sft.lr": 4e-3,
    "train.steps": 1,
    "eval": None,
}
"""Changes under which the tiny policy learns enough of level 3 that groups differ in reward."""


def changed(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A deep copy with dotted keys set."""
    copy: dict[str, Any] = json.loads(json.dumps(config))
    for key, value in changes.items():
        at = copy
        *path, last = key.split(".")
        for part in path:
            at = at[part]
        at[last] = value
    return copy


def make_run(
    folder: Path,
    changes: dict[str, Any] | None = None,
    resume: tuple[Path, int] | None = None,
    start: Path | None = None,
) -> Run:
    """run.json in `folder`, loaded. `start`: a checkpoint whose weights the policy starts from, not the preset's."""
    folder.mkdir(exist_ok=True)
    begun_from = {} if start is None else {"model": {"path": str(start), "dtype": "float32", "lora": None}}
    record = {
        "v": 1,
        "verb": "train",
        "run": "small-1",
        "run_dir": str(folder),
        "config_file": str(folder / "config.yaml"),
        "config_sha256": "0" * 64,
        "attempt": 1 if resume is None else 2,
        "resume": None if resume is None else {"checkpoint": str(resume[0]), "step": resume[1]},
        "config": changed(CONFIG, begun_from | (changes or {})),
    }
    path = folder / "run.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    return load_run(path)


def launch(run: Run, control: Control | None = None) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and events of a run in this process."""
    records: list[dict[str, Any]] = []
    code = train(run, Events.to_list(records), control or Control(None))
    return code, records


class StopAfter(Control):
    """Asks to stop once `count` events of one kind (and stage) were emitted."""

    def __init__(self, records: list[dict[str, Any]], count: int, stage: str) -> None:
        super().__init__(None)
        self._records, self._count, self._stage = records, count, stage

    @property
    def stop_requested(self) -> bool:
        return sum(r["type"] == "step" and r["stage"] == self._stage for r in self._records) >= self._count


def launch_and_stop(run: Run, count: int, stage: str = "rl") -> tuple[int, list[dict[str, Any]]]:
    records: list[dict[str, Any]] = []
    code = train(run, Events.to_list(records), StopAfter(records, count, stage))
    return code, records


def stable(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events minus clocks, as DESIGN's determinism promise counts them."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                k: strip(v)
                for k, v in value.items()
                if not (k.endswith("_s") or k.endswith("_per_second") or k in {"t", "seq", "rss_bytes", "pid"})
            }
        return [strip(v) for v in value] if isinstance(value, list) else value

    return [strip(r) for r in records if r["type"] != "beat"]
