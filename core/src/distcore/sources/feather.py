"""feather and other Arrow IPC files: record batches of a mapped file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from distcore.errors import DataError
from distcore.sources.digests import combined, file_digest
from distcore.sources.encoding import refuse_foreign, words_of
from distcore.sources.fetch import Workplace
from distcore.sources.tables import (
    require_columns,
    require_readable,
    slices,
    timestamp_columns,
    typed_batch,
)
from distcore.sources.times import finest, unit_of


def open_file(path: str | Path, shown: str, columns: Sequence[str] | None = None) -> pa.ipc.RecordBatchFileReader:
    """A reader of some columns. Raises DataError when the file is no Arrow file or is cut short."""
    try:
        mapped = pa.memory_map(str(path))
        if columns is None:
            return pa.ipc.open_file(mapped)
        names = pa.ipc.open_file(mapped).schema.names
        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=[names.index(name) for name in columns])
        return pa.ipc.open_file(mapped, options=options)
    except (pa.ArrowException, OSError) as error:
        refuse_foreign(path, shown, "Arrow IPC (feather)", error)


@dataclass(frozen=True)
class FeatherPartition:
    """Rows [start, stop) of one record batch; `first` is the file's row where that batch begins."""

    path: str
    shown: str
    batch: int
    first: int
    start: int
    stop: int
    raw: tuple[tuple[str, str], ...]
    null_values: tuple[str, ...]
    units: tuple[tuple[str, str], ...]

    def read(self) -> pa.RecordBatch:
        """The rows, typed. Raises DataError naming file, row (the first is 0) and column."""
        reader = open_file(self.path, self.shown, [name for name, _ in self.raw])
        rows = _batch(reader, self.batch, self.shown).slice(self.start, self.stop - self.start)
        begin = self.first + self.start
        return typed_batch(
            rows, self.raw, self.null_values, lambda row: f"{self.shown}, row {begin + row}", dict(self.units)
        )


def _batch(reader: pa.ipc.RecordBatchFileReader, index: int, shown: str) -> pa.RecordBatch:
    try:
        return reader.get_batch(index)
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{shown}: record batch {index} is damaged ({words_of(error)}). Write the file again."
        ) from error


class FeatherSource:
    """An Arrow IPC file as a `Source`."""

    def __init__(
        self, path: Path, shown: str, raw: Mapping[str, str], null_values: tuple[str, ...], place: Workplace
    ) -> None:
        reader = open_file(path, shown)
        require_columns(shown, reader.schema.names, raw)
        types = {name: reader.schema.field(name).type for name in raw}
        require_readable(shown, types, raw)
        self._path, self._shown, self._raw, self._null_values = path, shown, tuple(raw.items()), null_values
        self._place = place
        reader = open_file(path, shown, list(raw))
        self._sizes = []
        dated = timestamp_columns(types, raw)
        units: dict[str, list[str]] = {name: [] for name in dated}
        for index in range(reader.num_record_batches):
            batch = _batch(reader, index, shown)
            self._sizes.append((batch.num_rows, batch.nbytes))
            for name in dated:
                units[name].append(unit_of(batch.column(name)))
        self._units = tuple((name, finest(found)) for name, found in units.items())
        if not any(rows for rows, _ in self._sizes):
            raise DataError(f"{shown}: the file has no rows. Give a dataset with at least one row.")

    def digest(self) -> str:
        """Of the file's bytes, and of the null spellings."""
        return combined(["feather", file_digest(self._path), self._null_values])

    def rows(self) -> int:
        """How many rows there are."""
        return sum(rows for rows, _ in self._sizes)

    def partitions(self, target_bytes: int) -> Sequence[FeatherPartition]:
        """Record batches, cut where they are larger than target_bytes."""
        parts, first, path = [], 0, str(self._path)
        for index, (rows, size) in enumerate(self._sizes):
            for start, stop in slices(rows, size / max(1, rows), target_bytes):
                parts.append(
                    FeatherPartition(
                        path,
                        self._shown,
                        index,
                        first,
                        start,
                        stop,
                        self._raw,
                        self._null_values,
                        self._units,
                    )
                )
            first += rows
        return parts

    def close(self) -> None:
        """Remove what was downloaded."""
        self._place.close()
