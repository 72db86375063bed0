"""Sizes of the models that the subject `model` measures. Standard library only.

`gpt-oss-20b`, and `scaled`: an eighth of its width (hidden, heads, vocabulary, width of an expert) and 4 of its 24
layers. head_dim 64, window 128 in every other layer, and 32 experts of which 4 act are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GEOMETRIES: Mapping[str, dict[str, int]] = {
    "scaled": {
        "layers": 4, "hidden": 360, "num_q_heads": 8, "num_kv_heads": 1, "head_dim": 64, "window": 128,
        "intermediate": 360, "experts": 32, "experts_per_token": 4, "vocabulary": 25_136,
    },
    "gpt-oss-20b": {
        "layers": 24, "hidden": 2880, "num_q_heads": 64, "num_kv_heads": 8, "head_dim": 64, "window": 128,
        "intermediate": 2880, "experts": 32, "experts_per_token": 4, "vocabulary": 201_088,
    },
}  # fmt: skip


def parameters(geometry: Mapping[str, Any]) -> int:
    """Weights of the model, biases included."""
    width, inner, experts = geometry["hidden"], geometry["intermediate"], geometry["experts"]
    queries, keys = (geometry[name] * geometry["head_dim"] for name in ("num_q_heads", "num_kv_heads"))
    attention = (width + 1) * (queries + 2 * keys) + (queries + 1) * width + geometry["num_q_heads"]
    mixture = experts * (width + 1) + experts * ((width + 1) * 2 * inner + (inner + 1) * width)
    return int(2 * geometry["vocabulary"] * width + width + geometry["layers"] * (attention + mixture + 2 * width))
