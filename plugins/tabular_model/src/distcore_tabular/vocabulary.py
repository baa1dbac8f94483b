"""Counts of distinct strings that merge in any order, and the gather that turns dictionary codes
into encoded values.

A column of categories arrives as a dictionary and int32 codes, so all work on strings is once per
distinct value of a block; the rows are counted with one bincount and encoded with one gather.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distcore_data.arrow import from_numpy, null, plain, scalar, strings, truths
from distcore_data.encoding.texts import Vocabulary, dictionary_encode, tally
from distcore_tabular.columns import filled, null_mask

NO_CLASS = -1
"""Code of a target that is none of the classes; its row counts neither in the loss nor in the
metrics."""

COMPACT_AT = 1 << 16
"""Entries kept as they come before they are merged into distinct ones."""

DAY = "-?[0-9]{4,}-[0-9]{2}-[0-9]{2}"
TIME = f"{DAY} [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\\.[0-9]*[1-9])?"
WHOLE = r"^(-?[0-9]+)\.0$"
SECOND = rf"^({TIME})\.?0*$"
MIDNIGHT = f"^({DAY}) 00:00:00$"
VARIABLE = f"^(-?[0-9]+|{DAY}|{TIME})$"
FLOAT = r"^-?(0|[1-9][0-9]*)(\.0|\.[0-9]*[1-9])?(e[+-][0-9]+)?$"

_FIRST_BYTES = np.array([(1 << (8 * count)) - 1 for count in range(9)], np.uint64)


@dataclass(frozen=True, eq=False)
class Counts:
    """How often each string occurs. Holds at most 2 * distinct + COMPACT_AT strings.

    pieces: (strings [k], int64 counts [k]) of blocks; a string may be in several. missing: null
        rows.
    compacted: entries at the last compaction. by_value: what one value's spellings are has been
        counted as one, see `one_spelling`.
    """

    pieces: tuple[tuple[pa.Array, np.ndarray], ...] = ()
    missing: int = 0
    compacted: int = 0
    by_value: bool = False

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


class Labels(Vocabulary):
    """A vocabulary that also finds a value by another of its spellings."""

    @cached_property
    def _values(self) -> tuple[Vocabulary, np.ndarray]:
        """What labels are, see `spelled`, and the place of each among them, int32. What several
        labels are is left out: nothing says which one is meant."""
        found = dictionary_encode(spelled(self.labels))
        size = len(found.dictionary)
        codes = filled(found.indices, size)
        places = np.zeros(size + 1, np.int32)
        places[codes] = np.arange(len(codes), dtype=np.int32)
        alone = tally(codes, size + 1)[:-1] == 1
        return Vocabulary(found.dictionary.filter(truths(alone))), places[:-1][alone]

    def by_whole_number(self, labels: pa.Array, unknown: int) -> np.ndarray:
        """The place of n.0 for n, and of n for n.0, int32 [n]."""
        whole = pc.match_substring_regex(labels, r"^-?[0-9]+$")
        longer = pc.binary_join_element_wise(labels, *strings([".0", ""]))
        shorter = pc.replace_substring_regex(labels, WHOLE, r"\1")
        return self.positions(pc.if_else(whole, longer, shorter), unknown)

    def by_value(self, labels: pa.Array, unknown: int) -> np.ndarray:
        """The place of the only label of the same value, int32 [n]."""
        found, wanted = np.full(len(labels), unknown, np.int32), spelled(labels)
        if wanted.null_count < len(wanted):
            known, places = self._values
            at = known.positions(wanted, -1)
            found[at >= 0] = places[at[at >= 0]]
        return found


def find(labels: pa.Array, vocabulary: Labels, unknown: int, cut: bool = False) -> np.ndarray:
    """The position of each label; of labels that are not there, that of the same value: a frame has
    3.0 where a file has 3, as soon as one row of the column has no value. int32 [n].

    cut: values that the fit saw may be left out, and are unknown however alike a label is: whole
    numbers alone are looked for once more.
    """
    found = vocabulary.positions(labels, unknown)
    others = (vocabulary.by_whole_number, vocabulary.by_value)
    for other in others[:1] if cut else others:
        rest = np.flatnonzero(found == unknown)
        if len(rest):
            found[rest] = other(labels.take(from_numpy(rest)), unknown)
    return found


def one_spelling(counts: Counts) -> Counts:
    """The counts of what is one value, see `spelled`, as those of its shortest spelling, the first
    in code point order. By how often each occurs, classes would be called 0 and 1.0."""
    labels, rows = counts.ranked()
    table = pa.table({"size": pc.binary_length(labels), "label": labels})
    by = [("size", "ascending"), ("label", "ascending")]
    order = pc.sort_indices(table, sort_keys=by)
    labels, rows = labels.take(order), rows[plain(order)]
    keys = dictionary_encode(pc.coalesce(spelled(labels), labels))
    codes, sums = plain(keys.indices), np.zeros(len(keys.dictionary), np.int64)
    np.add.at(sums, codes, rows)
    _, first = np.unique(codes, return_index=True)
    return Counts(((labels.take(from_numpy(first)), sums),), counts.missing, len(sums), True)


def spelled(labels: pa.Array) -> pa.Array:
    """One spelling of each value that has another in another file or frame, as the type of a column
    depends on all of its rows: 3 and 3.0, a float and its exponent, true and True, a day and its
    midnight, a second and its thousandths. Null for what has none."""
    for pattern in (WHOLE, SECOND, MIDNIGHT):
        labels = pc.replace_substring_regex(labels, pattern, r"\1")
    lower = pc.utf8_lower(labels)
    is_truth = pc.is_in(lower, strings(["false", "true"]))
    has_others = pc.or_(is_truth, pc.match_substring_regex(labels, VARIABLE))
    other = pc.if_else(has_others, pc.if_else(is_truth, lower, labels), null(pa.utf8()))
    return pc.coalesce(_number(labels), other)


def _number(labels: pa.Array) -> pa.Array:
    """The number that each label is, as text; null for one that is not written as floats are (1.10
    may be a version and 012 an id), or is a whole one that a double may not be."""
    is_float = pc.match_substring_regex(labels, FLOAT)
    numbers = pc.if_else(is_float, labels, null(pa.utf8())).cast(pa.float64())
    numbers = pc.add(numbers, scalar(0.0))  # -0.0 is 0.0
    exact = pc.less(pc.abs(numbers), scalar(2.0**53))
    return pc.if_else(exact, numbers, null(pa.float64())).cast(pa.utf8())
