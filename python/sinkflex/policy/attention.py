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
    forward takes a packed batch of *ones* (rows that feed one token) followed by *chunks* (rows that feed several, such
    as a tool result): `plan` says so, then every layer's `attend` writes the new keys and attends. Rows stay in one
    block [0, live), so the usual decode step reads slices, not copies.
    """

    def __init__(self, rows: int, capacity: int) -> None:
        self.rows, self.capacity = rows, capacity
        self.lengths = [0] * rows
        self._k: list[torch.Tensor] = []
        self._v: list[torch.Tensor] = []
        self._plan: _Plan | None = None

    def plan(self, ones: list[int], chunks: list[tuple[int, int]], device: torch.device) -> None:
        """`ones`: rows that feed one token each; `chunks`: (row, tokens) with tokens >= 2. Packed in that order."""
        need = max([self.lengths[r] + 1 for r in ones] + [self.lengths[r] + n for r, n in chunks])
        if need > self.capacity:
            self._grow(max(need, self.capacity + self.capacity // 2))
        self._plan = _Plan.make(self.lengths, ones, chunks, device)

    def commit(self) -> None:
        """After the forward: the planned tokens are part of their rows."""
        assert self._plan is not None
        for row, n in self._plan.fed:
            self.lengths[row] += n
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
        """q [1, num_q_heads, N, head_dim], k and v [1, num_kv_heads, N, head_dim] -> [1, N, num_q_heads, head_dim]."""
        plan = self._plan
        assert plan is not None, "plan() comes before the forward"
        while len(self._k) <= layer:
            shape = (self.rows, k.shape[1], self.capacity, k.shape[3])
            self._k.append(k.new_zeros(shape))
            self._v.append(v.new_zeros(shape))
        keys, values = self._k[layer], self._v[layer]
        keys[plan.row_N, :, plan.position_N] = k[0].transpose(0, 1)
        values[plan.row_N, :, plan.position_N] = v[0].transpose(0, 1)
        n1 = plan.ones
        q_NHD = q[0].transpose(0, 1)
        out = torch.empty_like(q_NHD)
        if n1:
            rows, span = plan.one_rows, plan.one_span
            mine = (keys[rows], values[rows]) if isinstance(rows, torch.Tensor) else (keys[:rows], values[:rows])
            out[:n1] = api.decode_attention(
                q_NHD[:n1, :, None],
                mine[0][:, :, :span],
                mine[1][:, :, :span],
                sinks,
                lengths=plan.one_lengths,
                window=window,
                scale=scale,
            )[:, :, 0]
        if plan.chunk_rows is not None:
            q_MHCD = q.new_zeros(len(plan.chunk_rows), q.shape[1], plan.chunk_width, q.shape[3])
            q_MHCD[plan.chunk_at, :, plan.chunk_column] = q_NHD[n1:]
            got = api.decode_attention(
                q_MHCD,
                keys[plan.chunk_rows, :, : plan.chunk_span],
                values[plan.chunk_rows, :, : plan.chunk_span],
                sinks,
                lengths=plan.chunk_lengths,
                query_lengths=plan.chunk_fed,
                window=window,
                scale=scale,
            )
            out[n1:] = got[plan.chunk_at, :, plan.chunk_column]
        return out[None]


@dataclass(slots=True)
class _Plan:
    """Index tensors of one forward, shared by its layers."""

    fed: list[tuple[int, int]]
    ones: int
    row_N: torch.Tensor
    position_N: torch.Tensor
    one_rows: torch.Tensor | int  # an int n stands for the block of rows [0, n)
    one_lengths: torch.Tensor
    one_span: int
    chunk_rows: torch.Tensor | None
    chunk_lengths: torch.Tensor
    chunk_fed: torch.Tensor
    chunk_span: int
    chunk_width: int
    chunk_at: torch.Tensor
    chunk_column: torch.Tensor

    @staticmethod
    def make(lengths: list[int], ones: list[int], chunks: list[tuple[int, int]], device: torch.device) -> _Plan:
        def index(values: list[int]) -> torch.Tensor:
            return torch.tensor(values, dtype=torch.long, device=device)

        width = max((n for _, n in chunks), default=0)
        rows, positions = list(ones), [lengths[r] for r in ones]
        at: list[int] = []
        column: list[int] = []
        for i, (row, n) in enumerate(chunks):
            rows += [row] * n
            positions += range(lengths[row], lengths[row] + n)
            at += [i] * n
            column += range(n)
        one_lengths = [lengths[r] + 1 for r in ones]
        chunk_lengths = [lengths[r] + n for r, n in chunks]
        return _Plan(
            fed=[(r, 1) for r in ones] + chunks,
            ones=len(ones),
            row_N=index(rows),
            position_N=index(positions),
            one_rows=len(ones) if ones == list(range(len(ones))) else index(ones),
            one_lengths=index(one_lengths),
            one_span=max(one_lengths, default=0),
            chunk_rows=index([r for r, _ in chunks]) if chunks else None,
            chunk_lengths=index(chunk_lengths),
            chunk_fed=index([n for _, n in chunks]),
            chunk_span=max(chunk_lengths, default=0),
            chunk_width=width,
            chunk_at=index(at),
            chunk_column=index(column),
        )


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
    sinkflex: AttentionContext | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Registered with transformers. query [1, num_q_heads, T, head_dim] -> [1, T, num_q_heads, head_dim]."""
    if sinkflex is None:
        raise ValueError(
            "attention 'sinkflex' was called without sinkflex=AttentionContext(...): masks would be unknown"
        )
    if attention_mask is not None or dropout:
        raise ValueError("attention 'sinkflex' takes no attention_mask and no dropout: the context says who sees whom")
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
