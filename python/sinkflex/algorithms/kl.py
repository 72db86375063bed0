"""Estimators of KL(policy || reference) from sampled tokens (Schulman 2020, "Approximating KL divergence").

With d = log reference - log policy of the sampled token:
    k1 = -d                  unbiased; can be negative
    k2 = d^2 / 2             biased; its gradient is on average the gradient of the KL
    k3 = exp(d) - d - 1      unbiased, never negative; its gradient is on average that of the reverse KL
In the loss (policy loss + coefficient * estimate) only k2 and k3 have an effect: the gradient of k1 is the score
function, zero on average, whatever the reference says. So k1 is for measuring only.

The bound. exp(200) is infinite in float32, and clamping after the exponential leaves a gradient of 0 * inf = NaN.
Hence `bounded_exp`: exp up to LOG_RATIO_BOUND and its tangent line beyond. Values and gradients inside the bound are
untouched; beyond it they are finite, continuous, and keep their sign, so a token that ran away is still pulled back.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

LOG_RATIO_BOUND = 10.0
"""exp(10) = 22026 also fits float16, so a gradient handed back to half precision stays finite."""


def bounded_exp(log_ratio: Tensor) -> Tensor:
    """exp(x) for x <= LOG_RATIO_BOUND, its tangent line above. Computed in float32 or wider."""
    x = log_ratio if log_ratio.dtype == torch.float64 else log_ratio.float()
    inside = x.clamp(max=LOG_RATIO_BOUND)
    return inside.exp() * (1.0 + (x - inside))


def kl_estimate(logprobs: Tensor, reference: Tensor, estimator: Literal["k1", "k2", "k3"]) -> Tensor:
    """Per token, for measuring. Any equal shapes; float32 or wider out."""
    wide = torch.promote_types(logprobs.dtype, torch.float32)
    d = reference.to(wide) - logprobs.to(wide)
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return d.square() / 2
    return bounded_exp(d) - d - 1.0


def kl_penalty(logprobs: Tensor, reference: Tensor, estimator: Literal["k2", "k3"]) -> Tensor:
    """Per token, to be added to the loss times a positive coefficient. `reference` takes no gradient."""
    if estimator not in ("k2", "k3"):
        raise ValueError(f"{estimator!r} in the loss has a gradient of zero on average; use k3 or k2")
    return kl_estimate(logprobs, reference.detach(), estimator)
