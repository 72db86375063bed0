"""The three kinds of tokenizer that chat tests run on."""

from __future__ import annotations

from typing import Any

import pytest
from chat_samples import TOOLS, WORDS, chatml_tokenizer
from sinkflex.policy.tokenizer import build_bpe_tokenizer, build_word_tokenizer, word_list


@pytest.fixture(scope="session")
def chatml() -> Any:
    return chatml_tokenizer()


@pytest.fixture(scope="session")
def words() -> Any:
    return build_word_tokenizer(word_list(WORDS, [t.as_function() for t in TOOLS]))


@pytest.fixture(scope="session")
def bpe() -> Any:
    return build_bpe_tokenizer(["cancel the order W1 please", '{"name": "get_order"}'] * 20, size=400)
