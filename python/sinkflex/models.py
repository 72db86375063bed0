"""`sinkflex models get` in the worker: convert a GGUF file or fetch a model from a hub (policy/gguf.py, policy/hub.py).

The request is JSON: {"action": "convert", "file", "sha256", "folder", "template", "source"} or {"action": "fetch",
"name"}. `template` is "chatml" for ours, null for the file's own; `folder` is where the caller wants it, to be named as
a whole afterwards. Progress travels as `phase` events, the result as one `model` event.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sinkflex.events import Events
from sinkflex.refusal import Refusal


def get(request: Mapping[str, Any], events: Events) -> int:
    """Answers one request; returns the exit code. Refusals are those of what is called."""

    def tell(stage: str) -> None:
        events.enter("loading", 0, detail=stage)

    if request["action"] == "fetch":
        from sinkflex.policy.hub import fetch

        fetched = fetch(request["name"], tell)
        if fetched.from_cache is not None:
            events.warn("hub_not_reached", f"{fetched.from_cache}; the copy in the cache is used.")
        events.emit("model", folder=str(fetched.folder), license=fetched.license)
        return 0
    file, folder = Path(request["file"]), Path(request["folder"])
    from sinkflex.policy.chatml import CHATML_TEMPLATE
    from sinkflex.policy.gguf import convert_gguf, sha256_of

    tell("checking the file")
    found = sha256_of(file)
    if found != request["sha256"]:
        raise Refusal(
            "SF-MODEL-CHECKSUM",
            f"{file} is not the file that was asked for.",
            why=f"Its sha256 is {found}, expected is {request['sha256']}.",
            fix="Fetch it again.",
            owner="infra",
            exit_code=3,
        )
    template = CHATML_TEMPLATE if request["template"] == "chatml" else None
    convert_gguf(file, folder, template=template, source=request["source"], tell=tell)
    events.emit("model", folder=str(folder), license=None)
    return 0
