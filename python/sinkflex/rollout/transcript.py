"""A trajectory as `sinkflex runs show --episode` prints it: segments of text, who wrote them, what was trained."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sinkflex.policy.chat import ChatFormat

from .trajectory import Trajectory


def record(t: Trajectory, step: int, chat: ChatFormat) -> dict[str, Any]:
    """JSON-able. Arguments that are not JSON travel as text."""
    segments = []
    for span in sorted(t.spans, key=lambda s: s.start):
        mask = t.loss_mask[span.start : span.stop]
        trained = all(mask) and bool(mask)
        mean = sum(t.logprobs[span.start : span.stop]) / len(mask) if trained else None
        segments.append(
            {
                "kind": span.kind,
                "turn": span.turn,
                "text": chat.text(t.ids[span.start : span.stop]),
                "trained": trained,
                "tokens": span.stop - span.start,
                "logprob_mean": None if mean is None else round(mean, 6),
            }
        )
    calls = [
        {"turn": c.turn, "name": c.name, "arguments": c.arguments, "valid": c.valid, "error": c.error} for c in t.calls
    ]
    more = {"reward_parts": t.reward_parts, "error": t.error, "calls": calls, "segments": segments}
    return episode_event(t, step) | more


def write(folder: Path, name: str, trajectories: Iterable[Trajectory], step: int, chat: ChatFormat) -> None:
    """One JSON line an episode into `folder`/`name`.jsonl, replacing what an interrupted attempt left there."""
    folder.mkdir(exist_ok=True)
    partial = folder / f"{name}.jsonl.partial"
    with partial.open("w", encoding="utf-8") as out:
        for t in trajectories:
            out.write(json.dumps(record(t, step, chat), ensure_ascii=False, default=str) + "\n")
    partial.replace(folder / f"{name}.jsonl")


def episode_event(t: Trajectory, step: int) -> dict[str, Any]:
    """The fields of an `episode` event."""
    return {
        "id": t.id,
        "step": step,
        "split": t.split,
        "task_id": t.task_id,
        "level": t.level,
        "task_index": t.task_index,
        "sample": t.sample,
        "reward": t.reward,
        "graded": t.graded,
        "outcome": t.outcome,
        "owner": t.owner,
        "reason": t.reason,
        "turns": t.turns,
        "tool_calls": len(t.calls),
        "tokens": len(t.ids),
        "terminated": t.terminated,
        "truncated": t.truncated,
    }
