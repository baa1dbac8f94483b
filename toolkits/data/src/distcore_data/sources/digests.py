"""Digests of content: of files, and of frames in memory however they are chunked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import xxhash

from distcore_data.os_errors import readable
from distcore_data.sources.values import is_text
from distcore_data.threads import processors, run_all

PIECE = 1 << 18
SLICE_ROWS = 1 << 16


def file_digest(path: str | Path) -> str:
    """xxh3_128 of the file's bytes, in hex. The piece stays in the processor's cache between
    read and hash."""
    hasher = xxhash.xxh3_128()
    with readable(os.fspath(path)), open(path, "rb", buffering=0) as file:
        # Of thousands of small files, fresh memory would take longer than the reading.
        piece = bytearray(min(PIECE, os.fstat(file.fileno()).st_size + 1))
        view = memoryview(piece)
        while size := file.readinto(piece):
            hasher.update(view[:size])
    return hasher.hexdigest()


def file_digests(paths: Sequence[str | Path]) -> list[str]:
    """The `file_digest` of each, by threads."""
    return run_all(file_digest, paths, processors())


def combined(parts: Iterable[object]) -> str:
    """One digest of several values, each by its repr; where one ends and the next begins
    matters."""
    hasher = xxhash.xxh3_128()
    for part in parts:
        text = repr(part).encode()
        hasher.update(len(text).to_bytes(8, "little"))
        hasher.update(text)
    return hasher.hexdigest()


def table_digest(table: pa.Table, columns: Sequence[str]) -> str:
    """Digest of the columns' names, types and values, independent of chunks, offsets and
    dictionaries."""
    return combined(
        [table.num_rows, *((name, *_column_digest(table.column(name))) for name in columns)]
    )


def _column_digest(column: pa.ChunkedArray) -> tuple[str, ...]:
    """Kind of value, then digests of validity, of values, and (for strings) of lengths."""
    validity, content, lengths = xxhash.xxh3_128(), xxhash.xxh3_128(), xxhash.xxh3_128()
    value_type = column.type.value_type if pt.is_dictionary(column.type) else column.type
    as_text = is_text(value_type) or pt.is_decimal(value_type)
    for chunk in column.chunks:
        for start in range(0, len(chunk), SLICE_ROWS):
            values = _plain(
                chunk.slice(start, SLICE_ROWS), pa.large_utf8() if as_text else value_type
            )
            valid = np.asarray(values.is_valid())
            if as_text:
                values = values.fill_null("")
                lengths.update(_raw(np.asarray(pc.binary_length(values), dtype=np.int64)))
                content.update(_text_bytes(values))
            elif not pt.is_null(value_type):
                plain = _fixed(values)
                if pt.is_floating(value_type):
                    valid &= ~np.isnan(plain)
                content.update(_raw(np.where(valid, plain, plain.dtype.type(0))))
            validity.update(_raw(valid))
    kind = "string" if is_text(value_type) else str(value_type)
    return kind, validity.hexdigest(), content.hexdigest(), lengths.hexdigest()


def _plain(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """The values without their dictionary, if they have one."""
    if pt.is_dictionary(values.type):
        return values.dictionary.cast(type_).take(values.indices)
    return values.cast(type_)


def _raw(values: np.ndarray) -> Any:
    return np.ascontiguousarray(values).view(np.uint8)


def _text_bytes(texts: pa.Array) -> memoryview:
    offsets = np.frombuffer(texts.buffers()[1], np.int64, len(texts) + 1, texts.offset * 8)
    data = texts.buffers()[2]
    return memoryview(data)[offsets[0] : offsets[-1]] if data is not None else memoryview(b"")


def _fixed(values: pa.Array) -> np.ndarray:
    """Numbers, booleans, dates and times as a NumPy array; what stands where a value is missing
    is of no meaning."""
    if pt.is_boolean(values.type):
        values = values.cast(pa.uint8())
    elif pt.is_temporal(values.type):
        values = values.view(pa.int64() if values.type.bit_width == 64 else pa.int32())
    if pt.is_floating(values.type):
        return values.to_numpy(zero_copy_only=False)
    return values.fill_null(0).to_numpy(zero_copy_only=False)
