"""The local engine: feeds tokens to many rows at once and returns the logits behind each row's last token.

Tokens in, logits out; it knows nothing of turns or environments. All live rows advance in one packed forward without
padding: a row that samples feeds one token, a row that reads a tool result feeds several (see `KVCache` for the order).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sinkflex.policy.attention import AttentionContext, KVCache
from sinkflex.policy.model import Policy

CHUNK = 512
"""Most tokens that one row feeds in one forward: bounds the scores of a long prompt to CHUNK x its length."""

SHARED_PREFIX_AT_LEAST = 64
"""A prefix shared by all prompts is computed once from this many tokens on; below, a copy costs more than it saves."""


class LocalEngine:
    """`rows` episodes at most. Row `rows` is a spare that holds the shared prefix of the prompts, if there is one."""

    def __init__(self, policy: Policy, rows: int, capacity: int = 256) -> None:
        self.policy = policy
        self.rows = rows
        self.cache = KVCache(rows + 1, capacity)
        self._fed: list[list[int]] = [[] for _ in range(rows + 1)]

    def share_prefix(self, prompts: Sequence[list[int]]) -> int:
        """Compute what all prompts start with once. Returns its length (0: not worth it)."""
        first, last = min(prompts), max(prompts)
        n = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
        n = min(n, min(map(len, prompts)) - 1)  # every row feeds at least one token of its own, to get logits
        if n < SHARED_PREFIX_AT_LEAST or len(prompts) == 1:
            return 0
        at = 0
        while at < n:
            tokens = list(first[at : min(at + CHUNK, n)])
            self.feed([(self.rows, tokens)], [])
            at += len(tokens)
        return n

    def open(self, row: int, shared: int) -> None:
        """Start a new episode in `row`, with the first `shared` tokens taken from the spare row."""
        self.cache.lengths[row] = 0
        self._fed[row] = []
        if shared:
            self.cache.move(self.rows, row)
            self._fed[row] = list(self._fed[self.rows])

    def move(self, source: int, target: int) -> None:
        self.cache.move(source, target)
        self._fed[target] = self._fed[source]

    def assert_holds(self, row: int, ids: Sequence[int]) -> None:
        """What the cache was fed is what the trajectory stores: the prefix identity of every turn (B29)."""
        assert self._fed[row] == list(ids), "the engine's tokens and the trajectory's differ"

    @torch.no_grad()
    def feed(self, work: Sequence[tuple[int, list[int]]], wanted: Sequence[int]) -> torch.Tensor:
        """Feed (row, tokens) pairs, at most CHUNK tokens each, and return float32 logits [len(wanted), vocabulary]
        behind the last token of the pairs whose indices are in `wanted`."""
        device = self.policy.device
        ids = [tokens[-1] for _, tokens in work]
        for row, tokens in work:
            ids += tokens[:-1]
            self._fed[row] += tokens
        positions = self.cache.plan([(row, len(tokens)) for row, tokens in work], device)
        context = AttentionContext(self.policy.impl, cache=self.cache)
        states = self.policy.hidden(torch.tensor([ids], device=device), positions, context)
        self.cache.commit()
        return self.policy.logits(states[list(wanted)]) if wanted else states.new_zeros(0)
