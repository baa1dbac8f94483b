"""The compiled reader of Parquet's columns, if it was built: two to four times as fast as Arrow's,
to the same values.

It takes columns of doubles, of whole numbers of 64 bits and of texts, in PLAIN and dictionary
pages, packed by Snappy or not at all, and says None to all others, damaged ones too: those Arrow's
reader takes. So nothing but speed depends on whether a C compiler was there when distcore was
installed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from operator import add
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from distcore_data.sources.datafile import read_range

if TYPE_CHECKING:
    from types import ModuleType

compiled: ModuleType | None
try:
    from distcore_data.sources import _columns as compiled
except ImportError:
    compiled = None

PACKED = {"SNAPPY": True, "UNCOMPRESSED": False}

CODES = pa.dictionary(pa.int32(), pa.utf8())

FEWEST_ROWS = 10_000
"""Of fewer, calls for each column cost more than they save."""

TEXT_BYTES = 64
"""Room for a row of texts, beside twice what the file has of them: those of a dictionary stand in
it once. Arrow takes columns with more."""

LARGEST_GAP = 1.25
"""Bytes from the first to the last of the columns that are wanted, over their own, up to which all
are read at once."""


class Places(NamedTuple):
    """Where columns of a row group lie. numbers: of each column the first byte, how many there are,
    and how many they are unpacked."""

    is_packed: bool
    numbers: array[int]


class Piece(NamedTuple):
    """Columns of so many rows: of each its bytes as the file has them, and how many they are
    unpacked."""

    rows: int
    is_packed: bool
    columns: list[tuple[pa.Buffer, int]]


def places_of(group: pq.RowGroupMetaData, leaves: Iterable[int]) -> Places | None:
    """Where these leaf columns of a row group lie; None if they are surely not plain."""
    numbers, packings = array("q"), set()
    for leaf in leaves:
        about = group.column(leaf)
        start, dictionary = about.data_page_offset, about.dictionary_page_offset
        if dictionary is not None and 0 < dictionary < start:
            start = dictionary
        numbers.extend((start, about.total_compressed_size, about.total_uncompressed_size))
        packings.add(PACKED.get(about.compression))
    if len(packings) != 1 or None in packings or min(numbers) < 0:
        return None
    return Places(bool(packings.pop()), numbers)


def places_of_small(group: pq.RowGroupMetaData, leaves: Iterable[int] | None) -> Places | None:
    """The same of a row group that is read with others; whoever reads a larger one opens its
    file. leaves: None, if columns may lie in others."""
    if leaves is None or group.num_rows >= FEWEST_ROWS:
        return None
    return places_of(group, leaves)


def piece_at(path: str, rows: int, places: Places) -> Piece:
    """Columns that lie there. Raises OSError if the file ends before."""
    starts, sizes, unpacked = (places.numbers[place::3] for place in range(3))
    first = min(starts)
    last = max(map(add, starts, sizes))
    if last - first <= LARGEST_GAP * sum(sizes):
        whole = read_range(path, first, last)
        contents = [
            whole.slice(start - first, size) for start, size in zip(starts, sizes, strict=True)
        ]
    else:
        contents = [
            read_range(path, start, start + size) for start, size in zip(starts, sizes, strict=True)
        ]
    return Piece(rows, places.is_packed, list(zip(contents, unpacked, strict=True)))


def leaves_of(file: pq.ParquetFile, schema: pa.Schema, names: Iterable[str]) -> list[int] | None:
    """The leaf columns of these names; None if columns may lie in others."""
    if compiled is None or file.metadata.num_columns != len(schema):
        return None
    return [schema.get_field_index(name) for name in names]


def row_group(path: str, file: pq.ParquetFile, group: int, names: Sequence[str]) -> pa.Table:
    """Columns of a row group, as `file.read_row_group` gives them. Raises as that does.

    Args:
        path: Of the file, which is open.
        names: Of columns, none of which is there twice.
    """
    found = plain_columns_of(path, file, group, names)
    others = [name for name in names if name not in found]
    if not found:
        return file.read_row_group(group, columns=others, use_threads=False)
    if others:
        rest = file.read_row_group(group, columns=others, use_threads=False)
        found |= {name: rest.column(name) for name in others}
    schema = file.schema_arrow
    return pa.Table.from_arrays(
        [found[name] for name in names], schema=pa.schema([schema.field(name) for name in names])
    )


def plain_columns_of(
    path: str, file: pq.ParquetFile, group: int, names: Sequence[str]
) -> dict[str, pa.Array | pa.ChunkedArray]:
    """Those of the columns of a row group that the compiled reader takes."""
    about, schema = file.metadata.row_group(group), file.schema_arrow  # made anew each time
    leaves = leaves_of(file, schema, names)
    if leaves is None or about.num_rows < FEWEST_ROWS:
        return {}
    found = {}
    for name, leaf in zip(names, leaves, strict=True):
        places = places_of(about, [leaf])
        if places is None:
            continue
        try:
            piece = piece_at(path, about.num_rows, places)
        except OSError:
            continue  # Arrow finds out why
        field = schema.field(leaf)
        column = _column([piece], 0, field.type, field.nullable)
        if column is not None:
            found[name] = column
    return found


def joined(pieces: Sequence[Piece], fields: Sequence[pa.Field]) -> pa.Table | None:
    """The columns of several row groups, one after the other; None if one is not plain. Labels that
    are read as codes elsewhere are texts here: each row group has its own dictionary of them."""
    columns = {}
    if sum(piece.rows for piece in pieces) < FEWEST_ROWS:
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
        data = pa.allocate_buffer(2 * unpacked + TEXT_BYTES * rows)
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
