"""Element offsets past 2^31 (public case B63): 32-bit addressing wraps there, silently at first.

`strided`: 1024 tokens as views of one buffer, 2.1e6 elements from row to row, against contiguous copies. `long`:
528 000 tokens of 64 heads with a window of 128, whose last rows lie past 2^31 elements, against the last rows alone. On
a CPU both are small and only the program is tested.
"""

from __future__ import annotations

from typing import Any

import torch
from sinkflex.kernels.api import Layout

from .parity import LIMITS, Problem, Tensors, errors, refused, run

BYTES_NEEDED = {"strided": 6 << 30, "long": 45 << 30}


def check(case: dict[str, Any]) -> dict[str, Any]:
    device, form = case["device"], case["form"]
    if device == "cuda":
        free, _ = torch.cuda.mem_get_info()
        if free < BYTES_NEEDED[form]:
            needed = BYTES_NEEDED[form] / 2**30
            return {"status": "skipped", "reason": f"needs {needed:.0f} GiB of GPU memory; {free / 2**30:.0f} are free"}
    dtype = getattr(torch, case["dtype"])
    try:
        got, exact, terms = (strided if form == "strided" else long)(device, dtype, case["impl"])
    except ValueError as error:
        return refused(case["impl"], error)
    found = errors(got, exact, terms)
    limits = LIMITS[dtype]
    over = [f"{name} {found[name]:.1e} > {limits[name]:.1e}" for name in found if not found[name] <= limits[name]]
    result: dict[str, Any] = {"status": "failed" if over else "passed", "error": found, "limit": limits}
    return {**result, "reason": "; ".join(over)} if over else result


def strided(device: str, dtype: torch.dtype, impl: str) -> tuple[Tensors, Tensors, Problem]:
    """Results on views with far-apart rows, in float64 on contiguous copies, and the contiguous problem."""
    tokens, stride, heads, dim = (17, 4096, 4, 16) if device == "cpu" else (1024, 2_100_000, 16, 64)
    buffer = torch.empty((tokens - 1) * stride + 4 * heads * dim, dtype=dtype, device=device)

    def view(at: int) -> torch.Tensor:
        rows = buffer.as_strided((tokens, heads, dim), (stride, dim, 1), at * heads * dim)
        return rows.copy_(torch.randn(tokens, heads, dim, generator=random).to(device, dtype))

    random = torch.Generator().manual_seed(0)
    q, k, v, d_out = (view(at) for at in range(4))
    sinks = torch.linspace(-5.0, 5.0, heads, device=device)
    given = Problem(q, k, v, sinks, d_out, torch.randn(tokens, heads, device=device), Layout.single(tokens))
    plain = Problem(*(x.contiguous() for x in given[:-1]), given.layout)
    return run(given, impl, None), run(plain.double(), "eager", None), plain


def long(device: str, dtype: torch.dtype, impl: str) -> tuple[Tensors, Tensors, Problem]:
    """The last rows of a very long sequence, and of those rows alone in float64; no da, which sums over all rows."""
    tokens, rows, window, heads, kv_heads, dim = (
        (90, 20, 7, 4, 2, 16) if device == "cpu" else (528_000, 512, 128, 64, 8, 64)
    )
    assert device == "cpu" or tokens * heads * dim > 2**31
    random = torch.Generator(device).manual_seed(0)
    q, k, v, d_out = (
        torch.randn(tokens, count, dim, generator=random, dtype=dtype, device=device)
        for count in (heads, kv_heads, kv_heads, heads)
    )
    sinks = torch.linspace(-5.0, 5.0, heads, device=device)
    d_lse = torch.zeros(tokens, heads, device=device)
    got = run(Problem(q, k, v, sinks, d_out, d_lse, Layout.single(tokens)), impl, window)
    keys = rows + window - 1
    end = Problem(q[-rows:], k[-keys:], v[-keys:], sinks, d_out[-rows:], d_lse[-rows:], Layout.single(rows, keys))
    exact = run(end.double(), "eager", window)
    names = ("out", "lse", "dq", "dk", "dv")  # of keys, the last `rows`: all their queries are among the last rows
    return {name: got[name][-rows:] for name in names}, {name: exact[name][-rows:] for name in names}, end
