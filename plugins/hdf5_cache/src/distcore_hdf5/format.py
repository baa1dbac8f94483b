"""Encoded columns as one HDF5 file a shard: a dataset for each column, a group of two for a ragged one.

HDF5 writes the file and tells where the columns lie in it; the index keeps that, and they are read from there without
HDF5. Equal tables give equal bytes: no times are kept, the file's version is fixed, columns come in the table's order.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa

from distcore.columns import Values, batch_of, columns_of, row_range
from distcore_hdf5 import index
from distcore_hdf5.index import Stored, StoredColumn
from distcore_hdf5.options import Hdf5Options

if TYPE_CHECKING:
    import h5py

VERSION = "LIBVER_V110"
"""Structures of HDF5 1.10 (2016): with checksums, and the same bytes from every later library."""

ALIGNED_FROM, ALIGNMENT = 4096, 64
"""Columns of so many bytes begin at multiples of 64, for whoever maps the file."""

CHUNK_ROWS = 65_536
LARGEST = 1 << 50
"""Stands for an offset or a size that is not known yet, in an index that must be no shorter than the final one."""

VALUES, OFFSETS = "values", "offsets"
"""The two datasets in the group of a ragged column."""

SPECIAL = {"%": "%25", "/": "%2F", "\0": "%00"}


def quoted(name: str) -> str:
    """A column's name as HDF5's: a slash would be a path, a lone dot the group itself."""
    safe = "".join(SPECIAL.get(letter, letter) for letter in name)
    return {"": "%", ".": "%2E"}.get(safe, safe)


class Hdf5Format:
    """`CacheFormat` on h5py. options: `Hdf5Options`."""

    suffix = ".h5"

    def __init__(self, options: Hdf5Options | None = None) -> None:
        self.options = options or Hdf5Options()

    def write(self, target: BinaryIO, table: pa.Table) -> None:
        """Write a table of float32, int32, int8, fixed-size list or list columns without missing values.

        The bytes depend on the values, the options and the versions of HDF5 and zlib alone."""
        columns = columns_of(table)
        image = self._image(columns, self.options.compression == "gzip")
        if sum(each.values.nbytes for each in columns) > index.limit(image.nbytes) // 2:
            image = self._image(columns, False)
        # In one piece and in order: the file is hashed as it is written, and an error of the disk stays what it is.
        target.write(image)

    def open(self, source: BinaryIO) -> Hdf5Shard:
        return Hdf5Shard(source)

    def _image(self, columns: Sequence[Values], compress: bool) -> memoryview:
        """The whole file."""
        expected = {
            column.name: StoredColumn(
                self._expected(column.values, compress),
                None if column.offsets is None else self._expected(column.offsets, compress),
            )
            for column in columns
        }
        block = index.block_bytes(index.encode(expected, LARGEST))
        memory = io.BytesIO()
        with _created(memory, block) as file:
            for column in columns:
                self._write(file, column, expected[column.name])
            file.flush()
            found = {name: _found(file, name, column) for name, column in expected.items()}
        image = memory.getbuffer()
        head = index.encode(found, image.nbytes)
        image[: len(head)] = head
        return image

    def _expected(self, values: np.ndarray, compress: bool) -> Stored:
        """How the values will be stored; where, HDF5 decides."""
        little = values.dtype.newbyteorder("<")
        if not compress or not values.size:
            return Stored(values.shape, little, LARGEST)
        rows = min(self.options.chunk_rows or CHUNK_ROWS, len(values))
        return Stored(values.shape, little, 0, rows, ((LARGEST, LARGEST),) * -(-len(values) // rows))

    def _write(self, group: h5py.Group, column: Values, stored: StoredColumn) -> None:
        name = quoted(column.name)
        if column.offsets is not None and stored.offsets is not None:
            group, name = _group(group, name), VALUES
            self._dataset(group, OFFSETS, column.offsets, stored.offsets)
        self._dataset(group, name, column.values, stored.values)

    def _dataset(self, group: h5py.Group, name: str, values: np.ndarray, stored: Stored) -> None:
        more: dict[str, Any] = {}
        if stored.chunks:
            level = self.options.compression_level or 1
            more = {"chunks": (stored.chunk_rows, *stored.shape[1:]), "compression": level, "shuffle": True}
        group.create_dataset(name, data=values.astype(stored.dtype, copy=False), track_times=False, **more)


def _created(memory: io.BytesIO, block: int) -> h5py.File:
    """An empty file that keeps the order of its columns. h5py's own `File` would note the time of its creation."""
    import h5py
    from h5py import h5f, h5fd, h5p

    access, create = h5p.create(h5p.FILE_ACCESS), h5p.create(h5p.FILE_CREATE)
    access.set_libver_bounds(getattr(h5f, VERSION), getattr(h5f, VERSION))
    access.set_fileobj_driver(h5fd.fileobj_driver, memory)
    access.set_alignment(ALIGNED_FROM, ALIGNMENT)
    create.set_userblock(block)
    return h5py.File(h5f.create(b"shard", h5f.ACC_TRUNC, fcpl=_timeless(create), fapl=access))


def _group(group: h5py.Group, name: str) -> h5py.Group:
    import h5py
    from h5py import h5g, h5p

    return h5py.Group(h5g.create(group.id, name.encode(), gcpl=_timeless(h5p.create(h5p.GROUP_CREATE))))


def _timeless(create: Any) -> Any:
    """A group's properties: links in the order they were made, no times."""
    from h5py import h5p

    create.set_link_creation_order(h5p.CRT_ORDER_TRACKED | h5p.CRT_ORDER_INDEXED)
    create.set_obj_track_times(False)
    return create


def _found(file: h5py.File, name: str, column: StoredColumn) -> StoredColumn:
    """The same column with the places that HDF5 gave it."""
    if column.offsets is None:
        return StoredColumn(_placed(file[quoted(name)], column.values))
    group = file[quoted(name)]
    return StoredColumn(_placed(group[VALUES], column.values), _placed(group[OFFSETS], column.offsets))


def _placed(dataset: h5py.Dataset, stored: Stored) -> Stored:
    if not stored.chunks:
        return replace(stored, offset=(dataset.id.get_offset() or 0) if stored.bytes else 0)
    chunks = {}

    def take(info: Any) -> None:
        chunks[info.chunk_offset[0]] = (info.byte_offset, info.size)

    dataset.id.chunk_iter(take)
    return replace(stored, chunks=tuple(chunks[start] for start in sorted(chunks)))


class Hdf5Shard:
    """An open shard. Keeps the chunk of each column that it decoded last, so that small reads in order decode it once.

    Used by one thread at a time."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._columns = index.decode(source)
        self.rows: int = next(iter(self._columns.values())).rows
        self._last: dict[int, tuple[int, np.ndarray]] = {}

    def read(self, start: int = 0, stop: int | None = None, columns: Sequence[str] | None = None) -> pa.RecordBatch:
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
            self._fill(out.reshape(-1).view(np.uint8).data, stored.offset + start * stored.row_bytes)
            return out
        for number in range(start // stored.chunk_rows, -(-stop // stored.chunk_rows)):
            base = number * stored.chunk_rows
            begin, end = max(start, base), min(stop, base + stored.chunk_rows)
            out[begin - start : end - start] = self._chunk(stored, number)[begin - base : end - base]
        return out

    def _chunk(self, stored: Stored, number: int) -> np.ndarray:
        """Inflate and put together one chunk [chunk_rows, …], never into more memory than it is to fill."""
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
