"""Rollout limits for tests."""

from __future__ import annotations

from typing import Any

from sinkflex.rollout.scheduler import RolloutSettings


def settings(**changes: Any) -> RolloutSettings:
    base: dict[str, Any] = {
        "temperature": 1.0,
        "max_new_tokens": 20,
        "max_total_tokens": 600,
        "max_live_episodes": 64,
        "system_prompt": False,
    }
    return RolloutSettings(**(base | changes))
