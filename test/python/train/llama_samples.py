"""A real model's folder, small: a random Llama of two layers that speaks mini-shop's closed vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sinkflex import envs
from sinkflex.algorithms.advantages import AdvantageResult, group_advantages
from sinkflex.policy.model import build_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM


def llama_folder(folder: Path, seed: int = 0, dtype: torch.dtype = torch.float32) -> Path:
    """Tied embeddings and grouped heads, as SmolLM2 has them; weights large enough that answers differ by prompt."""
    tokenizer = build_tokenizer(envs.domain("mini-shop"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=400,
            tie_word_embeddings=True,
            initializer_range=0.2,
            rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
            pad_token_id=0,
            eos_token_id=2,
        )
        model = LlamaForCausalLM(config).to(dtype)
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return folder


def with_lora(folder: Path, **lora: Any) -> dict[str, Any]:
    """The config's changes for a run on the model in `folder` with an adapter."""
    chosen = {"rank": 4, "alpha": 8, "targets": None} | lora
    return {"model": {"path": str(folder), "dtype": "float32", "lora": chosen}}


def rewards_by_length(loop: Any, trajectories: Any) -> AdvantageResult:
    """Stands in for the loop's advantages: a random model solves no task, and equal rewards would train nothing."""
    rewards = torch.tensor([float(len(t.ids) % 3) for t in trajectories], dtype=torch.float64)
    return group_advantages(rewards, torch.tensor([t.task_index for t in trajectories]), "std")
