"""python -m sinkflex.probe: an answer for every part, whatever is broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sinkflex import probe
from sinkflex.kernels import api

PACKAGE = Path(probe.__file__).parents[1]


def run_probe(*options: str, path: tuple[Path, ...] = (PACKAGE,)) -> dict[str, dict[str, object]]:
    command = [sys.executable, *options, "-m", "sinkflex.probe"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return json.loads(done.stdout)


def test_the_parts_of_this_environment_answer() -> None:
    answers = run_probe("-P")
    assert answers["torch"]["version"]
    assert answers["transformers"]["version"]
    assert float(str(answers["parity"]["difference"])) <= probe.PARITY_TOLERANCE


def test_a_python_without_packages_answers_that_they_are_missing() -> None:
    answers = run_probe("-P", "-S")  # -S: no site-packages
    assert answers["torch"] == {"error": "not installed"}
    assert answers["tau2"] == {"error": "not installed"}
    assert "No module named 'torch'" in str(answers["parity"]["error"])


def test_another_package_called_tau2_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "tau2").mkdir()
    (tmp_path / "tau2" / "__init__.py").write_text("")
    answers = run_probe("-P", "-S", path=(tmp_path, PACKAGE))
    assert "another package of that name" in str(answers["tau2"]["error"])


def test_kernels_that_disagree_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    real = api.sink_attention

    def spoiled(*args: Any, impl: str, **kwargs: Any) -> Any:
        return real(*args, impl=impl, **kwargs) * (1.001 if impl == "flash" else 1.0)

    monkeypatch.setattr(api, "sink_attention", spoiled)
    assert "flash and eager differ by" in str(probe.parity()["error"])
