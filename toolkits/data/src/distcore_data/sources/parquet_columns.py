"""The compiled reader of Parquet's columns, if it was built: two to four times as fast as Arrow's,
to the same values.

It takes columns of doubles, of whole numbers of 64 bits and of texts, in PLAIN and dictionary
pages, packed by Snappy or not at all, and says None to all others, damaged ones too: those Arrow's
reader takes. So nothing but speed depends on whether a C compiler was there when distcore was
installed.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import add
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from distcore_data.sources.datafile import read_range

if TYPE_CHECKING:
    from types import ModuleType

compiled: ModuleType | None
try:
    from distcore_data.sources import _columns as compiled
except ImportError:
    compiled = None

CODES = pa.dictionary(pa.int32(), pa.utf8())

FEWEST_ROWS = 10_000
"""Of fewer, calls for each column cost more than they save."""

TEXT_BYTES = 64
"""Room for a row of texts, beside twice what the file has of them: those of a dictionary stand in
it once. Arrow takes columns with more."""

MOST_TEXT_BYTES = (1 << 30) - 1
"""What the compiled reader writes at most, whatever a file says of itself."""

LARGEST_GAP = 1.25
"""Bytes from the first to the last of the columns that are wanted, over their own, up to which all
are read at once."""


class Places(NamedTuple):
    """Where columns of a row group lie. starts, sizes, raw_sizes: of each the first byte, how many
    there are, and how many they are unpacked."""

    is_packed: bool
    starts: array[int]
    sizes: array[int]
    raw_sizes: array[int]

    def some(self, first: int, last: int) -> Places:
        """Those of the columns [first, last)."""
        return Places(self.is_packed, *(each[first:last] for each in self[1:]))


class Piece(NamedTuple):
    """Columns of so many rows: of each its bytes as the file has them, and how many they are
    unpacked."""

    rows: int
    is_packed: bool
    columns: list[tuple[pa.Buffer, int]]


def piece_at(path: str, rows: int, places: Places) -> Piece:
    """Columns that lie there. Raises OSError if the file ends before."""
    ends = list(map(add, places.starts, places.sizes))
    first, last = min(places.starts), max(ends)
    if last - first <= LARGEST_GAP * sum(places.sizes):
        whole = read_range(path, first, last)
        contents = [
            whole.slice(start - first, size)
            for start, size in zip(places.starts, places.sizes, strict=True)
        ]
    else:
        contents = [
            read_range(path, start, end) for start, end in zip(places.starts, ends, strict=True)
        ]
    return Piece(rows, places.is_packed, list(zip(contents, places.raw_sizes, strict=True)))


def columns_at(
    path: str, rows: int, places: Places, fields: Sequence[pa.Field]
) -> dict[str, pa.Array]:
    """Those of the columns of a row group that are plain. fields: what each is, in the order of
    the places; of labels, that they are wanted as codes."""
    if compiled is None or rows < FEWEST_ROWS:
        return {}
    try:
        piece = piece_at(path, rows, places)
    except OSError:
        return {}  # Arrow finds out why
    found = {
        field.name: _column([piece], number, field.type, field.nullable)
        for number, field in enumerate(fields)
    }
    return {name: column for name, column in found.items() if column is not None}


def joined(pieces: Sequence[Piece], fields: Sequence[pa.Field]) -> pa.Table | None:
    """The columns of several row groups, one after the other; None if one is not plain. Labels that
    are read as codes elsewhere are texts here: each row group has its own dictionary of them."""
    columns = {}
    if compiled is None or sum(piece.rows for piece in pieces) < FEWEST_ROWS:
        return None
    for number, field in enumerate(fields):
        type_ = pa.utf8() if field.type == CODES else field.type
        column = _column(pieces, number, type_, field.nullable)
        if column is None:
            return None
        columns[field.name] = column
    return pa.table(columns)


# ------------------------------------------------------------------ inside


def _column(
    pieces: Sequence[Piece], number: int, type_: pa.DataType, nullable: bool
) -> pa.Array | None:
    """One column of all rows; None if it is not plain."""
    assert compiled is not None
    rows = sum(piece.rows for piece in pieces)
    chunks = [(piece.columns[number][0], piece.is_packed, nullable, piece.rows) for piece in pieces]
    valid = pa.allocate_buffer((rows + 7) // 8) if nullable else None
    if type_ in (pa.float64(), pa.int64()):
        values = pa.allocate_buffer(8 * rows)
        missing = compiled.words(chunks, values, valid)
        if missing is None:
            return None
        return pa.Array.from_buffers(type_, rows, [valid, values], missing)
    if type_ == CODES:
        codes = pa.allocate_buffer(4 * rows)
        coded = compiled.codes(chunks, codes, valid)
        return None if coded is None else _labelled(rows, valid, codes, *coded)
    if type_ == pa.utf8():
        ends = pa.allocate_buffer(4 * (rows + 1))
        unpacked = sum(piece.columns[number][1] for piece in pieces)
        data = pa.allocate_buffer(min(2 * unpacked + TEXT_BYTES * rows, MOST_TEXT_BYTES))
        found = compiled.texts(chunks, ends, valid, data)
        if found is None:
            return None
        missing, used = found
        return pa.Array.from_buffers(type_, rows, [valid, ends, data.slice(0, used)], missing)
    return None


def _labelled(
    rows: int, valid: pa.Buffer | None, codes: pa.Buffer, missing: int, ends: bytes, labels: bytes
) -> pa.DictionaryArray:
    indices = pa.Array.from_buffers(pa.int32(), rows, [valid, codes], missing)
    texts = [None, pa.py_buffer(ends), pa.py_buffer(labels)]
    dictionary = pa.Array.from_buffers(pa.utf8(), len(ends) // 4 - 1, texts, 0)
    # Unchecked: the reader gives no index that is not in the dictionary.
    return pa.DictionaryArray.from_arrays(indices, dictionary, safe=False)
