"""Which model classes are taken, and that logits are those of the head's weight as it is now, in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from sinkflex import envs
from sinkflex.policy.attention import IMPL_NAME, AttentionContext, sinkflex_attention
from sinkflex.policy.fit import refuse_unfit
from sinkflex.policy.model import Policy, build_tiny, load_policy
from sinkflex.refusal import Refusal

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def model(family: str, **options: Any) -> Any:
    suffix = "TextConfig" if family == "Gemma3" else "Config"
    config = getattr(transformers, family + suffix)(**SIZES | options)
    config._attn_implementation = IMPL_NAME
    torch.manual_seed(0)
    return getattr(transformers, family + "ForCausalLM")(config).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["Llama", "Qwen3", "GptOss", "Mistral", "Gemma3"])
def test_a_plain_head_and_attention_through_the_interface_are_taken(family: str, dtype: torch.dtype) -> None:
    made = model(family).to(dtype)
    refuse_unfit(made, family)
    assert not made.base_model._forward_hooks, "the probe leaves nothing behind"


def test_a_tied_head_is_taken() -> None:
    refuse_unfit(model("Llama", tie_word_embeddings=True), "tied")


@pytest.mark.parametrize(
    ("family", "options", "code", "told"),
    [
        ("Granite", {"logits_scaling": 8.0}, "SF-MODEL-HEAD", "scaled, capped or shifted"),
        ("Cohere", {}, "SF-MODEL-HEAD", "scaled, capped or shifted"),
        ("Gemma2", {"attn_logit_softcapping": None}, "SF-MODEL-HEAD", "scaled, capped or shifted"),
        ("Gemma2", {}, "SF-MODEL-ATTENTION", "soft cap"),
        ("Phi", {}, "SF-MODEL-HEAD", "bias=True"),
        ("Bloom", {"n_head": 4, "n_layer": 2}, "SF-MODEL-ATTENTION", "0, 1"),
    ],
)
def test_what_would_be_left_out_silently_is_refused(family: str, options: dict[str, Any], code: str, told: str) -> None:
    with pytest.raises(Refusal, match=told) as caught:
        refuse_unfit(model(family, **options), family)
    assert (caught.value.code, caught.value.exit_code) == (code, 2)


def tiny(dtype: torch.dtype = torch.float32) -> Policy:
    policy = build_tiny(envs.domain("mini-shop"), impl="eager", seed=1, max_positions=64)
    policy.model.to(dtype)
    return policy


def test_loading_a_folder_asks(tmp_path: Path) -> None:
    policy = tiny()
    model("Granite", logits_scaling=4.0, vocab_size=len(policy.tokenizer)).save_pretrained(tmp_path)
    policy.tokenizer.save_pretrained(tmp_path)
    with pytest.raises(Refusal, match="logits are not the output head times the last hidden state"):
        load_policy(tmp_path, impl="eager")


def test_logits_of_a_bfloat16_model_are_not_rounded_to_bfloat16() -> None:
    policy = tiny(torch.bfloat16)
    states = torch.randn(5, 96, generator=torch.Generator().manual_seed(0)).bfloat16()
    logits = policy.logits(states).detach()
    exact = states.double() @ policy.head.detach().double().T
    assert logits.dtype == torch.float32
    assert float((logits - exact).abs().max()) < 1e-4 < float((exact.bfloat16() - exact).abs().max())


def test_logits_of_a_float64_model_stay_float64() -> None:
    assert tiny(torch.float64).logits(torch.ones(1, 96, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_B70_a_changed_row_of_the_head_shows_at_once_and_the_embedding_is_left_alone(dtype: torch.dtype) -> None:
    """lm_head gets +0.5 on one row: a kept float32 copy of the head would go on serving the old one."""
    policy = tiny(dtype)
    states = torch.randn(3, 96, generator=torch.Generator().manual_seed(0)).to(dtype)
    embedding = policy.model.get_input_embeddings().weight
    before, kept = policy.logits(states), embedding.clone()
    with torch.no_grad():
        policy.model.lm_head.weight[7] += 0.5
    change = (policy.logits(states) - before).detach()
    assert torch.allclose(change[:, 7], 0.5 * states.float().sum(-1), atol=0.1)
    assert float(change[:, :7].abs().max()) == float(change[:, 8:].abs().max()) == 0.0
    assert torch.equal(embedding, kept) and embedding.dtype == dtype


def test_B70_a_tied_head_in_half_precision_leaves_the_embedding_as_it_is() -> None:
    made = model("Llama", tie_word_embeddings=True).bfloat16()
    policy = Policy(made, None, None, "tied", "eager")  # type: ignore[arg-type]
    embedding = made.get_input_embeddings().weight
    kept = embedding.clone()
    policy.logits(torch.ones(1, 32, dtype=torch.bfloat16))
    assert policy.head is embedding and torch.equal(embedding, kept) and embedding.dtype == torch.bfloat16


def test_a_soft_cap_on_scores_is_refused_by_the_attention_itself() -> None:
    x = torch.zeros(1, 2, 3, 8)
    with pytest.raises(ValueError, match="no soft cap on scores"):
        sinkflex_attention(None, x, x, x, None, softcap=50.0, sinkflex=AttentionContext("eager"))
