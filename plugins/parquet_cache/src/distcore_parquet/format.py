"""Encoded columns as one Parquet file a shard, readable by anything and with the same bytes for
equal tables.

What the layout owes its speed to: columns are required (no definition levels), there are no
statistics and no dictionaries (values are codes already), floats lie plain, and the bytes of codes
are split by significance before they are compressed (BYTE_STREAM_SPLIT), which lz4 then does at
memory speed. Every page has a CRC for other readers; ours is given files whose hash was compared
(`cache/files.py`), and checking again took three tenths of the time.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from distcore_data.arrow import from_numpy, one_array, to_numpy
from distcore_data.columns import most_held, refuse_missing, row_range
from distcore_parquet import claims
from distcore_parquet.options import ParquetOptions

WRITE_BATCH = 1 << 16
"""Values handed to the encoder at once; pyarrow's 1024 costs a tenth more."""

BUFFER = 1 << 16
"""Bytes that are gathered before Python is asked to write them."""

PAGE_BYTES = 1 << 20
PAGE_ROWS = "max_rows_per_page" in inspect.signature(pq.write_table).parameters
"""pyarrow's newer versions, which know this option, cut a page every 20,000 rows, and each costs
its readers time."""


class ParquetFormat:
    """`CacheFormat` on pyarrow. options: `ParquetOptions`."""

    suffix = ".parquet"

    def __init__(self, options: ParquetOptions | None = None) -> None:
        self.options = options or ParquetOptions()
        self._last: tuple[pa.Schema, _Layout] | None = None

    def write(self, target: BinaryIO, table: pa.Table) -> None:
        """Write a table of float32, int32, int8, FixedSizeList or List<int32> columns without
        missing values.

        The bytes depend on the values and the options alone: not on chunks, slices, metadata or
        threads."""
        layout = self._layout(table.schema)
        table = layout.normal(table)
        start = target.tell()
        self._write(target, table, self.options.compression, layout)
        if layout.bytes_of(table) > most_held(target.tell() - start) // 2:
            target.seek(start)
            target.truncate()
            self._write(target, table, "none", layout)

    def open(self, source: BinaryIO) -> ParquetShard:
        return ParquetShard(source)

    def _layout(self, schema: pa.Schema) -> _Layout:
        """Of the schema, which is mostly that of the shard before."""
        last = self._last
        if last is None or not last[0].equals(schema, check_metadata=True):
            last = self._last = (schema, _Layout(schema))
        return last[1]

    def _write(self, target: BinaryIO, table: pa.Table, compression: str, layout: _Layout) -> None:
        # Arrow writes the header of each page by itself: of ten thousand columns a call of Python
        # each.
        sink = _Sink(target)
        gathered = pa.BufferedOutputStream(pa.PythonFile(sink, mode="w"), BUFFER)
        try:
            pq.write_table(
                table,
                gathered,
                row_group_size=self.options.row_group_rows,
                use_dictionary=False,
                write_statistics=False,
                write_page_checksum=True,
                data_page_size=PAGE_BYTES,
                write_batch_size=WRITE_BATCH,
                **({"max_rows_per_page": WRITE_BATCH} if PAGE_ROWS else {}),
                # Only a FixedSizeList needs Arrow's own schema to come back as it was.
                store_schema=layout.fixed,
                **layout.encodings(compression),
            )
            gathered.flush()
        finally:
            sink.write = len


class _Sink:
    """The target as Arrow sees it. Arrow's own buffer writes what it still holds when it is
    forgotten, also after an error, and then closes: by that time `write` leads nowhere."""

    closed = False

    def __init__(self, target: BinaryIO) -> None:
        self.write: Callable[[bytes], int] = target.write

    def flush(self) -> None:
        """What comes here is written at once."""

    def close(self) -> None:
        """The target is its owner's."""


class ParquetShard:
    """An open shard. Keeps the row group it decoded last, so that small reads in order decode each
    one once.

    Used by one thread at a time."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        size = claims.check_footer(source)
        own = _opened_by_arrow(source)
        self._threads = own is not None
        self._file = pq.ParquetFile(own or source, pre_buffer=self._threads)
        metadata = self._file.metadata
        claims.check_pages(source, metadata, size)
        self.rows: int = metadata.num_rows
        self._starts = [0]
        for number in range(metadata.num_row_groups):
            self._starts.append(self._starts[-1] + metadata.row_group(number).num_rows)
        self._last: tuple[Any, pa.Table] | None = None

    def read(
        self, start: int = 0, stop: int | None = None, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Rows [start, stop) of the columns, in the order they are asked for."""
        start, stop = row_range(start, stop, self.rows)
        names = None if columns is None else list(columns)
        tables = list(self._pieces(start, stop, names))
        if not tables:
            schema = self._file.schema_arrow
            chosen = schema if names is None else pa.schema([schema.field(name) for name in names])
            tables = [pa.Table.from_batches([], chosen)]
        return _one_batch(pa.concat_tables(tables))

    def close(self) -> None:
        self._last = None
        self._file.close(force=True)  # also what was opened for it
        self._source.close()

    def _pieces(self, start: int, stop: int, names: list[str] | None) -> Iterator[pa.Table]:
        """The row groups that hold the rows: whole ones read together, the ends cut from a row
        group that is kept."""
        groups = [
            n
            for n in range(len(self._starts) - 1)
            if self._starts[n] < stop and self._starts[n + 1] > start
        ]
        whole = [n for n in groups if start <= self._starts[n] and self._starts[n + 1] <= stop]
        if groups and groups[0] not in whole:
            yield self._part(groups[0], start, stop, names)
        if whole:
            yield self._decode(whole, names)
        if len(groups) > 1 and groups[-1] not in whole:
            yield self._part(groups[-1], start, stop, names)

    def _part(self, group: int, start: int, stop: int, names: list[str] | None) -> pa.Table:
        key = (group, names and tuple(names))
        if self._last is None or self._last[0] != key:
            self._last = (key, self._decode([group], names))
        base = self._starts[group]
        begin = max(start - base, 0)
        return self._last[1].slice(begin, min(stop, self._starts[group + 1]) - base - begin)

    def _decode(self, groups: list[int], names: list[str] | None) -> pa.Table:
        table = self._file.read_row_groups(groups, columns=names, use_threads=self._threads)
        return table if names is None else table.select(names)


def _opened_by_arrow(source: BinaryIO) -> pa.NativeFile | None:
    """The same file, opened once more by Arrow; None if it is none of the system's.

    What Arrow reads through a file of Python's is memory of Python's, and its threads may give that
    back after the read has returned: a program that comes to its end meanwhile is aborted. So only
    files of its own are read by its threads."""
    if type(source) in (io.BufferedReader, io.FileIO):
        with suppress(OSError):
            return pa.OSFile(f"/dev/fd/{source.fileno()}")
    return None


class _Layout:
    """What is the same for every table of a schema. fixed: it has a FixedSizeList."""

    def __init__(self, given: pa.Schema) -> None:
        fields = list(given)
        lists = [field for field in fields if not pa.types.is_primitive(field.type)]
        self.fixed = any(pa.types.is_fixed_size_list(field.type) for field in lists)
        self._integers = [_leaf(field) for field in fields if not _is_float(field.type)]
        self._floats = [_leaf(field) for field in fields if _is_float(field.type)]
        self._plain: pa.Schema | None = None
        if not lists:
            self._plain = pa.schema([pa.field(each.name, each.type, False) for each in fields])
            self._row_bytes = sum(each.type.bit_width for each in fields) // 8

    def encodings(self, codec: str) -> dict[str, Any]:
        """Compression and byte splitting of each column, by its path in the file."""
        if codec == "none":
            return {"compression": "none"}
        if codec == "zstd":
            return {"compression": "zstd", "use_byte_stream_split": self._integers + self._floats}
        return {
            "compression": {
                **dict.fromkeys(self._integers, codec),
                **dict.fromkeys(self._floats, "none"),
            },
            "use_byte_stream_split": self._integers or False,
        }

    def normal(self, table: pa.Table) -> pa.Table:
        """The same values as one chunk a column, required fields, no metadata: one input for equal
        tables."""
        batches = table.to_batches() if self._plain is not None else []
        if len(batches) == 1:
            arrays = batches[0].columns
            for name, array in zip(table.column_names, arrays, strict=True):
                refuse_missing(name, array.null_count)
            return pa.Table.from_arrays(arrays, schema=self._plain)
        arrays = [
            _required(name, column)
            for name, column in zip(table.column_names, table.columns, strict=True)
        ]
        fields = [
            pa.field(name, array.type, nullable=False)
            for name, array in zip(table.column_names, arrays, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))

    def bytes_of(self, table: pa.Table) -> int:
        """What the columns of a normal table hold."""
        return table.nbytes if self._plain is None else table.num_rows * self._row_bytes


def _required(name: str, column: pa.ChunkedArray) -> pa.Array:
    array = one_array(column)
    kind, missing = array.type, array.null_count
    if pa.types.is_fixed_size_list(kind):
        values = array.flatten()
        missing += values.null_count
        element = pa.field("element", kind.value_type, nullable=False)
        made = pa.FixedSizeListArray.from_arrays(values, type=pa.list_(element, kind.list_size))
    elif pa.types.is_list(kind):
        values, offsets = array.flatten(), array.offsets
        missing += values.null_count
        starts = to_numpy(offsets)
        if len(starts) and starts[0]:
            offsets = from_numpy(starts - starts[0])
        made = pa.ListArray.from_arrays(
            offsets, values, type=pa.list_(pa.field("element", kind.value_type, nullable=False))
        )
    else:
        made = array
    refuse_missing(name, missing)
    return made


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(0, field.type) if not table.num_rows else table[field.name].combine_chunks()
            for field in table.schema
        ],
        schema=table.schema,
    )


def _leaf(field: pa.Field) -> str:
    nested = pa.types.is_list(field.type) or pa.types.is_fixed_size_list(field.type)
    return f"{field.name}.list.element" if nested else field.name


def _is_float(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind.value_type if hasattr(kind, "value_type") else kind)
