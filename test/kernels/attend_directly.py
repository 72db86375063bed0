"""Runs the `attend` of a GPU implementation whose operator a test has replaced; and random layouts for it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import strategies as st
from parity import NAMES, Problem
from sinkflex.kernels.api import Layout, Segment

Attend = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def run_attend(
    attend: Attend, given: Problem, window: int | None = None, scale: float | None = None
) -> dict[str, torch.Tensor]:
    """As parity.run, without the refusals of choice.py."""
    leaves = [x.detach().clone().requires_grad_() for x in (given.q, given.k, given.v, given.sinks) if x is not None]
    q, k, v, sinks = leaves if len(leaves) == 4 else (*leaves, None)
    out, lse = attend(q, k, v, sinks, given.layout, window, q.shape[-1] ** -0.5 if scale is None else scale)
    lse = torch.where(lse == -torch.inf, 0.0, lse)
    ends, pulls = [out], [given.d_out]
    if given.d_lse is not None:
        ends.append(lse)
        pulls.append(given.d_lse)
    gradients = torch.autograd.grad(ends, leaves, pulls)
    return dict(zip(NAMES, (out.detach(), lse.detach(), *gradients), strict=False))


@st.composite
def layouts(draw: st.DrawFn, longest: int = 60, most: int = 6) -> Layout:
    """Segments of any kind: roots with fewer or more queries than keys, children at any depth, padding between."""
    segments: list[Segment] = []
    q_end = k_end = 0
    for index in range(draw(st.integers(0, most))):
        parent = draw(st.integers(-1, index - 1))
        keys = draw(st.integers(0, longest))
        queries = keys
        if draw(st.booleans()):
            queries = draw(st.integers(0, keys if parent != -1 else keys + 5))
        first = draw(st.integers(0, 3))
        if parent != -1:
            first = segments[parent].first_position + segments[parent].k_len
        q_end, k_end = q_end + draw(st.sampled_from((0, 0, 2))), k_end + draw(st.sampled_from((0, 0, 3)))
        segments.append(Segment(q_end, queries, k_end, keys, first, parent))
        q_end, k_end = q_end + queries, k_end + keys
    return Layout(tuple(segments), q_end + draw(st.sampled_from((0, 1))), k_end + draw(st.sampled_from((0, 2))))
