"""The subject `model`: a training step of a whole GptOss, forward and backward, eager against ours: the paper's table.

Both sides are one transformers model with the same random weights, the same checkpointing of activations by layer and
the same expert implementation. `eager` has transformers' eager attention, logits of all tokens, log_softmax in float32;
`ours` sink_attention (the impl that `auto` chooses) and linear_log_prob. The loss is that of a policy's first update:
minus the sum of advantage * log_prob / T over all tokens, advantages drawn at random. Training is full or LoRA (rank 16
on the attention's projections; all else, the head too, frozen).

Inputs, not counted in the peak: the weights and the tokens. Counted: gradients, too. Floor: the inputs of the layers,
kept by checkpointing, one layer's attention with gradients (attention.py), and the gradients of what is trained.

Parity: loss and gradients of PARITY_TOKENS tokens (four windows) against eager attention in a wider dtype, in a model
of the same widths, of two layers where the whole would not fit in it. The truth goes through the experts that were
chosen on the side under test, since near ties fall either way. A gradient's error is the norm of the difference over
the norm of the truth, of all parameters the worst that carries weight.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from transformers import GptOssConfig, GptOssForCausalLM

from sinkflex.kernels.api import Layout, choose, linear_log_prob
from sinkflex.policy.attention import IMPL_NAME, AttentionContext

from . import flops
from .ledger import Ledger
from .spec import Spec

PARITY_TOKENS = 512
LARGE = 2_000_000_000
"""Parameters from which parity is checked in two layers."""
LIMITS = {
    "float32": {"loss": 1e-5, "gradient": 1e-4},
    "bfloat16": {"loss": 2e-2, "gradient": 3e-1},
    "float16": {"loss": 5e-3, "gradient": 6e-2},
}
LORA_RANK = 16


class Step:
    """One model, one batch, and both ways to run it. `causal` is the transformers model, LoRA inside where asked."""

    def __init__(self, geometry: Mapping[str, Any], tokens: int, device: torch.device, dtype: torch.dtype, seed: int):
        self.tokens, self.vocabulary = tokens, geometry["vocabulary"]
        self.causal = _build(geometry, device, dtype, seed)
        random = torch.Generator(device=device).manual_seed(seed)
        ids = torch.randint(self.vocabulary, (tokens + 1,), generator=random, device=device)
        self.ids, self.targets = ids[:-1].unsqueeze(0), ids[1:]
        self.positions = torch.arange(tokens, device=device).unsqueeze(0)
        self.advantages = torch.randn(tokens, generator=random, device=device)
        self.impl = choose(device, dtype, Layout.single(tokens), geometry["head_dim"]).impl

    @property
    def trained(self) -> dict[str, torch.nn.Parameter]:
        return {name: p for name, p in self.causal.named_parameters() if p.requires_grad}

    def loss(self, impl: str, ledger: Ledger | None = None) -> torch.Tensor:
        scores = _SIDES[impl](self, ledger)
        return -(self.advantages.to(scores.dtype) * scores).sum() / self.tokens

    def gradients(self, loss: torch.Tensor) -> Sequence[torch.Tensor]:
        return torch.autograd.grad(loss, list(self.trained.values()))


def _eager(step: Step, ledger: Ledger | None) -> torch.Tensor:
    step.causal.config._attn_implementation = "eager"
    states = step.causal.model(input_ids=step.ids, position_ids=step.positions, use_cache=False).last_hidden_state[0]
    with ledger.part("logits", states) if ledger else nullcontext():
        logits = step.causal.lm_head(states)
        wide = logits if logits.dtype == torch.float64 else logits.float()
        scores = torch.log_softmax(wide, dim=-1).gather(-1, step.targets.unsqueeze(-1)).squeeze(-1)
    if ledger:
        ledger.after("logits", scores)
    return scores


def _ours(step: Step, ledger: Ledger | None) -> torch.Tensor:
    step.causal.config._attn_implementation = IMPL_NAME
    context = AttentionContext(step.impl, layout=Layout.single(step.tokens))
    states = step.causal.model(
        input_ids=step.ids, position_ids=step.positions, attention_mask=None, use_cache=False, sinkflex=context
    ).last_hidden_state[0]
    with ledger.part("logits", states) if ledger else nullcontext():
        scores: torch.Tensor = linear_log_prob(states, step.causal.lm_head.weight, step.targets).log_prob
    if ledger:
        ledger.after("logits", scores)
    return scores


_SIDES: Mapping[str, Callable[[Step, Ledger | None], torch.Tensor]] = {"eager": _eager, "ours": _ours}


class Model:
    """Measures one side; `side` replaces it (tests pass a broken one)."""

    def __init__(self, spec: Spec, side: Callable[[Step], torch.Tensor] | None = None) -> None:
        self._spec = spec
        self._device, self._dtype = torch.device(spec.device), getattr(torch, spec.dtype)
        self._side = side or (lambda step: step.loss(spec.impl))
        self._step: Step | None = None

    @property
    def limits(self) -> dict[str, float]:
        return LIMITS[self._spec.dtype]

    @property
    def work(self) -> dict[str, Any]:
        geometry, tokens, item = self._spec.geometry, self._spec.seq, self._dtype.itemsize
        heads, kv_heads, dim = (geometry[name] for name in ("num_q_heads", "num_kv_heads", "head_dim"))
        layer = tokens * 4 * (heads + kv_heads) * dim * item + 8 * tokens * heads
        trained = sum(p.numel() * p.element_size() for p in self._ready().trained.values())
        width, inner, layers = geometry["hidden"], geometry["intermediate"], geometry["layers"]
        dense = width * (2 * heads + 2 * kv_heads) * dim + geometry["experts_per_token"] * 3 * width * inner
        windows = [geometry["window"] if layer % 2 == 0 else None for layer in range(layers)]
        attention = sum(flops.attention_forward(tokens, window, heads, dim) for window in windows)
        return {
            "floor_bytes": layers * tokens * width * item + layer + trained,
            "flops": 2 * tokens * (layers * dense + geometry["vocabulary"] * width) + attention,
            "attention_impl": "eager" if self._spec.impl == "eager" else self._ready().impl,
        }

    def rates(self, work: Mapping[str, Any], times: Mapping[str, Any]) -> dict[str, float | None]:
        seconds = (times["fwd_ms"] + times["bwd_ms"]) / 1e3
        return {"step_ms": seconds * 1e3, "tokens_per_second": self._spec.seq / seconds}

    def short_errors(self) -> dict[str, float]:
        geometry = dict(self._spec.geometry)
        if geometry["parameters"] > LARGE:
            geometry["layers"] = min(geometry["layers"], 2)
        tokens = min(self._spec.seq, PARITY_TOKENS)
        step = Step(geometry, tokens, self._device, self._dtype, self._spec.seed)
        with _routing(step.causal) as chosen:
            loss = self._side(step)
            mine = (loss.detach(), step.gradients(loss))
        step.causal.to(torch.float64 if self._dtype == torch.float32 else torch.float32)
        step.causal.config._experts_implementation = "eager"  # grouped products are made for 16 bits
        with _routing(step.causal, chosen):
            loss = step.loss("eager")
            errors = _errors(mine, (loss.detach(), step.gradients(loss)))
        del step, mine, loss
        gc.collect()
        return errors

    def allocate(self) -> None:
        self._step = Step(self._spec.geometry, self._spec.seq, self._device, self._dtype, self._spec.seed)

    def forward(self) -> torch.Tensor:
        return self._side(self._ready())

    def backward(self, result: torch.Tensor) -> Sequence[torch.Tensor]:
        return self._ready().gradients(result)

    def errors(self, result: torch.Tensor, gradients: Sequence[torch.Tensor]) -> dict[str, float]:
        """At its own length only that everything is finite: the truth would not fit where it matters."""
        finite = bool(torch.isfinite(result)) and all(bool(torch.isfinite(g).all()) for g in gradients)
        return {} if finite else {"loss": float("inf")}

    def trace(self) -> dict[str, dict[str, int]]:
        """One more step, its memory put down by part: bytes when their sum is largest, and of each when it is."""
        step = self._ready()
        known = [*step.causal.parameters(), *step.causal.buffers(), step.ids, step.targets, step.positions,
                 step.advantages]  # fmt: skip
        ledger = Ledger(step.tokens, step.vocabulary, step.trained.values(), known)
        handles = []
        for layer in step.causal.model.layers:
            handles += ledger.watch(layer.self_attn, "projections") + ledger.watch(layer.mlp, "experts")
        with ledger:
            step.gradients(step.loss(self._spec.impl, ledger))
        for handle in handles:
            handle.remove()
        return {"breakdown": ledger.at_peak, "largest": ledger.largest}

    def forget(self) -> None:
        """Nothing is kept from one pass to the next."""

    def _ready(self) -> Step:
        assert self._step is not None, "allocate() comes first"
        return self._step


@contextmanager
def _routing(causal: Any, chosen: Mapping[int, torch.Tensor] | None = None) -> Iterator[dict[int, torch.Tensor]]:
    """Yields the experts that every layer chooses, [T, experts_per_token]; with `chosen` they are settled."""
    seen: dict[int, torch.Tensor] = {}

    def settle(layer: int, output: Any) -> Any:
        logits, scores, indices = output
        seen[layer] = indices
        if chosen is None:
            return output
        return logits, torch.softmax(logits.gather(1, chosen[layer]), dim=1, dtype=scores.dtype), chosen[layer]

    handles = [
        layer.mlp.router.register_forward_hook(lambda module, args, output, at=at: settle(at, output))
        for at, layer in enumerate(causal.model.layers)
    ]
    yield seen
    for handle in handles:
        handle.remove()


def _errors(
    got: tuple[torch.Tensor, Sequence[torch.Tensor]], want: tuple[torch.Tensor, Sequence[torch.Tensor]]
) -> dict[str, float]:
    """loss: relative to 1 or itself. gradient: parameters whose gradient is a thousandth of the largest or less count
    relative to that thousandth: next to nothing is not compared with next to nothing."""
    loss = float((got[0].double() - want[0].double()).abs() / want[0].double().abs().clamp(min=1.0))
    sizes = [float(w.double().norm()) for w in want[1]]
    least = 1e-3 * max(sizes)
    gaps = [float((g.double() - w.double()).norm()) for g, w in zip(got[1], want[1], strict=True)]
    gradient = max(gap / max(size, least) for gap, size in zip(gaps, sizes, strict=True))
    return {"loss": loss, "gradient": gradient if gradient == gradient else float("inf")}


def _build(geometry: Mapping[str, Any], device: torch.device, dtype: torch.dtype, seed: int) -> Any:
    """Random weights made on the device, checkpointing on. Sinks spread over -2 to 4: sinks of 0 would test nothing."""
    config = GptOssConfig(
        vocab_size=geometry["vocabulary"],
        hidden_size=geometry["hidden"],
        intermediate_size=geometry["intermediate"],
        num_hidden_layers=geometry["layers"],
        num_attention_heads=geometry["num_q_heads"],
        num_key_value_heads=geometry["num_kv_heads"],
        head_dim=geometry["head_dim"],
        sliding_window=geometry["window"],
        num_local_experts=geometry["experts"],
        num_experts_per_tok=geometry["experts_per_token"],
        initializer_range=0.02 if geometry["hidden"] > 1000 else 0.05,
        tie_word_embeddings=False,
        attention_dropout=0.0,
        pad_token_id=None,
        use_cache=False,
    )
    config._experts_implementation = "eager" if device.type == "cpu" else "grouped_mm"
    torch.manual_seed(seed)
    with torch.device(device):
        make: Any = GptOssForCausalLM._from_config
        causal = make(config, dtype=dtype, attn_implementation="eager")
    with torch.no_grad():
        for layer in causal.model.layers:
            layer.self_attn.sinks.copy_(torch.linspace(-2.0, 4.0, geometry["num_q_heads"]))
    if geometry["train"] == "lora":
        peft = importlib.import_module("peft")
        targets = ["q_proj", "k_proj", "v_proj", "o_proj"]
        # Both factors drawn at random: with B = 0 the gradient of A would be 0, and prove nothing.
        rank = peft.LoraConfig(r=LORA_RANK, lora_alpha=32, target_modules=targets, init_lora_weights=False)
        peft.get_peft_model(causal, rank)  # into the model itself
    causal.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    causal.train()
    return causal
