"""linear_log_prob against log-softmax of float64 logits of the same numbers: values, gradients of hidden and weight.

Errors are relative to the norm of the exact tensor; of log_prob, lse and entropy to the larger of 1 and the maximum.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import torch
from sinkflex.bench.log_prob import LIMITS
from sinkflex.kernels.api import linear_log_prob

from .crew import Job
from .launches import Recorder, table_here

VALUES = ("log_prob", "lse", "entropy")

Tensors = dict[str, torch.Tensor]


def jobs(device: str) -> list[Job]:
    """Vocabularies that are no multiple of anything, hidden sizes that are multiples of 16 only."""
    large = ((300, 2880, 50_257), (1000, 4096, 32_003), (1, 80, 1))
    shapes = ((37, 48, 103), (5, 96, 64)) if device == "cpu" else large
    found = []
    for dtype, (rows, hidden, vocabulary) in product(("bfloat16", "float16", "float32"), shapes):
        cases = [
            {"dtype": dtype, "rows": rows, "hidden": hidden, "vocabulary": vocabulary, "head": head, "entropy": entropy,
             "keep": keep, "temperature": 0.7, "device": device}
            for head, entropy, keep in product(("frozen", "trained"), (False, True), (False, True))
        ]  # fmt: skip
        found.append(Job("log-prob parity", cases))
    return found


def check(case: dict[str, Any]) -> dict[str, Any]:
    device, dtype = case["device"], getattr(torch, case["dtype"])
    rows, hidden, vocabulary = case["rows"], case["hidden"], case["vocabulary"]
    random = torch.Generator(device).manual_seed(0)
    draw = {"generator": random, "device": device}
    states = torch.randn(rows, hidden, **draw).to(dtype)
    weight = (torch.randn(vocabulary, hidden, **draw) * 3 * hidden**-0.5).to(dtype)
    keep = torch.randint(rows, (2 * rows // 3 + 1,), **draw) if case["keep"] else torch.arange(rows, device=device)
    targets = torch.randint(vocabulary, (len(keep),), **draw)
    pulls = {name: torch.randn(len(keep), **draw) for name in VALUES}
    names = VALUES if case["entropy"] else VALUES[:2]
    trained = case["head"] == "trained"

    def gradients(values: Tensors, x: torch.Tensor, w: torch.Tensor) -> Tensors:
        leaves = {"dhidden": x, "dweight": w} if trained else {"dhidden": x}
        ends = [values[name] for name in names]
        pulled = [pulls[name].to(end.dtype) for name, end in zip(names, ends, strict=True)]
        found = torch.autograd.grad(ends, list(leaves.values()), pulled)
        return {**{name: values[name].detach() for name in names}, **dict(zip(leaves, found, strict=True))}

    x, w = states.detach().requires_grad_(), weight.detach().requires_grad_(trained)
    options = {"temperature": case["temperature"], "return_entropy": case["entropy"]}
    with Recorder(table_here()) as recorder:
        ours = linear_log_prob(x, w, targets, **options, keep=keep if case["keep"] else None)
        got = gradients({name: getattr(ours, name) for name in names}, x, w)
    x, w = states.double().requires_grad_(), weight.double().requires_grad_(trained)
    logits = x[keep] @ w.T / case["temperature"]
    log_p = logits.log_softmax(-1)
    exact = {
        "log_prob": log_p.gather(1, targets[:, None]).squeeze(1),
        "lse": logits.logsumexp(-1),
        "entropy": -(log_p.exp() * log_p).sum(-1),
    }
    result = verdict(got, gradients(exact, x, w), dtype)
    return {**result, "launched": recorder.names} if recorder.names else result


def verdict(got: Tensors, exact: Tensors, dtype: torch.dtype) -> dict[str, Any]:
    found, allowed = {}, {}
    for name, expected in exact.items():
        difference = got[name].double() - expected
        if name in VALUES:
            error = difference.abs().max() / expected.abs().max().clamp(min=1.0)
        else:
            error = difference.norm() / expected.norm().clamp(min=1e-30)
        found[name] = float(error) if math.isfinite(float(error)) else math.inf
        allowed[name] = LIMITS[str(dtype).removeprefix("torch.")]["log_prob" if name in VALUES else name]
    over = [f"{name} {found[name]:.1e} > {allowed[name]:.1e}" for name in found if not found[name] <= allowed[name]]
    result: dict[str, Any] = {"status": "failed" if over else "passed", "error": found, "limit": allowed}
    return {**result, "reason": "; ".join(over)} if over else result
