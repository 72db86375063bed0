"""`sinkflex export` in the worker: a checkpoint's policy as a folder that transformers, peft and vLLM load.

The request is JSON: {"checkpoint": FOLDER, "folder": FOLDER, "merge": bool}. Of a policy with an adapter the adapter is
copied as it is, or, with `merge`, added to its base model's weights in the dtype that these have on the disk; any other
policy is copied. What only a resume needs stays behind. The folder is written beside its place and renamed: whole or
absent. Progress travels as `phase` events, the result as one `model` event.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from sinkflex.events import Events
from sinkflex.policy.model import base_folder
from sinkflex.refusal import ExitCode, Refusal, disk_is_full

from . import checkpoint

_OWN = frozenset(("trainer.json", "optimizer.pt"))


def export(request: Mapping[str, Any], events: Events) -> int:
    """Answers one request; returns the exit code. Refusals: the checkpoint is damaged, its base is gone, `folder` holds
    something, the disk is full."""
    source, target = Path(request["checkpoint"]), Path(request["folder"])
    events.enter("loading", 0, detail="checking the checkpoint")
    checkpoint.read_state(source)
    merge = request["merge"] and base_folder(source) != source
    part = target.with_name(f".{target.name}.part-{os.getpid()}")
    try:
        if target.exists() and not (target.is_dir() and not any(target.iterdir())):
            raise _refuse(target, "it is there already and not empty", "Name a folder that does not exist yet.")
        part.parent.mkdir(parents=True, exist_ok=True)
        _need_room(part.parent, base_folder(source) if merge else source)
        part.mkdir()
        if merge:
            _merge(source, part, events)
        else:
            events.enter("loading", 0, detail="copying")
            for file in source.iterdir():
                if file.name not in _OWN:
                    shutil.copyfile(file, part / file.name)
        _for_generation(part)
        usual = (part / "tokenizer_config.json").stat().st_mode
        for path in part.iterdir():
            path.chmod(usual)  # safetensors lets the owner alone read what it writes
            checkpoint.flush(path)
        checkpoint.flush(part)
        part.rename(target)
    except Refusal:
        raise
    except Exception as error:
        if not (isinstance(error, OSError) or disk_is_full(error)):
            raise
        raise _refuse(target, str(error), "Make room or give write permission there, or name another.", 1) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    events.emit("model", folder=str(target), license=None)
    return 0


def _merge(source: Path, part: Path, events: Events) -> None:
    from transformers import AutoConfig

    from sinkflex.policy.model import load_policy

    events.enter("loading", 0, detail="loading the base model and the adapter")
    dtype = AutoConfig.from_pretrained(base_folder(source), local_files_only=True).dtype or torch.float32
    policy = load_policy(source, impl="eager", dtype=dtype)
    assert policy.adapter is not None
    if not policy.adapter.merges:
        name = str(dtype).removeprefix("torch.")
        events.warn(
            "SF-EXPORT-ROUNDED",
            f"The base model's weights are {name}: what the adapter adds is rounded with them.",
            "Without --merge the adapter is exported as it was trained.",
        )
    policy.adapter.dissolve()
    events.enter("loading", 0, detail="writing the merged model")
    policy.model.save_pretrained(str(part))
    policy.tokenizer.save_pretrained(str(part))


def _for_generation(part: Path) -> None:
    """A policy keeps its own cache and switches transformers' off; who loads the folder wants it on."""
    path = part / "config.json"
    if path.is_file():
        config = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**config, "use_cache": True}, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _need_room(parent: Path, like: Path) -> None:
    needed = sum(file.stat().st_size for file in like.iterdir() if file.is_file() and file.name not in _OWN) + 2**20
    free = shutil.disk_usage(parent).free
    if free < needed:
        why = f"it takes about {needed} bytes, {free} are free"
        raise _refuse(parent, why, "Free some space, or name a folder on another disk.", 1)


def _refuse(target: Path, why: str, fix: str, exit_code: ExitCode = 2) -> Refusal:
    return Refusal(
        "SF-EXPORT",
        f"Cannot write to {target}: {why}.",
        why="An export is whole or absent, and replaces nothing.",
        fix=fix,
        where=str(target),
        exit_code=exit_code,
    )
