"""Read a cache: ranges of rows of a split, across its shards, each file checked before its first
use."""

from __future__ import annotations

import bisect
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from distcore_core.contracts import JSON, SPLITS, CacheFormat, Column, ShardReader, Split
from distcore_core.errors import CacheError
from distcore_data.arrow import to_numpy
from distcore_data.blame import one_line
from distcore_data.cache.builder import SPLIT_CODES, SPLIT_COLUMN
from distcore_data.cache.files import CacheFiles
from distcore_data.cache.manifest import SHARD_ROWS, FileEntry, Manifest
from distcore_data.columns import arrow_type, fits
from distcore_data.printable import printable

if TYPE_CHECKING:
    from types import TracebackType

OPEN_SHARDS = 16
"""Files a reader keeps open; the one used longest ago is closed for another."""

PIECE_ROWS = 65_536
"""Rows that `iter` reads at once to cut small batches from."""


class CacheReader:
    """An open cache. Positions count the rows of a split, from 0, in the order of their global
    rows.

    manifest: the plain document. metadata: {feature: metadata}. columns: {name: Column}. May be
        shared by threads.
    """

    def __init__(self, files: CacheFiles, manifest: Manifest, format: CacheFormat) -> None:
        self._files = files
        self.manifest: JSON = manifest.document
        self.metadata: dict[str, JSON] = manifest.metadata
        self.columns: dict[str, Column] = manifest.columns
        self._manifest = manifest
        self._format = format
        self._open: OrderedDict[str, _Shard] = OrderedDict()
        self._lock = threading.Lock()
        self._starts: dict[Split, list[int]] = {}
        for split in SPLITS:
            starts = [0]
            for entry in manifest.splits[split]:
                starts.append(starts[-1] + entry.rows)
            self._starts[split] = starts

    def rows(self, split: Split) -> int:
        """Rows of the split."""
        return self._starts[split][-1]

    def read(
        self, split: Split, start: int, stop: int, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Rows [start, stop) of the split.

        Args:
            columns: Names, in this order; None: all, in the manifest's order.

        Returns:
            float32 or int32 arrays without nulls, FixedSizeList of them, or List<int32>.

        Raises:
            CacheError: A shard is missing or damaged; the message names the file.
            IndexError: The split has no such rows.
        """
        if not 0 <= start <= stop <= self.rows(split):
            raise IndexError(f"rows [{start}, {stop}) of {split}, which has {self.rows(split)}")
        names = self._names(columns)
        starts, batches = self._starts[split], []
        shard = bisect.bisect_right(starts, start) - 1
        while start < stop:
            end = min(stop, starts[shard + 1])
            entry = self._manifest.splits[split][shard]
            batches.append(
                self._read_shard(entry, start - starts[shard], end - starts[shard], names)
            )
            start, shard = end, shard + 1
        return _joined(batches, [self.columns[name] for name in names], self._files)

    def expect(self, split: Split, start: int, stop: int) -> None:
        """Rows [start, stop) of the split will be read next, in order: if files must be fetched,
        that begins now."""
        first, last = (
            bisect.bisect_right(self._starts[split], row) - 1 for row in (start, stop - 1)
        )
        entries = self._manifest.splits[split][first : last + 1] if start < stop else ()
        with self._lock:
            entries = tuple(entry for entry in entries if entry.file not in self._open)
        self._files.expect(entries)

    def iter(
        self, split: Split, batch_rows: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The split in order.

        Args:
            batch_rows: Rows at a time; the last batch may be shorter.
            columns: As for `read`.
        """
        piece = max(PIECE_ROWS // batch_rows, 1) * batch_rows
        self.expect(split, 0, self.rows(split))
        for begin in range(0, self.rows(split), piece):
            end = min(begin + piece, self.rows(split))
            batch = self.read(split, begin, end, columns)
            for start in range(0, end - begin, batch_rows):
                yield batch.slice(start, batch_rows)

    def row_numbers(self, split: Split) -> np.ndarray:
        """Global row number of each position of the split: int64, ascending."""
        found = [np.zeros(0, np.int64)]
        self._files.expect(self._manifest.split_map)
        for entry in self._manifest.split_map:
            batch = self._read_shard(entry, 0, entry.rows, [SPLIT_COLUMN])
            codes = to_numpy(batch.column(0))
            found.append(np.flatnonzero(codes == SPLIT_CODES[split]) + entry.index * SHARD_ROWS)
        numbers = np.concatenate(found)
        if len(numbers) != self.rows(split):
            raise CacheError(
                f"The cache at {self._files.home} contradicts itself: {self.rows(split)} rows of "
                f"{split}, {len(numbers)} in its split map. {self._files.advice()}"
            )
        return numbers

    def close(self) -> None:
        """Close the files; reading again opens them again."""
        with self._lock:
            shards = list(self._open.values())
            self._open.clear()
        for shard in shards:
            shard.close()
        self._files.close()

    def __enter__(self) -> CacheReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -------------------------------------------------------------- inside

    def _names(self, columns: Sequence[str] | None) -> list[str]:
        names = list(self.columns) if columns is None else list(columns)
        for name in names:
            if name not in self.columns:
                raise CacheError(
                    f"The cache at {self._files.home} has no column {name!r}; it has "
                    f"{', '.join(map(printable, self.columns))}. Ask for one of these."
                )
        return names

    def _read_shard(
        self, entry: FileEntry, start: int, stop: int, names: list[str]
    ) -> pa.RecordBatch:
        while True:
            shard = self._shard(entry)
            with shard.lock:
                if shard.closed:  # for another, between our finding it and holding it
                    continue
                if shard.reader is None:
                    shard.reader = self._opened(entry)
                with _Decoding(self._files, entry, self._manifest.format.name):
                    return shard.reader.read(start, stop, names)

    def _shard(self, entry: FileEntry) -> _Shard:
        with self._lock:
            shard = self._open.setdefault(entry.file, _Shard(entry.bytes))
            self._open.move_to_end(entry.file)
            oldest = [self._open.popitem(last=False)[1] for _ in range(self._too_many())]
        for each in oldest:
            each.close()
        return shard

    def _too_many(self) -> int:
        """How many of the open shards must be closed, but for the newest."""
        sizes, most = [shard.bytes for shard in self._open.values()], self._files.most_bytes
        number = max(0, len(sizes) - OPEN_SHARDS)
        while most is not None and number < len(sizes) - 1 and sum(sizes[number:]) > most:
            number += 1
        return number

    def _opened(self, entry: FileEntry) -> ShardReader:
        file = self._files.open(entry)
        try:
            with _Decoding(self._files, entry, self._manifest.format.name):
                reader = self._format.open(file)
                if reader.rows != entry.rows:
                    raise ValueError(f"{entry.rows} rows were expected, {reader.rows} found")
        except BaseException:
            file.close()
            raise
        return reader


class _Shard:
    """A shard that is open, or about to be, and the lock of whoever reads it."""

    def __init__(self, size: int) -> None:
        self.bytes = size
        self.lock = threading.Lock()
        self.reader: ShardReader | None = None
        self.closed = False

    def close(self) -> None:
        with self.lock:
            self.closed = True
            if self.reader is not None:
                self.reader.close()
                self.reader = None


class _Decoding:
    """Whatever a format raises becomes a CacheError that names the file, if its bytes are damaged,
    or else the format. format: its name."""

    def __init__(self, files: CacheFiles, entry: FileEntry, format: str) -> None:
        self.files, self.entry, self.format = files, entry, format

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        # A plugin may raise anything on bytes that are not its own; only what is no fault of the
        # file passes.
        if isinstance(error, Exception) and not isinstance(error, MemoryError | CacheError):
            self._refuse_damage(error)
            raise CacheError(
                f"The cache format {self.format!r} failed to read {self.files.where(self.entry)}, "
                f"which is as it was written ({one_line(error)}). Report it to who made the "
                "format, or choose another one with backend.cache_format. If you changed the "
                "format, give it another DATA_VERSION: caches of the one before are then made anew."
            ) from error

    def _refuse_damage(self, error: Exception) -> None:
        """Raise CacheError if the file's bytes are others than when it was opened."""
        try:
            with self.files.opened(self.entry) as file:
                self.files.compare(file, self.entry)
        except CacheError as damage:
            raise damage from error


def _joined(
    batches: list[pa.RecordBatch], columns: list[Column], files: CacheFiles
) -> pa.RecordBatch:
    """The batches one below the other, their types checked against the manifest."""
    if not batches:
        empty = [pa.nulls(0, arrow_type(column)) for column in columns]
        return pa.RecordBatch.from_arrays(empty, names=[column.name for column in columns])
    for column, found in zip(columns, batches[0].schema.types, strict=True):
        if not fits(found, column):
            raise CacheError(
                f"Column {column.name!r} of the cache is {found}, but its manifest says "
                f"{arrow_type(column)}. {files.advice()}"
            )
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).combine_chunks()
    return table.to_batches()[0]
