"""A model from a Hugging Face hub, into the hub client's own cache: its endpoint, token and cache settings count.

The hub is asked once, with a time limit, before anything is fetched. When it does not answer, what is in the cache is
taken, and the caller is told so; with nothing in the cache that is a refusal, never a wait.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sinkflex.refusal import ExitCode, Refusal, disk_is_full

from .gguf import Tell, need_room

ANSWER_S = 10.0
"""Seconds the hub has to answer; HF_HUB_ETAG_TIMEOUT names another limit."""

_BESIDE = ("*.json", "*.jinja", "*.model", "*.txt", "LICENSE*")


@dataclass(frozen=True, slots=True)
class Fetched:
    """`license` is what the hub says, None when it did not answer; `from_cache` says why the hub was not asked."""

    folder: Path
    license: str | None
    from_cache: str | None


def fetch(name: str, tell: Tell) -> Fetched:
    """The newest version of `name` ("org/name") as a folder in the cache. Refusal SF-MODEL-HUB (exit 2: the hub has no
    such model, or not one that can be loaded; exit 3: the hub is not reached and the cache does not have it),
    SF-DISK-FULL (exit 3)."""
    from huggingface_hub import HfApi, constants, snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, RepositoryNotFoundError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    limit = float(os.environ.get("HF_HUB_ETAG_TIMEOUT") or ANSWER_S)
    tell(f"asking {constants.ENDPOINT}")
    try:
        info = HfApi().model_info(name, files_metadata=True, timeout=limit)
    except GatedRepoError as error:
        raise _refuse(
            name, "its owner lets in only whom they accepted", "Ask for access there, then set HF_TOKEN."
        ) from error
    except RepositoryNotFoundError as error:
        why = f"the hub, {constants.ENDPOINT}, has no model of that name, or shows it only to some"
        raise _refuse(name, why, "Correct the name, or set HF_TOKEN.") from error
    except HFValidationError as error:
        raise _refuse(name, _line(error), "Write it as org/name.") from error
    except Exception as error:
        if isinstance(error, HfHubHTTPError) or _is_network(error):
            return _from_cache(name, f"the hub, {constants.ENDPOINT}, does not answer ({_line(error)})", error)
        raise
    sizes = {file.rfilename: int(file.size or 0) for file in info.siblings or ()}
    wanted = _files(name, list(sizes))
    total = sum(size for file, size in sizes.items() if file in wanted)
    cache = Path(constants.HF_HUB_CACHE)
    cache.mkdir(parents=True, exist_ok=True)
    tell(f"{name}: {len(wanted)} files, {total / 1e6:.0f} MB, into {cache}")
    try:
        folder = snapshot_download(name, allow_patterns=wanted, etag_timeout=limit)
    except Exception as error:
        if disk_is_full(error):
            need_room(cache, total)
            raise
        if _is_network(error) or isinstance(error, HfHubHTTPError):
            fix = "Type the same command again: what has come is kept."
            raise _refuse(name, f"the download broke off ({_line(error)})", fix, exit_code=3) from error
        raise
    license_ = info.card_data.get("license") if info.card_data else None
    return Fetched(Path(folder), license_, None)


def _from_cache(name: str, why: str, cause: BaseException) -> Fetched:
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(name, "config.json")
    if not isinstance(config, str):
        fix = (
            "Give a folder or a GGUF file on this machine, `preset: smollm2-135m`, or set HF_ENDPOINT to a hub that is."
        )
        raise _refuse(name, f"{why}, and its cache has no copy", fix, exit_code=3) from cause
    folder = Path(config).parent
    _files(name, [path.name for path in folder.iterdir()])
    return Fetched(folder, None, why)


def _files(name: str, names: Sequence[str]) -> list[str]:
    """The files of the folder itself that loading needs; safetensors before older weights."""
    from fnmatch import fnmatch

    top = [file for file in names if "/" not in file]
    weights = [file for file in top if file.endswith(".safetensors")]
    weights = weights or [file for file in top if fnmatch(file, "pytorch_model*.bin")]
    if not weights or "config.json" not in top:
        lacks = "weights (*.safetensors)" if not weights else "config.json"
        gguf = any(file.endswith(".gguf") for file in names)
        fix = "Fetch one of its GGUF files and give `path: FILE.gguf`." if gguf else "Use a transformers model."
        raise _refuse(name, f"it has no {lacks}", fix)
    return [*weights, *(file for file in top if any(fnmatch(file, pattern) for pattern in _BESIDE))]


def _is_network(error: BaseException) -> bool:
    """Of the client's HTTP library, whatever it is, and of the system."""
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    return any(cls.__name__ in ("TransportError", "RequestException", "RequestError") for cls in type(error).__mro__)


def _line(error: BaseException) -> str:
    text = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _refuse(name: str, why: str, fix: str, exit_code: ExitCode = 2) -> Refusal:
    return Refusal(
        "SF-MODEL-HUB",
        f"The model {name} cannot be had from the hub.",
        why=f"{why[0].upper()}{why[1:]}.",
        fix=fix,
        exit_code=exit_code,
    )
