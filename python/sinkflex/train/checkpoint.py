"""Checkpoints: complete or absent, and enough of them to go on bit for bit.

A checkpoint is a folder checkpoints/step-NNNNNN of the run directory; the number counts finished training steps. It
holds the model and tokenizer as transformers writes them (of a policy with an adapter the adapter as peft writes it,
in the model's place), optimizer.pt, and trainer.json (`TrainerState`, random states, the size of every file). It is
written beside its final place, flushed to the disk and renamed, so a folder of that name is whole unless the disk lost
bytes, which the sizes tell. Order is by number, never by name or time.
"""

from __future__ import annotations

import base64
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from safetensors.torch import load_model

from sinkflex.refusal import Refusal, disk_is_full

if TYPE_CHECKING:
    from sinkflex.policy.adapter import Adapter

_NAME = re.compile(r"step-(\d{6,})")
_STATE, _OPTIMIZER = "trainer.json", "optimizer.pt"
_WEIGHTS, _ADAPTER = "model.safetensors", "adapter_model.safetensors"


class Savable(Protocol):
    """Models and tokenizers of transformers."""

    def save_pretrained(self, save_directory: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class TrainerState:
    """What the loop needs besides weights. `step`: finished training steps. `policy_version`: optimiser updates behind
    the weights. `data_position`: tasks handed out so far. `sft_step`: finished warm-start steps. `run`: the run's name.
    """

    step: int
    policy_version: int
    data_position: int
    run: str
    config_sha256: str
    sft_step: int = 0
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Saved:
    path: Path
    bytes: int


def folder(run_dir: Path, step: int) -> Path:
    return run_dir / "checkpoints" / f"step-{step:06d}"


def save(
    run_dir: Path,
    state: TrainerState,
    *,
    model: torch.nn.Module,
    tokenizer: Savable | None,
    optimizer: torch.optim.Optimizer,
    adapter: Adapter | None = None,
    generators: Mapping[str, torch.Generator] | None = None,
) -> Saved:
    """Write the checkpoint of `state.step`, replacing one of that number from an earlier attempt.

    With `adapter` its factors stand for the model, whose own weights are those of a folder that stays where it is.
    `generators` are random streams of the caller's own, saved by name beside Python's, NumPy's and torch's. A disk
    that is full is a `Refusal` (SF-DISK-FULL); what was half written is removed and every earlier checkpoint stays.
    """
    final = folder(run_dir, state.step)
    part = final.with_name(f".{final.name}.part-{os.getpid()}")
    part.parent.mkdir(parents=True, exist_ok=True)
    held = [*model.parameters(), *model.buffers()] if adapter is None else adapter.tensors().values()
    needed = _estimate(held, optimizer)
    if shutil.disk_usage(part.parent).free < needed:
        raise _disk_full(run_dir, final, needed, "too little space is free")
    try:
        part.mkdir()
        _write(part, state, model if adapter is None else adapter, tokenizer, optimizer, generators or {})
        _publish(part, final)
    except Exception as error:
        if disk_is_full(error):
            raise _disk_full(run_dir, final, needed, str(error)) from error
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return Saved(final, sum(f.stat().st_size for f in final.iterdir()))


def read_state(path: Path) -> TrainerState:
    """What `save` was given, without the tensors. Refusal where the checkpoint is not whole."""
    reason = _damage(path)
    if reason is not None:
        raise _unusable(path, reason)
    try:
        return TrainerState(**json.loads((path / _STATE).read_text(encoding="utf-8"))["state"])
    except TypeError as error:
        raise _unusable(path, f"its {_STATE} is of another version: {error}") from error


def load(
    path: Path,
    *,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    adapter: Adapter | None = None,
) -> TrainerState:
    """Fill `model`, or its `adapter`, and `optimizer` from the checkpoint at `path`. For random states there is
    `restore_random`."""
    state = read_state(path)
    try:
        if adapter is None:
            load_model(model, str(path / _WEIGHTS))
        else:
            adapter.fill(path)
        if optimizer is not None:
            optimizer.load_state_dict(torch.load(path / _OPTIMIZER, map_location="cpu", weights_only=True))
        return state
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise _unusable(path, f"it does not fit this model or optimiser: {str(error)[:500]}") from error


def restore_random(path: Path, generators: Mapping[str, torch.Generator] | None = None) -> None:
    """Put every random stream where it was at the save. Call it last: building samplers or models draws numbers."""
    raw = json.loads((path / _STATE).read_text(encoding="utf-8"))["random"]
    version, words, gauss = raw["python"]
    random.setstate((version, tuple(words), gauss))
    name, keys, position, has_gauss, cached = raw["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    torch.set_rng_state(_tensor(raw["torch"]))
    if raw["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([_tensor(text) for text in raw["cuda"]])
    for name, generator in (generators or {}).items():
        if name not in raw["generators"]:
            raise _unusable(path, f"it has no random state named {name!r}")
        generator.set_state(_tensor(raw["generators"][name]))


def listing(run_dir: Path) -> list[tuple[int, Path]]:
    """Every folder named like a checkpoint, whole or not, by number."""
    parent = run_dir / "checkpoints"
    found = [(p, _NAME.fullmatch(p.name)) for p in parent.iterdir()] if parent.is_dir() else []
    return sorted((int(match[1]), path) for path, match in found if match and path.is_dir())


def latest(run_dir: Path, warn: Callable[[str], None] = lambda text: None) -> Path | None:
    """The whole checkpoint with the highest number, or None. Damaged ones are passed over and told to `warn`."""
    for _, path in reversed(listing(run_dir)):
        reason = _damage(path)
        if reason is None:
            return path
        warn(f"checkpoint {path} is ignored: {reason}")
    return None


def rotate(run_dir: Path, *, run: str, newest: int, keep: int, protect: Collection[int] = ()) -> list[Path]:
    """Delete the oldest checkpoints of `run` until `keep` are left, counting up to and including step `newest`.

    Never touched: steps above `newest` and folders of another run (a reused run directory), and steps in `protect`.
    """
    if keep < 1:
        raise ValueError("keep must be at least 1: a run that keeps nothing cannot be resumed")
    own = [(step, path) for step, path in listing(run_dir) if step <= newest and _run_of(path) == run]
    doomed = [path for step, path in own[:-keep] if step not in protect]
    for path in doomed:
        hidden = path.with_name(f".{path.name}.old-{os.getpid()}")
        path.rename(hidden)  # first: a folder that is half deleted must not look like a checkpoint
        shutil.rmtree(hidden, ignore_errors=True)
    return doomed


def refuse_used(run_dir: Path) -> None:
    """A new run (not a resume) must not write among the checkpoints of another."""
    found = listing(run_dir)
    if found:
        raise Refusal(
            "SF-RUN-DIR-USED",
            f"{run_dir} already holds {len(found)} checkpoints (the newest is {found[-1][1].name}).",
            why="A new run would mix its checkpoints with those of another.",
            fix="Resume that run with `sinkflex train --resume`, or start in a new folder.",
            where=str(run_dir),
        )


def _write(
    part: Path,
    state: TrainerState,
    weights: Any,
    tokenizer: Savable | None,
    optimizer: torch.optim.Optimizer,
    generators: Mapping[str, torch.Generator],
) -> None:
    """`weights`: a model or an adapter, each of which writes its own files."""
    weights.save_pretrained(str(part))
    if tokenizer is not None:
        tokenizer.save_pretrained(str(part))
    with open(part / _OPTIMIZER, "wb") as file:  # a file of our own: torch's hides the system's error
        torch.save(optimizer.state_dict(), file)
    sizes = {f.name: f.stat().st_size for f in sorted(part.iterdir())}
    record = {"v": 1, "state": asdict(state), "files": sizes, "random": _random_states(generators)}
    (part / _STATE).write_text(json.dumps(record), encoding="utf-8")
    for path in (*part.iterdir(), part):
        flush(path)


def _publish(part: Path, final: Path) -> None:
    if final.exists():
        hidden = final.with_name(f".{final.name}.old-{os.getpid()}")
        final.rename(hidden)
        part.rename(final)
        shutil.rmtree(hidden, ignore_errors=True)
    else:
        part.rename(final)
    flush(final.parent)


def flush(path: Path) -> None:
    """What was written to this file or folder is on the disk afterwards."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _random_states(generators: Mapping[str, torch.Generator]) -> dict[str, Any]:
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": random.getstate(),
        "numpy": [name, np.asarray(keys).tolist(), position, has_gauss, cached],
        "torch": _text(torch.get_rng_state()),
        "cuda": [_text(s) for s in torch.cuda.get_rng_state_all()] if torch.cuda.is_available() else [],
        "generators": {name: _text(generator.get_state()) for name, generator in generators.items()},
    }


def _text(state: torch.Tensor) -> str:
    return base64.b64encode(state.cpu().numpy().tobytes()).decode("ascii")


def _tensor(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)


def _damage(path: Path) -> str | None:
    """Why the folder is no checkpoint, or None."""
    try:
        record = json.loads((path / _STATE).read_text(encoding="utf-8"))
        step, sizes = record["state"]["step"], record["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{_STATE} cannot be read ({type(error).__name__}: {error})"
    match = _NAME.fullmatch(path.name)
    if match and int(match[1]) != step:
        return f"{_STATE} says step {step}"
    for name in (_WEIGHTS if _ADAPTER not in sizes else _ADAPTER, _OPTIMIZER):
        if name not in sizes:
            return f"{name} was never written"
    for name, size in sizes.items():
        file = path / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != size:
            return f"{name} has {file.stat().st_size} bytes, {size} were written"
    return None


def _run_of(path: Path) -> str | None:
    try:
        return str(json.loads((path / _STATE).read_text(encoding="utf-8"))["state"]["run"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _estimate(weights: Iterable[torch.Tensor], optimizer: torch.optim.Optimizer) -> int:
    """Bytes that a checkpoint takes, generously: weights, optimiser state, a megabyte for the rest."""
    tensors = list(weights)
    tensors += [v for state in optimizer.state.values() for v in state.values() if isinstance(v, torch.Tensor)]
    return sum(t.numel() * t.element_size() for t in tensors) + 2**20


def _disk_full(run_dir: Path, final: Path, needed: int, detail: str) -> Refusal:
    kept = latest(run_dir)
    free = shutil.disk_usage(final.parent).free
    return Refusal(
        "SF-DISK-FULL",
        f"Cannot write {final}: about {needed} bytes are needed, {free} are free ({detail}).",
        why=f"The disk, or your share of it, is full. Kept: {kept if kept else 'no earlier checkpoint'}.",
        fix="Free some space" + (" and resume this run." if kept else " and start again; --runs chooses another disk."),
        where=str(final),
    )


def _unusable(path: Path, reason: str) -> Refusal:
    return Refusal(
        "SF-CHECKPOINT",
        f"Cannot resume from {path}: {reason}.",
        why="A checkpoint is used whole or not at all.",
        fix="Resume from an earlier checkpoint of the run (`sinkflex runs list` shows them), or start a new run.",
        where=str(path),
    )
