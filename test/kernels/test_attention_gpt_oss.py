"""Against transformers: a small GptOss with its own eager attention and masks, and with ours in its place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sinkflex.kernels.api import Layout, padded_attention
from transformers import AttentionInterface, GptOssConfig, GptOssForCausalLM


def model(window: int, attention: str) -> GptOssForCausalLM:
    config = GptOssConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        num_local_experts=2,
        num_experts_per_tok=1,
        sliding_window=window,
        layer_types=["sliding_attention", "full_attention"],
        max_position_embeddings=512,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        attn_implementation=attention,
    )
    torch.manual_seed(1)
    made = GptOssForCausalLM(config)
    with torch.no_grad():
        for layer in made.model.layers:
            layer.self_attn.sinks.copy_(torch.tensor([-5.0, 0.0, 1.0, 3.0]))
            for projection in (
                layer.self_attn.q_proj,
                layer.self_attn.k_proj,
                layer.self_attn.v_proj,
                layer.self_attn.o_proj,
            ):
                projection.weight.mul_(12.0)  # attention that matters: default weights leave all scores near 0
    return made.eval()


def ours(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    sliding_window: int | None = None,
    s_aux: torch.Tensor | None = None,
    layout: Layout | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    window = None if sliding_window is None else sliding_window + module.config.window_offset
    sinks = None if s_aux is None else s_aux
    return padded_attention(
        query, key, value, sinks, layout=layout, window=window, scale=scaling, impl=module.config.kernel_impl
    ), None


AttentionInterface.register("sinkflex_kernel_test", ours)


def outputs(
    window: int, attention: str, impl: str, offset: int, **inputs: Any
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    made = model(window, attention)
    made.config.kernel_impl, made.config.window_offset = impl, offset
    logits = made(**inputs).logits
    weights = torch.linspace(-1, 1, logits.numel()).view_as(logits)
    gradients = torch.autograd.grad((logits * weights).sum() / 1000, list(made.parameters()), allow_unused=True)
    return logits.detach(), [torch.zeros(()) if g is None else g for g in gradients]


def far(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / max(float(b.norm()), 1e-6))


@pytest.mark.parametrize("impl", ["eager", "flash"])
def test_logits_and_every_parameter_gradient_equal_transformers(impl: str) -> None:
    ids = torch.randint(0, 64, (2, 40))
    want, want_gradients = outputs(8, "eager", "", 0, input_ids=ids)
    got, gradients = outputs(8, "sinkflex_kernel_test", impl, 0, input_ids=ids)
    assert far(got, want) < 1e-5
    assert max(far(a, b) for a, b in zip(gradients, want_gradients, strict=True)) < 1e-4


@pytest.mark.parametrize("impl", ["eager", "flash"])
def test_a_window_of_128_is_128_tokens_and_not_129(impl: str) -> None:
    ids = torch.randint(0, 64, (1, 200))
    want, _ = outputs(128, "eager", "", 0, input_ids=ids)
    assert far(outputs(128, "sinkflex_kernel_test", impl, 0, input_ids=ids)[0], want) < 1e-5
    assert far(outputs(128, "sinkflex_kernel_test", impl, 1, input_ids=ids)[0], want) > 1e-4
    assert far(outputs(128, "sinkflex_kernel_test", impl, -1, input_ids=ids)[0], want) > 1e-4


def test_a_packed_batch_equals_its_documents_one_by_one() -> None:
    lengths = [30, 1, 63, 17]
    documents = [torch.randint(0, 64, (1, length)) for length in lengths]
    layout = Layout.from_lengths(lengths)
    packed, _ = outputs(
        8,
        "sinkflex_kernel_test",
        "flash",
        0,
        input_ids=torch.cat(documents, dim=1),
        position_ids=layout.positions()[None],
        layout=layout,
    )
    alone = torch.cat([outputs(8, "eager", "", 0, input_ids=ids)[0] for ids in documents], dim=1)
    assert far(packed, alone) < 1e-5
