"""LoRA: which layers get an adapter, that nothing else is trained, merging without a trace, and peft's own files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from gguf_samples import random_llama
from sinkflex.kernels.layout import Layout
from sinkflex.policy.adapter import Adapter, add_adapter, load_adapter
from sinkflex.policy.attention import AttentionContext
from sinkflex.policy.model import Policy, _ready, load_policy, tiny_config
from sinkflex.refusal import Refusal
from transformers import AutoModelForCausalLM, GptOssForCausalLM

BASE = Path("/models/base")
LLAMA = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def add(model: Any, targets: list[str] | None = None, seed: int = 0, base: Path = BASE) -> Adapter:
    return add_adapter(model, rank=3, alpha=6.0, targets=targets, seed=seed, base=base)


def stir(adapter: Adapter, seed: int = 1, std: float = 0.1) -> None:
    """As if it had learned something."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in adapter.tensors().values():
        tensor.normal_(std=std, generator=generator)


def ready(words: Any, dtype: torch.dtype = torch.float32) -> Policy:
    policy = _ready(random_llama().to(dtype), words, "llama", "flash")
    policy.adapter = add(policy.model)
    return policy


def states(policy: Policy) -> torch.Tensor:
    ids = torch.arange(12)
    return policy.hidden(ids[None], ids[None], AttentionContext("flash", layout=Layout.single(12)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_only_the_factors_are_trained_and_the_start_is_the_base(words: Any, dtype: torch.dtype) -> None:
    plain = _ready(random_llama().to(dtype), words, "llama", "flash")
    policy = ready(words, dtype)
    assert policy.adapter is not None
    assert list(policy.adapter.layers) == [
        f"model.layers.{i}.{'mlp' if name in LLAMA[4:] else 'self_attn'}.{name}" for i in range(2) for name in LLAMA
    ]
    assert torch.equal(states(policy), states(plain))
    policy.model.train()
    states(policy).float().square().sum().backward()
    touched = {name for name, p in policy.model.named_parameters() if p.grad is not None}
    assert len(touched) == 28 and all("lora_" in name for name in touched)
    assert {p.dtype for p in policy.model.parameters() if p.requires_grad} == {torch.float32}
    assert {p.dtype for p in policy.model.parameters() if not p.requires_grad} == {dtype}
    assert policy.trainable == sum(t.numel() for t in policy.adapter.tensors().values())


def test_the_seed_alone_decides_the_factors() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    model = random_llama()
    torch.manual_seed(5)
    one = add(model, seed=1).tensors()
    assert torch.equal(torch.rand(1), expected), "the global generator is as it was"
    same, other = add(random_llama(), seed=1).tensors(), add(random_llama(), seed=2).tensors()
    assert all(torch.equal(one[name], same[name]) for name in one)
    drawn = [name for name in one if "lora_A" in name]
    assert drawn and not any(torch.equal(one[name], other[name]) for name in drawn)


def test_experts_stay_without_and_the_notes_say_so() -> None:
    adapter = add(GptOssForCausalLM(tiny_config(64, 128)))
    assert {name.rpartition(".")[2] for name in adapter.layers} == {"q_proj", "k_proj", "v_proj", "o_proj"}
    assert "LoRA: no adapter on 4 GptOssExperts, whose weights are no linear layers" in adapter.notes()


@pytest.mark.parametrize(
    ("targets", "layers"),
    [(["up_proj"], 2), (["layers.1.mlp.up_proj"], 1), (["self_attn.q_proj", "v_proj"], 4)],
)
def test_targets_are_names_or_ends_of_paths(targets: list[str], layers: int) -> None:
    assert len(add(random_llama(), targets).layers) == layers


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("qproj", "Did you mean 'q_proj'"),
        ("layers.1.mlp.upproj", "Did you mean 'layers.1.mlp.up_proj'"),
        ("lm_head", "There are: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj"),
        ("mlp", "There are: q_proj"),
        ("proj", "There are: q_proj"),
    ],
)
def test_a_target_that_matches_nothing_is_refused(target: str, hint: str) -> None:
    model = random_llama()
    with pytest.raises(Refusal) as refused:
        add(model, ["q_proj", target])
    assert (refused.value.code, refused.value.exit_code) == ("SF-LORA-TARGETS", 2)
    assert repr(target) in refused.value.what and hint in refused.value.fix
    assert not any("lora" in name for name, _ in model.named_parameters()), "nothing was changed"


def test_merging_leaves_no_trace_however_often(words: Any) -> None:
    policy = ready(words)
    assert policy.adapter is not None
    frozen = {name: p.clone() for name, p in policy.model.named_parameters() if not p.requires_grad}
    for cycle in range(200):
        stir(policy.adapter, seed=cycle, std=1.0)
        with policy.rollout_weights():
            pass
    with pytest.raises(KeyError), policy.rollout_weights():
        raise KeyError("a fault while sampling")
    for name, p in policy.model.named_parameters():
        assert p.requires_grad or torch.equal(p, frozen[name]), name


@torch.no_grad()
def test_merged_weights_compute_the_same(words: Any) -> None:
    policy = ready(words)
    assert policy.adapter is not None
    start = states(policy)
    stir(policy.adapter)
    learned = states(policy)
    with policy.rollout_weights():
        assert all(layer.merged for layer in policy.adapter.layers.values())
        inside = states(policy)
    assert not torch.equal(inside, learned), "computed another way"
    torch.testing.assert_close(inside, learned, atol=1e-4, rtol=1e-4)
    assert float((learned - start).abs().max()) > 0.1
    assert torch.equal(states(policy), learned)


def test_the_layers_compute_and_differentiate_what_pefts_own_do(words: Any) -> None:
    ours, theirs = ready(words), ready(words)
    assert ours.adapter is not None and theirs.adapter is not None
    for layer in theirs.adapter.layers.values():
        layer.__class__ = peft.tuners.lora.Linear
    for policy in (ours, theirs):
        assert policy.adapter is not None
        stir(policy.adapter)
        states(policy).sin().sum().backward()
    assert all(type(layer) is not peft.tuners.lora.Linear for layer in ours.adapter.layers.values())
    torch.testing.assert_close(states(ours), states(theirs), atol=1e-5, rtol=1e-5)
    wanted = {name: p.grad for name, p in theirs.model.named_parameters() if p.requires_grad}
    for name, p in ours.model.named_parameters():
        if p.requires_grad:
            torch.testing.assert_close(p.grad, wanted[name], atol=1e-5, rtol=1e-4)


def test_half_precision_samples_with_the_factors(words: Any) -> None:
    policy = ready(words, torch.bfloat16)
    assert policy.adapter is not None
    stir(policy.adapter)
    with policy.rollout_weights():
        assert not any(layer.merged for layer in policy.adapter.layers.values())
    assert "bfloat16 would round the difference away" in policy.adapter.notes()[-1]


def saved_base(folder: Path, words: Any) -> Path:
    random_llama().save_pretrained(str(folder))
    words.save_pretrained(str(folder))
    return folder


def test_peft_loads_what_is_saved_and_so_does_load_policy(words: Any, tmp_path: Path) -> None:
    base = saved_base(tmp_path / "base", words)
    policy = load_policy(base, impl="flash")
    policy.adapter = add(policy.model, base=base)
    stir(policy.adapter)
    (tmp_path / "adapter").mkdir()
    policy.adapter.save_pretrained(str(tmp_path / "adapter"))
    assert sorted(f.name for f in (tmp_path / "adapter").iterdir()) == [
        "adapter_config.json", "adapter_model.safetensors",
    ]  # fmt: skip
    theirs = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(tmp_path / "adapter"))
    ids = torch.arange(12)[None]
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits[0], policy.logits(states(policy)), atol=1e-4, rtol=1e-4)
        again = load_policy(tmp_path / "adapter", impl="flash")
        assert torch.equal(states(again), states(policy))
    assert again.name == "adapter" and len(again.tokenizer) == len(words)


def test_an_adapter_without_its_base_is_refused(words: Any, tmp_path: Path) -> None:
    adapter = add(random_llama(), base=tmp_path / "gone")
    adapter.save_pretrained(str(tmp_path))
    with pytest.raises(Refusal, match=r"needs its base model .*/gone.*`sinkflex models get NAME`") as refused:
        load_policy(tmp_path, impl="flash")
    assert (refused.value.code, refused.value.exit_code) == ("SF-ADAPTER-BASE", 2)


def broken(folder: Path, **changes: Any) -> Path:
    add(random_llama()).save_pretrained(str(folder))
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | changes))
    return folder


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"use_dora": True}, "use_dora = True"),
        ({"bias": "all"}, "bias = all"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"target_modules": ["q_proj", "lm_head"]}, "lm_head, which is no linear layer of attention or MLP"),
        ({"r": 5}, "shape"),
        ({"target_modules": ["q_proj"]}, "and has"),
        ({"peft_type": "LOHA"}, "LOHA"),
    ],
)
def test_another_kind_of_adapter_is_refused(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    folder = broken(tmp_path, **changes)
    with pytest.raises(Refusal, match=why) as refused:
        load_adapter(random_llama(), folder, BASE)
    assert (refused.value.code, refused.value.exit_code) == ("SF-ADAPTER", 2)
