"""Checkpoints: whole or absent, ordered by number, and enough to go on bit for bit."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sinkflex.refusal import Refusal
from sinkflex.train.checkpoint import (
    TrainerState,
    folder,
    latest,
    listing,
    load,
    refuse_used,
    restore_random,
    rotate,
    save,
)
from sinkflex.train.schedule import learning_rate
from torch import nn

STATE = TrainerState(step=1, policy_version=1, data_position=0, run="demo", config_sha256="00")


class Model(nn.Module):
    """The smallest thing with weights that saves itself as transformers' models do."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(3, 1)

    def save_pretrained(self, save_directory: str) -> None:
        save_file(self.state_dict(), f"{save_directory}/model.safetensors")


class Training:
    """AdamW on data and noise from every random stream: anything not restored shows in the weights."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        self.model = Model()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.sampler = torch.Generator().manual_seed(seed)
        self.losses: list[float] = []

    def step(self, number: int) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(number, 1e-3, 10)
        x = torch.randn(4, 3, generator=self.sampler) + torch.randn(4, 3) * random.random() + float(np.random.rand())
        loss = (self.model.line(x) - 1.0).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(loss.item())

    def save(self, run_dir: Path, number: int, **changes: object) -> Path:
        state = replace(STATE, step=number, policy_version=number, **changes)  # type: ignore[arg-type]
        return save(
            run_dir, state, model=self.model, tokenizer=None, optimizer=self.optimizer,
            generators={"sampler": self.sampler},
        ).path  # fmt: skip

    def resume(self, path: Path) -> TrainerState:
        state = load(path, model=self.model, optimizer=self.optimizer)
        self.sampler = torch.Generator().manual_seed(999)  # a sampler built anew, as a new process would
        restore_random(path, {"sampler": self.sampler})
        return state

    @property
    def updates(self) -> int:
        return int(next(iter(self.optimizer.state.values()))["step"])


def _fake(run_dir: Path, step: int, run: str = "demo") -> Path:
    """A folder that is whole as far as order and rotation are concerned."""
    path = folder(run_dir, step)
    path.mkdir(parents=True)
    for name in ("model.safetensors", "optimizer.pt"):
        (path / name).write_bytes(b"x")
    state = {"step": step, "run": run}
    (path / "trainer.json").write_text(
        json.dumps({"v": 1, "state": state, "files": {"model.safetensors": 1, "optimizer.pt": 1}})
    )
    return path


def test_B96_four_steps_at_once_equal_two_steps_a_resume_and_two_more(tmp_path: Path) -> None:
    whole = Training()
    for number in (1, 2, 3, 4):
        whole.step(number)
    first = Training()
    for number in (1, 2):
        first.step(number)
    path = first.save(tmp_path, 2)
    second = Training(seed=77)
    assert second.resume(path).step == 2
    for number in (3, 4):
        second.step(number)
    assert first.losses + second.losses == whole.losses
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[name])


def test_B96_a_random_stream_that_was_not_saved_is_refused(tmp_path: Path) -> None:
    path = Training().save(tmp_path, 1)
    with pytest.raises(Refusal, match="no random state named 'other'"):
        restore_random(path, {"other": torch.Generator()})


def test_B98_the_folder_is_named_by_the_number_of_finished_updates(tmp_path: Path) -> None:
    training = Training()
    for number in (1, 2, 3):
        training.step(number)
        assert training.save(tmp_path, number).name == f"step-{number:06d}"
        assert training.updates == number
    resumed = Training(seed=5)
    state = resumed.resume(folder(tmp_path, 2))
    assert state.step == resumed.updates == 2
    resumed.step(state.step + 1)
    assert resumed.updates == 3


def test_B99_the_optimiser_and_the_schedule_go_on(tmp_path: Path) -> None:
    whole = Training()
    for number in range(1, 7):
        whole.step(number)
    half = Training()
    for number in range(1, 6):
        half.step(number)
    path = half.save(tmp_path, 5)
    resumed = Training(seed=9)
    state = resumed.resume(path)
    moments = [s["exp_avg"].clone() for s in resumed.optimizer.state.values()]
    assert all(m.abs().max() > 0 for m in moments)
    assert all(torch.equal(m, s["exp_avg"]) for m, s in zip(moments, half.optimizer.state.values(), strict=True))
    resumed.step(state.step + 1)
    assert resumed.optimizer.param_groups[0]["lr"] == pytest.approx(6e-4)
    assert resumed.updates == 6
    assert resumed.losses[-1] == whole.losses[-1]


@pytest.mark.parametrize("times", ["equal", "reversed"])
def test_B102_rotation_goes_by_number_and_not_by_name_or_time(tmp_path: Path, times: str) -> None:
    steps = [900, 1000, 9900, 10000, 1_000_000]
    for i, step in enumerate(steps):
        stamp = 1_000_000 if times == "equal" else 2_000_000 - i
        os.utime(_fake(tmp_path, step), (stamp, stamp))
    assert [p.name for p in rotate(tmp_path, run="demo", newest=10000, keep=2)] == ["step-000900", "step-001000"]
    assert [step for step, _ in listing(tmp_path)] == [9900, 10000, 1_000_000]
    assert latest(tmp_path) == folder(tmp_path, 1_000_000)
    rotate(tmp_path, run="demo", newest=1_000_000, keep=1)
    assert [step for step, _ in listing(tmp_path)] == [1_000_000]


def test_B102_a_protected_checkpoint_stays(tmp_path: Path) -> None:
    for step in (0, 10, 20):
        _fake(tmp_path, step)
    rotate(tmp_path, run="demo", newest=20, keep=1, protect=(0,))
    assert [step for step, _ in listing(tmp_path)] == [0, 20]


def test_B103_checkpoints_of_another_run_are_neither_counted_nor_deleted(tmp_path: Path) -> None:
    _fake(tmp_path, 1000, run="other")
    _fake(tmp_path, 5, run="other")
    for step in (10, 20):
        _fake(tmp_path, step)
        rotate(tmp_path, run="demo", newest=step, keep=1)
    assert [step for step, _ in listing(tmp_path)] == [5, 20, 1000]
    with pytest.raises(Refusal) as caught:
        refuse_used(tmp_path)
    assert caught.value.code == "SF-RUN-DIR-USED"
    assert "step-001000" in caught.value.what


def test_B103_a_save_below_an_older_higher_number_survives_its_own_rotation(tmp_path: Path) -> None:
    _fake(tmp_path, 1000)
    _fake(tmp_path, 20)
    rotate(tmp_path, run="demo", newest=20, keep=1)
    assert [step for step, _ in listing(tmp_path)] == [20, 1000]


def test_B103_keeping_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        rotate(tmp_path, run="demo", newest=1, keep=0)


def test_an_unused_folder_is_not_refused(tmp_path: Path) -> None:
    refuse_used(tmp_path)
    assert latest(tmp_path) is None


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda p: (p / "model.safetensors").write_bytes(b"short"), "5 bytes"),
        (lambda p: (p / "optimizer.pt").unlink(), "optimizer.pt is missing"),
        (lambda p: (p / "trainer.json").write_text('{"v": 1, "sta'), "trainer.json cannot be read"),
        (lambda p: (p / "trainer.json").unlink(), "trainer.json cannot be read"),
        (lambda p: p.rename(p.with_name("step-000009")), "says step 2"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_with_a_reason(tmp_path: Path, harm: object, told: str) -> None:
    training = Training()
    good, bad = training.save(tmp_path, 1), training.save(tmp_path, 2)
    harm(bad)  # type: ignore[operator]
    warnings: list[str] = []
    assert latest(tmp_path, warnings.append) == good
    assert len(warnings) == 1
    assert told in warnings[0]
    if bad.exists():
        with pytest.raises(Refusal, match=told):
            load(bad, model=training.model)


def test_folders_of_an_interrupted_save_are_no_checkpoints(tmp_path: Path) -> None:
    good = Training().save(tmp_path, 1)
    for name in (".step-000002.part-77", "step-000003.tmp", "step-4"):
        (good.parent / name).mkdir()
    assert listing(tmp_path) == [(1, good)]


def test_saving_a_number_again_replaces_it_whole(tmp_path: Path) -> None:
    training = Training()
    training.save(tmp_path, 1)
    training.step(1)
    path = training.save(tmp_path, 1, data_position=8)
    fresh = Training(seed=4)
    assert fresh.resume(path).data_position == 8
    assert torch.equal(fresh.model.line.weight, training.model.line.weight)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    path = Training().save(tmp_path, 1)
    other = Model()
    other.line = nn.Linear(4, 1)
    with pytest.raises(Refusal) as caught:
        load(path, model=other)
    assert caught.value.code == "SF-CHECKPOINT"
    assert str(path) in caught.value.what


FULL = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_checkpoint import Training, latest
from sinkflex.refusal import Refusal
run_dir = Path(sys.argv[1])
training = Training()
training.save(run_dir, 1)
training.step(2)
# A file size limit is what a full disk looks like to a program: write() fails in the middle of a file.
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
try:
    training.save(run_dir, 2)
except Refusal as refusal:
    print(refusal.code, refusal.what, refusal.why, refusal.fix, sep="|")
    print(latest(run_dir).name, sorted(p.name for p in (run_dir / "checkpoints").iterdir()))
"""


FILES = ["model.safetensors", "optimizer.pt", "trainer.json"]


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "failing"), [(16, 0), (512, 1), (8192, 2)])
def test_a_full_disk_is_one_clear_refusal_and_loses_nothing(tmp_path: Path, limit: int, failing: int) -> None:
    """The write fails in the weights, in the optimiser's state, or in trainer.json."""
    command = [sys.executable, "-P", "-c", FULL, str(tmp_path), str(Path(__file__).parent), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    refusal, left = done.stdout.splitlines()
    code, what, why, fix = refusal.split("|")
    assert code == "SF-DISK-FULL"
    assert "step-000002" in what
    assert "bytes are needed" in what
    assert "step-000001" in why
    assert "resume" in fix
    assert left == "step-000001 ['step-000001']"
    sizes = [(folder(tmp_path, 1) / name).stat().st_size for name in FILES]
    assert [size > limit for size in sizes].index(True) == failing


def test_too_little_space_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = __import__("shutil").disk_usage
    monkeypatch.setattr("shutil.disk_usage", lambda path: real(path)._replace(free=1000))
    with pytest.raises(Refusal) as caught:
        Training().save(tmp_path, 1)
    assert caught.value.code == "SF-DISK-FULL"
    assert "no earlier checkpoint" in caught.value.why
    assert "1000 are free" in caught.value.what
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_a_tiny_gpt_oss_comes_back_bit_for_bit(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GptOssConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, intermediate_size=16, head_dim=16, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=2, num_experts_per_tok=1, sliding_window=4,
    )  # fmt: skip
    model = transformers.GptOssForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model(torch.arange(8)[None]).logits.square().mean().backward()
    optimizer.step()
    saved = save(tmp_path, STATE, model=model, tokenizer=None, optimizer=optimizer)
    assert {"model.safetensors", "config.json", "optimizer.pt", "trainer.json"} <= {
        p.name for p in saved.path.iterdir()
    }
    assert saved.bytes == sum(p.stat().st_size for p in saved.path.iterdir())
    torch.manual_seed(1)
    other = transformers.GptOssForCausalLM(config)
    assert load(saved.path, model=other) == STATE
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
