"""Parquet: a file, a folder or a pattern of files; row groups, and slices of large ones."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from distcore_core.errors import DataError
from distcore_data.sources.datafile import DataFile, FileSource
from distcore_data.sources.digests import combined, file_digest
from distcore_data.sources.encoding import words_of
from distcore_data.sources.fetch import Workplace
from distcore_data.sources.parquet_files import (
    checked_batches,
    column_paths,
    delta_columns,
    open_file,
)
from distcore_data.sources.tables import (
    require_columns,
    require_readable,
    slices,
    timestamp_columns,
    typed_batch,
)
from distcore_data.sources.times import finest, unit_of
from distcore_data.sources.values import is_text

OPEN_CURSORS = 4


@dataclass(frozen=True)
class ParquetPartition:
    """Rows [start, stop) of one row group; `first` is the dataset's row where that row group
    begins."""

    file: DataFile
    group: int
    rows: int
    first: int
    start: int
    stop: int
    raw: tuple[tuple[str, str], ...]
    dictionaries: tuple[str, ...]
    null_values: tuple[str, ...]
    units: tuple[tuple[str, str], ...]

    def read(self) -> pa.RecordBatch:
        """The rows, typed. Raises DataError naming file, row (the first is 0) and column."""
        begin, shown, units = self.first + self.start, self.file.shown, dict(self.units)
        with self.file.unchanged():
            try:
                table = self._rows()
            except FileNotFoundError:
                raise  # another machine may not see it
            except (pa.ArrowException, OSError) as error:
                raise DataError(
                    f"{shown}: row group {self.group} is damaged ({words_of(error)}). Write the "
                    "file again."
                ) from error
        return typed_batch(
            table, self.raw, self.null_values, lambda row: f"{shown}, row {begin + row}", units
        )

    def _rows(self) -> pa.Table:
        if self.stop - self.start < self.rows:
            return _cursor(self).take(self.start, self.stop)
        file = open_file(self.file.path, self.file.shown, self.dictionaries)
        table = file.read_row_group(
            self.group, columns=[name for name, _ in self.raw], use_threads=False
        )
        table.validate(full=True)
        return table


class _Cursor:
    """One pass over a row group, shared by the threads that read its slices.

    Parquet cannot start in the middle of a row group, so a slice by itself would decode all rows
    before it. Slices that were passed for a later one wait in `_ready` for whoever asks for
    them."""

    def __init__(self, part: ParquetPartition) -> None:
        self.lock = threading.Lock()
        file = open_file(part.file.path, part.file.shown, part.dictionaries)
        self._batches: Iterator[pa.RecordBatch] = file.iter_batches(
            batch_size=part.stop - part.start,
            row_groups=[part.group],
            columns=[name for name, _ in part.raw],
            use_threads=False,
        )
        self._rows = part.rows
        self._ready: list[tuple[int, pa.RecordBatch]] = []
        self._position = 0

    def covers(self, start: int) -> bool:
        """Whether the rows from `start` are still to come."""
        return start >= (self._ready[0][0] if self._ready else self._position)

    def take(self, start: int, stop: int) -> pa.Table:
        """The rows [start, stop) as a table."""
        with self.lock:
            while self._position < stop:
                batch = next(self._batches, None)
                if batch is None:
                    raise pa.ArrowInvalid(
                        f"it has {self._position} rows, and should have {self._rows}"
                    )
                batch.validate(full=True)
                self._ready.append((self._position, batch))
                self._position += batch.num_rows
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
            self._ready = rest
            if self._position == self._rows:
                self._batches = iter(())  # the decoder's buffers are needed no more
            return pa.Table.from_batches(pieces)


_cursors: OrderedDict[tuple[object, ...], _Cursor] = OrderedDict()
_cursors_lock = threading.Lock()


def _cursor(part: ParquetPartition) -> _Cursor:
    """The cursor of the partition's row group, from where it stands, or a new one."""
    key = (part.file, part.group, part.raw)
    with _cursors_lock:
        cursor = _cursors.get(key)
        if cursor is None or not cursor.covers(part.start):
            cursor = _cursors[key] = _Cursor(part)
        _cursors.move_to_end(key)
        while len(_cursors) > OPEN_CURSORS:
            _cursors.popitem(last=False)
        return cursor


class ParquetSource(FileSource):
    """Parquet files as a `Source`."""

    def __init__(
        self,
        files: Sequence[DataFile],
        raw: Mapping[str, str],
        null_values: tuple[str, ...],
        place: Workplace,
    ) -> None:
        self.files, self._raw = files, dict(raw)
        self._null_values, self._place = null_values, place
        self._types: dict[str, pa.DataType] = {}
        self._rows = 0
        for each in files:
            file = open_file(each.path, each.shown)
            self._check(each, file.schema_arrow)
            self._rows += file.metadata.num_rows
        if not self._rows:
            raise DataError(
                f"{files[0].shown}: there are no rows. Give a dataset with at least one row."
            )

    def _check(self, file: DataFile, schema: pa.Schema) -> None:
        """The declared columns are there and readable, and text is made of one type in all
        files."""
        name = file.shown
        require_columns(name, schema.names, self._raw)
        types = {column: schema.field(column).type for column in self._raw}
        require_readable(name, types, self._raw)
        for column, raw in self._raw.items():
            before = self._types.setdefault(column, types[column])
            if raw != "number" and not _alike(before, types[column]):
                raise DataError(
                    f"{name}: column {column!r} has type {types[column]}, and {before} in "
                    f"{Path(self.files[0].path).name}: its values would read differently. "
                    "Write all files with one type."
                )

    def digest(self) -> str:
        """Of the files' bytes, in the order of their relative paths, and of the null spellings."""
        return combined(["parquet", self._contents, self._null_values])

    @functools.cached_property
    def _contents(self) -> list[str]:
        return [file_digest(each.path) for each in self.files]

    def rows(self) -> int:
        """How many rows there are, from the files' metadata."""
        return self._rows

    def partitions(self, target_bytes: int) -> Sequence[ParquetPartition]:
        """Row groups, cut if their declared columns are larger than target_bytes when decoded."""
        texts = {
            name
            for name, raw in self._raw.items()
            if raw == "category" and is_text(self._types[name])
        }
        units = tuple(self._units().items())
        parts, first = [], 0
        for file in self.files:
            opened = open_file(file.path, file.shown)
            metadata, paths = opened.metadata, column_paths(opened)
            dictionaries = tuple(sorted(texts - delta_columns(metadata, paths)))
            for group in range(metadata.num_row_groups):
                rows = metadata.row_group(group).num_rows
                for start, stop in slices(
                    rows, self._row_bytes(metadata.row_group(group), paths), target_bytes
                ):
                    parts.append(
                        ParquetPartition(
                            file,
                            group,
                            rows,
                            first,
                            start,
                            stop,
                            tuple(self._raw.items()),
                            dictionaries,
                            self._null_values,
                            units,
                        )
                    )
                first += rows
        return parts

    def _row_bytes(self, group: pq.RowGroupMetaData, paths: Sequence[str]) -> float:
        """Bytes of a decoded row: 8 of a number, 4 of a category's code, the stored average of a
        string."""
        total = 0.0
        for index in range(group.num_columns):
            column = group.column(index)
            raw = self._raw.get(paths[index])
            if raw == "string":
                total += 4 + column.total_uncompressed_size / max(1, group.num_rows)
            elif raw is not None:
                total += 8 if raw == "number" else 4
        return total

    def _units(self) -> dict[str, str]:
        """Units of timestamps that are read as text, over all files; reads those columns only."""
        found: dict[str, list[str]] = {
            name: [] for name in timestamp_columns(self._types, self._raw)
        }
        if found:
            for each in self.files:
                for batch in checked_batches(each, list(found)):
                    for name, units in found.items():
                        units.append(unit_of(batch.column(name)))
        return {name: finest(units) for name, units in found.items()}

    def close(self) -> None:
        """Remove what was downloaded."""
        self._place.close()


def _alike(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether equal values of both types have equal text."""
    left, right = (each.value_type if pt.is_dictionary(each) else each for each in (left, right))
    if left == right or pt.is_null(left) or pt.is_null(right):
        return True
    return any(
        kind(left) and kind(right) for kind in (is_text, pt.is_integer, pt.is_timestamp, pt.is_date)
    )
