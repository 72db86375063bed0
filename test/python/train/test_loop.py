"""The loop end to end, in process: determinism, resume to the bit, stops, gates, and what the events say."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from sinkflex.control import Control
from sinkflex.events import Events
from sinkflex.refusal import Refusal
from sinkflex.train import checkpoint
from sinkflex.train import loop as loop_module
from sinkflex.train.loop import train
from train_samples import LEARN, launch, launch_and_stop, make_run, stable

# Whole runs: the fast subset has the parts they are made of.
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _restore_torch() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


def weights(run_dir: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(checkpoint.folder(run_dir, step) / "model.safetensors")


def assert_equal_weights(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that solves some tasks of level 3 and not others, so that updates have a gradient."""
    folder = tmp_path_factory.mktemp("learned")
    launch(make_run(folder, LEARN))
    return checkpoint.folder(folder, 0)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, learned: Path) -> tuple[Path, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("straight")
    code, records = launch(make_run(folder, start=learned))
    assert code == 0
    return folder, records


def test_the_events_tell_the_whole_story(straight: tuple[Path, list[dict[str, Any]]]) -> None:
    _, records = straight
    kinds = [r["type"] for r in records]
    assert kinds[0] == "plan" and kinds[-1] == "end"
    plan = records[0]
    assert plan["attention_impl"] == "flash" and plan["model"]["name"] == "step-000000" and plan["noop_mean"] == 0.0
    sft = [r for r in records if r["type"] == "step" and r["stage"] == "sft"]
    rl = [r for r in records if r["type"] == "step" and r["stage"] == "rl"]
    assert [r["step"] for r in sft] == [1, 2, 3, 4, 5, 6]
    assert [r["metrics"]["agent"] for r in sft] == ["expert"] * 4 + ["faulty"] * 2
    assert [r["step"] for r in rl] == [1, 2, 3, 4]
    assert all(r["metrics"]["logprob_gap"] < 1e-4 and r["metrics"]["episodes"] == 12 for r in rl)
    assert any(r["metrics"]["reward_std"] > 0 and r["metrics"]["grad_norm"] > 1e-3 for r in rl), (
        "updates move something"
    )
    assert [(r["step"], r["split"], r["tasks"]) for r in records if r["type"] == "eval"] == [
        (0, "report", 6), (2, "tune", 4), (4, "report", 6),
    ]  # fmt: skip
    assert [r["step"] for r in records if r["type"] == "checkpoint"] == [0, 1, 2, 3, 4]
    assert sum(r["type"] == "episode" for r in records) == 4 * 12 + 6 + 4 + 6


def test_same_config_and_seed_give_the_same_events(
    straight: tuple[Path, list[dict[str, Any]]], learned: Path, tmp_path: Path
) -> None:
    folder, records = straight
    _, again = launch(make_run(tmp_path / "again", start=learned))
    assert stable(again) == stable(records)
    assert_equal_weights(weights(tmp_path / "again", 4), weights(folder, 4))
    _, other = launch(make_run(tmp_path / "other", {"seed": 6}, start=learned))
    assert stable(other) != stable(records)


class Footprint(list[dict[str, Any]]):
    """A list for `Events.to_list` that keeps, of each step with an update, what the process holds after it (Linux)."""

    def append(self, record: dict[str, Any]) -> None:
        if record["type"] != "step" or record["metrics"]["skipped"]:
            return
        fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        megabytes, threads = int(fields["VmRSS"].split()[0]) / 1024, int(fields["Threads"])
        used = {"megabytes": megabytes, "threads": threads, "descriptors": len(os.listdir("/proc/self/fd"))}
        super().append({"step": record["step"]} | used)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_B109_memory_descriptors_and_threads_stay_as_they_are(learned: Path, tmp_path: Path) -> None:
    changes = {
        "train.steps": 300,
        "rollout.tasks_per_step": 1,
        "rollout.group_size": 2,
        "warm_start": None,
        "eval": None,
    }
    held = Footprint()
    run = make_run(tmp_path, changes | {"checkpoint": {"every": 50, "keep": 1}}, start=learned)
    assert train(run, Events.to_list(held), Control(None)) == 0
    early, late = [r for r in held if r["step"] <= 50], [r for r in held if r["step"] > 50]
    assert len(early) > 20 and len(late) > 100, "the other steps had no update"
    steps, megabytes = (torch.tensor([float(r[key]) for r in late]) for key in ("step", "megabytes"))
    slope = torch.cov(torch.stack([steps, megabytes]))[0, 1] / steps.var()
    assert slope < 0.2, f"{slope:.3f} MB a step"
    for key in ("threads", "descriptors"):
        assert max(r[key] for r in late) <= max(r[key] for r in early), key


@pytest.mark.parametrize("stop_after", [1, 2, 3])
def test_B96_B98_stop_and_resume_equal_the_uninterrupted_run_to_the_bit(
    straight: tuple[Path, list[dict[str, Any]]], learned: Path, tmp_path: Path, stop_after: int
) -> None:
    folder, records = straight
    code, first = launch_and_stop(make_run(tmp_path, start=learned), stop_after)
    assert code == 130 and first[-1]["status"] == "stopped" and first[-1]["step"] == stop_after
    saved = checkpoint.folder(tmp_path, stop_after)
    state = json.loads((saved / "trainer.json").read_text())["state"]
    applied = [2 - 2 * r["metrics"]["skipped"] for r in first if r["type"] == "step" and r["stage"] == "rl"]
    assert state["step"] == stop_after and state["policy_version"] == 6 + sum(applied)
    code, second = launch(make_run(tmp_path, resume=(saved, stop_after), start=learned))
    assert code == 0
    assert_equal_weights(weights(tmp_path, 4), weights(folder, 4))
    steps = [r for r in stable(records) if r["type"] == "step" and r["stage"] == "rl"]
    resumed = [r for r in stable(second) if r["type"] == "step"]
    assert resumed == steps[stop_after:], "the first logged step after a resume is the next one, with the same numbers"


def test_a_stop_in_the_warm_start_resumes_to_the_bit(
    straight: tuple[Path, list[dict[str, Any]]], learned: Path, tmp_path: Path
) -> None:
    folder, _ = straight
    code, first = launch_and_stop(make_run(tmp_path, start=learned), 3, stage="sft")
    assert code == 130 and not any(r["type"] == "eval" for r in first)
    launch(make_run(tmp_path, resume=(checkpoint.folder(tmp_path, 0), 0), start=learned))
    assert_equal_weights(weights(tmp_path, 4), weights(folder, 4))


def test_B99_the_schedule_goes_on_where_it_was(straight: tuple[Path, list[dict[str, Any]]]) -> None:
    _, records = straight
    rates = [r["metrics"]["lr"] for r in records if r["type"] == "step" and r["stage"] == "rl"]
    assert rates == pytest.approx([1e-4, 2e-4, 3e-4, 4e-4])


def test_B25_without_kl_there_is_no_reference_and_with_it_there_is(
    straight: tuple[Path, list[dict[str, Any]]], learned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    build = loop_module._reference
    monkeypatch.setattr(loop_module, "_reference", lambda loop: made.append(build(loop)) or made[-1])
    _, records = straight
    assert not any("kl" in r["metrics"] for r in records if r["type"] == "step")
    launch(make_run(tmp_path / "off", {"train.steps": 1}, start=learned))
    code, with_kl = launch(make_run(tmp_path / "on", {"algorithm.kl.coef": 0.1, "train.steps": 2}, start=learned))
    assert code == 0 and made[0] is None and made[1] is not None
    kl = [r["metrics"]["kl"] for r in with_kl if r["type"] == "step" and r["stage"] == "rl"]
    assert kl[1] > 0.0


def test_kl_survives_a_resume_to_the_bit(learned: Path, tmp_path: Path) -> None:
    changes = {"algorithm.kl.coef": 0.1, "train.steps": 2, "checkpoint.keep": 1}
    launch(make_run(tmp_path / "a", changes, start=learned))
    launch_and_stop(make_run(tmp_path / "b", changes, start=learned), 1)
    launch(make_run(tmp_path / "b", changes, resume=(checkpoint.folder(tmp_path / "b", 1), 1), start=learned))
    assert_equal_weights(weights(tmp_path / "a", 2), weights(tmp_path / "b", 2))


def test_eager_and_flash_train_the_same_policy(
    straight: tuple[Path, list[dict[str, Any]]], learned: Path, tmp_path: Path
) -> None:
    folder, _ = straight
    launch(make_run(tmp_path, {"attention.impl": "eager", "train.steps": 1}, start=learned))
    ours, theirs = weights(folder, 1), weights(tmp_path, 1)
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], atol=1e-3, rtol=1e-2)


def test_B27_micro_batches_do_not_change_the_update(
    straight: tuple[Path, list[dict[str, Any]]], learned: Path, tmp_path: Path
) -> None:
    folder, _ = straight
    launch(make_run(tmp_path, {"train.tokens_per_micro_batch": 400, "train.steps": 1}, start=learned))
    ours, theirs = weights(folder, 1), weights(tmp_path, 1)
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], atol=1e-3, rtol=1e-2)


def test_checkpointed_activations_train_the_same_policy_to_the_bit(
    straight: tuple[Path, list[dict[str, Any]]], learned: Path, tmp_path: Path
) -> None:
    folder, _ = straight
    launch(make_run(tmp_path, {"train.activation_checkpointing": True, "train.steps": 1}, start=learned))
    assert_equal_weights(weights(folder, 1), weights(tmp_path, 1))


def test_a_run_can_learn_from_sub_goals_compared_over_the_whole_step(
    straight: tuple[Path, list[dict[str, Any]]], learned: Path, tmp_path: Path
) -> None:
    folder, records = straight
    changes = {"algorithm.reward": "graded", "algorithm.advantage": "reinforce_plus_plus", "train.steps": 1}
    _, other = launch(make_run(tmp_path, changes, start=learned))
    ours, theirs = (
        next(r["metrics"] for r in some if r["type"] == "step" and r["stage"] == "rl") for some in (records, other)
    )
    assert ours["reward"] == theirs["reward"] and ours["reward_std"] != theirs["reward_std"]
    assert theirs["frac_reward_zero_std"] == 0.0 and theirs["skipped"] == 0
    assert any(not torch.equal(weights(folder, 1)[name], w) for name, w in weights(tmp_path, 1).items())


def test_a_gap_between_rollout_and_training_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, learned: Path
) -> None:
    original = loop_module.Collector.collect

    def shifted(self: Any, jobs: Any) -> Any:
        trajectories = original(self, jobs)
        for t in trajectories:
            t.logprobs = [lp - 0.1 * m for lp, m in zip(t.logprobs, t.loss_mask, strict=True)]
        return trajectories

    monkeypatch.setattr(loop_module.Collector, "collect", shifted)
    with pytest.raises(Refusal, match=r"disagree by 0\.1"):
        launch(make_run(tmp_path, {"eval": None}, start=learned))


def test_B69_after_a_large_step_the_rollout_uses_the_new_weights(tmp_path: Path, learned: Path) -> None:
    """A stale engine would show as a gap from the second step on; the version is stamped on every step."""
    changes = {"optim.lr": 1e-2, "optim.warmup_steps": 0, "train.steps": 3, "eval": None, "warm_start": None}
    _, records = launch(make_run(tmp_path, changes, start=learned))
    steps = [r["metrics"] for r in records if r["type"] == "step"]
    assert all(m["logprob_gap"] < 1e-4 for m in steps)
    assert [m["policy_version"] for m in steps] == [2, 4, 6]


def test_a_new_run_does_not_write_among_old_checkpoints(
    straight: tuple[Path, list[dict[str, Any]]],
) -> None:
    folder, _ = straight
    with pytest.raises(Refusal, match="already holds 5 checkpoints"):
        launch(make_run(folder))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"env.system_prompt": "full"}, "closed vocabulary cannot spell"),
        ({"env.split": "trane"}, "'trane'"),
        ({"env.tasks": ["nope"]}, "no such task"),
        ({"device": "cuda"}, "sees no CUDA"),
        ({"eval.suites": ["tau2-retail"]}, "measures the suite it trains on, mini-shop"),
        ({"eval.split": "test"}, "has the splits train, tune, report"),
        ({"eval.report_split": "test"}, "has the splits train, tune, report"),
        ({"model": {"path": "/nowhere", "dtype": "auto", "lora": None}}, "not a model folder"),
        ({"attention.impl": "flex", "device": "cpu"}, "attention.impl is 'flex'.* impl='[a-z]+' supports this request"),
    ],
)
def test_what_cannot_be_had_is_refused_before_training(tmp_path: Path, changes: dict[str, Any], match: str) -> None:
    if changes.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("a CUDA device is there")
    with pytest.raises(Refusal, match=match):
        launch(make_run(tmp_path, changes))


def test_a_checkpoint_is_an_ordinary_model_folder(straight: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> None:
    """Any local transformers checkpoint takes the same path: here, one that a run wrote."""
    folder, _ = straight
    path = str(checkpoint.folder(folder, 4))
    changes = {"model": {"path": path, "dtype": "auto", "lora": None}, "warm_start": None, "train.steps": 1}
    code, records = launch(make_run(tmp_path, changes))
    assert code == 0 and records[0]["model"]["name"] == "step-000004"
    step = next(r for r in records if r["type"] == "step")
    assert step["metrics"]["logprob_gap"] < 1e-4
