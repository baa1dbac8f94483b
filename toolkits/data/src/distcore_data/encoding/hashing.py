"""Random numbers that belong to rows: a function of (seed, purpose, row number), whoever asks
and in whatever order."""

from __future__ import annotations

import hashlib

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)


def key_of(seed: int, purpose: str) -> int:
    """64 bits from a seed and what the numbers are for, so that two purposes never share a
    stream."""
    digest = hashlib.blake2b(f"{seed}:{purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def row_hashes(key: int, rows: np.ndarray) -> np.ndarray:
    """64 random bits for each row number (int64 [n]): uint64 [n].

    The output function of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
    generators", 2014) at the row's place in the sequence that starts at `key`."""
    # A scalar that wraps warns; an array that wraps does not.
    state = rows.astype(np.uint64)
    state += np.uint64(1)
    state *= GOLDEN
    state += np.uint64(key)
    shifted = state >> np.uint64(30)
    state ^= shifted
    state *= FIRST
    np.right_shift(state, np.uint64(27), out=shifted)
    state ^= shifted
    state *= SECOND
    np.right_shift(state, np.uint64(31), out=shifted)
    state ^= shifted
    return state


def threshold(probability: float) -> int:
    """What a hash must be at most, so that it is with this probability; -1 for none."""
    return min(round(probability * 2.0**64), 2**64) - 1


def chosen(key: int, rows: np.ndarray, probability: float) -> np.ndarray:
    """Whether each row is in a random sample of this proportion: bool [n]."""
    if probability >= 1.0:
        return np.ones(len(rows), bool)
    limit = threshold(probability)
    return row_hashes(key, rows) <= np.uint64(limit) if limit >= 0 else np.zeros(len(rows), bool)
