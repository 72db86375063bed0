"""Sink attention: one meaning, several implementations.

    L_i  = log(exp(a_h) + sum_j exp(s_ij))     O_i = sum_j exp(s_ij - L_i) v_j     s_ij = scale * <q_i, k_j>

over the keys j that row i sees (layout.py says which), with one sink logit a_h per query head that has no value. A
window W means W tokens including self. A row that sees nothing has O = 0 and L = a_h. Three entries:

  sink_attention    packed rows [tokens, heads, head_dim] and a Layout; differentiable
  padded_attention  [batch, heads, tokens, head_dim], as transformers' AttentionInterface has it
  decode_attention  a few new tokens per row over a dense key/value cache; no gradient

Implementations: `eager` (the specification, O(T^2) per tree, every mask); `flash`, `flex` and `triton`, whose memory is
linear (docs/kernels.md); choice.py says what each can honour. What an implementation cannot honour is refused with the
name of one that can; none drops sinks. A key or value that is not finite reaches exactly the rows that see it. Errors:
ValueError naming the argument, its value and what is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, overload

import torch

from . import cascade, decode
from . import linear as products
from .cascade import Part
from .choice import DTYPES, IMPLS, Choice, Request, choose, load, resolve
from .layout import Layout, Segment
from .log_prob import LogProb, linear_log_prob


@overload
def sink_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor | None = None,
    *,
    layout: Layout,
    window: int | None = None,
    scale: float | None = None,
    impl: str = "auto",
    return_lse: Literal[False] = False,
) -> torch.Tensor: ...


@overload
def sink_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor | None = None,
    *,
    layout: Layout,
    window: int | None = None,
    scale: float | None = None,
    impl: str = "auto",
    return_lse: Literal[True],
) -> tuple[torch.Tensor, torch.Tensor]: ...


def sink_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor | None = None,
    *,
    layout: Layout,
    window: int | None = None,
    scale: float | None = None,
    impl: str = "auto",
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention over packed rows, differentiable in q, k, v and sinks.

    q [num_queries, num_q_heads, head_dim]; k, v [num_keys, num_kv_heads, head_dim]; sinks [num_q_heads] or None; window
    in tokens including self, None for no window; scale None means head_dim ** -0.5. Returns out (shape and dtype of q),
    with return_lse also the log-sum-exp [num_queries, num_q_heads] (natural base, sink included, float32 or float64),
    whose gradient is honoured.
    """
    _check_tensors(q, k, v, sinks, ("tokens", "heads", "head_dim"), heads_at=1)
    _check_window(window)
    for name, tensor, rows, of in (("q", q, layout.num_queries, "num_queries"), ("k", k, layout.num_keys, "num_keys")):
        if tensor.shape[0] != rows:
            raise ValueError(f"{name} has {tensor.shape[0]} rows; layout.{of} is {rows}")
    attend = load(resolve(impl, Request(q.device, q.dtype, q.shape[-1], layout.has_parents)))
    used_scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
    out, lse = attend(q, k, v, sinks, layout, window, used_scale)
    if not math.isfinite(float(out.detach().sum())):
        poisoned = ~(torch.isfinite(k).all(-1) & torch.isfinite(v).all(-1)).unsqueeze(-1)
        if bool(poisoned.any()):
            # 0 * NaN is NaN, so masked products leak. Zero the bad rows, then mark the rows that do see one: with all
            # scores equal no weight underflows, and the output is positive exactly there.
            clean = (k.masked_fill(poisoned, 0.0), v.masked_fill(poisoned, 0.0))
            out, lse = attend(q, *clean, sinks, layout, window, used_scale)
            with torch.no_grad():
                marks = poisoned.to(q.dtype).expand_as(v).contiguous()
                seen = attend(torch.zeros_like(q), torch.zeros_like(k), marks, None, layout, window, 1.0)[0] > 0
            out, lse = out.masked_fill(seen, torch.nan), lse.masked_fill(seen[..., 0], torch.nan)
    return (out, lse) if return_lse else out


def padded_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    sinks: torch.Tensor | None = None,
    *,
    layout: Layout | None = None,
    lengths: Sequence[int] | torch.Tensor | None = None,
    key_lengths: Sequence[int] | torch.Tensor | None = None,
    window: int | None = None,
    scale: float | None = None,
    impl: str = "auto",
) -> torch.Tensor:
    """Causal attention of right-padded rows, in and out as transformers' AttentionInterface has it.

    query [batch, num_q_heads, tokens, head_dim]; key, value [batch, num_kv_heads, keys, head_dim]. Row b has lengths[b]
    queries (default: all) at the end of key_lengths[b] keys (default: lengths, or all keys where there are more of them
    than queries). Returns [batch, tokens, num_q_heads, head_dim]; padding rows are 0.

    With `layout` the rows, flattened batch by batch, are described by it, and lengths must not be given: a packed batch
    is [1, heads, all tokens, head_dim] with Layout.from_lengths. Build the layout once and pass it to every layer.
    """
    _check_tensors(query, key, value, sinks, ("batch", "heads", "tokens", "head_dim"), heads_at=1)
    batch, heads, tokens, dim = query.shape
    if key.shape[0] != batch:
        raise ValueError(f"key has {key.shape[0]} rows; query has {batch}")
    if layout is None:
        width = key.shape[2]
        q_lengths = [tokens] * batch if lengths is None else [int(x) for x in lengths]
        if key_lengths is not None:
            k_lengths = [int(x) for x in key_lengths]
        else:
            k_lengths = q_lengths if width == tokens else [width] * batch
        layout = Layout.padded(q_lengths, tokens, key_lengths=k_lengths, key_width=width)
    elif lengths is not None or key_lengths is not None:
        raise ValueError("lengths or key_lengths is given together with layout; the layout holds them already")
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))
    out = sink_attention(q, k, v, sinks, layout=layout, window=window, scale=scale, impl=impl)
    return out.view(batch, tokens, heads, dim)


def decode_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    sinks: torch.Tensor | None = None,
    *,
    lengths: torch.Tensor,
    query_lengths: torch.Tensor | None = None,
    window: int | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """Attention of new tokens over a dense cache that already holds their keys; no gradient.

    q [batch, num_q_heads, new, head_dim]; caches [batch, num_kv_heads, slots, head_dim], of which row b uses the first
    lengths[b] slots, new tokens included, and the rest may hold anything. lengths int64 [batch]. Query c of row b sits
    at position lengths[b] - new + c, or, when rows have query_lengths[b] <= new tokens (right-padded), at lengths[b] -
    query_lengths[b] + c; padding queries give 0. Returns [batch, num_q_heads, new, head_dim] in q's dtype. Work grows
    with the longest row, and with the window where that is shorter.
    """
    _check_tensors(q, k_cache, v_cache, sinks, ("batch", "heads", "new", "head_dim"), heads_at=1)
    _check_window(window)
    for name, given in (("lengths", lengths), ("query_lengths", query_lengths)):
        if given is not None and given.shape != (q.shape[0],):
            raise ValueError(f"{name} has shape {tuple(given.shape)}; it needs one entry per row, ({q.shape[0]},)")
    if k_cache.shape[0] != q.shape[0]:
        raise ValueError(f"k_cache has {k_cache.shape[0]} rows; q has {q.shape[0]}")
    for name, given, limit, of in (
        ("lengths", lengths, k_cache.shape[2], "the slots of the cache"),
        ("query_lengths", query_lengths, q.shape[2], "the new tokens"),
    ):
        if given is not None and given.numel():
            least, most = (int(x) for x in torch.aminmax(given))
            if least < 0 or most > limit:
                raise ValueError(f"{name} goes from {least} to {most}; allowed are 0 to {limit}, {of}")
    with torch.no_grad():
        used_scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
        return decode.attend(q, k_cache, v_cache, sinks, lengths, query_lengths, window, used_scale)


def cascade_attention(
    q: torch.Tensor, parts: Sequence[Part], sinks: torch.Tensor | None = None, *, scale: float | None = None
) -> torch.Tensor:
    """Attention of packed new tokens over keys in several places, such as a beginning that all rows share, stored once,
    and each row's own cache; no gradient.

    q [tokens, num_q_heads, head_dim]; `Part` says which queries look at which caches, and what a bias hides. Every
    query sees a key in some part. Returns q's shape and dtype.
    """
    tokens, heads, dim = q.shape
    for i, part in enumerate(parts):
        groups, num_kv_heads, count, _ = part.keys.shape
        if part.keys.dtype != q.dtype or part.values.shape != part.keys.shape or part.keys.shape[3] != dim:
            raise ValueError(
                f"parts[{i}] has keys {tuple(part.keys.shape)} of {part.keys.dtype}; they must match q's "
                f"head_dim {dim} and {q.dtype}, and the shape of its values, {tuple(part.values.shape)}"
            )
        if num_kv_heads == 0 or heads % num_kv_heads:
            raise ValueError(f"q has {heads} heads; that must be a multiple of parts[{i}]'s {num_kv_heads}")
        picked = (
            tokens
            if part.queries is None
            else len(range(tokens)[part.queries])
            if isinstance(part.queries, slice)
            else len(part.queries)
        )
        if groups == 0 or picked % groups:
            raise ValueError(f"parts[{i}] has {picked} queries; that must be a multiple of its {groups} caches")
        if part.bias is not None and part.bias.shape != (groups, picked // groups, count):
            raise ValueError(
                f"parts[{i}].bias has shape {tuple(part.bias.shape)}; it needs "
                f"[caches, queries of a cache, slots], {(groups, picked // groups, count)}"
            )
    with torch.no_grad():
        return cascade.attend(q, parts, sinks, dim**-0.5 if scale is None else float(scale))


linear, linear_available, pack_linear = products.linear, products.available, products.pack


def _check_window(window: int | None) -> None:
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
        raise ValueError(f"window is {window!r}; allowed are None and whole numbers from 1 on (1 sees only itself)")


def _check_tensors(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor | None,
    axes: tuple[str, ...],
    heads_at: int,
) -> None:
    """Shapes, dtypes and devices that every entry asks for."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() != len(axes):
            raise ValueError(f"{name} has shape {tuple(x.shape)}; it needs [{', '.join(axes)}]")
        if x.dtype not in DTYPES:
            raise ValueError(f"{name} is {x.dtype}; allowed are {', '.join(str(d) for d in DTYPES)}")
        if x.dtype != q.dtype or x.device != q.device:
            raise ValueError(f"{name} is {x.dtype} on {x.device}; it must match q, {q.dtype} on {q.device}")
    if v.shape != k.shape:
        raise ValueError(f"v has shape {tuple(v.shape)}; it must match k, {tuple(k.shape)}")
    if k.shape[-1] != q.shape[-1]:
        raise ValueError(f"k has head_dim {k.shape[-1]}; q has {q.shape[-1]}")
    num_q_heads, num_kv_heads = q.shape[heads_at], k.shape[heads_at]
    if num_kv_heads == 0 or num_q_heads % num_kv_heads:
        raise ValueError(f"q has {num_q_heads} heads; that must be a multiple of k's {num_kv_heads}")
    if sinks is None:
        return
    if sinks.shape != (num_q_heads,):
        raise ValueError(f"sinks has shape {tuple(sinks.shape)}; it needs one logit per query head, ({num_q_heads},)")
    if not sinks.is_floating_point() or sinks.device != q.device:
        raise ValueError(
            f"sinks is {sinks.dtype} on {sinks.device}; it must be floating point on q's device, {q.device}"
        )


__all__ = [
    "IMPLS",
    "Choice",
    "Layout",
    "LogProb",
    "Part",
    "Request",
    "Segment",
    "cascade_attention",
    "choose",
    "decode_attention",
    "linear",
    "linear_available",
    "linear_log_prob",
    "pack_linear",
    "padded_attention",
    "resolve",
    "sink_attention",
]
