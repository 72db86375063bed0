"""What a benchmark runs on: the machine, its free memory, the versions, and the allocator's settings.

Sizes are bytes. On Linux free memory is MemAvailable, or what the control group leaves where that is less; elsewhere,
where the system does not tell cheaply, half of all memory.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from sinkflex import __version__

_PACKAGES = ("torch", "triton", "transformers", "peft", "flash-linear-attention")

# What the command line sets for the worker on Linux (src/process/python.ts), so that figures do not depend on who
# started the process: large blocks stay with it instead of going back to the system and costing page faults again.
_WORKING = {"MALLOC_MMAP_THRESHOLD_": 1 << 32, "MALLOC_TRIM_THRESHOLD_": 1 << 32, "MALLOC_TOP_PAD_": 1 << 26}
# For a high-water mark that is a sum of live blocks: those of 256 KiB have pages of their own and give them back.
_MEASURING = {"MALLOC_MMAP_THRESHOLD_": 1 << 18, "MALLOC_TRIM_THRESHOLD_": 1 << 17, "MALLOC_TOP_PAD_": 1 << 17}
_MALLOPT = {"MALLOC_MMAP_THRESHOLD_": -3, "MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_TOP_PAD_": -2}


def describe() -> dict[str, Any]:
    """The machine of a record. No names of hosts or users."""
    return {
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "free_bytes": free_bytes(),
        "load_average": [round(x, 2) for x in os.getloadavg()],
    }


def versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"python": platform.python_version(), "sinkflex": __version__}
    return found | {package: _version(package) for package in _PACKAGES}


def free_bytes() -> int:
    """Memory that a new process can have without pushing anything out."""
    meminfo = _read("/proc/meminfo")
    available = re.search(r"MemAvailable:\s+(\d+) kB", meminfo)
    if available is None:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return min([int(available[1]) * 1024, *_left_to_groups()])


def memory_kills() -> int | None:
    """How many processes the kernel has ended for want of memory since it started; None where it does not tell."""
    found = re.search(r"^oom_kill (\d+)", _read("/proc/vmstat"), re.MULTILINE)
    return int(found[1]) if found else None


def measuring_environment(environment: dict[str, str]) -> dict[str, str]:
    """`environment` for a child that measures its memory before its time."""
    return environment | {name: str(value) for name, value in _MEASURING.items()}


def working_settings() -> dict[str, int]:
    """The allocator's settings for timing: what the environment says, else what the command line would set."""
    return {name: _number(os.environ.get(name), default) for name, default in _WORKING.items()}


def set_allocator(settings: dict[str, int]) -> bool:
    """Changes glibc's allocator in this process; False where there is another one."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or not sys.platform.startswith("linux"):
        return False
    return all([bool(mallopt(_MALLOPT[name], min(value, 2**31 - 1))) for name, value in settings.items()])


def return_free_memory() -> None:
    """Gives the pages of freed blocks back to the system, where the allocator is glibc's."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdigit() else default


def _left_to_groups() -> list[int]:
    """Memory left in every control group that this process is in, version 1 and 2."""
    left = []
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root = Path("/sys/fs/cgroup") / controllers
        names = ("memory.max", "memory.current") if not controllers else (
            "memory.limit_in_bytes", "memory.usage_in_bytes"
        )  # fmt: skip
        # Inside a container the path is the host's, and the container's own group is mounted at the root.
        for place in (root / group.lstrip("/"), root):
            limit, used = (_read(place / name).strip() for name in names)
            if limit.isdigit() and used.isdigit():
                # Pages of files that nobody needs count as used, and go first.
                spare = re.search(r"^(?:total_)?inactive_file (\d+)", _read(place / "memory.stat"), re.MULTILINE)
                left.append(max(int(limit) - int(used) + int(spare[1] if spare else 0), 0))
    return left


def _cpu_name() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    if found:
        return found[1].strip()
    if sys.platform == "darwin":
        words = ["sysctl", "-n", "machdep.cpu.brand_string"]
        asked = subprocess.run(words, capture_output=True, text=True, check=False)
        if asked.returncode == 0 and asked.stdout.strip():
            return asked.stdout.strip()
    return platform.processor() or platform.machine()


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
