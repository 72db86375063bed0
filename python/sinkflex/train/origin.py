"""Where the policy of a run comes from: built from the seed or loaded from a folder, and given an adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from sinkflex.config import Config, Run
from sinkflex.policy.model import Policy, base_folder, build_tiny, load_policy
from sinkflex.refusal import Refusal


def model_folder(run: Run) -> Path | None:
    """Where the model lies that the command line found or brought; None for one that is built from the seed."""
    if run.model_folder is not None or run.config.model.preset == "tiny-gpt-oss":
        return run.model_folder
    if run.config.model.path is not None:
        return Path(run.config.model.path)
    raise Refusal(
        "SF-MODEL-FOLDER",
        f"run.json does not say where the model {run.config.model.preset} is.",
        why="The command line finds or brings it before it starts the worker.",
        fix="Start the run again; `sinkflex models list` says what is here.",
        where="model_folder",
        owner="policy",
        exit_code=2,
    )


def model_dtype(config: Config, device: torch.device, built: bool) -> torch.dtype:
    if config.model.dtype != "auto":
        return torch.float32 if config.model.dtype == "float32" else torch.bfloat16
    return torch.bfloat16 if device.type == "cuda" and not built else torch.float32


def make_policy(run: Run, folder: Path | None, domain: Any, *, impl: str, dtype: torch.dtype) -> Policy:
    """The policy as the run's first update finds it, on the CPU; the same at a start and at a resume."""
    config, lora = run.config, run.config.model.lora
    if folder is None:
        if lora is not None:
            raise _refuse(
                "the model is built from the seed", "Its weights have learned nothing that could stay as it is."
            )
        return build_tiny(domain, impl=impl, seed=config.seed, max_positions=config.rollout.max_total_tokens)
    if base_folder(folder) != folder:
        raise Refusal(
            "SF-MODEL-ADAPTER",
            f"{folder} holds an adapter, not a model.",
            why="A run starts from a whole model; with model.lora it makes an adapter of its own.",
            fix="Merge the adapter into its model first: `sinkflex export RUN FOLDER --merge`.",
            where="model.path",
            owner="policy",
            exit_code=2,
        )
    policy = load_policy(folder, impl=impl, dtype=dtype)
    if lora is not None:
        from sinkflex.policy.adapter import add_adapter

        policy.adapter = add_adapter(
            policy.model,
            rank=lora.rank,
            alpha=lora.alpha,
            targets=lora.targets,
            seed=config.seed,
            base=folder.resolve(),
        )
    return policy


def _refuse(what: str, why: str) -> Refusal:
    return Refusal(
        "SF-CONFIG-LORA",
        f"model.lora was asked for, and {what}.",
        why=why,
        fix="Remove model.lora, or load a model with model.preset or model.path.",
        where="model.lora",
        owner="policy",
        exit_code=2,
    )
