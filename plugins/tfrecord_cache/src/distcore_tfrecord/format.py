"""Encoded columns as TFRecord files of `tf.train.Example`, one feature a column, without
TensorFlow.

The first row's record has one more feature, INDEX: JSON of the columns, of the number of rows, and
of the bytes of each block of the rows after it. Parsers that ask for features by name never see it.
With gzip, the first record is a gzip member and each block another; gzip readers join them.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from distcore_core.errors import CacheError
from distcore_data.columns import Values, batch_of, columns_of, most_held, row_range
from distcore_tfrecord.blocks import decode, encode, framed
from distcore_tfrecord.index import INDEX, Index, head_of, suffix_of
from distcore_tfrecord.layout import HEAD, TAIL, Layout
from distcore_tfrecord.options import TFRecordOptions

BLOCK_BYTES = 1 << 20
"""About the bytes of a block, the least that is decoded at once: what fits a processor's cache."""

MOST_BLOCK_ROWS = 8192


class TFRecordFormat:
    """`CacheFormat` on numpy and crc32c. options: `TFRecordOptions`."""

    suffix = ".tfrecord"

    def __init__(self, options: TFRecordOptions | None = None) -> None:
        self.options = options or TFRecordOptions()
        self._packs = self.options.compression == "gzip"
        if self._packs:
            self.suffix = ".tfrecord.gz"

    def write(self, target: BinaryIO, table: pa.Table) -> None:
        """Write a table of float32, int32, int8, fixed-size list or list columns without missing
        values.

        The bytes depend on the values, the options and (with gzip) the version of zlib alone."""
        columns = columns_of(table)
        if any(column.name == INDEX for column in columns):
            raise CacheError(f"A column cannot be called {INDEX!r} in a TFRecord cache. Rename it.")
        layout, rows = Layout.of(columns), table.num_rows
        block_rows = _block_rows(layout, columns, rows)
        blocks = [(start, min(start + block_rows, rows)) for start in range(1, rows, block_rows)]
        sizes = [_bytes_of(layout, columns, start, stop) for start, stop in blocks]
        made = (encode(layout, _slice(columns, start, stop)).tobytes() for start, stop in blocks)
        level = self.options.compression_level or 1
        members: list[bytes] = []
        if self._packs:
            members = [_packed(block, level) for block in made]
            if sum(sizes) > most_held(sum(map(len, members))) // 2:
                level = 0
                members = [
                    _packed(encode(layout, _slice(columns, *block)).tobytes(), level)
                    for block in blocks
                ]
        lengths = tuple(map(len, members))
        index = Index(layout.specs, layout.length_bytes, rows, block_rows, tuple(sizes), lengths)
        first = encode(layout, _slice(columns, 0, 1)).tobytes()[HEAD:-TAIL] if rows else b""
        head = framed(first + suffix_of(index))
        target.write(_packed(head, level) if self._packs else head)
        for block in members or made:
            target.write(block)

    def open(self, source: BinaryIO) -> TFRecordShard:
        return TFRecordShard(source)


class TFRecordShard:
    """An open shard. Keeps the block that it decoded last, so that small reads in order decode each
    once.

    Used by one thread at a time."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._index, self._first = head_of(source)
        self.rows: int = self._index.rows
        self._numbers = {spec.name: number for number, spec in enumerate(self._index.layout.specs)}
        self._last: tuple[tuple[int, frozenset[int]], list[Values]] | None = None

    def read(
        self, start: int = 0, stop: int | None = None, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Rows [start, stop) of the columns, in the order they are asked for."""
        start, stop = row_range(start, stop, self.rows)
        names = list(self._numbers) if columns is None else list(columns)
        wanted = frozenset(self._numbers[name] for name in names)
        pieces = []
        for first, last, number in self._index.parts(start, stop):
            values = self._block(number, wanted)
            inside = max(start - first, 0), min(stop, last) - first
            pieces.append(_slice(values, *inside) if inside != (0, last - first) else values)
        joined = {column.name: column for column in self._joined(pieces, wanted)}
        return batch_of([joined[name] for name in names])

    def close(self) -> None:
        self._last = None
        self._source.close()

    def _block(self, number: int, wanted: frozenset[int]) -> list[Values]:
        """The wanted columns of a block; number -1: of the first row."""
        if self._last is None or self._last[0] != (number, wanted):
            layout, rows = self._index.layout, self._index.block_rows
            if number < 0:
                found = decode(layout, self._first, 1, wanted)
            else:
                begin = 1 + number * rows
                found = decode(
                    layout,
                    self._index.block(self._source, number),
                    min(rows, self.rows - begin),
                    wanted,
                )
            self._last = (
                (number, wanted),
                sorted(found, key=lambda column: self._numbers[column.name]),
            )
        return self._last[1]

    def _joined(self, pieces: list[list[Values]], wanted: frozenset[int]) -> list[Values]:
        if not pieces:
            return [
                spec.empty()
                for number, spec in enumerate(self._index.layout.specs)
                if number in wanted
            ]
        return [_concatenated(each) for each in zip(*pieces, strict=True)]


# ------------------------------------------------------------------ inside


def _packed(data: bytes, level: int) -> bytes:
    """A gzip member without a time or a name."""
    packer = zlib.compressobj(level, wbits=31)
    return packer.compress(data) + packer.flush()


def _block_rows(layout: Layout, columns: Sequence[Values], rows: int) -> int:
    """Rows of about BLOCK_BYTES."""
    mean = _bytes_of(layout, columns, 0, rows) / max(1, rows)
    return int(min(MOST_BLOCK_ROWS, max(1, BLOCK_BYTES // max(mean, 1))))


def _bytes_of(layout: Layout, columns: Sequence[Values], start: int, stop: int) -> int:
    """Bytes of the records of rows [start, stop)."""
    total = (stop - start) * layout.fixed
    for number in layout.ragged:
        offsets = columns[number].offsets
        assert offsets is not None
        total += int(offsets[stop] - offsets[start]) * layout.specs[number].bytes
    return total


def _slice(columns: Sequence[Values], start: int, stop: int) -> list[Values]:
    found = []
    for column in columns:
        if column.offsets is None:
            found.append(Values(column.name, column.values[start:stop]))
        else:
            ends = column.offsets[start : stop + 1]
            found.append(Values(column.name, column.values[ends[0] : ends[-1]], ends - ends[0]))
    return found


def _concatenated(pieces: Sequence[Values]) -> Values:
    if len(pieces) == 1:
        return pieces[0]
    values = np.concatenate([piece.values for piece in pieces])
    if pieces[0].offsets is None:
        return Values(pieces[0].name, values)
    counts = np.concatenate(
        [np.diff(piece.offsets) for piece in pieces if piece.offsets is not None]
    )
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise ValueError(f"column {pieces[0].name!r} has too many values for one batch")
    return Values(pieces[0].name, values, offsets.astype(np.int32))
