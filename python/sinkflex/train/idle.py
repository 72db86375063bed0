"""Tasks that reward an agent which never acts: training on them would teach a policy to do nothing.

They are left out of what training draws from, and the plan says how many, unless the config names them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


def idle_tasks(domain: Any) -> tuple[str, ...]:
    """Those of a whole suite; none where the domain does not say (`Domain` promises that nothing scores 0)."""
    return tuple(domain.solved_by_doing_nothing()) if hasattr(domain, "solved_by_doing_nothing") else ()


def idle_note(domain: Any, env: Any, drawn: Collection[str]) -> list[str]:
    """What the plan says about them. `env`: the config's section, `drawn`: the tasks that training draws from."""
    split = domain.task_ids(env.split)
    idle = [task_id for task_id in idle_tasks(domain) if task_id in split]
    kept = [task_id for task_id in idle if task_id in drawn]
    if kept:
        return [f"env.tasks names {len(kept)} tasks that reward doing nothing: {' '.join(kept)}"]
    if not idle or env.tasks is not None:
        return []
    which = f"{len(idle)} of {len(split)} tasks of split {env.split}"
    return [f"left out {which}, which reward doing nothing: {' '.join(idle)}; env.tasks can name them"]
