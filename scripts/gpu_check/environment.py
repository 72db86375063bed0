"""The machine and the versions, asked in a process of its own: the program itself opens no device."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# What each optional package is for: without it a part is left out, and said.
OPTIONAL = {
    "triton": "impl triton and its launch table",
    "transformers": "the model records, and transformers' eager attention as a rival",
    "peft": "the model record with LoRA",
    "flash-linear-attention": "flash-linear-attention as a rival",
}
QUERY = ("driver_version", "power.limit", "clocks.max.sm", "clocks.max.memory")


def check(case: dict[str, Any]) -> dict[str, Any]:
    import torch

    cuda = torch.cuda.is_available()
    found: dict[str, Any] = {
        "status": "done",
        "cuda": cuda,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "packages": {name: version(name) for name in ("numpy", *OPTIONAL)},
        "commit": commit(),
    }
    if cuda:
        properties = torch.cuda.get_device_properties(0)
        found["gpu"] = {
            "name": properties.name,
            "capability": list(torch.cuda.get_device_capability(0)),
            "multiprocessors": properties.multi_processor_count,
            "memory_bytes": properties.total_memory,
            **driver(),
        }
    return found


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def commit() -> str | None:
    """The commit of this checkout, with a mark where files differ from it; None outside a checkout."""
    if shutil.which("git") is None:
        return None
    head = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode != 0:
        return None
    status = ["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no"]
    changed = subprocess.run(status, capture_output=True, text=True, check=False).stdout.strip()
    return head.stdout.strip() + (" (changed)" if changed else "")


def driver() -> dict[str, str]:
    """What nvidia-smi tells of the first GPU; nothing where it is not at hand."""
    if shutil.which("nvidia-smi") is None:
        return {}
    command = ["nvidia-smi", "-i", "0", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return {}
    values = [value.strip() for value in done.stdout.strip().split(",")]
    return dict(zip(QUERY, values, strict=True)) if done.returncode == 0 and len(values) == len(QUERY) else {}


def lines(found: dict[str, Any]) -> list[str]:
    """The same for people."""
    gpu = found.get("gpu")
    if gpu is None:
        head = "no CUDA device"
    else:
        major, minor = gpu["capability"]
        facts = (f"sm_{major}{minor}", f"{gpu['multiprocessors']} SMs", f"{gpu['memory_bytes'] / 2**30:.0f} GiB")
        head = f"{gpu['name']} ({', '.join(facts)}), driver {gpu.get('driver_version', 'unknown')}"
    packages = found["packages"]
    present = ", ".join(f"{name} {number}" for name, number in packages.items() if number is not None)
    return [
        head,
        f"Python {found['python']}, torch {found['torch']} (CUDA {found['torch_cuda']}), {present}",
        f"commit {found['commit'] or 'unknown'}",
        *(f"not installed: {name}; skipped: {what}" for name, what in OPTIONAL.items() if packages[name] is None),
    ]
