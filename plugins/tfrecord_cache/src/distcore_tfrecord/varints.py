"""Protobuf's varints, many at once: numbers of 7 bits a byte, the least significant first, the high
bit set on all but the last byte.

Padded to a fixed number of bytes (`81 80 00` is 1, as `01` is), which every protobuf parser takes,
so that records of one layout are equally long. A negative number is its two's complement in 64
bits: ten bytes.
"""

from __future__ import annotations

import numpy as np

NEGATIVE_BYTES = 10


def encoded(number: int, width: int = 0) -> bytes:
    """One number as a varint, padded to `width` bytes."""
    found = bytearray()
    while number > 127 or len(found) < width - 1:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def width_of(values: np.ndarray) -> int:
    """Bytes that the widest of the values needs."""
    if not values.size:
        return 1
    return NEGATIVE_BYTES if values.min() < 0 else max(1, -(-int(values.max()).bit_length() // 7))


def pattern(width: int) -> bytes:
    """The high bits of a varint of so many bytes."""
    return b"\x80" * (width - 1) + b"\0"


def bytes_of(values: np.ndarray, width: int) -> list[np.ndarray]:
    """Byte k of each value, for k in range(width): uint8 of the values' shape."""
    if width == 1:
        return [values.astype(np.uint8)]
    wide = values.astype(np.int64) if width > 4 else values.astype(np.int32)
    found = [((wide >> 7 * k) & 127 | 128).astype(np.uint8) for k in range(width - 1)]
    return [
        *found,
        ((wide >> 7 * (width - 1)) & (1 if width == NEGATIVE_BYTES else 127)).astype(np.uint8),
    ]


def values_of(parts: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """The values whose byte k is parts[k]. Raises ValueError if one is no `dtype`."""
    wide = np.dtype(np.uint64 if len(parts) > 4 else np.uint32)
    total = np.zeros(parts[0].shape, wide)
    for k, part in enumerate(parts):
        total |= (part & 127).astype(wide) << wide.type(7 * k)
    signed = total.view(np.int64 if len(parts) > 4 else np.int32)
    values = signed.astype(dtype)
    if not np.array_equal(values, signed):
        raise ValueError(f"a number is too large for {dtype}")
    return values
