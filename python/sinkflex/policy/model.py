"""Build the tiny policy or load any local transformers checkpoint, and hand out both as one `Policy`.

The tiny policy (preset `tiny-gpt-oss`) is transformers' own GptOss class, scaled down: learned sinks, alternating
window 32 and full attention, grouped heads, four experts of which two act. Its output head starts as a copy of the
embedding (untied), which is what lets it copy ids early.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GptOssConfig, GptOssForCausalLM
from transformers.utils import logging as transformers_logging

from sinkflex.refusal import Refusal

from .attention import IMPL_NAME, AttentionContext
from .chat import WORD_TEMPLATE, ChatFormat, WordFormat
from .fit import refuse_unfit
from .linear import give_back, packed
from .template import TemplateFormat
from .tokenizer import build_bpe_tokenizer, build_word_tokenizer, word_list

if TYPE_CHECKING:
    from .adapter import Adapter

HEAD_ROWS = 16384
"""Rows of a half-precision output head that are widened at a time."""

transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # stderr is a log: no bars in it


@dataclass(slots=True)
class Policy:
    """`model` is a transformers CausalLM whose attention runs through `sinkflex.kernels.api`; `version` counts the
    optimiser updates behind its weights. With an `adapter` nothing else of the model is trained."""

    model: Any
    tokenizer: Any
    chat: ChatFormat
    name: str
    impl: str
    version: int = 0
    adapter: Adapter | None = None

    @contextmanager
    def rollout_weights(self) -> Iterator[None]:
        """Around every collection: the model computes the same inside, faster. No training inside."""
        merged = self.adapter.merged() if self.adapter is not None and self.adapter.merges else nullcontext()
        try:
            with merged, packed(self.model):
                give_back(self.model)  # what merging took
                yield
        finally:
            give_back(self.model)

    def checkpoint_activations(self) -> None:
        """From now on a pass in training mode keeps inputs of layers alone; the way back computes the rest again.
        Loss and gradients are the same to the last bit. ValueError where transformers' class of the model cannot."""
        self.model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.model.parameters()).device
        return device

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    @property
    def trainable(self) -> int:
        return sum(p.numel() for p in self.model.parameters() if p.requires_grad)

    def hidden(self, ids: torch.Tensor, positions: torch.Tensor, context: AttentionContext) -> torch.Tensor:
        """Last hidden states [T, hidden] of packed `ids` [1, T]; `context` says who sees whom."""
        out = self.model.base_model(
            input_ids=ids, position_ids=positions, attention_mask=None, use_cache=False, sinkflex=context
        )
        states: torch.Tensor = out.last_hidden_state[0]
        return states

    @property
    def head(self) -> torch.Tensor:
        """Weight [vocabulary, hidden] of the output head, read anew at every use: a copy would go stale."""
        weight: torch.Tensor = self.model.get_output_embeddings().weight
        return weight

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Logits [rows, vocabulary] of chosen rows only, float32 (float64 for a float64 model).

        Never rounded to half precision on the way: in training they are not either, and the two must agree.
        """
        if states.dtype in (torch.float32, torch.float64):
            whole: torch.Tensor = self.model.get_output_embeddings()(states)
            return whole
        head = self.head
        if states.is_cuda:
            return torch.mm(states, head.T, out_dtype=torch.float32)
        wide = states.float()
        return torch.cat([F.linear(wide, part.float()) for part in torch.split(head, HEAD_ROWS)], dim=-1)


def build_tokenizer(domain: Any) -> Any:
    """A word tokenizer where the suite's vocabulary is closed, else a BPE trained on its corpus."""
    vocabulary = domain.closed_vocabulary()
    if vocabulary is None:
        return build_bpe_tokenizer(domain.corpus())
    return build_word_tokenizer(word_list(vocabulary, [t.as_function() for t in domain.agent_tools]))


def chat_format(tokenizer: Any, source: str) -> ChatFormat:
    if tokenizer.chat_template == WORD_TEMPLATE:
        return WordFormat(tokenizer.get_vocab())
    return TemplateFormat(tokenizer, source)


def head_dim(config: Any) -> int:
    text = config.get_text_config()
    return int(getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads)


def tiny_config(vocabulary: int, max_positions: int) -> GptOssConfig:
    return GptOssConfig(
        vocab_size=vocabulary,
        hidden_size=96,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=24,
        sliding_window=32,
        num_local_experts=4,
        num_experts_per_tok=2,
        initializer_range=0.1,
        max_position_embeddings=max_positions,
        tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        pad_token_id=0,
        eos_token_id=2,
        bos_token_id=None,
        attention_dropout=0.0,
    )


def build_tiny(domain: Any, *, impl: str, seed: int, max_positions: int) -> Policy:
    """The tiny policy for a suite, weights from `seed` alone (the global generator is left as it was)."""
    tokenizer = build_tokenizer(domain)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GptOssForCausalLM(tiny_config(len(tokenizer), max_positions))
        with torch.no_grad():
            model.lm_head.weight.copy_(model.model.embed_tokens.weight)
    return _ready(model, tokenizer, "tiny-gpt-oss", impl)


def load_policy(folder: Path, *, impl: str, dtype: torch.dtype = torch.float32) -> Policy:
    """Any local transformers checkpoint with its own tokenizer and template, or an adapter that peft wrote, with the
    base model that it names. Refuses a folder that lacks a part."""
    base, words = base_folder(folder), folder
    _check_folder(base)
    if base != folder and not (folder / "tokenizer.json").is_file():
        words = base
    try:
        AutoConfig.from_pretrained(base, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(words, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype, local_files_only=True)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise Refusal(
            code="SF-MODEL-LOAD",
            owner="policy",
            what=f"the model in {base} cannot be loaded",
            why=str(error).strip().splitlines()[0],
            fix="check that it is a complete transformers checkpoint",
            exit_code=2,
        ) from error
    embedding: Any = model.get_input_embeddings()
    embedded = embedding.weight.shape[0]
    if len(tokenizer) > embedded:
        raise Refusal(
            code="SF-MODEL-VOCABULARY",
            owner="policy",
            what=f"the tokenizer in {words} does not fit its model",
            why=f"it has {len(tokenizer)} ids, the embedding {embedded} rows",
            fix="use the tokenizer the model was trained with",
            exit_code=2,
        )
    policy = _ready(model, tokenizer, folder.name, impl)
    refuse_unfit(model, folder.name)
    if base != folder:
        from .adapter import load_adapter

        policy.adapter = load_adapter(model, folder, base)
    return policy


def base_folder(folder: Path) -> Path:
    """Where the model's own weights are: `folder`, or the base of the adapter that it holds."""
    if not (folder / "adapter_config.json").is_file():
        return folder
    from .adapter import base_of  # peft is loaded by those who need it

    return base_of(folder)


def _check_folder(folder: Path) -> None:
    wanted = {
        "config.json": ("config.json",),
        "weights (*.safetensors)": ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"),
        "a tokenizer (tokenizer.json)": ("tokenizer.json", "tokenizer.model", "vocab.json"),
    }
    if not folder.is_dir():
        missing = ["the folder itself"]
    else:
        missing = [what for what, names in wanted.items() if not any((folder / n).is_file() for n in names)]
    if missing:
        raise Refusal(
            code="SF-MODEL-FOLDER",
            owner="policy",
            what=f"{folder} is not a model folder",
            why=f"missing: {', '.join(missing)}",
            fix="point model.path at a transformers checkpoint folder",
            exit_code=2,
        )


def _ready(model: Any, tokenizer: Any, name: str, impl: str) -> Policy:
    model.config._attn_implementation = IMPL_NAME
    model.config.use_cache = False
    if hasattr(model.config, "num_local_experts") and model.config.num_local_experts:
        model.config._experts_implementation = "eager"
    model.eval()
    return Policy(model=model, tokenizer=tokenizer, chat=chat_format(tokenizer, name), name=name, impl=impl)
