"""How often a share of a machine's CPUs or GPUs fits there, in spite of what floats make of 0.1."""

from __future__ import annotations

ROUNDING = 1e-9
"""Less than any share is a mistake of floats: ten times 0.1 fit into 1."""


def times(has: float, each: float, whole: bool = False) -> int:
    """How often a share fits into what there is.

    Args:
        has: What there is.
        each: The share, more than 0.
        whole: What there is comes in whole ones, as GPUs do: a part of one lies on one of them.
    """
    if whole and each < 1:
        ones = int(has + ROUNDING)
        return ones * times(1, each) + times(max(0.0, has - ones), each)
    return int(has / each + ROUNDING)
