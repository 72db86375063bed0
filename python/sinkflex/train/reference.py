"""The reference policy of a KL penalty: the policy as reinforcement learning starts, frozen."""

from __future__ import annotations

import copy
from pathlib import Path

from sinkflex.policy.model import Policy

from . import checkpoint


def frozen_copy(policy: Policy, start: Path | None) -> Policy:
    """With `start`, a checkpoint, its weights stand for the present ones. Refusal where it is not whole.

    Of a policy with an adapter only the adapter is copied: the model's own weights never change and serve both.
    """
    reference = copy.copy(policy)
    if policy.adapter is None:
        reference.model = copy.deepcopy(policy.model).requires_grad_(False).eval()
        if start is not None:
            checkpoint.load(start, model=reference.model)
        return reference
    if start is not None:
        checkpoint.read_state(start)
    reference.adapter = policy.adapter.twin(start)
    reference.model = reference.adapter.model
    return reference
