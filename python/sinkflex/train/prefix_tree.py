"""Sequences of token ids as a tree of shared beginnings: what several of them start with is one piece, computed once.

Idea: sorted by their ids, sequences that begin alike are neighbours, and what each has in common with the one before it
(`shared`) says everything about the tree. A stretch of the sorted order is a subtree, so a micro-batch is a stretch.

Where sequences part, the tree is cut only if that pays: a piece costs an attention problem of its own, and every piece
below it one more to merge. A beginning that does not pay stays in each of its sequences, which is just as exact. A
sequence that is the beginning of another one (or equal to it) needs no tokens of its own at all: it rides on the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

PAYS_FROM = 8
"""Tokens from which a shared piece is cut out. Cost and gain both grow with the sequences below it: the length decides.

Measured: a whole training step of the tiny policy, 32 sequences that end in 48 to 71 tokens of their own; process-CPU
ms saved by cutting out what each 2, 4 or 8 of them share (of 100 to 180; differences below 3 are noise):
    tokens shared     2      4      8     12     16     24     32     48
    by 2           -2.6   -1.2    2.2    4.0    3.5   12.2   15.6   26.8
    by 4           -2.1    4.2    1.8    3.3   12.8   13.8   21.3   43.3
    by 8           -1.0   -0.2    6.6   11.4   14.1   24.6   28.9   50.0
"""


class Piece(NamedTuple):
    """Tokens [begin, end) of sequence `sequence`, behind those of piece `parent` (-1: none)."""

    sequence: int
    begin: int
    end: int
    parent: int


class Packing(NamedTuple):
    """Pieces in depth-first order, and where each sequence's tokens are: places[sequence][p] is the row, counted over
    the pieces one behind another, of the token at position p (int64; it may go on past the sequence's end)."""

    pieces: list[Piece]
    places: dict[int, Tensor]


class PrefixTree:
    """The tree over `sequences`, none of them empty. Stretches [low, high) refer to the sorted `order`. Without `share`
    every sequence counts as having nothing in common with any other."""

    def __init__(self, sequences: Sequence[list[int]], *, share: bool = True) -> None:
        self._lengths = [len(s) for s in sequences]
        self.order = sorted(range(len(sequences)), key=lambda i: sequences[i])
        self.shared = [0] * len(sequences)
        if share:
            for at in range(1, len(sequences)):
                self.shared[at] = _common(sequences[self.order[at - 1]], sequences[self.order[at]])

    def parts(self, low: int, high: int) -> list[tuple[int, int]]:
        """The stretches into which [low, high) falls where its sequences first part."""
        least = min(self.shared[low + 1 : high])
        cuts = [low, *(at for at in range(low + 1, high) if self.shared[at] == least), high]
        return list(pairwise(cuts))

    def tokens(self, low: int, high: int) -> int:
        """Rows that the stretch takes when it is packed."""
        return sum(piece.end - piece.begin for piece in self._pieces(low, high)[0])

    def pack(self, low: int, high: int) -> Packing:
        pieces, leaf_of = self._pieces(low, high)
        starts = [0]
        for piece in pieces:
            starts.append(starts[-1] + piece.end - piece.begin)
        places: dict[int, Tensor] = {}
        rows = torch.arange(0)
        for at in range(high - 1, low - 1, -1):
            if at in leaf_of:  # else it rides on the next one
                path = []
                leaf = leaf_of[at]
                while leaf != -1:
                    path.append(torch.arange(starts[leaf], starts[leaf + 1]))
                    leaf = pieces[leaf].parent
                rows = torch.cat(path[::-1])
            places[self.order[at]] = rows
        return Packing(pieces, places)

    def _pieces(self, low: int, high: int) -> tuple[list[Piece], dict[int, int]]:
        """The pieces, and which of them ends the sequence at each place of the order that does not ride on another."""
        kept = [at for at in range(low, high) if at + 1 == high or self.shared[at + 1] < self._lengths[self.order[at]]]
        # Sequences that ride on the next one lie between a kept one and its successor. They share less with the kept
        # one before them than their own length, so what they share with it is what their host does.
        common = [0, *(self.shared[at + 1] for at in kept[:-1])]
        pieces: list[Piece] = []
        leaf_of: dict[int, int] = {}
        work = [(0, len(kept), 0, -1)] if kept else []
        while work:
            first, last, depth, parent = work.pop()
            sequence = self.order[kept[first]]
            if last - first == 1:
                leaf_of[kept[first]] = len(pieces)
                pieces.append(Piece(sequence, depth, self._lengths[sequence], parent))
                continue
            end = min(common[first + 1 : last])
            if end - depth >= PAYS_FROM:
                pieces.append(Piece(sequence, depth, end, parent))
                depth, parent = end, len(pieces) - 1
            cuts = [first, *(at for at in range(first + 1, last) if common[at] == end), last]
            work.extend((a, b, depth, parent) for a, b in reversed(list(pairwise(cuts))))
        return pieces, leaf_of


def _common(a: list[int], b: list[int]) -> int:
    """How many tokens both begin with."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
