"""The local engine: feeds tokens to many rows at once and returns the logits behind each row's last token.

Tokens in, logits out; it knows nothing of turns or environments. All live rows advance in one packed forward without
padding: a row that samples feeds one token, a row that reads a tool result feeds several (see `KVCache` for the order).
No beginning that prompts share is computed twice: what all have in common (a system prompt, examples) is stored once
and read by one product for all rows; what some share beyond that (a group's task) is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch

from sinkflex.policy.attention import AttentionContext, KVCache
from sinkflex.policy.model import Policy

CHUNK = 512
"""Most tokens that one row feeds in one forward: bounds the scores of a long prompt to CHUNK x its length."""

SHARED_PREFIX_AT_LEAST = 64
"""A prefix shared by all prompts is kept apart, once for all rows, from this many tokens on."""

COPY_AT_LEAST = 8
"""What some prompts share beyond that is computed once and copied, from this many tokens on."""


class LocalEngine:
    """`rows` episodes at most."""

    def __init__(self, policy: Policy, rows: int, capacity: int = 256) -> None:
        self.policy = policy
        self.rows = rows
        self._capacity = capacity
        self.cache = KVCache(rows, capacity)
        self._trunk: list[int] = []
        self._fed: list[list[int]] = [[] for _ in range(rows)]

    def share_prefix(self, prompts: Sequence[list[int]]) -> int:
        """Compute what all prompts start with once, and keep it once. Returns its length (0: not worth it). All
        episodes opened from now on must begin with it."""
        first, last = min(prompts), max(prompts)
        n = min(common(first, last), min(map(len, prompts)) - 1)  # a row feeds a token of its own, to get logits
        if n < SHARED_PREFIX_AT_LEAST or len(prompts) == 1:
            return 0
        trunk = KVCache(1, n)
        for at in range(0, n, CHUNK):
            self._forward(trunk, [(0, list(first[at : min(at + CHUNK, n)]))], [])
        self._trunk = list(first[:n])
        self.cache = KVCache(self.rows, self._capacity, trunk)
        self._fed = [list(self._trunk) for _ in range(self.rows)]
        return n

    def open(self, new: Sequence[tuple[int, list[int]]]) -> list[int]:
        """Start new episodes: (row, prompt) pairs. Returns how many tokens of each prompt the cache holds already.

        What a prompt shares with the tokens of another row, or with a prompt beside it, is copied; at least one token
        is left to feed. Rows that are not among `new` are as they were.
        """
        held = {row: len(self._trunk) for row, _ in new}
        for row, ids in new:
            source, n = max(((r, common(fed, ids)) for r, fed in enumerate(self._fed)), key=lambda pair: pair[1])
            n = min(n, len(ids) - 1)
            if n >= held[row] + COPY_AT_LEAST and source not in held:
                self._copy(source, row, n)
                held[row] = n
            else:
                self.cache.lengths[row] = 0
                self._fed[row] = list(self._trunk)
        level = [sorted(new, key=lambda pair: pair[1])] if new else []
        while level:
            work, copies, below = [], [], []
            for members in level:
                end = min(common(members[0][1], members[-1][1]), min(len(ids) for _, ids in members) - 1)
                leader, ids = max(members, key=lambda pair: held[pair[0]])
                if len(members) > 1 and end - min(held[row] for row, _ in members) >= COPY_AT_LEAST:
                    if end > held[leader]:
                        work.append((leader, ids[held[leader] : end]))
                    copies.append((leader, end, [row for row, _ in members if held[row] < end]))
                below += _parted(members)
            self._feed_all(work)
            for leader, end, rows in copies:
                for row in rows:
                    if row != leader:
                        self._copy(leader, row, end)
                    held[row] = end
            level = below
        return [held[row] for row, _ in new]

    def move(self, source: int, target: int) -> None:
        """The episode of row `source` goes on in row `target`."""
        self.cache.copy(source, target)
        self._fed[target], self._fed[source] = self._fed[source], []

    def assert_holds(self, row: int, ids: Sequence[int]) -> None:
        """What the cache was fed is what the trajectory stores: the prefix identity of every turn (B29)."""
        assert self._fed[row] == list(ids), "the engine's tokens and the trajectory's differ"

    def feed(self, work: Sequence[tuple[int, list[int]]], wanted: Sequence[int]) -> torch.Tensor:
        """Feed (row, tokens) pairs, at most CHUNK tokens each, and return float32 logits [len(wanted), vocabulary]
        behind the last token of the pairs whose indices are in `wanted`."""
        for row, tokens in work:
            self._fed[row] += tokens
        return self._forward(self.cache, work, wanted)

    def _feed_all(self, work: list[tuple[int, list[int]]]) -> None:
        """The same without logits, and however many tokens there are."""
        while work:
            self.feed([(row, tokens[:CHUNK]) for row, tokens in work], [])
            work = [(row, tokens[CHUNK:]) for row, tokens in work if len(tokens) > CHUNK]

    def _copy(self, source: int, target: int, length: int) -> None:
        """Row `target` holds the first `length` tokens of row `source`, the trunk among them."""
        self.cache.copy(source, target, length - len(self._trunk))
        self._fed[target] = self._fed[source][:length]

    @torch.no_grad()
    def _forward(self, cache: KVCache, work: Sequence[tuple[int, list[int]]], wanted: Sequence[int]) -> torch.Tensor:
        device = self.policy.device
        ids = [tokens[-1] for _, tokens in work]
        for _, tokens in work:
            ids += tokens[:-1]
        positions = cache.plan([(row, len(tokens)) for row, tokens in work], device)
        context = AttentionContext(self.policy.impl, cache=cache)
        states = self.policy.hidden(torch.tensor([ids], device=device), positions, context)
        cache.commit()
        return self.policy.logits(states[list(wanted)]) if wanted else states.new_zeros(0)


def common(a: list[int], b: list[int]) -> int:
    """How many tokens both begin with. Whole stretches are compared at a time: prompts are long and mostly alike."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle - 1)
    return low


def _parted(members: Sequence[tuple[int, list[int]]]) -> list[list[tuple[int, list[int]]]]:
    """Sorted (row, prompt) pairs by the token at which they first part; parts of one are left out."""
    at = common(members[0][1], members[-1][1])
    parts = [list(part) for _, part in groupby(members, key=lambda pair: pair[1][at : at + 1])]
    return [part for part in parts if 1 < len(part) < len(members)]
