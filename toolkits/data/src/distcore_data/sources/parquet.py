"""Parquet: a file, a folder or a pattern of files, checked and cut into partitions."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from distcore_core.contracts import Partition
from distcore_core.errors import DataError
from distcore_data.sources.datafile import DataFile, FileSource
from distcore_data.sources.digests import combined, file_digest
from distcore_data.sources.fetch import Workplace
from distcore_data.sources.parquet_files import (
    checked_batches,
    column_paths,
    open_file,
    plain_columns,
)
from distcore_data.sources.parquet_groups import JoinedGroups, ParquetPartition
from distcore_data.sources.tables import (
    require_columns,
    require_readable,
    slices,
    timestamp_columns,
)
from distcore_data.sources.times import finest, unit_of
from distcore_data.sources.values import is_text

MOST_JOINED = 256
"""Row groups of a partition at most: each takes some 100 kB of Arrow's buffers, however small."""

ROW_BYTES = {"number": 8, "category": 4, "string": 4}
"""Of a decoded value: a double, a code, and an offset beside the text."""


class _Layout(NamedTuple):
    """What the metadata of a file say of the declared columns. types: of each; dictionaries: those
    that are read as such; groups: (rows, bytes of a decoded row) of each row group."""

    types: Mapping[str, pa.DataType]
    dictionaries: tuple[str, ...]
    groups: tuple[tuple[int, float], ...]

    def joins(self, other: _Layout) -> bool:
        """Whether row groups of both can be one table."""
        same = self.types is other.types or self.types == other.types
        return same and self.dictionaries == other.dictionaries


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
        self._layouts: list[_Layout] = []
        schema: pa.Schema | None = None
        for each in files:
            file = open_file(each.path, each.shown)
            if schema is None or not file.schema_arrow.equals(schema):
                schema = file.schema_arrow
                types, numbers = self._check(each, schema), self._numbers(file)
            self._layouts.append(self._layout(file.metadata, types, numbers))
        self._rows = sum(rows for layout in self._layouts for rows, _ in layout.groups)
        if not self._rows:
            raise DataError(
                f"{files[0].shown}: there are no rows. Give a dataset with at least one row."
            )

    def _check(self, file: DataFile, schema: pa.Schema) -> dict[str, pa.DataType]:
        """The types of the declared columns, which are there and readable; text is made of one type
        in all files."""
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
        return types

    def _layout(
        self,
        metadata: pq.FileMetaData,
        types: Mapping[str, pa.DataType],
        numbers: Mapping[str, int],
    ) -> _Layout:
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        texts = {
            name: numbers[name]
            for name, raw in self._raw.items()
            if raw == "category" and name in numbers and is_text(self._types[name])
        }
        dictionaries = sorted(set(texts) - plain_columns(groups, texts))
        strings = [
            numbers[name] for name, raw in self._raw.items() if raw == "string" and name in numbers
        ]
        fixed = sum(ROW_BYTES[raw] for raw in self._raw.values())
        return _Layout(
            types,
            tuple(dictionaries),
            tuple((group.num_rows, fixed + _text_bytes(group, strings)) for group in groups),
        )

    def _numbers(self, file: pq.ParquetFile) -> dict[str, int]:
        """The number of the leaf column of each declared column whose leaf has its name."""
        if "string" not in self._raw.values() and "category" not in self._raw.values():
            return {}
        paths = {path: number for number, path in enumerate(column_paths(file))}
        return {name: paths[name] for name in self._raw if name in paths}

    def digest(self) -> str:
        """Of the files' bytes, in the order of their relative paths, and of the null spellings."""
        return combined(["parquet", self._contents, self._null_values])

    @functools.cached_property
    def _contents(self) -> list[str]:
        return [file_digest(each.path) for each in self.files]

    def rows(self) -> int:
        """How many rows there are, from the files' metadata."""
        return self._rows

    def partitions(self, target_bytes: int) -> Sequence[Partition]:
        """Row groups: cut if their declared columns are larger than target_bytes when decoded, and
        joined with their neighbours if they are smaller."""
        raw, units = tuple(self._raw.items()), tuple(self._units().items())
        found: list[Partition] = []
        waiting: list[ParquetPartition] = []
        filled, before, first = 0.0, self._layouts[0], 0

        def flush() -> None:
            if waiting:
                found.append(waiting[0] if len(waiting) == 1 else JoinedGroups(tuple(waiting)))
                waiting.clear()

        for file, layout in zip(self.files, self._layouts, strict=True):
            for group, (rows, row_bytes) in enumerate(layout.groups):
                size = rows * row_bytes
                full = filled + size > target_bytes or len(waiting) == MOST_JOINED
                if full or not layout.joins(before):
                    flush()
                    filled = 0.0
                parts = [
                    ParquetPartition(
                        file,
                        group,
                        rows,
                        first,
                        start,
                        stop,
                        raw,
                        layout.dictionaries,
                        self._null_values,
                        units,
                    )
                    for start, stop in slices(rows, row_bytes, target_bytes)
                ]
                if len(parts) > 1:
                    flush()
                    found += parts
                    filled = 0.0
                else:
                    waiting += parts
                    filled += size
                before, first = layout, first + rows
        flush()
        return found

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


def _text_bytes(group: pq.RowGroupMetaData, numbers: Sequence[int]) -> float:
    """Bytes of the stored average of a row's strings."""
    stored = sum(group.column(number).total_uncompressed_size for number in numbers)
    return stored / max(1, group.num_rows)


def _alike(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether equal values of both types have equal text."""
    left, right = (each.value_type if pt.is_dictionary(each) else each for each in (left, right))
    if left == right or pt.is_null(left) or pt.is_null(right):
        return True
    return any(
        kind(left) and kind(right) for kind in (is_text, pt.is_integer, pt.is_timestamp, pt.is_date)
    )
