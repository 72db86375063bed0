"""The local engine: feeds tokens to many rows at once and returns the logits behind each row's last token.

Tokens in, logits out; it knows nothing of turns or environments. All live rows advance in one packed forward without
padding: a row that samples feeds one token, a row that reads a tool result feeds several (see `KVCache` for the order).
No beginning that prompts share is computed twice. A long one (a system prompt with examples, a group's task) is a
trunk: stored once, and read by one product for all rows behind it. What rows share beyond that is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch

from sinkflex.policy.attention import AttentionContext, KVCache
from sinkflex.policy.model import Policy

CHUNK = 512
"""Most tokens that one row feeds in one forward: bounds the scores of a long prompt to CHUNK x its length."""

TRUNK_AT_LEAST = 64
"""What prompts share is kept apart, once for all of their rows, from this many tokens on."""

COPY_AT_LEAST = 8
"""What prompts share beyond that is computed once and copied, from this many tokens on."""


@dataclass(slots=True)
class _Trunk:
    """A beginning that `prompts` prompts to come have in common; computed when the first of them is opened."""

    ids: list[int]
    prompts: int
    cache: KVCache | None = None


class LocalEngine:
    """`rows` episodes at most."""

    def __init__(self, policy: Policy, rows: int, capacity: int = 64) -> None:
        self.policy = policy
        self.rows = rows
        self.cache = KVCache(rows, capacity)
        self._trunks: list[_Trunk] = []
        self._fed: list[list[int]] = [[] for _ in range(rows)]

    def expect(self, prompts: Sequence[list[int]]) -> None:
        """Say which prompts will be opened, so that long beginnings that several of them share are kept once. Nothing
        is computed yet; a prompt that was not announced is as right, and dearer."""
        self._trunks = [_Trunk(ids, count) for ids, count in _trunks(sorted(prompts))[1]]

    def open(self, new: Sequence[tuple[int, list[int]]]) -> list[int]:
        """Start new episodes: (row, prompt) pairs. Returns how many tokens of each prompt the cache holds already.

        What a prompt shares with the tokens of another row, or with a prompt beside it, is copied; at least one token
        is left to feed. Rows that are not among `new` are as they were.
        """
        held = {row: self._start(row, ids) for row, ids in new}
        for row, ids in new:
            near = [r for r, t in enumerate(self.cache.trunks) if t is self.cache.trunks[row] and r not in held]
            source = max(near, key=lambda r: common(self._fed[r], ids), default=row)
            n = min(common(self._fed[source], ids), len(ids) - 1)
            if n >= held[row] + COPY_AT_LEAST:
                self._copy(source, row, n)
                held[row] = n
        # Rows behind one trunk are neighbours in the order of their prompts.
        level = [list(part) for _, part in groupby(sorted(new, key=_prompt), lambda pair: self.cache.trunks[pair[0]])]
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
            while work:
                self.feed([(row, tokens[:CHUNK]) for row, tokens in work], [])
                work = [(row, tokens[CHUNK:]) for row, tokens in work if len(tokens) > CHUNK]
            for leader, end, rows in copies:
                for row in rows:
                    if row != leader:
                        self._copy(leader, row, end)
                    held[row] = end
            level = below
        return [held[row] for row, _ in new]

    def _start(self, row: int, ids: list[int]) -> int:
        """Put an empty row behind the trunk that its prompt begins with. Returns that trunk's length."""
        self.cache.clear(row)
        self._fed[row] = []
        used = set(self.cache.trunks)
        self._trunks = [t for t in self._trunks if t.prompts > 0 or t.cache in used]  # what nobody needs is freed
        for trunk in self._trunks:
            if trunk.prompts > 0 and len(trunk.ids) < len(ids) and ids[: len(trunk.ids)] == trunk.ids:
                trunk.prompts -= 1
                if trunk.cache is None:
                    trunk.cache = self._grown(trunk.ids)
                self.cache.clear(row, trunk.cache)
                self._fed[row] = list(trunk.ids)
                return len(trunk.ids)
        return 0

    def _grown(self, ids: list[int]) -> KVCache:
        """The cache of a new trunk, begun from the one that shares most with it."""
        cache = KVCache(1, len(ids))
        shared = [(min(common(t.ids, ids), len(ids) - 1), t.cache) for t in self._trunks if t.cache is not None]
        at, like = max(shared, key=lambda pair: pair[0], default=(0, None))
        if like is not None and at >= COPY_AT_LEAST:
            cache.take(like, 0, 0, at)
        else:
            at = 0
        while at < len(ids):
            self._forward(cache, [(0, ids[at : at + CHUNK])], [])
            at += CHUNK
        return cache

    def move(self, source: int, target: int) -> None:
        """The episode of row `source` goes on in row `target`."""
        self.cache.copy(source, target)
        self.cache.clear(source)
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

    def _copy(self, source: int, target: int, length: int) -> None:
        """Row `target` holds the first `length` tokens of row `source`, its trunk among them."""
        trunk = self.cache.trunks[source]
        self.cache.copy(source, target, length - (trunk.lengths[0] if trunk else 0))
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


def _prompt(pair: tuple[int, list[int]]) -> list[int]:
    return pair[1]


def _parted(members: Sequence[tuple[int, list[int]]]) -> list[list[tuple[int, list[int]]]]:
    """Sorted (row, prompt) pairs by the token at which they first part; parts of one are left out."""
    at = common(members[0][1], members[-1][1])
    parts = [list(part) for _, part in groupby(members, key=lambda pair: pair[1][at : at + 1])]
    return [part for part in parts if 1 < len(part) < len(members)]


def _trunks(prompts: Sequence[list[int]]) -> tuple[int, list[tuple[list[int], int]]]:
    """The beginnings of sorted prompts that save most slots when each is kept once, as (ids, number of prompts), and
    how many slots that is: one for all of them or, where they part, those of the parts."""
    if len(prompts) < 2:
        return 0, []
    first, last = prompts[0], prompts[-1]
    at = common(first, last)
    end = min(at, min(map(len, prompts)) - 1)  # a row feeds a token of its own, to get logits
    own = end * (len(prompts) - 1) if end >= TRUNK_AT_LEAST else 0
    parts = [list(part) for _, part in groupby(prompts, key=lambda ids: ids[at : at + 1])]
    found = [_trunks(part) for part in parts if len(part) < len(prompts)]
    apart = sum(saved for saved, _ in found)
    if own == 0 and apart == 0:
        return 0, []
    if own >= apart:
        return own, [(first[:end], len(prompts))]
    return apart, [trunk for _, trunks in found for trunk in trunks]
