"""B125: training on the CPU only where there is no GPU, or where the CPU was asked for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from sinkflex.refusal import Refusal
from sinkflex.train import setup


def choose(device: str) -> torch.device:
    return setup._device(cast(Any, SimpleNamespace(device=device)))


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose driver sees a GPU that torch cannot use."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA H200'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return program


def test_B125_auto_does_not_fall_back_to_the_cpu_beside_a_gpu(driver: Path) -> None:
    with pytest.raises(Refusal) as refused:
        choose("auto")
    assert refused.value.exit_code == 3
    assert refused.value.what == "The driver sees a GPU (NVIDIA H200), and torch cannot use it."
    assert torch.__version__ in refused.value.why
    assert "sinkflex doctor" in refused.value.fix


def test_B125_the_cpu_is_used_when_it_is_asked_for_or_the_gpu_is_hidden(
    driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose("cpu") == torch.device("cpu")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert choose("auto") == torch.device("cpu")


def test_B125_a_machine_without_a_gpu_trains_on_the_cpu(driver: Path) -> None:
    driver.write_text("#!/bin/sh\necho 'No devices were found'; exit 6\n")
    assert choose("auto") == torch.device("cpu")
    driver.unlink()
    assert choose("auto") == torch.device("cpu")
