"""Small cells for the tests of sinkflex.bench."""

from __future__ import annotations

from typing import Any

from sinkflex.bench.geometry import GEOMETRIES, parameters
from sinkflex.bench.machine import working_settings
from sinkflex.bench.spec import Spec

HEADS = {"num_q_heads": 4, "num_kv_heads": 2, "head_dim": 16}
HEAD = {"vocabulary": 501, "hidden": 48, "head": "trained"}


def attention(impl: str = "flash", seq: int = 96, window: int | None = None, **more: Any) -> Spec:
    return _spec("attention", seq, impl, window, HEADS, more)


def log_prob(impl: str = "linear", seq: int = 40, head: str = "trained", **more: Any) -> Spec:
    return _spec("log-prob", seq, impl, None, {**HEAD, "head": head}, more)


def model(impl: str = "ours", seq: int = 80, train: str = "lora", **more: Any) -> Spec:
    geometry: dict[str, Any] = {
        **GEOMETRIES["scaled"], "layers": 2, "hidden": 48, "intermediate": 32, "num_q_heads": 4, "num_kv_heads": 2,
        "head_dim": 16, "window": 16, "experts": 4, "experts_per_token": 2, "vocabulary": 203, "train": train,
    }  # fmt: skip
    geometry["parameters"] = parameters(geometry)
    return _spec("model", seq, impl, None, geometry, more)


def _spec(what: str, seq: int, impl: str, window: int | None, geometry: dict[str, Any], more: dict[str, Any]) -> Spec:
    fields: dict[str, Any] = {"device": "cpu", "dtype": "float32", "repeat": 2, "allocator": working_settings(), **more}
    return Spec(what, seq, impl, window=window, geometry=geometry, **fields)
