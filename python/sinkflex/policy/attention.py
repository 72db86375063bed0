"""transformers' AttentionInterface into `sinkflex.kernels.api`, and the key/value cache that rollouts keep.

Idea: a model is called with packed tokens [1, T] and a `sinkflex=AttentionContext`. transformers passes unknown keyword
arguments down to the attention function, so GptOss, Llama and Qwen3 run unchanged; which token sees which is decided
here, by layout or by cache, never by a mask of T x T. A call without a context is refused: there is no silent default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface

from sinkflex.kernels import api

IMPL_NAME = "sinkflex"


class KVCache:
    """Keys and values of many episodes at once, kept across turns.

    Per layer `k` and `v` are [rows, num_kv_heads, capacity, head_dim]; `lengths[r]` tokens of row r are valid. A
    forward feeds every row of `work` some tokens. The packed batch holds the *last* token of each row first, in the
    order of `work`, then the *heads*: the tokens before it, of the rows that feed more than one (a tool result). When
    `work` is rows 0, 1, ... n-1, the last tokens of all rows are one decode over a slice of the cache, without a copy.
    """

    def __init__(self, rows: int, capacity: int) -> None:
        self.rows, self.capacity = rows, capacity
        self.lengths = [0] * rows
        self._k: list[torch.Tensor] = []
        self._v: list[torch.Tensor] = []
        self._plan: _Plan | None = None

    def plan(self, work: list[tuple[int, int]], device: torch.device) -> torch.Tensor:
        """`work`: (row, tokens to feed) pairs. Returns the positions of the packed batch [1, T]."""
        need = max(self.lengths[row] + count for row, count in work)
        if need > self.capacity:
            self._grow(max(need, self.capacity + self.capacity // 2))
        self._plan = _Plan.make(self.lengths, work, device)
        return self._plan.position_T[None]

    def commit(self) -> None:
        """After the forward: the planned tokens are part of their rows."""
        assert self._plan is not None
        for row, count in self._plan.work:
            self.lengths[row] += count
        self._plan = None

    def move(self, source: int, target: int) -> None:
        """Row `target` becomes a copy of row `source` (up to its length)."""
        n = self.lengths[source]
        for store in (*self._k, *self._v):
            store[target, :, :n] = store[source, :, :n]
        self.lengths[target] = n

    def _grow(self, capacity: int) -> None:
        for stores in (self._k, self._v):
            for i, old in enumerate(stores):
                new = old.new_zeros(self.rows, old.shape[1], capacity, old.shape[3])
                new[:, :, : self.capacity] = old
                stores[i] = new
        self.capacity = capacity

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        sinks: torch.Tensor | None,
        window: int | None,
        scale: float,
    ) -> torch.Tensor:
        """q [1, num_q_heads, T, head_dim], k and v [1, num_kv_heads, T, head_dim] -> [1, T, num_q_heads, head_dim]."""
        plan = self._plan
        assert plan is not None, "plan() comes before the forward"
        while len(self._k) <= layer:
            shape = (self.rows, k.shape[1], self.capacity, k.shape[3])
            self._k.append(k.new_zeros(shape))
            self._v.append(v.new_zeros(shape))
        keys, values = self._k[layer], self._v[layer]
        keys[plan.row_T, :, plan.position_T] = k[0].transpose(0, 1)
        values[plan.row_T, :, plan.position_T] = v[0].transpose(0, 1)

        def decode(
            rows: torch.Tensor | slice, q_RHCD: torch.Tensor, span: int, **lengths: torch.Tensor
        ) -> torch.Tensor:
            mine = keys[rows][:, :, :span], values[rows][:, :, :span]
            seen: torch.Tensor = api.decode_attention(q_RHCD, *mine, sinks, window=window, scale=scale, **lengths)
            return seen

        count = len(plan.work)
        q_THD = q[0].transpose(0, 1)
        out = torch.empty_like(q_THD)
        out[:count] = decode(plan.rows, q_THD[:count, :, None], plan.span, lengths=plan.lengths)[:, :, 0]
        if plan.heads is not None:
            heads = plan.heads
            q_MHCD = q.new_zeros(len(heads.rows), q.shape[1], heads.width, q.shape[3])
            q_MHCD[heads.at, :, heads.column] = q_THD[count:]
            got = decode(heads.rows, q_MHCD, heads.span, lengths=heads.lengths, query_lengths=heads.fed)
            out[count:] = got[heads.at, :, heads.column]
        return out[None]


@dataclass(slots=True)
class _Heads:
    """The tokens before the last, of the rows that have some: padded to `width` columns on the right."""

    rows: torch.Tensor
    lengths: torch.Tensor
    fed: torch.Tensor
    span: int
    width: int
    at: torch.Tensor
    column: torch.Tensor


@dataclass(slots=True)
class _Plan:
    """Index tensors of one forward, shared by its layers. `span` is the longest row's length."""

    work: list[tuple[int, int]]
    row_T: torch.Tensor
    position_T: torch.Tensor
    rows: torch.Tensor | slice
    lengths: torch.Tensor
    span: int
    heads: _Heads | None

    @staticmethod
    def make(lengths: list[int], work: list[tuple[int, int]], device: torch.device) -> _Plan:
        def index(values: list[int]) -> torch.Tensor:
            return torch.tensor(values, dtype=torch.long, device=device)

        rows = [row for row, _ in work]
        after = [lengths[row] + count for row, count in work]
        more = [(row, count - 1) for row, count in work if count > 1]
        row_T, position_T = list(rows), [length - 1 for length in after]
        at: list[int] = []
        column: list[int] = []
        for i, (row, count) in enumerate(more):
            row_T += [row] * count
            position_T += range(lengths[row], lengths[row] + count)
            at += [i] * count
            column += range(count)
        heads = None
        if more:
            ends = [lengths[row] + count for row, count in more]
            fed = [count for _, count in more]
            heads = _Heads(
                index([row for row, _ in more]), index(ends), index(fed), max(ends), max(fed), index(at), index(column)
            )
        block = rows == list(range(len(rows)))
        picked = slice(0, len(rows)) if block else index(rows)
        return _Plan(work, index(row_T), index(position_T), picked, index(after), max(after), heads)


@dataclass(slots=True)
class AttentionContext:
    """How the tokens of one forward see each other: packed segments (`layout`) or rows of a `cache`, exactly one.

    `impl` serves packed segments; a cache has one way to be read, `decode_attention`, whatever trains.
    """

    impl: str
    layout: Any = None
    cache: KVCache | None = None


def sinkflex_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    s_aux: torch.Tensor | None = None,
    softcap: float | None = None,
    sinkflex: AttentionContext | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Registered with transformers. query [1, num_q_heads, T, head_dim] -> [1, T, num_q_heads, head_dim].

    Models without sinks pass no `s_aux`, models without windows no `sliding_window`.
    """
    if sinkflex is None:
        raise ValueError(
            "attention 'sinkflex' was called without sinkflex=AttentionContext(...): masks would be unknown"
        )
    if attention_mask is not None or dropout:
        raise ValueError("attention 'sinkflex' takes no attention_mask and no dropout: the context says who sees whom")
    if softcap is not None:
        raise ValueError(f"attention 'sinkflex' has no soft cap on scores, and this model asks for one of {softcap}")
    scale = float(scaling) if scaling is not None else query.shape[-1] ** -0.5
    if sinkflex.cache is not None:
        return sinkflex.cache.attend(module.layer_idx, query, key, value, s_aux, sliding_window, scale), None
    out = api.sink_attention(
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        s_aux,
        layout=sinkflex.layout,
        window=sliding_window,
        scale=scale,
        impl=sinkflex.impl,
    )
    return out[None], None


AttentionInterface.register(IMPL_NAME, sinkflex_attention)
