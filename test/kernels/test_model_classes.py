"""Model classes of transformers through our attention, packed and with shared beginnings, against their own eager
attention on one document after another: logits and every parameter gradient, in float64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from sinkflex.kernels.api import Layout
from sinkflex.policy.attention import IMPL_NAME, AttentionContext
from transformers import (
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "initializer_range": 0.3,
}
WINDOWS = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
CLASSES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "GptOss": (GptOssConfig, GptOssForCausalLM, WINDOWS | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "Qwen3": (Qwen3Config, Qwen3ForCausalLM, {}),
    "Qwen3 with windows": (Qwen3Config, Qwen3ForCausalLM, WINDOWS | {"use_sliding_window": True}),
    "Llama": (LlamaConfig, LlamaForCausalLM, {}),
    "Llama, tied head": (LlamaConfig, LlamaForCausalLM, {"tie_word_embeddings": True}),
}


@pytest.fixture(autouse=True)
def float64_throughout(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """transformers rounds to float32 inside norms and eager softmax, whatever the model's dtype. Not here."""

    def norm(self: Any, states: torch.Tensor) -> torch.Tensor:
        mean = states.square().mean(-1, keepdim=True)
        return self.weight * states * torch.rsqrt(mean + self.variance_epsilon)

    for cls in (GptOssRMSNorm, LlamaRMSNorm, Qwen3RMSNorm):
        monkeypatch.setattr(cls, "forward", norm)
    softmax = torch.nn.functional.softmax
    monkeypatch.setattr(torch.nn.functional, "softmax", lambda x, dim, dtype=None: softmax(x, dim=dim))
    yield


def model(name: str, attention: str) -> Any:
    config_class, model_class, options = CLASSES[name]
    torch.manual_seed(1)
    made = model_class(config_class(**SIZES | options)).double().eval()
    made.config._attn_implementation = attention
    if name == "GptOss":
        made.config._experts_implementation = "eager"
        with torch.no_grad():
            for layer in made.model.layers:
                layer.self_attn.sinks.copy_(torch.tensor([-5.0, 0.0, 1.0, 3.0]))
    return made


def documents() -> list[torch.Tensor]:
    """Two tasks of one domain, two samples each, and one document by itself; the window of 8 crosses every border."""
    random = torch.Generator().manual_seed(2)
    ids = [torch.randint(1, 64, (n,), generator=random) for n in (20, 9, 5, 7, 3, 11, 4, 13)]
    domain, task, other = ids[:3]
    return [
        torch.cat([domain, task, ids[3]]),
        torch.cat([domain, task, ids[4]]),
        torch.cat([domain, other, ids[5]]),
        torch.cat([domain, other, ids[6]]),
        ids[7],
    ]


def in_full() -> tuple[torch.Tensor, Layout, list[torch.Tensor]]:
    """(packed ids, layout, rows of every document)."""
    given = documents()
    layout = Layout.from_lengths([len(d) for d in given])
    rows = torch.arange(layout.num_queries).split([len(d) for d in given])
    return torch.cat(given), layout, list(rows)


def as_tree() -> tuple[torch.Tensor, Layout, list[torch.Tensor]]:
    """The same documents, what they share once: domain, task, samples, other task, samples, the one by itself."""
    a, b, c, d, alone = documents()
    pieces = [a[:20], a[20:29], a[29:], b[29:], c[20:25], c[25:], d[25:], alone]
    layout = Layout.from_lengths([len(p) for p in pieces], parents=[-1, 0, 1, 1, 0, 4, 4, -1])
    own = torch.arange(layout.num_queries).split([len(p) for p in pieces])
    paths = [(0, 1, 2), (0, 1, 3), (0, 4, 5), (0, 4, 6), (7,)]
    return torch.cat(pieces), layout, [torch.cat([own[i] for i in path]) for path in paths]


def pulls() -> list[torch.Tensor]:
    """What flows into the logits of every document."""
    random = torch.Generator().manual_seed(3)
    return [torch.randn(len(d), 64, generator=random, dtype=torch.float64) / 10 for d in documents()]


def one_by_one(name: str) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    made = model(name, "eager")
    logits = []
    for ids, pull in zip(documents(), pulls(), strict=True):
        out = made(input_ids=ids[None], use_cache=False).logits[0]
        (out * pull).sum().backward()
        logits.append(out.detach())
    return logits, {n: p.grad for n, p in made.named_parameters()}


def ours(
    name: str, impl: str, packed: tuple[torch.Tensor, Layout, list[torch.Tensor]]
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    made = model(name, IMPL_NAME)
    ids, layout, rows = packed
    out = made(
        input_ids=ids[None],
        position_ids=layout.positions()[None],
        use_cache=False,
        sinkflex=AttentionContext(impl, layout=layout),
    ).logits[0]
    torch.stack([(out[r] * pull).sum() for r, pull in zip(rows, pulls(), strict=True)]).sum().backward()
    return [out[r].detach() for r in rows], {n: p.grad for n, p in made.named_parameters()}


def far(got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> float:
    assert len(got) == len(want)
    for tensor in want:
        assert bool(tensor.abs().max() > 0), "a gradient of nothing compares nothing"
    return max(float((a - b).norm() / b.norm()) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("impl", ["eager", "flash"])
@pytest.mark.parametrize("packing", [in_full, as_tree], ids=["packed", "shared"])
@pytest.mark.parametrize("name", CLASSES)
def test_logits_and_every_gradient_equal_eager_attention_one_by_one(name: str, packing: Any, impl: str) -> None:
    want, want_gradients = one_by_one(name)
    got, gradients = ours(name, impl, packing())
    assert far(got, want) < 1e-9
    assert gradients.keys() == want_gradients.keys()
    assert far(list(gradients.values()), list(want_gradients.values())) < 1e-9


def test_the_windows_are_there_and_so_is_what_is_shared() -> None:
    """What the comparison must be able to see: without the window, or without the parents, the logits differ."""
    want, _ = one_by_one("Qwen3 with windows")
    plain, _ = one_by_one("Qwen3")
    assert far(plain, want) > 1e-3
    ids, layout, rows = as_tree()
    orphans = Layout(tuple(s._replace(parent=-1) for s in layout.segments), layout.num_queries, layout.num_keys)
    got, _ = ours("Qwen3 with windows", "eager", (ids, orphans, rows))
    assert far(got, want) > 1e-3


@pytest.mark.parametrize("name", CLASSES)
def test_a_call_without_a_context_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="without sinkflex=AttentionContext"):
        model(name, IMPL_NAME)(input_ids=documents()[0][None], use_cache=False)


@pytest.mark.parametrize("impl", ["eager", "flash"])
def test_B48_sinks_reach_the_logits_whatever_the_implementation(impl: str) -> None:
    made = model("GptOss", IMPL_NAME)
    ids, layout, _ = as_tree()

    def logits() -> torch.Tensor:
        context = AttentionContext(impl, layout=layout)
        with torch.no_grad():
            positions = layout.positions()[None]
            out = made(input_ids=ids[None], position_ids=positions, use_cache=False, sinkflex=context).logits
        return out

    before = logits()
    with torch.no_grad():
        for layer in made.model.layers:
            layer.self_attn.sinks.add_(5.0)
    assert float((logits() - before).abs().max()) > 0.1
