"""Seeds of episodes: the members of a group share the task and never the seed (B82)."""

from __future__ import annotations

import hashlib

MAX_SEED = 2**53 - 1


def episode_seed(base: int, task_id: str, sample: int) -> int:
    """The seed of the `sample`-th episode of `task_id`: a hash of all three, so neither the order in which
    episodes are started nor the other tasks of a step can change it. In [0, 2^53 - 1] (exact in JSON)."""
    digest = hashlib.sha256(f"{base}/{task_id}/{sample}".encode()).digest()
    return int.from_bytes(digest[:8], "big") & MAX_SEED
