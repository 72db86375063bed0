"""Errors of an attention: against another run of the same problem, or against the formula at lengths where T x T is
too much.

An error is the root mean square of the difference over that of the truth, per head, and of the heads the worst; da,
one number a head, is relative to ||p * delta||_2 (p the sink's share of a row, delta = <d_out, out>). NaN is infinite.

At length: `out` and `dq` of sampled rows, all heads, straight from the definition in float64. `dk` and `dv` of sampled
keys and `da`, of one key head and its query heads: their sums run over all rows, so lse and delta of every row are
streamed, blocks of rows against all keys, in float64 (float32 from 2^32 scores on). Nothing of the implementation's own
enters. Memory: BLOCK scores at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

NAMES = ("out", "dq", "dk", "dv", "da")
ROWS, KEYS = 64, 16
BLOCK = 1 << 23
_FLOAT64_SCORES = 1 << 32


class Problem(NamedTuple):
    """q, d_out [T, num_q_heads, head_dim]; k, v [T, num_kv_heads, head_dim]; sinks [num_q_heads]. The scale is
    head_dim ** -0.5."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    sinks: torch.Tensor
    d_out: torch.Tensor
    window: int | None

    @property
    def leaves(self) -> tuple[torch.Tensor, ...]:
        return self.q, self.k, self.v, self.sinks

    def to(self, dtype: torch.dtype) -> Problem:
        """The same numbers in a wider dtype, leaves again."""
        q, k, v, sinks = (x.detach().to(dtype).requires_grad_() for x in self.leaves)
        return Problem(q, k, v, sinks, self.d_out.to(dtype), self.window)


def compare(problem: Problem, got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> dict[str, float]:
    """`got` and `want` are (out, dq, dk, dv, da) of the whole problem; `want` in float64."""
    errors = {name: _worst(a, b, head=1) for name, a, b in zip(NAMES[:4], got, want, strict=False)}
    lse, delta = _streamed(problem, slice(None), torch.float64)
    return errors | {"da": _da_error(got[4], want[4], problem.sinks, lse, delta)}


def errors_at_length(problem: Problem, got: Sequence[torch.Tensor], seed: int) -> dict[str, float]:
    """`got` is (out, dq, dk, dv, da) at the problem's own length."""
    out, dq, dk, dv, da = (x.detach() for x in got)
    tokens, group = problem.q.shape[0], problem.q.shape[1] // problem.k.shape[1]
    random = torch.Generator().manual_seed(seed)
    rows, keys = (_sampled(tokens, count, random).to(out.device) for count in (ROWS, KEYS))
    errors = {}
    pieces = (_rows_exact(problem, some) for some in torch.split(rows, 8))
    want = [torch.cat(parts) for parts in zip(*pieces, strict=True)]
    errors["out"], errors["dq"] = (_worst(x[rows], y, head=1) for x, y in zip((out, dq), want, strict=True))

    kv_head = int(torch.randint(problem.k.shape[1], (), generator=random))
    heads = slice(kv_head * group, (kv_head + 1) * group)
    exact = torch.float64 if tokens * tokens * group <= _FLOAT64_SCORES else torch.float32
    lse, delta = _streamed(problem, heads, exact)
    true_dk, true_dv = _keys_exact(problem, kv_head, heads, keys, lse, delta)
    errors["dk"], errors["dv"] = _worst(dk[keys, kv_head], true_dk), _worst(dv[keys, kv_head], true_dv)
    share = torch.exp(problem.sinks.detach()[heads].to(exact) - lse)
    errors["da"] = _da_error(da[heads], -(share * delta).sum(0), problem.sinks[heads], lse, delta)
    return errors


def _sampled(tokens: int, count: int, random: torch.Generator) -> torch.Tensor:
    """Both ends, places around the edges of blocks, and random ones between."""
    edges = [x for x in (0, 63, 64, 127, 128, tokens // 2, tokens - 1) if x < tokens]
    drawn = torch.randint(tokens, (max(count - len(edges), 0),), generator=random)
    places: torch.Tensor = torch.unique(torch.cat([torch.tensor(edges), drawn]))
    return places


def _hidden(rows: torch.Tensor, keys: torch.Tensor, window: int | None) -> torch.Tensor:
    """Boolean [rows, keys]: true where a row does not see a key."""
    back = rows[:, None] - keys
    return (back < 0) if window is None else (back < 0) | (back >= window)


def _rows_exact(problem: Problem, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, dq) of these rows, float64 [rows, num_q_heads, head_dim]."""
    q, k, v, sinks = (x.detach() for x in problem.leaves)
    tokens, heads, dim = q.shape
    first = 0 if problem.window is None else max(int(rows.min()) - problem.window + 1, 0)
    k, v = k[first:].double(), v[first:].double()
    shape = (len(rows), k.shape[1], heads // k.shape[1], dim)
    q_R, d_R = q[rows].double().view(shape), problem.d_out[rows].double().view(shape)
    scores = torch.einsum("rkgd,tkd->kgrt", q_R, k) * dim**-0.5
    scores.masked_fill_(_hidden(rows, torch.arange(first, tokens, device=q.device), problem.window), -torch.inf)
    lse = torch.logaddexp(scores.logsumexp(-1), sinks.double().view(shape[1], shape[2], 1))
    weights = (scores - lse.unsqueeze(-1)).exp()
    out = torch.einsum("kgrt,tkd->rkgd", weights, v)
    delta = (d_R * out).sum(-1).permute(1, 2, 0)
    d_scores = weights * (torch.einsum("rkgd,tkd->kgrt", d_R, v) - delta.unsqueeze(-1))
    dq = torch.einsum("kgrt,tkd->rkgd", d_scores, k) * dim**-0.5
    return out.flatten(1, 2), dq.flatten(1, 2)


def _blocks(tokens: int, heads: int, window: int | None) -> Iterator[tuple[int, int]]:
    """Ranges of rows. With a window a block is no longer than it, so that it meets at most twice that many keys."""
    reach = tokens if window is None else max(window, 64)
    step = max(16, min(BLOCK // (heads * min(2 * reach, tokens)), reach))
    for begin in range(0, tokens, step):
        yield begin, min(begin + step, tokens)


def _streamed(problem: Problem, heads: slice, exact: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """(lse, delta) of every row, [T, heads], for the query heads of a slice that covers whole groups."""
    q, k, v, sinks = (x.detach() for x in problem.leaves)
    tokens, num_q_heads, dim = q.shape
    group = num_q_heads // k.shape[1]
    begin, end, _ = heads.indices(num_q_heads)
    kv = slice(begin // group, end // group)
    lse = q.new_empty(tokens, end - begin, dtype=exact)
    delta = torch.empty_like(lse)
    column = sinks[heads].to(exact)
    for first, last in _blocks(tokens, end - begin, problem.window):
        low = 0 if problem.window is None else max(first - problem.window + 1, 0)
        rows, keys = torch.arange(first, last, device=q.device), torch.arange(low, last, device=q.device)
        shape = (last - first, kv.stop - kv.start, group, dim)
        q_B, d_B = q[first:last, heads].to(exact).view(shape), problem.d_out[first:last, heads].to(exact).view(shape)
        scores = torch.einsum("rkgd,tkd->kgrt", q_B, k[low:last, kv].to(exact)).mul_(dim**-0.5)
        scores.masked_fill_(_hidden(rows, keys, problem.window), -torch.inf)
        lse_B = torch.logaddexp(scores.logsumexp(-1), column.view(shape[1], group, 1))
        weights = scores.sub_(lse_B.unsqueeze(-1)).exp_()
        weights.mul_(torch.einsum("rkgd,tkd->kgrt", d_B, v[low:last, kv].to(exact)))
        lse[first:last] = lse_B.flatten(0, 1).T
        delta[first:last] = weights.sum(-1).flatten(0, 1).T
    return lse, delta


def _keys_exact(
    problem: Problem, kv_head: int, heads: slice, keys: torch.Tensor, lse: torch.Tensor, delta: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dk, dv) of these keys of one key head, [keys, head_dim], given lse and delta [T, heads] of its query heads."""
    q, d_out = problem.q.detach()[:, heads].to(lse.dtype), problem.d_out[:, heads].to(lse.dtype)
    k, v = (x.detach()[keys, kv_head].to(lse.dtype) for x in (problem.k, problem.v))
    scale = q.shape[-1] ** -0.5
    scores = torch.einsum("tgd,nd->tgn", q, k) * scale
    hidden = _hidden(torch.arange(q.shape[0], device=q.device), keys, problem.window)
    scores.masked_fill_(hidden.unsqueeze(1), -torch.inf)
    weights = (scores - lse.unsqueeze(-1)).exp()
    d_scores = weights * (torch.einsum("tgd,nd->tgn", d_out, v) - delta.unsqueeze(-1))
    return torch.einsum("tgn,tgd->nd", d_scores, q) * scale, torch.einsum("tgn,tgd->nd", weights, d_out)


def _worst(got: torch.Tensor, want: torch.Tensor, head: int | None = None) -> float:
    """Root mean square of the difference over that of the truth; with `head` per index of that axis, the worst."""
    over = [axis for axis in range(want.dim()) if axis != head]
    got, want = got.detach(), want.detach()
    difference = (got.to(want.dtype) - want).square().sum(over).sqrt()
    size = want.square().sum(over).sqrt()
    # Without any truth to be relative to (a first row's dq is 0), the difference itself.
    error = float((difference / torch.where(size > 0, size, 1.0)).max())
    return error if error == error else float("inf")


def _da_error(
    got: torch.Tensor, want: torch.Tensor, sinks: torch.Tensor, lse: torch.Tensor, delta: torch.Tensor
) -> float:
    size = (torch.exp(sinks.detach().to(lse.dtype) - lse) * delta).square().sum(0).sqrt()
    error = float(((got.detach().to(lse.dtype) - want.detach()).abs() / torch.where(size > 0, size, 1.0)).max())
    return error if error == error else float("inf")
