"""Positions of strings in a vocabulary that is asked for again and again.

Arrow's `index_in` makes a hash table of the whole vocabulary at every call, which costs more than
the work if a block holds a part of a million labels. Here the hashes of the vocabulary are sorted
once; what a hash finds is compared as text, so hashes decide about speed and never about results.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distcore_data.arrow import flags, from_numpy, strings
from distcore_tabular.columns import filled

LARGE = 1 << 12
"""Labels from which a table that is kept is worth its making."""

LONGEST = 128
"""Bytes of a text that are hashed from its beginning on."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FACTOR = np.uint64(0xFF51AFD7ED558CCD)
_HALF = np.uint64(32)
_FIRST_BYTES = np.array([(1 << (8 * count)) - 1 for count in range(9)], np.uint64)


class Vocabulary:
    """Labels in the order of their codes, none of them twice.

    labels: utf8 [n]."""

    def __init__(self, labels: list[str] | pa.Array) -> None:
        self.labels = labels if isinstance(labels, pa.Array) else strings(labels)
        self._table: tuple[np.ndarray, np.ndarray] | None = None
        if len(self.labels) >= LARGE:
            hashes = hashes_of(self.labels)
            order = np.argsort(hashes)
            hashes = hashes[order]
            if (hashes[1:] != hashes[:-1]).all():
                self._table = hashes, order.astype(np.int32)

    def positions(self, labels: pa.Array, unknown: int) -> np.ndarray:
        """Each label's code, `unknown` if it is null or not in the vocabulary.

        Args:
            labels: utf8 [k].

        Returns:
            int32 [k].
        """
        if self._table is None:
            return filled(pc.index_in(labels, value_set=self.labels), unknown)
        if not len(labels):
            return np.zeros(0, np.int32)
        hashes, codes = self._table
        wanted = hashes_of(labels)
        order = np.argsort(wanted)  # neighbours are looked for where the last was found
        places = np.empty(len(wanted), np.int64)
        places[order] = np.searchsorted(hashes, wanted[order])
        np.minimum(places, len(hashes) - 1, out=places)
        found = codes[places]
        same = flags(pc.equal(self.labels.take(from_numpy(found)), labels))
        return np.where(same, found, np.int32(unknown))


def first_bytes(labels: pa.Array) -> np.ndarray:
    """The first eight bytes of each of some strings as one number, uint64 [n], that is no larger
    for a string that comes before. Zeros stand where a string has ended."""
    words, starts, sizes = _words(labels)
    return (words[starts] & _FIRST_BYTES[np.minimum(sizes, 8)]).byteswap()


def _words(labels: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(eight bytes from any place on as one number, the place where each string begins, their
    bytes)."""
    _, ends, data = labels.buffers()
    if ends is None or not len(labels):
        return (
            np.zeros(1, np.uint64),
            np.zeros(len(labels), np.int32),
            np.zeros(len(labels), np.int32),
        )
    offsets = np.frombuffer(ends, np.int32)[labels.offset : labels.offset + len(labels) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last - first + 8, np.uint8)
    if data is not None and last > first:
        padded[:-8] = np.frombuffer(data, np.uint8)[first:last]
    words = np.ndarray((last - first + 1,), "<u8", padded, strides=(1,))
    return words, offsets[:-1] - first, np.diff(offsets)


def hashes_of(labels: pa.Array) -> np.ndarray:
    """A hash of the bytes of each of some strings, uint64 [n]; of null anything."""
    words, starts, sizes = _words(labels)
    hashes = sizes.astype(np.uint64) * _GOLDEN
    left, done = np.arange(len(labels)), 0
    while len(left):
        # Of a text that is longer than LONGEST the last bytes count, and nothing between.
        at = np.full(len(left), done) if done < LONGEST else sizes[left] - 8
        word = words[starts[left] + at] & _FIRST_BYTES[np.minimum(sizes[left] - at, 8)]
        mixed = (hashes[left] ^ word) * _FACTOR
        hashes[left] = mixed ^ (mixed >> _HALF)
        done += 8
        left = left[sizes[left] > done] if done <= LONGEST else left[:0]
    return hashes
