"""Distinct texts, tokens and positions in a vocabulary, by compiled code if it was built: what
Arrow's kernels give, some five times as fast.

Without a C compiler, and for texts of a gigabyte, Arrow does the same. So nothing but speed depends
on whether one was there when distcore was installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from distcore_data.arrow import flags, from_numpy, strings, to_numpy, validity

if TYPE_CHECKING:
    from types import ModuleType

compiled: ModuleType | None
try:
    from distcore_data.encoding import _texts as compiled
except ImportError:
    compiled = None

FEW = 64
"""Texts that Arrow encodes sooner than the compiled code has memory for its table."""


def dictionary_encode(values: pa.Array) -> pa.DictionaryArray:
    """The values [n] as int32 codes in a dictionary of those that occur, in the order of their
    first occurrence; null stays null.

    Args:
        values: Of any type that Arrow encodes.
    """
    buffers = _buffers(values)
    if compiled is None or buffers is None or len(values) < FEW:
        return values.dictionary_encode()
    offsets, data, valid = buffers
    count, wide = len(values), pt.is_large_string(values.type)
    target = pa.allocate_buffer(4 * count)
    found = compiled.encoded(offsets, wide, data, valid, values.offset, count, target)
    if found is None:
        return values.dictionary_encode()
    content = [validity(values), target]
    codes = pa.Array.from_buffers(pa.int32(), count, content, null_count=values.null_count)
    return pa.DictionaryArray.from_arrays(codes, _labels(values.type, *found), safe=False)


class Tokens(NamedTuple):
    """The tokens of n texts: text i has words[places[offsets[i]]], …, words[places[offsets[i + 1] -
    1]].

    words: distinct large strings, each occurring; places: int32, one a token; offsets: int64 [n
        + 1]."""

    words: pa.Array
    places: np.ndarray
    offsets: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each text, int64 [n]."""
        return np.diff(self.offsets)


def split(texts: pa.Array, separator: str) -> Tokens:
    """What lies between separators, but for empty tokens.

    Args:
        texts: Large strings [n], none of them null.
        separator: One character of ASCII.
    """
    buffers = _buffers(texts)
    found = None
    if compiled is not None and buffers is not None:
        offsets, data, _ = buffers
        found = compiled.split(offsets, True, data, texts.offset, len(texts), ord(separator))
    if found is None:
        return split_lists(pc.split_pattern(texts, separator))
    places, ends, words = found
    bounds = np.zeros(len(texts) + 1, np.int64)
    bounds[1:] = np.frombuffer(ends, np.int64)
    codes = np.frombuffer(places, np.int32, int(bounds[-1]))
    return Tokens(_labels(pa.large_utf8(), *words), codes, bounds)


def split_lists(lists: pa.Array) -> Tokens:
    """Lists of large strings as tokens, without their empty strings."""
    values = lists.flatten()
    offsets = to_numpy(lists.offsets)
    kept = pc.not_equal(values, strings([""]).cast(values.type)[0])
    before = np.concatenate([[0], np.cumsum(flags(kept))])
    return tokens_of(values.filter(kept), before[offsets - offsets[0]])


def tokens_of(values: pa.Array, offsets: np.ndarray) -> Tokens:
    """Large strings, one a token, as tokens. offsets: of the texts, [n + 1]."""
    encoded = dictionary_encode(values)
    return Tokens(encoded.dictionary, to_numpy(encoded.indices), offsets.astype(np.int64))


def tally(codes: np.ndarray, size: int) -> np.ndarray:
    """How often each code occurs, int64 [size].

    Args:
        codes: int32 [n], from 0 to size - 1.
    """
    if compiled is None:
        return np.bincount(codes, minlength=size).astype(np.int64)
    counts = np.zeros(size, np.int64)
    compiled.tally(np.ascontiguousarray(codes, np.int32), counts)
    return counts


def without_unused(values: pa.DictionaryArray) -> pa.DictionaryArray:
    """The same values in a dictionary of those that occur, in its order.

    Args:
        values: [n], with codes of int32.
    """
    used = tally(to_numpy(values.indices.drop_null()), len(values.dictionary)) > 0
    if used.all():
        return values
    places = from_numpy(np.cumsum(used, dtype=np.int32) - np.int32(1))
    labels = values.dictionary.take(from_numpy(np.flatnonzero(used)))
    return pa.DictionaryArray.from_arrays(places.take(values.indices), labels)


class Vocabulary:
    """Labels that are asked for again and again in the order of their codes: Arrow's `index_in`
    makes a hash table of all of them at every call.

    labels: utf8 [n], none of them null."""

    def __init__(self, labels: pa.Array) -> None:
        self.labels = labels
        self._table: object | None = None
        buffers = _buffers(labels)
        if compiled is not None and buffers is not None and not labels.null_count:
            offsets, data, _ = buffers
            self._table = compiled.vocabulary(offsets, False, data, labels.offset, len(labels))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.labels,)

    def positions(self, values: pa.Array, unknown: int) -> np.ndarray:
        """Each value's code, `unknown` if it is null or not in the vocabulary.

        Args:
            values: Strings or large strings [k].

        Returns:
            int32 [k].
        """
        codes, buffers = np.empty(len(values), np.int32), _buffers(values)
        if self._table is not None and compiled is not None and buffers is not None:
            offsets, data, valid = buffers
            wide, place = pt.is_large_string(values.type), (values.offset, len(values))
            if compiled.find(self._table, offsets, wide, data, valid, *place, unknown, codes):
                return codes
        found = pc.index_in(values, value_set=self.labels.cast(values.type))
        codes.fill(unknown)
        codes[flags(found.is_valid())] = to_numpy(found.drop_null())
        return codes


def _buffers(values: pa.Array) -> tuple[pa.Buffer, pa.Buffer, pa.Buffer | None] | None:
    """(offsets, bytes, validity) of strings, or None if these are none, or have no buffers."""
    if not (pt.is_string(values.type) or pt.is_large_string(values.type)):
        return None
    valid, offsets, data = values.buffers()
    if offsets is None or not len(values):
        return None
    return offsets, _EMPTY if data is None else data, valid if values.null_count else None


_EMPTY = pa.py_buffer(b"")


def _labels(kind: pa.DataType, offsets: bytes, data: bytes) -> pa.Array:
    width = 8 if pt.is_large_string(kind) else 4
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(offsets) // width - 1, buffers, null_count=0)
