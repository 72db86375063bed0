"""Tokenizers for the tiny policy, built deterministically from what a suite can say.

A suite with a closed vocabulary gets one id per blank-separated word (`build_word_tokenizer`); a suite of open text
gets a small byte-level BPE trained on its own corpus (`build_bpe_tokenizer`). Both are ordinary transformers tokenizers
with a chat template, so a checkpoint loads without SinkFlex.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from .chat import JSON_TEMPLATE, SPECIALS, WORD_TEMPLATE

BPE_SIZE = 2048


def closed_words(folder: Path) -> bool:
    """Whether the model in `folder` knows the words of one suite and no others, by its chat template alone."""
    template = folder / "chat_template.jinja"
    return template.is_file() and template.read_text(encoding="utf-8") == WORD_TEMPLATE


def word_list(vocabulary: Sequence[str], tools: Sequence[Mapping[str, Any]]) -> list[str]:
    """Words in id order: special tokens, tool names, argument names with their colon, then the suite's own words."""
    words = list(SPECIALS)
    for tool in tools:
        function = tool["function"]
        words.append(function["name"])
        words += [f"{key}:" for key in function["parameters"].get("properties", {})]
    return list(dict.fromkeys([*words, *vocabulary]))


def build_word_tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    """`words` as from `word_list`. Splits at blanks; an unknown word becomes <|unk|>, which `WordFormat` refuses."""
    core = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<|unk|>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _wrap(core, WORD_TEMPLATE)


def build_bpe_tokenizer(corpus: Iterable[str], size: int = BPE_SIZE) -> PreTrainedTokenizerFast:
    """Byte-level BPE of `size` ids, digits one by one. Same corpus, same ids."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(corpus, trainer)
    return _wrap(core, JSON_TEMPLATE)


def _wrap(core: Tokenizer, template: str) -> PreTrainedTokenizerFast:
    core.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in SPECIALS])
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=core,
        pad_token="<|pad|>",
        unk_token="<|unk|>",
        eos_token="<|end|>",
        additional_special_tokens=list(SPECIALS[3:]),
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = template
    return tokenizer
