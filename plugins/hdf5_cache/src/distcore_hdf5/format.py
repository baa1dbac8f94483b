"""Encoded columns as one HDF5 file a shard: a dataset for each column, a group of two for a ragged
one.

HDF5 writes the file and tells where the columns lie in it; the index keeps that, and they are read
from there without HDF5. Equal tables give equal bytes: no times are kept, the file's version is
fixed, columns come in the table's order.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from distcore_data.columns import Values, batch_of, columns_of, most_held, row_range
from distcore_hdf5 import index
from distcore_hdf5.index import Stored, StoredColumn
from distcore_hdf5.options import Hdf5Options


class Hdf5Format:
    """`CacheFormat` on h5py. options: `Hdf5Options`."""

    suffix = ".h5"

    def __init__(self, options: Hdf5Options | None = None) -> None:
        self.options = options or Hdf5Options()

    def write(self, target: BinaryIO, table: pa.Table) -> None:
        """Write a table of float32, int32, int8, fixed-size list or list columns without missing
        values.

        The bytes depend on the values, the options and the versions of HDF5 and zlib alone."""
        from distcore_hdf5.image import NotCompressed, image

        columns = columns_of(table)
        try:
            pieces = image(columns, self.options, self.options.compression == "gzip")
        except NotCompressed:
            pieces = image(columns, self.options, False)
        if sum(each.values.nbytes for each in columns) > most_held(sum(map(len, pieces))) // 2:
            pieces = image(columns, self.options, False)
        # In order, by ourselves: the file is hashed as it is written, and an error of the disk
        # stays what it is.
        for piece in pieces:
            target.write(piece)

    def open(self, source: BinaryIO) -> Hdf5Shard:
        return Hdf5Shard(source)


class Hdf5Shard:
    """An open shard. Keeps the chunk of each column that it decoded last, so that small reads in
    order decode it once.

    Used by one thread at a time."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._columns = index.decode(source)
        self.rows: int = next(iter(self._columns.values())).rows
        self._last: dict[int, tuple[int, np.ndarray]] = {}

    def read(
        self, start: int = 0, stop: int | None = None, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Rows [start, stop) of the columns, in the order they are asked for."""
        start, stop = row_range(start, stop, self.rows)
        names = list(self._columns) if columns is None else columns
        return batch_of([self._values(name, self._columns[name], start, stop) for name in names])

    def close(self) -> None:
        self._last.clear()
        self._source.close()

    def _values(self, name: str, column: StoredColumn, start: int, stop: int) -> Values:
        if column.offsets is None:
            return Values(name, self._rows(column.values, start, stop))
        ends = self._rows(column.offsets, start, stop + 1)
        first, last = int(ends[0]), int(ends[-1])
        if not 0 <= first <= last <= column.values.shape[0]:
            raise ValueError(f"the offsets of column {name!r} lie outside its values")
        return Values(name, self._rows(column.values, first, last), ends - ends[0])

    def _rows(self, stored: Stored, start: int, stop: int) -> np.ndarray:
        out = np.empty((stop - start, *stored.shape[1:]), stored.dtype)
        if not out.nbytes:
            return out
        if not stored.chunks:
            self._fill(
                out.reshape(-1).view(np.uint8).data, stored.offset + start * stored.row_bytes
            )
            return out
        for number in range(start // stored.chunk_rows, -(-stop // stored.chunk_rows)):
            base = number * stored.chunk_rows
            begin, end = max(start, base), min(stop, base + stored.chunk_rows)
            out[begin - start : end - start] = self._chunk(stored, number)[
                begin - base : end - base
            ]
        return out

    def _chunk(self, stored: Stored, number: int) -> np.ndarray:
        """Inflate and put together one chunk [chunk_rows, …], never into more memory than it is
        to fill."""
        known = self._last.get(id(stored))
        if known is not None and known[0] == number:
            return known[1]
        offset, bytes = stored.chunks[number]
        packed = memoryview(bytearray(bytes))
        self._fill(packed, offset)
        length = stored.chunk_rows * stored.row_bytes
        inflate = zlib.decompressobj()
        plain = inflate.decompress(packed, length + 1)
        if len(plain) != length or not inflate.eof:
            raise ValueError(f"a chunk does not inflate to {length} bytes")
        size = stored.dtype.itemsize
        joined = np.ascontiguousarray(np.frombuffer(plain, np.uint8).reshape(size, -1).T)
        values = joined.view(stored.dtype).reshape(stored.chunk_rows, *stored.shape[1:])
        self._last[id(stored)] = (number, values)
        return values

    def _fill(self, buffer: memoryview, offset: int) -> None:
        self._source.seek(offset)
        done = 0
        while done < len(buffer):
            count = self._source.readinto(buffer[done:])  # type: ignore[attr-defined]
            if not count:
                raise ValueError(f"it ends at {offset + done}, before the end of a column")
            done += count
