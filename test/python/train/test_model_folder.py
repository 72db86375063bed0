"""What run.json says about the model's folder is what is loaded."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from sinkflex import envs
from sinkflex.policy.model import build_tiny
from sinkflex.refusal import Refusal
from sinkflex.train.setup import prepare
from train_samples import make_run


def test_a_model_is_loaded_from_the_folder_that_the_command_line_wrote(tmp_path: Path) -> None:
    saved = build_tiny(envs.domain("mini-shop"), impl="flash", seed=77, max_positions=400)
    saved.model.save_pretrained(tmp_path / "here")
    saved.tokenizer.save_pretrained(tmp_path / "here")
    for path in ("org/name", str(tmp_path / "x.gguf")):
        run = make_run(tmp_path / "run", {"model": {"path": path, "dtype": "auto", "lora": None}})
        policy = prepare(dataclasses.replace(run, model_folder=tmp_path / "here")).policy
        assert policy.name == "here"
        assert torch.equal(policy.head, saved.head)


def test_a_preset_that_nobody_brought_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"model": {"preset": "smollm2-135m", "dtype": "auto", "lora": None}})
    with pytest.raises(Refusal, match="does not say where the model smollm2-135m is") as refused:
        prepare(run)
    assert (refused.value.code, refused.value.exit_code) == ("SF-MODEL-FOLDER", 2)
