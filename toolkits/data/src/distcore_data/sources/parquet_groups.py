"""Partitions of Parquet: row groups, slices of large ones, and small ones joined."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.parquet as pq

from distcore_core.contracts import Partition
from distcore_data.sources.datafile import DataFile
from distcore_data.sources.encoding import refuse_damaged
from distcore_data.sources.kept import Kept
from distcore_data.sources.options import DelimitedOptions
from distcore_data.sources.parquet_columns import (
    CODES,
    Places,
    columns_at,
    joined,
    piece_at,
    rows_at,
)
from distcore_data.sources.parquet_files import open_file
from distcore_data.sources.tables import typed_batch

BUFFER = 1 << 16
"""Bytes of a column that a pass over a row group reads at once; otherwise it begins by reading all
of them, which of a thousand columns are hundreds of megabytes."""


@dataclass(frozen=True)
class ParquetPartition:
    """Rows [start, stop) of one row group; `first` is the dataset's row where that row group
    begins.

    fields: what each of the columns is in the file. places: where they lie in this row group, all
    of it; None, if they are surely not plain (parquet_columns.py). source: the token of the open
    source.
    """

    file: DataFile
    group: int
    rows: int
    first: int
    start: int
    stop: int
    raw: tuple[tuple[str, str], ...]
    dictionaries: tuple[str, ...]
    options: DelimitedOptions
    units: tuple[tuple[str, str], ...]
    fields: tuple[pa.Field, ...]
    places: Places | None = field(hash=False)
    source: str = field(default="", compare=False)

    def read(self) -> pa.RecordBatch:
        """The rows, typed. Raises DataError naming file, row (the first is 0) and column."""
        return typed_batch(self.table(), self.raw, self.options, self.place_of, dict(self.units))

    def table(self) -> pa.Table:
        """The rows as they are stored. Raises DataError naming a file that is damaged."""
        with self.file.unchanged():
            try:
                return self._rows()
            except FileNotFoundError:
                raise  # another machine may not see it
            except (pa.ArrowException, OSError) as error:
                refuse_damaged(self.file.shown, f"row group {self.group}", error)

    @property
    def size(self) -> int:
        """How many rows it has."""
        return self.stop - self.start

    def through(self, last: Partition) -> ParquetPartition | None:
        """Its rows and those behind it up to the end of `last`; None if that is of another row
        group."""
        if not isinstance(last, ParquetPartition):
            return None
        whole = replace(self, stop=last.stop)
        return whole if whole == replace(last, start=self.start) else None

    def place_of(self, row: int) -> str:
        """What messages call a row of these."""
        return f"{self.file.shown}, row {self.first + self.start + row}"

    def _rows(self) -> pa.Table:
        table = self._columns()
        table.validate(full=True)
        if table.num_rows != self.size:  # a column that was read alone
            raise pa.ArrowInvalid(f"it has {table.num_rows} rows, and should have {self.size}")
        return table

    def _columns(self) -> pa.Table:
        """Those that are plain by the compiled reader, others by Arrow's."""
        fields = [
            each.with_type(CODES) if each.name in self.dictionaries else each
            for each in self.fields
        ]
        found: dict[str, pa.Array | pa.ChunkedArray] = {}
        is_whole = self.size == self.rows
        if self.places is not None and is_whole:
            found |= columns_at(self.file.path, self.rows, self.places, fields)
        elif self.places is not None:
            found |= rows_at(self.file, self.rows, self.start, self.stop, self.places, fields)
        others = tuple(name for name, _ in self.raw if name not in found)
        if others:
            rest = self._by_arrow(others, is_whole)
            if not found:
                return rest
            found |= {name: rest.column(name) for name in others}
        return pa.Table.from_arrays([found[name] for name, _ in self.raw], schema=pa.schema(fields))

    def _by_arrow(self, names: tuple[str, ...], is_whole: bool) -> pa.Table:
        if is_whole:
            return _opened(self).read_row_group(self.group, columns=list(names), use_threads=False)
        found = _cursor(self, names).take(self.start, self.stop)
        if found is None:  # another thread took these rows since we chose the cursor
            found = _Cursor(self, names).take(self.start, self.stop)
        if found is None:
            raise pa.ArrowInvalid(f"rows {self.start} to {self.stop} are not in it")
        return found


@dataclass(frozen=True)
class JoinedGroups:
    """Several whole row groups of one layout, one after the other: what is done once a partition is
    then done once for many small files."""

    parts: tuple[ParquetPartition, ...]

    def read(self) -> pa.RecordBatch:
        """The rows, typed. Raises DataError naming file, row (the first is 0) and column."""
        first = self.parts[0]
        table = self._at_once()
        if table is None:
            table = pa.concat_tables([part.table() for part in self.parts])
        return typed_batch(table, first.raw, first.options, self.place_of, dict(first.units))

    def _at_once(self) -> pa.Table | None:
        """All rows by the compiled reader; None if it does not take them, or something is wrong."""
        pieces = []
        for part in self.parts:
            if part.places is None:
                return None
            with part.file.unchanged():
                try:
                    pieces.append(piece_at(part.file.path, part.rows, part.places))
                except FileNotFoundError:
                    raise  # another machine may not see it
                except OSError:
                    return None
        table = joined(pieces, self.parts[0].fields)
        try:
            if table is not None:
                table.validate(full=True)
        except pa.ArrowInvalid:
            return None
        return table

    def place_of(self, row: int) -> str:
        """What messages call a row of these."""
        row += self.parts[0].first
        found = self.parts[bisect_right(self.parts, row, key=lambda part: part.first) - 1]
        return found.place_of(row - found.first)


class _Cursor:
    """One pass over columns of a row group, shared by the threads that read its slices.

    Arrow cannot start in the middle of a row group, so a slice by itself would decode all rows
    before it. Slices that were passed for a later one wait in `_ready` for whoever asks for them;
    what Arrow reads of one slice it reads of all (`rows_at`)."""

    def __init__(self, part: ParquetPartition, names: tuple[str, ...]) -> None:
        self.lock = threading.Lock()
        file = open_file(part.file.path, part.file.shown, part.dictionaries, BUFFER)
        self._batches: Iterator[pa.RecordBatch] = file.iter_batches(
            batch_size=part.stop - part.start,
            row_groups=[part.group],
            columns=list(names),
            use_threads=False,
        )
        self._rows = part.rows
        self._ready: list[tuple[int, pa.RecordBatch]] = []
        self._position = 0

    def covers(self, start: int) -> bool:
        """Whether the rows from `start` are still to come."""
        ready = self._ready  # another thread may put another list there
        return start >= (ready[0][0] if ready else self._position)

    def take(self, start: int, stop: int) -> pa.Table | None:
        """The rows [start, stop) as a table; None if some of them were taken already."""
        with self.lock:
            try:
                self._read_to(stop)
            except BaseException:  # Arrow goes on from nowhere: whoever comes begins anew
                self._batches, self._ready, self._position = iter(()), [], self._rows
                raise
            pieces, rest = [], []
            for first, batch in self._ready:
                last = first + batch.num_rows
                low, high = max(start, first), min(stop, last)
                if low >= high:
                    rest.append((first, batch))
                    continue
                pieces.append(batch.slice(low - first, high - low))
                if first < low:
                    rest.append((first, batch.slice(0, low - first)))
                if high < last:
                    rest.append((high, batch.slice(high - first)))
            if sum(each.num_rows for each in pieces) < stop - start:
                return None
            self._ready = rest
            if self._position == self._rows:
                self._batches = iter(())  # the decoder's buffers are needed no more
            return pa.Table.from_batches(pieces)

    def _read_to(self, stop: int) -> None:
        while self._position < stop:
            batch = next(self._batches, None)
            if batch is None:
                raise pa.ArrowInvalid(f"it has {self._position} rows, and should have {self._rows}")
            self._ready.append((self._position, batch))
            self._position += batch.num_rows


_kept = threading.local()


def _opened(part: ParquetPartition) -> pq.ParquetFile:
    """The partition's file. Each thread keeps the one that it read last: a row group of a thousand
    columns is read some columns at a time, and whoever opens a file reads what it says of all."""
    key = (part.file, part.dictionaries)
    if getattr(_kept, "key", None) != key:
        _kept.file = open_file(part.file.path, part.file.shown, part.dictionaries)
        _kept.key = key
    return _kept.file


kept_cursors: Kept[_Cursor] = Kept()


def _cursor(part: ParquetPartition, names: tuple[str, ...]) -> _Cursor:
    """The cursor over columns of the partition's row group, from where it stands, or a new one."""
    return kept_cursors.get(
        part.source,
        (part.file, part.group, names, part.dictionaries),
        lambda: _Cursor(part, names),
        lambda cursor: cursor.covers(part.start),
    )
