"""The bytes of an HDF5 file: HDF5 lays it out in memory, values that are not compressed go past it.

A dataset in one piece is only declared to HDF5, which gives it a place; its values are put there
straight from the table's memory. So the structure is HDF5's own, and the values are copied once,
into the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from h5py import h5d, h5f, h5fd, h5g, h5p

from distcore_data.columns import Values
from distcore_hdf5 import index
from distcore_hdf5.index import Stored, StoredColumn
from distcore_hdf5.sparse import SparseFile

if TYPE_CHECKING:
    from distcore_hdf5.options import Hdf5Options

VERSION = h5f.LIBVER_V110
"""Structures of HDF5 1.10 (2016): with checksums, and the same bytes from every later library."""

ALIGNED_FROM, ALIGNMENT = 4096, 64
"""Columns of so many bytes begin at multiples of 64, for whoever maps the file."""

COLUMN_STRUCTURE = 1024
"""About the bytes of HDF5's structure for a column; structure is kept together, so that values
follow it."""

CHUNK_ROWS = 65_536
LARGEST = 1 << 50
"""Stands for an offset or a size that is not known yet, in an index that must be no shorter than
the final one."""

VALUES, OFFSETS = "values", "offsets"
"""The two datasets in the group of a ragged column."""


class NotCompressed(Exception):
    """A chunk lies in the file in another way than the index can say."""


SPECIAL = {"%": "%25", "/": "%2F", "\0": "%00"}


def quoted(name: str) -> str:
    """A column's name as HDF5's: a slash would be a path, a lone dot the group itself."""
    safe = "".join(SPECIAL.get(letter, letter) for letter in name)
    return {"": "%", ".": "%2E"}.get(safe, safe)


def image(columns: Sequence[Values], options: Hdf5Options, compress: bool) -> list[memoryview]:
    """The whole file, in pieces one after the other."""
    declared = {
        column.name: StoredColumn(
            _declared(column.values, options, compress),
            None if column.offsets is None else _declared(column.offsets, options, compress),
        )
        for column in columns
    }
    block = index.block_bytes(index.encode(declared, LARGEST))
    memory = SparseFile()
    with _created(memory, block, len(columns)) as file:
        made = [_write(file, column, declared[column.name], options) for column in columns]
        found = {column.name: stored for column, stored in zip(columns, made, strict=True)}
        file.flush()
        size = file.id.get_filesize()
    memory.seek(0)
    memory.write(index.encode(found, size))
    return list(_assembled(memory, _plain_values(columns, found), size))


def _declared(values: np.ndarray, options: Hdf5Options, compress: bool) -> Stored:
    """How the values will be stored; where, HDF5 decides."""
    little = values.dtype.newbyteorder("<")
    if not compress or not values.size:
        return Stored(values.shape, little, LARGEST)
    rows = min(options.chunk_rows or CHUNK_ROWS, len(values))
    return Stored(values.shape, little, 0, rows, ((LARGEST, LARGEST),) * -(-len(values) // rows))


def _plain_values(
    columns: Sequence[Values], found: dict[str, StoredColumn]
) -> Iterator[tuple[int, memoryview]]:
    """(offset, bytes) of the datasets that HDF5 was not given the values of."""
    for column in columns:
        for values, stored in zip(
            (column.values, column.offsets), found[column.name].parts, strict=False
        ):
            if values is not None and values.size and not stored.chunks:
                little = np.ascontiguousarray(values, dtype=stored.dtype)
                yield stored.offset, little.reshape(-1).view(np.uint8).data


def _assembled(
    structure: SparseFile, values: Iterator[tuple[int, memoryview]], size: int
) -> Iterator[memoryview]:
    """The file from its start to its end: structure, and values at their places in it."""
    at = 0
    for offset, data in [*sorted(values, key=lambda each: each[0]), (size, memoryview(b""))]:
        if at < offset:
            yield structure.part(at, offset)
        yield data
        at = offset + len(data)


# ------------------------------------------------------------------ HDF5


def _created(memory: SparseFile, block: int, columns: int) -> h5py.File:
    """An empty file that keeps the order of its columns. h5py's own `File` would note the time
    of its creation."""
    access, create = h5p.create(h5p.FILE_ACCESS), h5p.create(h5p.FILE_CREATE)
    access.set_libver_bounds(VERSION, VERSION)
    access.set_fileobj_driver(h5fd.fileobj_driver, memory)
    access.set_alignment(ALIGNED_FROM, ALIGNMENT)
    access.set_meta_block_size(COLUMN_STRUCTURE * (columns + 2))
    create.set_userblock(block)
    return h5py.File(h5f.create(b"shard", h5f.ACC_TRUNC, fcpl=_timeless(create), fapl=access))


def _timeless(create: Any) -> Any:
    """A group's properties: links in the order they were made, no times."""
    create.set_link_creation_order(h5p.CRT_ORDER_TRACKED | h5p.CRT_ORDER_INDEXED)
    create.set_obj_track_times(False)
    return create


def _write(
    group: h5py.Group, column: Values, stored: StoredColumn, options: Hdf5Options
) -> StoredColumn:
    """Make the datasets of a column; returns it with the places that HDF5 gave them."""
    name = quoted(column.name)
    if column.offsets is None or stored.offsets is None:
        return StoredColumn(_dataset(group, name, column.values, stored.values, options))
    made = h5py.Group(
        h5g.create(group.id, name.encode(), gcpl=_timeless(h5p.create(h5p.GROUP_CREATE)))
    )
    offsets = _dataset(made, OFFSETS, column.offsets, stored.offsets, options)
    return StoredColumn(_dataset(made, VALUES, column.values, stored.values, options), offsets)


def _dataset(
    group: h5py.Group, name: str, values: np.ndarray, stored: Stored, options: Hdf5Options
) -> Stored:
    if stored.chunks:
        return replace(stored, chunks=_chunks(group, name, values, stored, options))
    create = h5p.create(h5p.DATASET_CREATE)
    create.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    create.set_fill_time(h5d.FILL_TIME_NEVER)
    made = group.create_dataset(name, stored.shape, stored.dtype, dcpl=create, track_times=False)
    return replace(stored, offset=(made.id.get_offset() or 0) if stored.bytes else 0)


def _chunks(
    group: h5py.Group, name: str, values: np.ndarray, stored: Stored, options: Hdf5Options
) -> tuple[tuple[int, int], ...]:
    """Have HDF5 compress a dataset; (offset, bytes) of each of its chunks. Raises NotCompressed if
    it left one as it was, which it does where packing fails."""
    made = group.create_dataset(
        name,
        data=values.astype(stored.dtype, copy=False),
        chunks=(stored.chunk_rows, *stored.shape[1:]),
        compression=options.compression_level or 1,
        shuffle=True,
        track_times=False,
    )
    chunks = {}

    def take(info: Any) -> None:
        if info.filter_mask:
            raise NotCompressed
        chunks[info.chunk_offset[0]] = (info.byte_offset, info.size)

    made.id.chunk_iter(take)
    return tuple(chunks[start] for start in sorted(chunks))
