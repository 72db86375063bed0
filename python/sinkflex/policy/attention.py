"""transformers' AttentionInterface into `sinkflex.kernels.api`, and the key/value cache that rollouts keep.

Idea: a model is called with packed tokens [1, T] and a `sinkflex=AttentionContext`. transformers passes unknown keyword
arguments down to the attention function, so GptOss, Llama and Qwen3 run unchanged; which token sees which is decided
here, by layout or by cache, never by a mask of T x T. A call without a context is refused: there is no silent default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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

    A row may go on where a *trunk* ends, a cache of one row: its keys are stored once for all rows behind it and read
    by one product. Lengths, capacity and slots count a row's own tokens only.
    """

    def __init__(self, rows: int, capacity: int) -> None:
        self.rows, self.capacity = rows, capacity
        self.lengths = [0] * rows
        self.trunks: list[KVCache | None] = [None] * rows
        self._k: list[torch.Tensor] = []
        self._v: list[torch.Tensor] = []
        self._plan: _Plan | None = None

    def plan(self, work: list[tuple[int, int]], device: torch.device) -> torch.Tensor:
        """`work`: (row, tokens to feed) pairs. Returns the positions of the packed batch [1, T]."""
        need = max(self.lengths[row] + count for row, count in work)
        if need > self.capacity:
            self._grow(max(need, self.capacity + self.capacity // 2))
        self._plan = _Plan.make(self.lengths, self.trunks, work, device)
        return self._plan.position_T[None]

    def commit(self) -> None:
        """After the forward: the planned tokens are part of their rows."""
        assert self._plan is not None
        for row, count in self._plan.work:
            self.lengths[row] += count
        self._plan = None

    def clear(self, row: int, trunk: KVCache | None = None) -> None:
        """Row `row` holds nothing, behind `trunk`."""
        self.lengths[row] = 0
        self.trunks[row] = trunk

    def copy(self, source: int, target: int, length: int | None = None) -> None:
        """Row `target` becomes a copy of row `source`, behind the same trunk, up to its length or the first `length`
        tokens."""
        self.take(self, source, target, self.lengths[source] if length is None else length)
        self.trunks[target] = self.trunks[source]

    def take(self, other: KVCache, source: int, target: int, length: int) -> None:
        """Row `target` begins with the first `length` own tokens of row `source` of `other`."""
        assert length <= other.lengths[source]
        while len(self._k) < len(other._k):
            self._add_layer(other._k[len(self._k)])
        for mine, theirs in ((self._k, other._k), (self._v, other._v)):
            for to, of in zip(mine, theirs, strict=True):
                to[target, :, :length] = of[source, :, :length]
        self.lengths[target] = length

    def _add_layer(self, like: torch.Tensor) -> None:
        """A layer's stores; `like` [.., num_kv_heads, .., head_dim] says the shape."""
        shape = (self.rows, like.shape[1], self.capacity, like.shape[3])
        self._k.append(like.new_zeros(shape))
        self._v.append(like.new_zeros(shape))

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
            self._add_layer(k)
        keys, values = self._k[layer], self._v[layer]
        keys[plan.row_T, :, plan.slot_T] = k[0].transpose(0, 1)
        values[plan.row_T, :, plan.slot_T] = v[0].transpose(0, 1)
        q_THD = q[0].transpose(0, 1)
        if plan.trunks:
            parts = self._parts(layer, plan, window, torch.promote_types(q.dtype, torch.float32))
            out: torch.Tensor = api.cascade_attention(q_THD, parts, sinks, scale=scale)
            return out[None]

        def decode(
            rows: torch.Tensor | slice, q_RHCD: torch.Tensor, span: int, **lengths: torch.Tensor
        ) -> torch.Tensor:
            mine = keys[rows][:, :, :span], values[rows][:, :, :span]
            seen: torch.Tensor = api.decode_attention(q_RHCD, *mine, sinks, window=window, scale=scale, **lengths)
            return seen

        count = len(plan.work)
        out = torch.empty_like(q_THD)
        out[:count] = decode(plan.rows, q_THD[:count, :, None], plan.span, lengths=plan.lengths)[:, :, 0]
        if plan.heads is not None:
            heads = plan.heads
            q_MHCD = q.new_zeros(len(heads.rows), q.shape[1], heads.width, q.shape[3])
            q_MHCD[heads.at, :, heads.column] = q_THD[count:]
            got = decode(heads.rows, q_MHCD, heads.span, lengths=heads.lengths, query_lengths=heads.fed)
            out[count:] = got[heads.at, :, heads.column]
        return out[None]

    def _parts(self, layer: int, plan: _Plan, window: int | None, exact: torch.dtype) -> list[api.Part]:
        """Each row's own slots for its last token, then for the tokens before it; the trunks for all tokens behind."""
        if window not in plan.masks:
            plan.masks[window] = _Masks.make(plan, window, exact)
        masks = plan.masks[window]
        keys, values = self._k[layer], self._v[layer]
        mine = keys[plan.rows][:, :, : plan.span], values[plan.rows][:, :, : plan.span]
        parts = [api.Part(*mine, None if plan.heads is None else slice(0, len(plan.work)), masks.last)]
        if (heads := plan.heads) is not None:
            theirs = keys[heads.rows][:, :, : heads.span], values[heads.rows][:, :, : heads.span]
            parts.append(api.Part(*theirs, heads.queries, masks.heads, heads.real))
        for (trunk, tokens), (reach, bias) in zip(plan.trunks, masks.trunks, strict=True):
            above = slice(reach, trunk.lengths[0])
            shared = trunk._k[layer][:, :, above], trunk._v[layer][:, :, above]
            parts.append(api.Part(*shared, tokens, bias))
        return parts


@dataclass(slots=True)
class _Heads:
    """The tokens before the last, of the rows that have some: padded to `width` columns on the right. `queries` are
    their places in the packed batch, rows times columns, padding repeating one of them; `real` those that are none."""

    rows: torch.Tensor
    lengths: torch.Tensor
    fed: torch.Tensor
    span: int
    width: int
    at: torch.Tensor
    column: torch.Tensor
    queries: torch.Tensor
    real: torch.Tensor


@dataclass(slots=True)
class _Plan:
    """Index tensors of one forward, shared by its layers. `span` is the longest row's length; `trunks` are those that
    rows go on from, each with the places of these rows' tokens in the packed batch."""

    work: list[tuple[int, int]]
    row_T: torch.Tensor
    slot_T: torch.Tensor
    position_T: torch.Tensor
    rows: torch.Tensor | slice
    lengths: torch.Tensor
    span: int
    heads: _Heads | None
    trunks: list[tuple[KVCache, slice | torch.Tensor]]
    masks: dict[int | None, _Masks] = field(default_factory=dict)

    @staticmethod
    def make(
        lengths: list[int], trunks: list[KVCache | None], work: list[tuple[int, int]], device: torch.device
    ) -> _Plan:
        def index(values: list[int]) -> torch.Tensor:
            return torch.tensor(values, dtype=torch.long, device=device)

        rows = [row for row, _ in work]
        after = [lengths[row] + count for row, count in work]
        more = [(row, count - 1) for row, count in work if count > 1]
        row_T, slot_T = list(rows), [length - 1 for length in after]
        at: list[int] = []
        column: list[int] = []
        for i, (row, count) in enumerate(more):
            row_T += [row] * count
            slot_T += range(lengths[row], lengths[row] + count)
            at += [i] * count
            column += range(count)
        heads = None
        if more:
            ends = [lengths[row] + count for row, count in more]
            fed = [count for _, count in more]
            width = max(fed)
            real = index(at) * width + index(column)
            queries = torch.full((len(more) * width,), len(work), dtype=torch.long, device=device)
            queries[real] = torch.arange(len(work), len(work) + len(at), device=device)
            heads = _Heads(
                index([row for row, _ in more]),
                index(ends),
                index(fed),
                max(ends),
                width,
                index(at),
                index(column),
                queries,
                real,
            )
        block = rows == list(range(len(rows)))
        picked = slice(0, len(rows)) if block else index(rows)
        slots = index(slot_T)
        behind = {trunk: [] for row in rows if (trunk := trunks[row]) is not None}  # type: dict[KVCache, list[int]]
        starts = [0] * len(row_T)
        if behind:
            for place, row in enumerate(row_T):
                if (trunk := trunks[row]) is not None:
                    behind[trunk].append(place)
                    starts[place] = trunk.lengths[0]
        places: list[tuple[KVCache, slice | torch.Tensor]] = [
            (trunk, slice(at[0], at[-1] + 1) if at[-1] - at[0] == len(at) - 1 else index(at))
            for trunk, at in behind.items()
        ]
        positions = slots + index(starts) if behind else slots
        return _Plan(work, index(row_T), slots, positions, picked, index(after), max(after), heads, places)


@dataclass(slots=True)
class _Masks:
    """Biases of 0 and -inf for a forward with trunks, for one window. last [rows, 1, span]; heads [rows, width, span]
    or None; trunks: of each the first token that anybody sees and [1, tokens behind it, keys from there on] or None."""

    last: torch.Tensor
    heads: torch.Tensor | None
    trunks: list[tuple[int, torch.Tensor | None]]

    @staticmethod
    def make(plan: _Plan, window: int | None, exact: torch.dtype) -> _Masks:
        def bias(position: torch.Tensor, first: int, end: int) -> torch.Tensor:
            """Of queries at `position` [.., queries] over keys at positions [first, end)."""
            behind = position.unsqueeze(-1) - torch.arange(first, end, device=position.device)
            hidden = behind < 0 if window is None else (behind < 0) | (behind >= window)
            return torch.zeros(hidden.shape, dtype=exact, device=position.device).masked_fill_(hidden, -torch.inf)

        heads = None
        if plan.heads is not None:
            heads = bias(plan.slot_T[plan.heads.queries].view(-1, plan.heads.width), 0, plan.heads.span)
        trunks: list[tuple[int, torch.Tensor | None]] = []
        for trunk, tokens in plan.trunks:
            if window is None:
                trunks.append((0, None))
                continue
            position, end = plan.position_T[tokens], trunk.lengths[0]
            reach = min(end - 1, max(0, int(position.min()) - window + 1))  # one stays, seen or not
            trunks.append((reach, bias(position[None], reach, end)))
        return _Masks(bias(plan.slot_T[: len(plan.work), None], 0, plan.span), heads, trunks)


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
