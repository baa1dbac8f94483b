"""feather and other Arrow IPC files: record batches, read into memory and checked before anything
looks into them.

Arrow believes the offsets and codes of a file, and reads wherever they point; so each batch is
validated in full.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from distcore_core.errors import DataError
from distcore_data.sources.datafile import DataFile, FileSource
from distcore_data.sources.digests import combined, file_digest
from distcore_data.sources.encoding import refuse_damaged, refuse_foreign
from distcore_data.sources.fetch import Workplace
from distcore_data.sources.kept import Kept, new_token
from distcore_data.sources.options import DelimitedOptions
from distcore_data.sources.tables import (
    require_columns,
    require_readable,
    slices,
    timestamp_columns,
    typed_batch,
)
from distcore_data.sources.times import finest, settled, unit_of


def open_file(
    path: str | Path, shown: str, columns: Sequence[str] | None = None
) -> pa.ipc.RecordBatchFileReader:
    """A reader of some columns. Raises DataError when the file is no Arrow file or is cut short."""
    try:
        options = pa.ipc.IpcReadOptions(use_threads=False)
        names = pa.ipc.open_file(pa.OSFile(os.fsencode(path)), options=options).schema.names
        if columns is not None:
            options.included_fields = [names.index(name) for name in columns]
        return pa.ipc.open_file(pa.OSFile(os.fsencode(path)), options=options)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        refuse_foreign(path, shown, "Arrow IPC (feather)", error)


def checked_batch(reader: pa.ipc.RecordBatchFileReader, index: int, shown: str) -> pa.RecordBatch:
    """A record batch all of whose offsets, codes and texts are sound. Raises DataError."""
    try:
        batch = reader.get_batch(index)
        batch.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        refuse_damaged(shown, f"record batch {index}", error)
    return batch


@dataclass(frozen=True)
class FeatherPartition:
    """Rows [start, stop) of one record batch of `rows`; `first` is the file's row where that
    batch begins. source: the token of the open source."""

    file: DataFile
    batch: int
    rows: int
    first: int
    start: int
    stop: int
    raw: tuple[tuple[str, str], ...]
    options: DelimitedOptions
    units: tuple[tuple[str, str], ...]
    source: str = field(default="", compare=False)

    def read(self) -> pa.RecordBatch:
        """The rows, typed. Raises DataError naming file, row (the first is 0) and column."""
        with self.file.unchanged():
            batch = self.whole() if self.stop - self.start == self.rows else _slice_of(self)
        rows, begin = batch.slice(self.start, self.stop - self.start), self.first + self.start
        return typed_batch(
            rows,
            self.raw,
            self.options,
            lambda row: f"{self.file.shown}, row {begin + row}",
            dict(self.units),
        )

    def whole(self) -> pa.RecordBatch:
        """The record batch that the rows are of."""
        reader = open_file(self.file.path, self.file.shown, [name for name, _ in self.raw])
        return checked_batch(reader, self.batch, self.file.shown)


class _Whole:
    """A record batch that several slices are read of, by several threads."""

    def __init__(self, part: FeatherPartition) -> None:
        self.lock = threading.Lock()
        self.batch: pa.RecordBatch | None = None
        self.rows_left = part.rows


kept_batches: Kept[_Whole] = Kept()


def _slice_of(part: FeatherPartition) -> pa.RecordBatch:
    """The partition's record batch, read once for all of its slices; let go when all of its rows
    were asked for."""
    key = (part.file, part.batch, part.raw)
    found = kept_batches.get(part.source, key, lambda: _Whole(part), lambda each: True)
    with found.lock:
        if found.batch is None:
            found.batch = part.whole()
        found.rows_left -= part.stop - part.start
        if found.rows_left <= 0:
            kept_batches.drop(part.source, key)
        return found.batch


class FeatherSource(FileSource):
    """An Arrow IPC file as a `Source`. path: of the file itself. original: as it was given,
    which may be compressed."""

    def __init__(
        self,
        path: Path,
        original: DataFile,
        raw: Mapping[str, str],
        options: DelimitedOptions,
        place: Workplace,
    ) -> None:
        shown = original.shown
        reader = open_file(path, shown)
        require_columns(shown, reader.schema.names, raw)
        types = {name: reader.schema.field(name).type for name in raw}
        require_readable(shown, types, raw)
        raw = settled(raw, types, options.null_values)
        self.files, self._raw, self._options = [original], tuple(raw.items()), options
        self._read = original if str(path) == original.path else DataFile.at(path, shown)
        self._place, self._token = place, new_token()
        reader = open_file(path, shown, list(raw))
        self._sizes = []
        dated = timestamp_columns(types, raw)
        units: dict[str, list[str]] = {name: [] for name in dated}
        for index in range(reader.num_record_batches):
            batch = checked_batch(reader, index, shown)
            self._sizes.append((batch.num_rows, batch.nbytes))
            for name in dated:
                units[name].append(unit_of(batch.column(name)))
        self._units = tuple((name, finest(found)) for name, found in units.items())
        if not any(rows for rows, _ in self._sizes):
            raise DataError(f"{shown}: the file has no rows. Give a dataset with at least one row.")

    def digest(self) -> str:
        """Of the file's bytes, and of the null spellings."""
        return combined(["feather", self._content, *self._options.spellings])

    @functools.cached_property
    def _content(self) -> str:
        return file_digest(self._read.path)

    def close(self) -> None:
        """As `FileSource`; what is kept of it is let go."""
        kept_batches.drop(self._token)
        super().close()

    def rows(self) -> int:
        """How many rows there are."""
        return sum(rows for rows, _ in self._sizes)

    def partitions(self, target_bytes: int) -> Sequence[FeatherPartition]:
        """Record batches, cut if they are larger than target_bytes."""
        parts, first = [], 0
        for index, (rows, size) in enumerate(self._sizes):
            for start, stop in slices(rows, size / max(1, rows), target_bytes):
                parts.append(
                    FeatherPartition(
                        self._read,
                        index,
                        rows,
                        first,
                        start,
                        stop,
                        self._raw,
                        self._options,
                        self._units,
                        self._token,
                    )
                )
            first += rows
        return parts
