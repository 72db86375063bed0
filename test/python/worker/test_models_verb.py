"""The verb `models`, from outside: a GGUF file is converted, a model of a hub is fetched, and what fails says why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hub_stub import COMMIT, hub, silent_hub

SMALL = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": b"weights",
    "tokenizer.json": b"{}",
    "README.md": b"not needed",
    "onnx/model.onnx": b"not needed",
}


def ask(folder: Path, request: Mapping[str, Any], **env: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code and the events."""
    asked, events = folder / "request.json", folder / "events"
    asked.write_text(json.dumps({"v": 1, "verb": "models", **request}))
    own = {"HF_HOME": str(folder / "cache"), "HF_HUB_ETAG_TIMEOUT": "1", "HF_HUB_DOWNLOAD_TIMEOUT": "1"}
    code = subprocess.run(
        [sys.executable, "-P", "-m", "sinkflex", "models", str(asked), "--events", str(events)],
        env={**os.environ, **own, **env},
        capture_output=True,
        timeout=120,
        check=False,
    ).returncode
    return code, [json.loads(line) for line in events.read_text().splitlines()]


def error_of(events: list[dict[str, Any]]) -> dict[str, Any]:
    assert events[-1]["type"] == "end"
    found: dict[str, Any] = events[-1]["error"]
    return found


def test_a_file_that_is_not_the_one_asked_for_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF and then nothing")
    request = {
        "action": "convert",
        "file": str(tmp_path / "x.gguf"),
        "sha256": "0" * 64,
        "folder": str(tmp_path / "out"),
    }
    code, events = ask(tmp_path, {**request, "template": None, "source": {}})
    assert code == 3
    assert error_of(events)["code"] == "SF-MODEL-CHECKSUM"
    assert not (tmp_path / "out").exists()


def test_a_model_of_a_hub_lands_in_the_cache_and_serves_without_the_hub(tmp_path: Path) -> None:
    with hub(SMALL) as address:
        code, events = ask(tmp_path, {"action": "fetch", "name": "org/small"}, HF_ENDPOINT=address)
    (model,) = (e for e in events if e["type"] == "model")
    assert (code, model["license"]) == (0, "mit")
    folder = Path(model["folder"])
    assert folder.is_relative_to(tmp_path / "cache") and folder.name == COMMIT
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors", "tokenizer.json"}
    assert (folder / "model.safetensors").read_bytes() == b"weights"
    assert [e["detail"] for e in events if e["type"] == "phase" and "detail" in e] == [
        f"asking {address}",
        f"org/small: 3 files, 0 MB, into {tmp_path / 'cache' / 'hub'}",
    ]

    (tmp_path / "events").unlink()
    code, events = ask(tmp_path, {"action": "fetch", "name": "org/small"}, HF_ENDPOINT=address)
    assert code == 0
    assert next(e for e in events if e["type"] == "model")["folder"] == str(folder)
    (warning,) = (e for e in events if e["type"] == "warn")
    assert warning["code"] == "hub_not_reached"


def test_a_hub_that_does_not_answer_is_a_refusal_and_not_a_wait(tmp_path: Path) -> None:
    with silent_hub() as address:
        code, events = ask(tmp_path, {"action": "fetch", "name": "org/small"}, HF_ENDPOINT=address)
    assert code == 3
    error = error_of(events)
    assert error["code"] == "SF-MODEL-HUB"
    assert "does not answer" in error["why"] and "its cache has no copy" in error["why"]


@pytest.mark.parametrize(
    ("name", "files", "told"),
    [
        ("org/other", SMALL, "has no model of that name"),
        ("org/small", {"small.Q4_1.gguf": b"GGUF", "config.json": b"{}"}, r"It has no weights"),
        ("org/small", {"model.safetensors": b"x"}, "It has no config.json"),
    ],
    ids=["unknown", "only GGUF", "no config"],
)
def test_what_a_hub_does_not_have_is_a_usage_error(
    tmp_path: Path, name: str, files: Mapping[str, bytes], told: str
) -> None:
    with hub(files) as address:
        code, events = ask(tmp_path, {"action": "fetch", "name": name}, HF_ENDPOINT=address)
    assert code == 2
    assert told in error_of(events)["why"]
