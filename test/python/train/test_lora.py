"""Runs with an adapter: what is trained, what is saved, and that a resume goes on to the bit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from llama_samples import llama_folder, rewards_by_length, with_lora
from safetensors.torch import load_file
from sinkflex.policy.model import load_policy
from sinkflex.refusal import Refusal
from sinkflex.rollout.scheduler import Collector, EpisodeJob
from sinkflex.train import checkpoint
from sinkflex.train import loop as loop_module
from sinkflex.train.reference import frozen_copy
from sinkflex.train.setup import prepare
from train_samples import launch, launch_and_stop, make_run, stable


@pytest.fixture(autouse=True)
def _restore_torch() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return llama_folder(tmp_path_factory.mktemp("base"))


@pytest.fixture
def _varied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "_advantages", rewards_by_length)


def short(base: Path, **more: Any) -> dict[str, Any]:
    """Two supervised steps, three of reinforcement learning with KL, all kept."""
    return with_lora(base) | {
        "warm_start.sft.demonstrations": [{"agent": "expert", "steps": 2, "levels": None}],
        "warm_start.sft.lr": 1e-2,
        "optim.lr": 1e-2,
        "optim.warmup_steps": 0,
        "algorithm.kl.coef": 0.05,
        "algorithm.mini_batches": 1,
        "eval": None,
        "train.steps": 3,
        **more,
    }


def factors(run_dir: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(checkpoint.folder(run_dir, step) / "adapter_model.safetensors")


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, base: Path) -> tuple[Path, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("straight")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop_module, "_advantages", rewards_by_length)
        code, records = launch(make_run(folder, short(base)))
    assert code == 0
    return folder, records


def test_the_plan_says_what_is_trained_and_the_updates_move_it(
    straight: tuple[Path, list[dict[str, Any]]],
) -> None:
    folder, records = straight
    plan = records[0]
    assert 0 < plan["model"]["trainable"] < plan["model"]["parameters"]
    told = " ".join(plan["notes"])
    assert "14 linear layers have an adapter (2 q_proj, 2 k_proj" in told and "rank 4, alpha 8" in told
    assert "rollouts use merged weights" in told
    rl = [r["metrics"] for r in records if r["type"] == "step" and r["stage"] == "rl"]
    assert all(m["logprob_gap"] < 1e-3 for m in rl) and all(m["grad_norm"] > 0 for m in rl)
    assert rl[0]["kl"] == pytest.approx(0, abs=1e-9) and rl[2]["kl"] > 1e-4
    for name, tensor in factors(folder, 3).items():
        assert not torch.equal(tensor, factors(folder, 0)[name]), f"{name} did not move"


def test_a_checkpoint_holds_the_adapter_and_never_the_base(
    straight: tuple[Path, list[dict[str, Any]]], base: Path
) -> None:
    saved = checkpoint.folder(straight[0], 3)
    names = {f.name for f in saved.iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "optimizer.pt", "tokenizer.json"} <= names
    assert not {n for n in names if n.startswith("model")}
    config = json.loads((saved / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(base)
    assert (config["peft_type"], config["task_type"], config["r"], config["lora_alpha"]) == ("LORA", "CAUSAL_LM", 4, 8)
    held = torch.load(saved / "optimizer.pt", weights_only=True)
    counts = len(held["state"]), len(held["param_groups"][0]["params"]), len(factors(straight[0], 3))
    assert counts == (28, 28, 28), "the optimiser holds the factors and nothing else"


@pytest.mark.usefixtures("_varied")
@pytest.mark.parametrize(("stop_after", "stage"), [(1, "sft"), (1, "rl"), (2, "rl")])
def test_stop_and_resume_equal_the_uninterrupted_run_to_the_bit(
    straight: tuple[Path, list[dict[str, Any]]], base: Path, tmp_path: Path, stop_after: int, stage: str
) -> None:
    folder, records = straight
    code, _ = launch_and_stop(make_run(tmp_path, short(base)), stop_after, stage)
    assert code == 130
    step = stop_after if stage == "rl" else 0
    code, second = launch(make_run(tmp_path, short(base), resume=(checkpoint.folder(tmp_path, step), step)))
    assert code == 0
    assert_same(factors(tmp_path, 3), factors(folder, 3))
    whole = [r for r in stable(records) if r["type"] == "step" and r["stage"] == "rl"]
    assert [r for r in stable(second) if r["type"] == "step" and r["stage"] == "rl"] == whole[step:]


def test_the_saved_adapter_is_the_policy_that_was_trained(
    straight: tuple[Path, list[dict[str, Any]]], base: Path
) -> None:
    folder, _ = straight
    again = load_policy(checkpoint.folder(folder, 3), impl="flash")
    assert again.adapter is not None
    assert_same(again.adapter.tensors(), factors(folder, 3))
    assert torch.equal(again.head, load_policy(base, impl="flash").head), "the base is as it was"


def played(policy: Any, setup: Any, merged: bool) -> list[Any]:
    ids = setup.task_ids()
    jobs = [EpisodeJob(f"j{i}", ids[i // 2], "train", i // 2, i % 2, 1000 + i) for i in range(12)]
    collector = Collector(policy, setup.make_env, setup.settings(1.0))
    if not merged:
        return collector.collect(jobs)
    with policy.rollout_weights():
        return collector.collect(jobs)


def test_merged_weights_and_factors_sample_the_same_tokens(base: Path, tmp_path: Path) -> None:
    setup = prepare(make_run(tmp_path, short(base)))
    policy = setup.policy
    for layer in policy.adapter.layers.values():
        layer.lora_B["default"].weight.data.normal_(std=0.1, generator=torch.Generator().manual_seed(1))
    plain, merged = played(policy, setup, False), played(policy, setup, True)
    assert [t.ids for t in plain] == [t.ids for t in merged]
    gaps = [abs(a - b) for p, m in zip(plain, merged, strict=True) for a, b in zip(p.logprobs, m.logprobs, strict=True)]
    assert 0 < sum(gaps) / len(gaps) < 1e-5, "two ways to compute, one distribution"
    for layer in policy.adapter.layers.values():
        layer.lora_B["default"].weight.data.zero_()
    assert [t.ids for t in played(policy, setup, True)] != [t.ids for t in merged], "the adapter matters"


def test_the_reference_is_the_adapter_as_it_started_on_the_same_weights(base: Path, tmp_path: Path) -> None:
    policy = prepare(make_run(tmp_path, short(base))).policy
    off = frozen_copy(policy, None)
    assert all(layer.disable_adapters for layer in off.adapter.layers.values()), "nothing learned yet: the bare base"
    held = {p.data_ptr() for p in policy.model.parameters()}
    own = [p for p in off.model.parameters() if p.data_ptr() not in held]
    assert sum(p.numel() for p in own) == policy.trainable and not any(p.requires_grad for p in off.model.parameters())
    for layer in policy.adapter.layers.values():
        layer.lora_B["default"].weight.data.fill_(0.01)
    warm = frozen_copy(policy, None)
    assert not any(layer.disable_adapters for layer in warm.adapter.layers.values())
    before = {name: t.clone() for name, t in warm.adapter.tensors().items()}
    for layer in policy.adapter.layers.values():
        layer.lora_B["default"].weight.data.fill_(0.5)
    assert_same(warm.adapter.tensors(), before)
    assert all(layer.lora_B["default"].weight.requires_grad for layer in policy.adapter.layers.values())


def test_what_cannot_have_an_adapter_is_refused(
    straight: tuple[Path, list[dict[str, Any]]], base: Path, tmp_path: Path
) -> None:
    lora = {"rank": 4, "alpha": 8, "targets": None}
    built = make_run(tmp_path, {"model": {"preset": "tiny-gpt-oss", "dtype": "float32", "lora": lora}})
    with pytest.raises(Refusal, match=r"model\.lora was asked for, and the model is built from the seed"):
        prepare(built)
    with pytest.raises(Refusal, match=r"'q_prj' matches no layer.*Did you mean 'q_proj'"):
        prepare(make_run(tmp_path, with_lora(base, targets=["q_prj"])))
    with pytest.raises(Refusal, match="holds an adapter, not a model"):
        prepare(make_run(tmp_path, with_lora(checkpoint.folder(straight[0], 3))))
