"""run.json as frozen dataclasses. Standard library only: a bad file is refused before the slow imports.

Idea: src/config/schema.ts is the only definition of the config. It has already checked every value, filled in every
default and written the result to run.json, so nothing is defaulted, coerced or guessed here. What can go wrong is that
the command line and the worker are of different versions; then a key is unknown, missing or of another type, and the
refusal names each such key. The defaults below serve tests and scripts; a test holds them equal to configs/schema.json.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sinkflex.record import MAY_BE_ABSENT, read_record
from sinkflex.refusal import Refusal

Suite = Literal["mini-shop", "tool-calls", "tau2-retail", "tau2-airline", "tau2-telecom", "tau2-telecom-solo"]


@dataclass(frozen=True, slots=True)
class Lora:
    rank: int = 16
    alpha: float = 32.0
    targets: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """Exactly one of `preset` and `path`."""

    preset: Literal["tiny-gpt-oss", "smollm2-135m"] | None = field(default=None, metadata=MAY_BE_ABSENT)
    path: str | None = field(default=None, metadata=MAY_BE_ABSENT)
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    lora: Lora | None = None


@dataclass(frozen=True, slots=True)
class Attention:
    impl: Literal["auto", "eager", "flash", "flex", "triton"] = "auto"


@dataclass(frozen=True, slots=True)
class Env:
    suite: Suite
    split: str = "train"
    user: Literal["scripted"] = "scripted"
    max_turns: int = 12
    max_errors: int = 4
    levels: tuple[int, ...] | None = None
    tasks: tuple[str, ...] | None = None
    system_prompt: Literal["full", "none"] = "full"
    examples: int = 0


@dataclass(frozen=True, slots=True)
class Rollout:
    engine: Literal["local"] = "local"
    group_size: int = 8
    tasks_per_step: int = 8
    max_live_episodes: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 64
    max_total_tokens: int = 4096


@dataclass(frozen=True, slots=True)
class Kl:
    coef: float = 0.0
    estimator: Literal["k3", "k2"] = "k3"


@dataclass(frozen=True, slots=True)
class Algorithm:
    reward: Literal["exact", "graded"] = "exact"
    advantage: Literal["grpo", "reinforce_plus_plus"] = "grpo"
    normalize: Literal["std", "none"] = "std"
    loss: Literal["clip"] = "clip"
    clip_low: float = 0.2
    clip_high: float = 0.2
    aggregate: Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant_length"] = "token_mean"
    constant_length: int | None = None
    zero_variance: Literal["exclude", "keep"] = "exclude"
    mask_truncated: bool = False
    mini_batches: int = 1
    epochs: int = 1
    kl: Kl = Kl()


@dataclass(frozen=True, slots=True)
class Optim:
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    warmup_steps: int = 5
    schedule: Literal["constant", "linear"] = "constant"
    grad_clip: float = 1.0


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """`steps` supervised steps on demonstrations of one scripted agent, of the given levels only."""

    agent: Literal["expert", "faulty", "gold"]
    steps: int
    levels: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Sft:
    demonstrations: tuple[Demonstrations, ...]
    lr: float = 4e-3
    episodes_per_step: int = 24
    grad_clip: float = 1.0


@dataclass(frozen=True, slots=True)
class WarmStart:
    sft: Sft


@dataclass(frozen=True, slots=True)
class Train:
    steps: int
    tokens_per_micro_batch: int = 8192
    activation_checkpointing: bool = False
    logprob_gap_limit: float = 0.01
    max_infra_rate: float = 0.2
    zero_variance_warn: float = 0.9


@dataclass(frozen=True, slots=True)
class Eval:
    """Step 0 and the last step are measured on `report_split`, the steps between on `split`."""

    suites: tuple[Suite, ...]
    every: int = 10
    split: str = "tune"
    tasks: int = 60
    report_split: str = "report"
    report_tasks: int = 200
    trials: int = 1
    temperature: float = 1.0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    every: int = 20
    keep: int = 3


@dataclass(frozen=True, slots=True)
class Launch:
    engine: Literal["local"] = "local"


@dataclass(frozen=True, slots=True)
class Config:
    name: str
    model: Model
    env: Env
    train: Train
    eval: Eval | None
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Literal["auto"] | int = "auto"
    attention: Attention = Attention()
    rollout: Rollout = Rollout()
    algorithm: Algorithm = Algorithm()
    optim: Optim = Optim()
    warm_start: WarmStart | None = None
    checkpoint: Checkpoint = Checkpoint()
    launch: Launch = Launch()


@dataclass(frozen=True, slots=True)
class Resume:
    checkpoint: Path
    step: int


@dataclass(frozen=True, slots=True)
class Run:
    """run.json: one launch. `attempt` counts from 1; a resume is the next attempt of the same run. `model_folder` is
    where the command line found or put the transformers folder of the model; None for one that is built from a seed."""

    v: Literal[1]
    verb: Literal["train"]
    run: str
    run_dir: Path
    config_file: Path
    config_sha256: str
    attempt: int
    resume: Resume | None
    config: Config
    model_folder: Path | None = field(default=None, metadata=MAY_BE_ABSENT)


def read_json(path: Path) -> dict[str, Any]:
    """run.json as it stands. Refuses what is no readable JSON object."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unreadable(path, f"{error.strerror or error}.") from error
    except ValueError as error:
        raise _unreadable(path, f"It is not JSON: {error}.") from error
    if not isinstance(raw, dict):
        raise _unreadable(path, f"It holds a {type(raw).__name__}, not an object.")
    return raw


def load_run(path: Path) -> Run:
    """The run that `path` (run.json) describes. All problems are reported in one `Refusal` (exit code 2)."""
    return parse_run(read_json(path), where=str(path))


def parse_run(raw: dict[str, Any], where: str = "run.json") -> Run:
    problems: list[str] = []
    run = read_record(Run, raw, "", problems)
    if problems or run is None:
        raise Refusal(
            "SF-CONFIG-VERSION",
            f"run.json does not fit this worker: {'; '.join(problems)}.",
            why="The command line writes run.json and the worker reads it; they are of different versions.",
            fix="Build both from one checkout (npm run build), then run `sinkflex doctor --fix`.",
            where=where,
            exit_code=2,
        )
    _check_meaning(run.config, where)
    return run


def _check_meaning(config: Config, where: str) -> None:
    """Rules between keys that would train something else than was asked for, should the command line miss them."""
    if (config.model.preset is None) == (config.model.path is None):
        raise Refusal(
            "SF-CONFIG-MODEL",
            "`model` needs exactly one of `preset` and `path`.",
            why="A preset builds a model, a path loads one.",
            fix="Remove one of the two keys.",
            where=where,
            exit_code=2,
        )
    if config.rollout.top_p != 1.0 or config.rollout.top_k != 0:
        raise Refusal(
            "SF-CONFIG-SAMPLING",
            f"`rollout.top_p` is {config.rollout.top_p} and `rollout.top_k` is {config.rollout.top_k}.",
            why="Cutting the distribution makes sampled log-probs larger than the ones the loss computes over the "
            "whole vocabulary, so every importance ratio would be off by the kept mass.",
            fix="Use top_p: 1.0 and top_k: 0; lower `rollout.temperature` for less noise.",
            where=where,
            owner="policy",
            exit_code=2,
        )
    if config.algorithm.aggregate == "constant_length" and config.algorithm.constant_length is None:
        raise Refusal(
            "SF-CONFIG-LENGTH",
            "`algorithm.aggregate` is constant_length and `algorithm.constant_length` is missing.",
            why="The divisor must not depend on the batch.",
            fix="Set `algorithm.constant_length`, for example to the most tokens an episode may sample.",
            where=where,
            owner="policy",
            exit_code=2,
        )


def _unreadable(path: Path, why: str) -> Refusal:
    return Refusal(
        "SF-RUN-JSON",
        f"Cannot read {path}.",
        why=why,
        fix="Start the run again; the command line writes this file.",
        where=str(path),
        exit_code=2,
    )
