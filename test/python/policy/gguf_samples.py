"""GGUF files small enough for tests: a llama of two layers with random weights, written with the gguf package."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from tokenizers import pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# Blanks join blanks and a blank joins a digit, which only a pre-tokenizer that splits digits forbids.
MERGES = ["Ġ Ġ", "Ġ 1", "a n", "an Ġ"]
TOKENS = [*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *(m.replace(" ", "") for m in MERGES)]
HEADS, KV_HEADS, HIDDEN, LAYERS = 4, 2, 32, 2

PLAIN_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def random_llama(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=HIDDEN,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=128,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        initializer_range=0.3,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    )
    return LlamaForCausalLM(config).eval()


def write_gguf(
    path: Path,
    model: Any,
    *,
    architecture: str = "llama",
    tokens: list[str] | None = None,
    template: str | None = PLAIN_TEMPLATE,
    leave_out: Iterable[str] = (),
    quantise: Iterable[str] = (),
) -> Path:
    """`model` (as from `random_llama`) as a GGUF file; tensors named in `quantise` are stored as Q8_0."""
    tokens = TOKENS if tokens is None else tokens
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(64)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(TOKENS))
    writer.add_license("mit")
    if tokens:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm")
        writer.add_token_list(tokens)
        writer.add_token_types([3 if token in SPECIALS else 1 for token in tokens])
        writer.add_token_merges(MERGES)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
        writer.add_pad_token_id(2)  # as SmolLM2's file says it: the end token
    if template is not None:
        writer.add_chat_template(template)
    for name, weight in _tensors(model).items():
        if name in leave_out:
            continue
        if name in quantise:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(weight, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(model: Any) -> dict[str, np.ndarray[Any, Any]]:
    names = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    state = {name: weight.detach().numpy() for name, weight in model.state_dict().items()}
    tensors = {
        "token_embd.weight": state["model.embed_tokens.weight"],
        "output_norm.weight": state["model.norm.weight"],
    }
    for layer in range(LAYERS):
        for theirs, ours in names.items():
            weight = state[f"model.layers.{layer}.{theirs}.weight"]
            heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(ours)
            tensors[f"blk.{layer}.{ours}.weight"] = weight if heads is None else _interleaved(weight, heads)
    return tensors


def _interleaved(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Rows of a head in the order of llama.cpp, whose rotary pairs are neighbours and not half a head apart."""
    rows, columns = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows, columns))
