"""Counts of distinct strings that merge in any order, and the gather that turns dictionary codes
into encoded values.

A column of categories arrives as a dictionary and int32 codes, so all work on strings is once per
distinct value of a block; the rows are counted with one bincount and encoded with one gather.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distcore_data.arrow import from_numpy, plain, strings
from distcore_data.encoding.texts import Vocabulary, dictionary_encode, tally
from distcore_tabular.columns import filled, null_mask

NO_CLASS = -1
"""Code of a target that is none of the classes; its row counts neither in the loss nor in the
metrics."""

COMPACT_AT = 1 << 16
"""Entries kept as they come before they are merged into distinct ones."""

_FIRST_BYTES = np.array([(1 << (8 * count)) - 1 for count in range(9)], np.uint64)


@dataclass(frozen=True, eq=False)
class Counts:
    """How often each string occurs. Holds at most 2 * distinct + COMPACT_AT strings.

    pieces: (strings [k], int64 counts [k]) of blocks; a string may be in several. missing: null
        rows.
    compacted: entries at the last compaction.
    """

    pieces: tuple[tuple[pa.Array, np.ndarray], ...] = ()
    missing: int = 0
    compacted: int = 0

    @classmethod
    def of(cls, values: pa.Array, lowercase: bool = False) -> Counts:
        """Counts of some rows, stripped of white space as Ludwig does, and lowercased if asked."""
        values = as_dictionary(values)
        size = len(values.dictionary)
        found = tally(filled(values.indices, size), size + 1)
        missing = int(found[-1])
        used = found[:-1] > 0
        labels, counts = clean(values.dictionary, lowercase), found[:-1]
        if not used.all():
            labels, counts = labels.take(from_numpy(np.flatnonzero(used))), counts[used]
        empty = null_mask(labels)
        if empty is not None:
            missing += int(counts[empty].sum())
            labels, counts = labels.drop_null(), counts[~empty]
        return cls(((labels, counts),) if len(labels) else (), missing)

    def merge(self, other: Counts) -> Counts:
        """The counts of both."""
        floor = self.compacted + other.compacted
        merged = Counts(self.pieces + other.pieces, self.missing + other.missing, floor)
        entries = sum(len(labels) for labels, _ in merged.pieces)
        if len(merged.pieces) < 2 or entries < COMPACT_AT + 2 * floor:
            return merged
        labels, counts = merged._distinct()
        return Counts(((labels, counts),), merged.missing, len(labels))

    def ranked(self) -> tuple[pa.Array, np.ndarray]:
        """Distinct strings and their counts, see `ranked`."""
        return ranked(*self._distinct())

    def _distinct(self) -> tuple[pa.Array, np.ndarray]:
        if not self.pieces:
            return strings([]), np.zeros(0, np.int64)
        if len(self.pieces) == 1 and len(self.pieces[0][0]) == self.compacted:
            return self.pieces[0]
        labels = dictionary_encode(pa.concat_arrays([labels for labels, _ in self.pieces]))
        codes, sums = plain(labels.indices), np.zeros(len(labels.dictionary), np.int64)
        for _, counts in self.pieces:
            for at in range(0, len(counts), COMPACT_AT):  # numpy makes 64 bits of each code
                some = counts[at : at + COMPACT_AT]
                np.add.at(sums, codes[: len(some)], some)
                codes = codes[len(some) :]
        return labels.dictionary, sums


def ranked(labels: pa.Array, counts: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """Strings and their counts, the most frequent first, equally frequent ones in code point
    order."""
    order = _order(labels, counts) if len(labels) else np.zeros(0, np.int64)
    return labels.take(from_numpy(order)), counts[order]


def _order(labels: pa.Array, counts: np.ndarray) -> np.ndarray:
    """Places of the labels in the order of `ranked`, int64 [n]. Numbers are sorted, the first eight
    bytes of each label; the texts of those alone that are as frequent and begin alike."""
    first = first_bytes(labels)
    order = np.argsort(first)
    rarity = counts.max() - counts[order]
    if rarity.max() < 1 << 16:
        rarity = rarity.astype(np.uint16)  # sorted by its digits
    order = order[np.argsort(rarity, kind="stable")]
    first, counts = first[order], counts[order]
    same = (first[1:] == first[:-1]) & (counts[1:] == counts[:-1])
    alike = np.flatnonzero(np.append(same, False) | np.append(False, same))
    if len(alike):
        group = np.append(False, ~same).cumsum()[alike]
        table = pa.table(
            {"group": from_numpy(group), "label": labels.take(from_numpy(order[alike]))}
        )
        keys = [("group", "ascending"), ("label", "ascending")]
        order[alike] = order[alike][plain(pc.sort_indices(table, sort_keys=keys))]
    return order


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


def as_dictionary(values: pa.Array) -> pa.DictionaryArray:
    """The values as a dictionary of utf8 with int32 codes; what a source gives is that already."""
    if not pa.types.is_dictionary(values.type):
        values = dictionary_encode(values.cast(pa.utf8()))
    if values.type.index_type != pa.int32() or values.type.value_type != pa.utf8():
        values = values.cast(pa.dictionary(pa.int32(), pa.utf8()))
    return values


def clean(labels: pa.Array, lowercase: bool = False) -> pa.Array:
    """Strings without white space around them, lowercased if asked."""
    labels = pc.utf8_trim_whitespace(labels)
    return pc.utf8_lower(labels) if lowercase else labels


def all_blank(labels: pa.Array) -> bool:
    """Whether distinct cleaned labels hold no value: none of them, or what is left of white space
    alone."""
    return not any(labels.slice(0, 2).to_pylist())


def gather(values: pa.DictionaryArray, table: np.ndarray) -> pa.Array:
    """The table's entry for each row: [n], of the table's dtype.

    table: an entry for each of the dictionary's values, and a last one for null rows.
    """
    indices = values.indices
    if indices.null_count:
        indices = from_numpy(filled(indices, len(table) - 1))
    return pc.take(from_numpy(table), indices, boundscheck=False)


def find(labels: pa.Array, vocabulary: Vocabulary, unknown: int) -> np.ndarray:
    """The position of each label; of labels that are not there, those of the same whole number: a
    frame has 3.0 where a file has 3, as soon as one row of the column has no value. int32 [n]."""
    found = vocabulary.positions(labels, unknown)
    rest = np.flatnonzero(found == unknown)
    if len(rest):
        left = labels.take(from_numpy(rest))
        whole = pc.match_substring_regex(left, r"^-?[0-9]+$")
        longer = pc.binary_join_element_wise(left, *strings([".0", ""]))
        other = pc.if_else(
            whole, longer, pc.replace_substring_regex(left, r"^(-?[0-9]+)\.0$", r"\1")
        )
        found[rest] = vocabulary.positions(other, unknown)
    return found
