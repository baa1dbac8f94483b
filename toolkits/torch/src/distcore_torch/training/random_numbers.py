"""Random numbers of a step, the same whoever makes them: keyed by what they are for."""

from __future__ import annotations

MASK = (1 << 64) - 1


def random_key(seed: int, step: int, lane: int) -> int:
    """32 bits for the random numbers of a step: SplitMix64 (Steele et al., 2014) over seed, step
    and first lane."""
    value = 0
    for part in (seed, step, lane):
        value = (value + part + 0x9E3779B97F4A7C15) & MASK
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
        value ^= value >> 31
    return value & 0xFFFFFFFF
