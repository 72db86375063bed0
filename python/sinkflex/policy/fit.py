"""Whether a loaded model can be run the way rollout and training run every model; refused before anything is trained.

Two things are taken for granted everywhere else: every layer mixes tokens through the registered attention function and
nowhere else (a recurrent layer would carry its state from one packed sequence into the next), and the logits are the
output head times the last hidden state (a bias, a scale or a soft cap behind it would be missed by `linear_log_prob`).
Both are seen in one forward of two tokens, not read from a list of known model names.
"""

from __future__ import annotations

from typing import Any

import torch

from sinkflex.refusal import Refusal

from .attention import AttentionContext, KVCache

LARGE = 60.0
"""Largest logit of the probe: large enough for a soft cap (30 to 50 in published models) to show."""


class _Witness(KVCache):
    """Notes which layers attend, and attends to nothing."""

    def __init__(self) -> None:
        super().__init__(1, 1)
        self.layers: set[int] = set()

    def attend(self, layer: int, q: torch.Tensor, *_: Any) -> torch.Tensor:
        self.layers.add(layer)
        return torch.zeros_like(q.transpose(1, 2))


def refuse_unfit(model: Any, name: str) -> None:
    """Refusal SF-MODEL-ATTENTION or SF-MODEL-HEAD when `model` breaks one of the module's two assumptions."""
    head = model.get_output_embeddings()
    weight = getattr(head, "weight", None)
    if weight is None or weight.dim() != 2 or getattr(head, "bias", None) is not None:
        raise _head(name, f"its output head is {head}")
    states = torch.randn(1, 2, weight.shape[1], generator=torch.Generator().manual_seed(0)).to(weight)
    states *= LARGE / (states @ weight.detach().T).abs().max()
    witness = _Witness()

    def replace(module: Any, args: Any, output: Any) -> Any:
        output.last_hidden_state = states
        return output

    handle = model.base_model.register_forward_hook(replace)
    try:
        with torch.no_grad():
            out = model(
                input_ids=torch.zeros(1, 2, dtype=torch.int64, device=weight.device),
                position_ids=torch.arange(2, device=weight.device)[None],
                attention_mask=None,
                use_cache=False,
                sinkflex=AttentionContext("eager", cache=witness),
            )
    except (TypeError, ValueError, RuntimeError) as error:
        raise _attention(name, str(error).strip().partition("\n")[0].rstrip(".")) from error
    finally:
        handle.remove()
    layers = set(range(model.config.get_text_config().num_hidden_layers))
    if witness.layers != layers:
        raise _attention(name, f"layers {sorted(layers - witness.layers)} do not attend through the interface")
    expected = (states[0] @ weight.detach().T).float()
    if float((out.logits[0].float() - expected).abs().max()) > 0.02 * LARGE:
        raise _head(name, "its logits are not the output head times the last hidden state: scaled, capped or shifted")


def _head(name: str, why: str) -> Refusal:
    return Refusal(
        "SF-MODEL-HEAD",
        f"The model {name} cannot be trained here: {why}.",
        why="Log-probs are computed from the head's weight, without the logits of all tokens; anything behind it would "
        "be left out.",
        fix="Use a model whose logits are a plain product (GptOss, Qwen3 and Llama are).",
        owner="policy",
        exit_code=2,
    )


def _attention(name: str, why: str) -> Refusal:
    return Refusal(
        "SF-MODEL-ATTENTION",
        f"The model {name} cannot be trained here: {why}.",
        why="Several sequences are packed into one row; only attention that is told who sees whom keeps them apart.",
        fix="Use a model whose layers all use transformers' attention interface (GptOss, Qwen3 and Llama do).",
        owner="policy",
        exit_code=2,
    )
