"""The matrix of parity cases: impl x dtype x layout x window x head_dim, in full or on tiny shapes.

On a GPU every combination is a case. On a CPU the shapes are tiny, and the interpreter's cases are thinned so that
every value of every axis still occurs: that tests this program, not the kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from sinkflex.kernels.layout import Layout, Segment

from .crew import Job

LAYOUTS = ("single", "varlen", "fewer queries", "shared prefix", "tree", "padding and blind rows")
WINDOWS = (None, 1, 128)
HEAD_DIMS = (64, 128, 16, 24, 32, 80, 96)  # the one of gpt-oss first; 32 for its entry in triton's launch table
DTYPES = ("bfloat16", "float16", "float32")
IMPLS = ("triton", "flex", "flash")
TINY_WINDOW = 7  # instead of 128, so that it hides something


def layout(name: str, tiny: bool) -> Layout:
    """Lengths around the blocks of the kernels, none a multiple of all of them; only the first is one of 16.

    Full layouts have 897 to 1024 rows of queries and of keys: flex pads both to 1024, and compiles once for all of
    them. Tiny ones have at most 40.
    """
    if name == "single":
        return Layout.single(33 if tiny else 1008)
    if name == "varlen":
        return Layout.from_lengths([1, 2, 0, 17, 16] if tiny else [1, 2, 63, 0, 96, 127, 128, 129, 130, 255])
    if name == "fewer queries":
        pairs = ((5, 20), (1, 17)) if tiny else ((300, 310), (1, 100), (255, 256), (341, 351))
        segments, q_end, k_end = [], 0, 0
        for queries, keys in pairs:
            segments.append(Segment(q_end, queries, k_end, keys))
            q_end, k_end = q_end + queries, k_end + keys
        return Layout(tuple(segments), q_end, k_end)
    if name == "shared prefix":
        lengths = [17, 5, 9, 1] if tiny else [350, 170, 63, 229, 1, 130]
        return Layout.from_lengths(lengths, parents=[-1] + [0] * (len(lengths) - 1))
    if name == "tree":
        lengths = [9, 6, 3, 1, 7, 11] if tiny else [200, 165, 140, 133, 130, 228]
        return Layout.from_lengths(lengths, parents=[-1, 0, 1, 1, 0, -1])
    if name == "padding and blind rows":  # more queries than keys: the first ones see nothing
        if tiny:
            return Layout((Segment(2, 9, 0, 4), Segment(14, 6, 6, 6)), 24, 14)
        return Layout((Segment(3, 440, 0, 400), Segment(450, 329, 410, 329), Segment(790, 5, 800, 170)), 1000, 1000)
    raise ValueError(f"layout is {name!r}; allowed are {', '.join(LAYOUTS)}")


def parity_jobs(device: str) -> list[Job]:
    """All cases, a job per impl, dtype and head_dim: what is compiled for one case of a job serves the others."""
    tiny = device == "cpu"
    jobs = []
    for dtype, head_dim, impl in product(DTYPES, HEAD_DIMS, IMPLS):
        if head_dim == 32 and impl != "triton":
            continue  # nothing of theirs depends on it
        cases = [
            {"impl": impl, "dtype": dtype, "head_dim": head_dim, "layout": name, "window": window, "device": device}
            for name, window in product(LAYOUTS, (TINY_WINDOW if tiny and w == 128 else w for w in WINDOWS))
        ]
        jobs.append(Job("parity", cases))
    return list(_thinned(jobs)) if tiny else jobs


def _thinned(jobs: list[Job]) -> Iterator[Job]:
    """Of the interpreter's cases one per job, each job another; the other impls keep theirs."""
    turn = 0
    for job in jobs:
        if job.cases[0]["impl"] != "triton" or job.cases[0]["dtype"] == "bfloat16":
            yield job
            continue
        yield Job(job.kind, [job.cases[turn % len(job.cases)]])
        turn += 7


def label(case: dict[str, Any]) -> str:
    return " ".join(f"{key} {value}" for key, value in case.items() if key != "device")
