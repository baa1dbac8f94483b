"""Where each column lies in a file: an index in the HDF5 user block, the first bytes of a file,
left to applications.

Reading goes by this index alone and never through the HDF5 library, which follows links out of the
file, loads filters as code, and can be crashed by a damaged file (a few flipped bits did). Every
number of the index is checked against the file before it is believed, so no claim of a file makes
anyone allocate more than the file can fill.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from distcore_core.errors import CacheError
from distcore_data.columns import KINDS, most_held
from distcore_data.seals import parse_json

MAGIC = b"distcore-hdf5 2\n"
HEAD = struct.Struct("<16sQI")
"""MAGIC, bytes of the JSON that follows, and its crc32."""

SMALLEST_BLOCK = 512
"""HDF5 looks for its own signature at 0, 512, 1024, 2048, …"""

DTYPES: Mapping[str, np.dtype] = {dtype.name: dtype.newbyteorder("<") for dtype in KINDS}


@dataclass(frozen=True)
class Stored:
    """A dataset: shape [n] or [n, width] of a little-endian dtype, in one piece at `offset` of the
    file, or deflated in chunks of `chunk_rows` rows: (offset, bytes) of each, in order; the last
    one is padded."""

    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int = 0
    chunk_rows: int = 0
    chunks: tuple[tuple[int, int], ...] = ()

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def bytes(self) -> int:
        """What all of it takes once it is read: of chunks, whole ones."""
        return max(self.shape[0], len(self.chunks) * self.chunk_rows) * self.row_bytes


@dataclass(frozen=True)
class StoredColumn:
    """A column; offsets: those of a ragged one, a dataset of one row more."""

    values: Stored
    offsets: Stored | None = None

    @property
    def rows(self) -> int:
        return self.values.shape[0] if self.offsets is None else self.offsets.shape[0] - 1

    @property
    def parts(self) -> Sequence[Stored]:
        return (self.values,) if self.offsets is None else (self.values, self.offsets)


def encode(columns: Mapping[str, StoredColumn], size: int) -> bytes:
    """The index of a file of `size` bytes, as its user block begins. Raises CacheError for so many
    columns and chunks that it would not be read back."""
    listed = [
        {"name": name, "values": _plain(column.values)}
        | ({} if column.offsets is None else {"offsets": _plain(column.offsets)})
        for name, column in columns.items()
    ]
    text = json.dumps({"bytes": size, "columns": listed}, separators=(",", ":")).encode()
    try:
        parse_json(text)
    except ValueError as error:
        raise CacheError(
            f"{len(columns)} columns and their chunks are too many for the index of an HDF5 file: "
            f"{error}. Give backend.cache_format a larger chunk_rows or compression: none, or "
            "choose type: parquet."
        ) from error
    return HEAD.pack(MAGIC, len(text), zlib.crc32(text)) + text


def block_bytes(index: bytes) -> int:
    """The least user block that holds the index: a power of two."""
    return max(SMALLEST_BLOCK, 1 << (len(index) - 1).bit_length())


def decode(source: BinaryIO) -> dict[str, StoredColumn]:
    """{column: where it lies}, in the order they were written. Raises ValueError for any other
    or damaged file."""
    size = source.seek(0, 2)
    source.seek(0)
    head = source.read(HEAD.size)
    if len(head) < HEAD.size or not head.startswith(MAGIC):
        raise ValueError("it does not begin as an HDF5 file that distcore wrote")
    _, length, crc = HEAD.unpack(head)
    text = source.read(length) if length <= size - HEAD.size else b""
    if len(text) != length or zlib.crc32(text) != crc:
        raise ValueError("its index is damaged")
    document = parse_json(text)
    if document["bytes"] != size:
        raise ValueError(f"it should have {document['bytes']} bytes, but has {size}")
    columns = {each["name"]: _column(each, size) for each in document["columns"]}
    parts = [part for column in columns.values() for part in column.parts]
    held = sum(part.bytes for part in parts)
    stored = sum(
        sum(bytes for _, bytes in part.chunks) if part.chunks else part.bytes for part in parts
    )
    if stored > size or held > most_held(size):
        raise ValueError(f"its columns claim {held} bytes, which cannot come from a file of {size}")
    if len({column.rows for column in columns.values()}) != 1 or len(columns) != len(
        document["columns"]
    ):
        raise ValueError("its columns do not have the same number of rows, or there are none")
    return columns


# ------------------------------------------------------------------ inside


def _plain(stored: Stored) -> dict[str, Any]:
    found: dict[str, Any] = {"shape": stored.shape, "dtype": stored.dtype.name}
    if stored.chunks:
        numbers = [number for chunk in stored.chunks for number in chunk]
        return found | {"chunk_rows": stored.chunk_rows, "chunks": numbers}
    return found | {"offset": stored.offset}


def _column(document: dict[str, Any], size: int) -> StoredColumn:
    name, values = document["name"], _stored(document["values"], size)
    if not isinstance(name, str):
        raise ValueError(f"{name!r} is no name of a column")
    if "offsets" not in document:
        return StoredColumn(values)
    offsets = _stored(document["offsets"], size)
    if (
        len(values.shape) != 1
        or len(offsets.shape) != 1
        or offsets.dtype != DTYPES["int32"]
        or not offsets.shape[0]
    ):
        raise ValueError(
            f"{name!r} is no ragged column: it has the shapes {values.shape} and {offsets.shape}"
        )
    return StoredColumn(values, offsets)


def _stored(document: dict[str, Any], size: int) -> Stored:
    """One dataset, every number in its range and every byte inside the file."""
    shape, dtype = tuple(document["shape"]), DTYPES[document["dtype"]]
    numbers = document.get("chunks", ())
    chunks = tuple(zip(numbers[::2], numbers[1::2], strict=True))
    stored = Stored(shape, dtype, document.get("offset", 0), document.get("chunk_rows", 0), chunks)
    if len(shape) not in (1, 2) or any(
        type(number) is not int or number < 0
        for number in (*shape, *numbers, stored.offset, stored.chunk_rows)
    ):
        raise ValueError(f"the numbers of a dataset of shape {shape} make no sense")
    pieces = chunks or ((stored.offset, stored.bytes),)
    if any(offset + bytes > size for offset, bytes in pieces):
        raise ValueError(
            f"a dataset of shape {shape} lies beyond the end of the file, {size} bytes"
        )
    if chunks and (
        not 0 < stored.chunk_rows <= shape[0] or len(chunks) != -(-shape[0] // stored.chunk_rows)
    ):
        raise ValueError(
            f"{len(chunks)} chunks of {stored.chunk_rows} rows do not make up the shape {shape}"
        )
    return stored
