"""The compiled reader of Parquet's columns, if it was built: two to four times as fast as Arrow's,
to the same values.

It takes columns of doubles, of whole numbers of 64 bits and of texts, in PLAIN and dictionary
pages, packed by Snappy or not at all, and says None to all others, damaged ones too: those Arrow's
reader takes. So nothing but speed depends on whether a C compiler was there when distcore was
installed.
"""

from __future__ import annotations

from collections.abc import Sequence
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
"""Of a row group with fewer, calls for each column cost more than they save."""

TEXT_BYTES = 64
"""Room for a row of texts, beside twice what the file has of them: those of a dictionary stand in
it once. Arrow takes columns with more."""

LARGEST_GAP = 1.25
"""Bytes from the first to the last of the columns that are wanted, over their own, up to which all
are read at once."""


def row_group(path: str, file: pq.ParquetFile, group: int, names: Sequence[str]) -> pa.Table:
    """Columns of a row group, as `file.read_row_group` gives them. Raises as that does.

    Args:
        path: Of the file, which is open.
        names: Of columns, none of which is there twice.
    """
    schema = file.schema_arrow  # made anew whenever it is asked for
    found = _plain(path, file, group, names, schema)
    others = [name for name in names if name not in found]
    if others or not names:
        rest = file.read_row_group(group, columns=others, use_threads=False)
        if not found:
            return rest
        found |= {name: rest.column(name) for name in others}
    return pa.Table.from_arrays(
        [found[name] for name in names], schema=pa.schema([schema.field(name) for name in names])
    )


class _Chunk(NamedTuple):
    """Where a column of a row group lies, and what it is."""

    field: pa.Field
    start: int
    bytes: int
    raw_bytes: int
    is_packed: bool


def _plain(
    path: str, file: pq.ParquetFile, group: int, names: Sequence[str], schema: pa.Schema
) -> dict[str, pa.Array | pa.ChunkedArray]:
    """Those of the columns that the compiled reader takes."""
    metadata, about = file.metadata, file.metadata.row_group(group)
    if compiled is None or about.num_rows < FEWEST_ROWS:
        return {}
    if metadata.num_columns != len(schema):
        return {}  # columns lie in others
    chunks = [chunk for name in names if (chunk := _chunk(about, schema, name)) is not None]
    try:
        contents = _contents(path, chunks)
    except OSError:
        return {}  # Arrow finds out why
    found = {
        chunk.field.name: _column(chunk, content, about.num_rows)
        for chunk, content in zip(chunks, contents, strict=True)
    }
    return {name: column for name, column in found.items() if column is not None}


def _chunk(group: pq.RowGroupMetaData, schema: pa.Schema, name: str) -> _Chunk | None:
    """None: it is surely not plain."""
    number = schema.get_field_index(name)
    about = group.column(number)
    is_packed, start = PACKED.get(about.compression), about.data_page_offset
    if is_packed is None or about.file_path:
        return None
    dictionary = about.dictionary_page_offset
    if dictionary is not None and 0 < dictionary < start:
        start = dictionary
    sizes = about.total_compressed_size, about.total_uncompressed_size
    if min(start, *sizes) < 0:
        return None
    return _Chunk(schema.field(number), start, *sizes, is_packed)


def _contents(path: str, chunks: Sequence[_Chunk]) -> list[pa.Buffer]:
    """The bytes of each. Raises OSError if they are not in the file."""
    first = min((chunk.start for chunk in chunks), default=0)
    last = max((chunk.start + chunk.bytes for chunk in chunks), default=0)
    if last - first <= LARGEST_GAP * sum(chunk.bytes for chunk in chunks):
        whole = read_range(path, first, last)
        return [whole.slice(chunk.start - first, chunk.bytes) for chunk in chunks]
    return [read_range(path, chunk.start, chunk.start + chunk.bytes) for chunk in chunks]


def _column(chunk: _Chunk, content: pa.Buffer, rows: int) -> pa.Array | None:
    assert compiled is not None
    type_, packed = chunk.field.type, chunk.is_packed
    valid = pa.allocate_buffer((rows + 7) // 8) if chunk.field.nullable else None
    if type_ in (pa.float64(), pa.int64()):
        values = pa.allocate_buffer(8 * rows)
        missing = compiled.words(content, packed, rows, values, valid)
        if missing is None:
            return None
        return pa.Array.from_buffers(type_, rows, [valid, values], missing)
    if type_ == CODES:
        codes = pa.allocate_buffer(4 * rows)
        found = compiled.codes(content, packed, rows, codes, valid)
        if found is None:
            return None
        missing, ends, labels = found
        return pa.DictionaryArray.from_arrays(
            pa.Array.from_buffers(pa.int32(), rows, [valid, codes], missing),
            pa.Array.from_buffers(
                pa.utf8(), len(ends) // 4 - 1, [None, pa.py_buffer(ends), pa.py_buffer(labels)], 0
            ),
            safe=False,  # the indices are in it, as the reader saw
        )
    if type_ == pa.utf8():
        ends = pa.allocate_buffer(4 * (rows + 1))
        data = pa.allocate_buffer(2 * chunk.raw_bytes + TEXT_BYTES * rows)
        found = compiled.texts(content, packed, rows, ends, valid, data)
        if found is None:
            return None
        missing, used = found
        return pa.Array.from_buffers(type_, rows, [valid, ends, data.slice(0, used)], missing)
    return None
