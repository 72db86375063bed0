"""Work by convention, and what no card can exceed.

Attention, forward: 4 * head_dim * num_q_heads * pairs, for the two products of a (query, key) pair. Full causal
attention counts as S^2 / 2 pairs, as in published figures; a window as the pairs it has. Backward: 2.5 times that.
"""

from __future__ import annotations

BACKWARD = 2.5
CONVENTION = (
    "FLOPs: forward 4 * head_dim * query heads * pairs, full causal as S^2 / 2 pairs, a window as its exact pairs; "
    "backward x 2.5. Warm-up and compilation are not timed; the device is synchronised; times are medians, spreads "
    "(largest - smallest) / median. Peak: forward + backward, gradients included, above the inputs (and weights), "
    "reset for every cell: the allocator's on CUDA, the process's high-water mark on a CPU, with every block of "
    "256 KiB on pages of its own. CPU times are taken with the allocator as `sinkflex train` sets it."
)

# Dense bfloat16 TFLOP/s from the vendor's data sheets, by a part of the card's name. A figure above is a broken timer.
_CARDS = {"GB200": 2500.0, "B200": 2250.0, "H200": 989.5, "H100": 989.5, "GH200": 989.5, "A100": 312.0, "L40S": 362.0}


def pairs(seq: int, window: int | None) -> int:
    """(query, key) pairs of one head: causal, and with a window W the last W keys including self."""
    if window is None or window >= seq:
        return seq * (seq + 1) // 2
    return window * (window + 1) // 2 + (seq - window) * window


def attention_forward(seq: int, window: int | None, num_q_heads: int, head_dim: int, *, exact: bool = False) -> int:
    if exact or (window is not None and window < seq):
        return 4 * head_dim * num_q_heads * pairs(seq, window)
    return 4 * head_dim * num_q_heads * seq * seq // 2


def rate(flops: float, milliseconds: float | None) -> float | None:
    """TFLOP/s."""
    return flops / milliseconds / 1e9 if milliseconds else None


def most_of(card: str) -> float | None:
    """TFLOP/s that this card cannot exceed; None where the card is not in the list."""
    return next((most for part, most in _CARDS.items() if part in card), None)
