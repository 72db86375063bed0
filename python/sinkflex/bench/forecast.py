"""What a cell will need, from the cells of the same impl and window before it, so that hopeless ones are not tried.

Memory above the inputs is taken as constant + linear + quadratic in the length. The constant is known; a quadratic part
exists where an impl holds scores of T x T, and follows from two earlier cells, or from one and the least number of
score tensors, so that one earlier cell can only be too kind. Time goes as the length, its square, or as it went before.
A cell that is tried all the same and runs out of memory says so itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .spec import Spec

LEAST_SCORES = 3
"""Score tensors that an eager attention holds at once, at the least: scores, probabilities, a gradient of either."""

_ITEM = {"float32": 4, "bfloat16": 2, "float16": 2}


class Measured(NamedTuple):
    seq: int
    peak: int
    seconds: float


@dataclass
class Forecast:
    _past: dict[tuple[str, int | None], list[Measured]] = field(default_factory=dict)

    def learn(self, spec: Spec, cell: Mapping[str, Any]) -> None:
        if cell["status"] == "ok":
            seconds = (cell["fwd_ms"] + cell["bwd_ms"]) / 1e3
            known = self._past.setdefault((spec.impl, spec.window), [])
            known.append(Measured(spec.seq, cell["peak_bytes"], seconds))
            known.sort()

    def memory(self, spec: Spec) -> int:
        """Bytes that the process will need above a fresh one, inputs included; 0 where nothing is known."""
        past = self._past.get((spec.impl, spec.window), [])
        constant, least = constant_bytes(spec), LEAST_SCORES * score_bytes(spec, spec.seq)
        return input_bytes(spec) + constant + max(least, _extrapolated(spec, past, constant))

    def seconds(self, spec: Spec) -> float | None:
        """Of one forward and backward."""
        past = self._past.get((spec.impl, spec.window), [])
        if not past:
            return None
        last = past[-1]
        power = 2.0 if quadratic_time(spec) else 1.0
        if len(past) > 1 and past[-2].seconds > 0:
            seen = math.log(last.seconds / past[-2].seconds) / math.log(last.seq / past[-2].seq)
            power = min(max(seen, 1.0), 2.0)
        return last.seconds * math.pow(spec.seq / last.seq, power)


def _extrapolated(spec: Spec, past: list[Measured], constant: int) -> int:
    if not past:
        return 0
    last, seq = past[-1], spec.seq
    above = max(last.peak - constant, 0)
    if not score_bytes(spec, seq):
        return round(above * seq / last.seq)
    if len(past) > 1:
        before = past[-2]
        slope, slope_before = above / last.seq, (before.peak - constant) / before.seq
        quadratic = max((slope - slope_before) / (last.seq - before.seq), 0.0)
    elif spec.what == "attention":  # nothing else grows to speak of
        quadratic = above / last.seq**2
    else:
        quadratic = min(LEAST_SCORES * score_bytes(spec, last.seq), above) / last.seq**2
    linear = max(above / last.seq - quadratic * last.seq, 0.0)
    return round(linear * seq + quadratic * seq * seq)


def score_bytes(spec: Spec, seq: int) -> int:
    """One tensor of scores over all heads, or 0 where the impl has none."""
    if spec.what == "log-prob" or spec.impl not in ("eager", "transformers"):
        return 0
    item = 4 if (spec.what, spec.impl) == ("attention", "eager") else _ITEM[spec.dtype]
    return int(spec.geometry["num_q_heads"]) * seq * seq * item


def input_bytes(spec: Spec) -> int:
    """Inputs and weights."""
    geometry, item = spec.geometry, _ITEM[spec.dtype]
    if spec.what == "attention":
        return int(spec.seq * 2 * (geometry["num_q_heads"] + geometry["num_kv_heads"]) * geometry["head_dim"] * item)
    if spec.what == "log-prob":
        return int((geometry["vocabulary"] + spec.seq) * geometry["hidden"] * item)
    return int(geometry["parameters"] * item)


def constant_bytes(spec: Spec) -> int:
    """What every pass needs above the inputs, whatever the length: the weights' gradients."""
    geometry, item = spec.geometry, _ITEM[spec.dtype]
    if spec.what == "log-prob":
        return int(geometry["vocabulary"] * geometry["hidden"] * item) if geometry["head"] == "trained" else 0
    if spec.what == "model":
        return int(geometry["parameters"] * item) if geometry["train"] == "full" else 0
    return 0


def quadratic_time(spec: Spec) -> bool:
    if spec.what == "log-prob":
        return False
    return spec.window is None or spec.impl in ("eager", "transformers")
