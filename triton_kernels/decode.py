"""Attention of a few new tokens over a dense key/value cache, many rows at once, without gradient.

Shapes: q [batch, num_q_heads, new, head_dim]; caches [batch, num_kv_heads, slots, head_dim]. The query heads that share
a key head are rows of one product, so keys and values are never repeated. A window that is shorter than the cache
gathers only the keys in reach. The sink is one more column of the softmax.
"""

from __future__ import annotations

import torch

QUERY_ROWS = 1 << 24  # scores of one piece: longer chunks of queries are cut, so that memory stays bounded


def attend(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    sinks: torch.Tensor | None,
    lengths: torch.Tensor,
    query_lengths: torch.Tensor | None,
    window: int | None,
    scale: float,
) -> torch.Tensor:
    """Output [batch, num_q_heads, new, head_dim] in q's dtype. Query c of row b sits at lengths[b] - query_lengths[b] + c;
    queries from query_lengths[b] on are padding and give 0."""
    batch, heads, new, dim = q.shape
    longest = int(lengths.max()) if batch else 0
    if longest == 0 or new == 0:
        return torch.zeros_like(q)
    counts = torch.full_like(lengths, new) if query_lengths is None else query_lengths
    first = (lengths - counts).unsqueeze(1)
    at = torch.arange(new, device=q.device)
    position = first + at  # [batch, new]
    real = (at < counts.unsqueeze(1)) & (position >= 0)
    keys, values, slot = _keys(k_cache, v_cache, lengths, first, new, longest, window)
    behind = position.unsqueeze(2) - slot.unsqueeze(1)  # [batch, new, keys]
    hidden = (
        (behind < 0) | (slot < 0).unsqueeze(1)
        if window is None
        else ((behind < 0) | (behind >= window) | (slot < 0).unsqueeze(1))
    )
    piece = max(1, QUERY_ROWS // (batch * heads * keys.shape[2]))
    parts = []
    for start in range(0, new, piece):
        rows = slice(start, start + piece)
        out = _softmax(q[:, :, rows], keys, values, sinks, hidden[:, rows], scale)
        out = out.masked_fill_(~real[:, None, rows, None], 0.0)
        if not bool(torch.isfinite(out).all()):
            # Unused slots may hold anything, and 0 * NaN is NaN: once more with the slots that nobody sees at zero.
            unseen = hidden[:, rows].all(1)[:, None, :, None]
            out = _softmax(
                q[:, :, rows],
                keys.masked_fill(unseen, 0.0),
                values.masked_fill(unseen, 0.0),
                sinks,
                hidden[:, rows],
                scale,
            ).masked_fill_(~real[:, None, rows, None], 0.0)
        parts.append(out)
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def _keys(
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    lengths: torch.Tensor,
    first: torch.Tensor,
    new: int,
    longest: int,
    window: int | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Keys and values [batch, num_kv_heads, keys, dim] that the queries can reach, and their slots [batch or 1, keys];
    a slot below 0 is padding."""
    device = lengths.device
    if window is None or 2 * (window + new) > longest:
        slot = torch.arange(longest, device=device).unsqueeze(0)
        return k_cache[:, :, :longest], v_cache[:, :, :longest], slot
    batch, num_kv_heads, slots, dim = k_cache.shape
    slot = first - (window - 1) + torch.arange(window - 1 + new, device=device)
    inside = slot.clamp(min=0).minimum((lengths - 1).clamp(min=0).unsqueeze(1))
    row = torch.arange(batch * num_kv_heads, device=device).view(batch, num_kv_heads, 1) * slots
    index = (row + inside.unsqueeze(1)).flatten()
    shape = (batch, num_kv_heads, window - 1 + new, dim)
    return (
        k_cache.reshape(-1, dim).index_select(0, index).view(shape),
        v_cache.reshape(-1, dim).index_select(0, index).view(shape),
        slot,
    )


def _softmax(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    sinks: torch.Tensor | None,
    hidden: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Attention of q [batch, num_q_heads, new, dim] over keys hidden where `hidden` [batch, new, keys] says so."""
    batch, heads, new, dim = q.shape
    num_kv_heads, count = keys.shape[1], keys.shape[2]
    exact = torch.float64 if q.dtype == torch.float64 else torch.float32
    repeat = heads // num_kv_heads
    grouped = q.to(exact).reshape(batch * num_kv_heads, repeat * new, dim) * scale
    flat_keys = keys.to(exact).flatten(0, 1)
    flat_values = values.to(exact).flatten(0, 1)
    scores = torch.bmm(grouped, flat_keys.transpose(1, 2)).view(batch, heads, new, count)
    columns = scores.new_empty(batch, heads, new, count + 1)
    torch.where(hidden.unsqueeze(1), -torch.inf, scores, out=columns[..., :count])
    columns[..., count] = -torch.inf if sinks is None else sinks.to(exact)[:, None]
    weights = torch.softmax(columns, dim=-1)[..., :count]
    out = torch.bmm(weights.reshape(batch * num_kv_heads, repeat * new, count), flat_values)
    return out.view(batch, heads, new, dim).to(q.dtype)
