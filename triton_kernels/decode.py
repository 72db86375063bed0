"""Attention of a few new tokens over a dense key/value cache, many rows at once, without gradient.

Shapes: q [batch, num_q_heads, new, head_dim]; caches [batch, num_kv_heads, slots, head_dim]. The query heads that share
a key head are rows of one product, so keys and values are neither repeated nor, without a window, copied. A window that
is short against the cache gathers only the keys in reach. Scores are in base 2, as in flash.py, with the sink as one
more term of the denominator.
"""

from __future__ import annotations

import torch

LOG2E = 1.4426950408889634
PIECE = 1 << 24  # scores computed at once: a longer chunk of new tokens is cut, so that memory stays bounded


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
    """Output [batch, num_q_heads, new, head_dim] in q's dtype.

    Query c of row b sits at lengths[b] - query_lengths[b] + c (query_lengths None: new in every row). Queries from
    query_lengths[b] on, and those before position 0, give 0.
    """
    batch, heads, new, _ = q.shape
    longest = int(lengths.max()) if batch else 0
    if longest == 0 or new == 0:
        return torch.zeros_like(q)
    at = torch.arange(new, device=q.device)
    position = (lengths - (new if query_lengths is None else query_lengths)).unsqueeze(1) + at
    blind = position < 0
    if query_lengths is not None:
        blind |= at >= query_lengths.unsqueeze(1)
    keys, values, slot = _in_reach(k_cache, v_cache, lengths, position, longest, window)
    behind = position.unsqueeze(2) - slot.unsqueeze(1)  # [batch, new, keys]
    hidden = behind < 0
    if window is not None:
        hidden |= behind >= window
        hidden |= slot.unsqueeze(1) < 0
    some_blind = bool(blind.any())
    piece = max(1, PIECE // (batch * heads * keys.shape[2]))
    parts = []
    for start in range(0, new, piece):
        rows = slice(start, start + piece)
        out = _weigh(q[:, :, rows], keys, values, sinks, hidden[:, rows], scale)
        if some_blind:
            out = out.masked_fill(blind[:, None, rows, None], 0.0)
        if not bool(torch.isfinite(out).all()):
            # Unused slots may hold anything, and 0 * NaN is NaN: once more with the slots that nobody sees at zero.
            seen = ~(hidden[:, rows] | blind[:, rows, None])
            unseen = ~seen.any(1)[:, None, :, None]
            clean = (keys.masked_fill(unseen, 0.0), values.masked_fill(unseen, 0.0))
            out = _weigh(q[:, :, rows], *clean, sinks, hidden[:, rows], scale)
            out = out.masked_fill(blind[:, None, rows, None], 0.0)
        parts.append(out)
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def _in_reach(
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    lengths: torch.Tensor,
    position: torch.Tensor,
    longest: int,
    window: int | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Keys and values [batch, num_kv_heads, keys, dim] that the queries can reach, and their slots [batch or 1, keys];
    below 0 stands for a slot before the row's first."""
    count = longest if window is None else window - 1 + position.shape[1]
    if 2 * count > longest:  # a gathered key costs about as much as two in place
        slot = torch.arange(longest, device=lengths.device).unsqueeze(0)
        return k_cache[:, :, :longest], v_cache[:, :, :longest], slot
    batch, num_kv_heads, _, dim = k_cache.shape
    slot = position[:, -1:] + torch.arange(1 - count, 1, device=lengths.device)
    inside = slot.clamp(min=0).minimum((lengths - 1).clamp(min=0).unsqueeze(1)).unsqueeze(1)
    shape = (batch, num_kv_heads, count, dim)
    gathered = []
    for cache in (k_cache, v_cache):
        rows, by_row, by_head = _rows_of(cache)
        start = torch.arange(batch, device=lengths.device).view(-1, 1, 1) * by_row
        start = start + torch.arange(num_kv_heads, device=lengths.device).view(1, -1, 1) * by_head
        gathered.append(rows.index_select(0, (start + inside).flatten()).view(shape))
    return gathered[0], gathered[1], slot


def _rows_of(cache: torch.Tensor) -> tuple[torch.Tensor, int, int]:
    """A cache as a list of key vectors without copying it, with the steps from one batch row and one head to the next.

    Callers pass slices of a larger buffer, which a plain reshape would copy for a handful of keys.
    """
    batch, heads, slots, dim = cache.shape
    by_row, by_head, by_slot, by_element = cache.stride()
    if by_element != 1 or by_slot != dim or by_row % dim or by_head % dim:
        return cache.reshape(-1, dim), heads * slots, slots
    by_row, by_head = by_row // dim, by_head // dim
    count = (batch - 1) * by_row + (heads - 1) * by_head + slots
    return cache.as_strided((count, dim), (dim, 1)), by_row, by_head


def _weigh(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    sinks: torch.Tensor | None,
    hidden: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Attention of q [batch, num_q_heads, new, dim] over the keys not hidden by `hidden` [batch, new, keys]."""
    batch, heads, new, dim = q.shape
    num_kv_heads, count = keys.shape[1], keys.shape[2]
    exact = torch.float64 if q.dtype == torch.float64 else torch.float32
    grouped = (q.to(exact) * (scale * LOG2E)).reshape(batch * num_kv_heads, -1, dim)
    products = torch.bmm(grouped, keys.to(exact).flatten(0, 1).transpose(1, 2))
    scores = products.view(batch, heads, new, count)
    scores.add_(torch.zeros(hidden.shape, dtype=exact, device=q.device).masked_fill_(hidden, -torch.inf).unsqueeze(1))
    top = scores.amax(-1, keepdim=True)
    sink = None if sinks is None else (sinks.to(exact) * LOG2E)[:, None, None]
    top = top if sink is None else torch.maximum(top, sink)
    total = scores.sub_(top).exp2_().sum(-1, keepdim=True)
    if sink is not None:
        total += torch.exp2(sink - top)
    out = torch.bmm(products, values.to(exact).flatten(0, 1)).view(batch, heads, new, dim)
    return out.div_(total).to(q.dtype)
