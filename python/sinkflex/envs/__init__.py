"""Environments in which an agent and a user act on one shared state.

`make` builds one, `domain` gives the tasks behind it, `suites` lists what there is. Importing this package registers
every suite with Gymnasium as `sinkflex/<suite>-v0`.
"""

from __future__ import annotations

from .env import DualControlEnv
from .episode import Snapshot
from .registry import MissingExtra, UnknownSuite, domain, make, register_suites, suites
from .seeds import episode_seed

__all__ = [
    "DualControlEnv",
    "MissingExtra",
    "Snapshot",
    "UnknownSuite",
    "domain",
    "episode_seed",
    "make",
    "suites",
]

register_suites()
