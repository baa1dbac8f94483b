"""Parquet: a file, a folder or a pattern of files, checked and cut into partitions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from distcore_core.contracts import Partition
from distcore_core.errors import DataError
from distcore_data.sources.datafile import DataFile, FileSource
from distcore_data.sources.digests import combined, file_digests
from distcore_data.sources.fetch import Workplace
from distcore_data.sources.kept import new_token
from distcore_data.sources.options import DelimitedOptions
from distcore_data.sources.parquet_columns import Places
from distcore_data.sources.parquet_files import (
    checked_batches,
    column_paths,
    open_file,
    schema_of,
)
from distcore_data.sources.parquet_footers import (
    Footer,
    Group,
    footer_of,
    groups_by_arrow,
    places_of,
    plain_columns,
)
from distcore_data.sources.parquet_groups import JoinedGroups, ParquetPartition, kept_cursors
from distcore_data.sources.tables import (
    require_columns,
    require_readable,
    slices,
    timestamp_columns,
)
from distcore_data.sources.times import finest, settled, unit_of
from distcore_data.sources.values import FLOATS, is_text
from distcore_data.threads import processors, run_all

MOST_JOINED = 256
"""Row groups of a partition at most: each takes some 100 kB of Arrow's buffers, however small."""

MOST_COLUMN_BYTES = 16 << 20
"""Of a column that is decoded whole. Of a larger one some rows are in memory at a time."""

ROW_BYTES = {"number": 8, "category": 4, "string": 4, "time": 8, FLOATS: 8}
"""Of a decoded value: a double, a code, an offset beside the text, and seconds."""


class _Group(NamedTuple):
    """A row group. texts: {string column: bytes of the stored average of a row}; places: where the
    declared columns lie, unless they are surely not plain."""

    rows: int
    texts: Mapping[str, float]
    places: Places | None


class _Layout(NamedTuple):
    """What the metadata of a file say of the declared columns. fields: of each; dictionaries: those
    that are read as such."""

    fields: tuple[pa.Field, ...]
    dictionaries: tuple[str, ...]
    groups: tuple[_Group, ...]

    def joins(self, other: _Layout) -> bool:
        """Whether row groups of both can be one table."""
        # Not the types alone: where one may be missing, and one may not, Arrow joins nothing.
        return self.fields == other.fields and self.dictionaries == other.dictionaries


class _Kind(NamedTuple):
    """What files of one schema share. columns: how many leaf columns there are. fields: of the
    declared columns; leaves: their leaf columns, none if columns lie in others; numbers: of those
    whose leaf column has their name, of that leaf; texts: the same, of the categories that are
    stored as text. footer: how the schema stands in the first file, if that is known."""

    schema: pa.Schema
    columns: int
    fields: tuple[pa.Field, ...]
    leaves: Sequence[int]
    numbers: Mapping[str, int]
    texts: Mapping[str, int]
    footer: bytes | None


class ParquetSource(FileSource):
    """Parquet files as a `Source`."""

    def __init__(
        self,
        files: Sequence[DataFile],
        raw: Mapping[str, str],
        options: DelimitedOptions,
        place: Workplace,
    ) -> None:
        self.files, self._raw = files, dict(raw)
        self._options, self._place, self._token = options, place, new_token()
        self._types: dict[str, pa.DataType] = {}
        self._typed_in: dict[str, str] = {}
        self._layouts = self._look()
        self._fixed_bytes = sum(ROW_BYTES[kind] for kind in self._raw.values())
        self._rows = sum(group.rows for layout in self._layouts for group in layout.groups)
        if not self._rows:
            raise DataError(
                f"{files[0].shown}: there are no rows. Give a dataset with at least one row."
            )

    def _look(self) -> list[_Layout]:
        """The layout of each file, whose columns are checked. Threads look at those of the first
        one's schema, which are all as a rule; then come the others."""
        kind, first = self._looked_at(self.files[0], None)

        def alike(each: DataFile) -> _Layout | None:
            if kind.footer is not None:
                footer = _footer(each, kind.columns)
                if footer is not None and footer.schema == kind.footer:
                    return self._layout(each, footer.groups, kind)
            file = open_file(each.path, each.shown)
            if schema_of(file, each.path, each.shown, kind.schema) is not kind.schema:
                return None
            return self._layout(each, groups_by_arrow(file.metadata, kind.numbers.values()), kind)

        found, last = [first], kind
        others = self.files[1:]
        for each, layout in zip(others, run_all(alike, others, processors()), strict=True):
            if layout is None:
                last, layout = self._looked_at(each, last)
            found.append(layout)
        return found

    def _looked_at(self, each: DataFile, known: _Kind | None) -> tuple[_Kind, _Layout]:
        """A file's kind, `known` itself if it is of that one, and its layout."""
        file = open_file(each.path, each.shown)
        schema = schema_of(file, each.path, each.shown, known and known.schema)
        columns = file.metadata.num_columns
        footer = _footer(each, columns)
        if known is None or schema is not known.schema:
            self._check(each, schema)
            numbers = self._numbers(file)
            names = self._raw if columns == len(schema) else ()
            known = _Kind(
                schema,
                columns,
                tuple(schema.field(name) for name in self._raw),
                [schema.get_field_index(name) for name in names],
                numbers,
                {
                    name: numbers[name]
                    for name, raw in self._raw.items()
                    if raw == "category" and name in numbers and is_text(self._types[name])
                },
                None if footer is None else footer.schema,
            )
        groups = (
            groups_by_arrow(file.metadata, known.numbers.values())
            if footer is None
            else footer.groups
        )
        return known, self._layout(each, groups, known)

    def _check(self, file: DataFile, schema: pa.Schema) -> None:
        """Raise DataError unless the declared columns are there and readable, and text is made of
        one type in all files."""
        name = file.shown
        require_columns(name, schema.names, self._raw)
        types = {column: schema.field(column).type for column in self._raw}
        require_readable(name, types, self._raw)
        if not self._types:  # of the first file, which the others are like
            self._raw = settled(self._raw, types, self._options.null_values)
        for column, raw in self._raw.items():
            before = self._types.get(column, pa.null())
            if pt.is_null(before):  # also in the files before, which say nothing of the others
                self._types[column] = types[column]
                self._typed_in[column] = Path(file.path).name
            elif raw != "number" and not _alike(before, types[column]):
                raise DataError(
                    f"{name}: column {column!r} has type {types[column]}, and {before} in "
                    f"{self._typed_in[column]}: its values would read differently. Write all "
                    "files with one type."
                )

    def _layout(self, file: DataFile, groups: Sequence[Group], kind: _Kind) -> _Layout:
        dictionaries = sorted(set(kind.texts) - plain_columns(groups, kind.texts))
        strings = {
            name: kind.numbers[name]
            for name, raw in self._raw.items()
            if raw == "string" and name in kind.numbers
        }
        return _Layout(
            kind.fields,
            tuple(dictionaries),
            tuple(
                _Group(
                    group.rows,
                    _text_bytes(group, strings),
                    places_of(group, kind.leaves, file.state.bytes),
                )
                for group in groups
            ),
        )

    def _numbers(self, file: pq.ParquetFile) -> dict[str, int]:
        """The number of the leaf column of each declared column whose leaf has its name."""
        if "string" not in self._raw.values() and "category" not in self._raw.values():
            return {}
        paths = {path: number for number, path in enumerate(column_paths(file))}
        return {name: paths[name] for name in self._raw if name in paths}

    def close(self) -> None:
        """As `FileSource`; what is kept of it is let go."""
        kept_cursors.drop(self._token)
        super().close()

    def digest(self) -> str:
        """Of the files' bytes, in the order of their relative paths, and of the null spellings."""
        return combined(["parquet", self._contents, *self._options.spellings])

    @functools.cached_property
    def _contents(self) -> list[str]:
        return file_digests([each.path for each in self.files])

    def rows(self) -> int:
        """How many rows there are, from the files' metadata."""
        return self._rows

    def partitions(self, target_bytes: int) -> Sequence[Partition]:
        """Row groups: cut if their declared columns are larger than target_bytes when decoded, and
        joined with their neighbours if they are smaller."""
        return [partition for (partition,) in self._cut(target_bytes, _into_rows)]

    def tiles(self, target_bytes: int) -> Sequence[Sequence[Partition]]:
        """The same, but larger row groups are cut into columns, as `Tiled` says."""
        return self._cut(target_bytes, _into_columns)

    def _cut(
        self,
        target_bytes: int,
        large: Callable[[ParquetPartition, Sequence[float], int], list[tuple[Partition, ...]]],
    ) -> list[tuple[Partition, ...]]:
        """large: Cuts a row group that is larger than target_bytes, of columns of so many bytes."""
        found: list[tuple[Partition, ...]] = []
        waiting: list[ParquetPartition] = []
        filled, before = 0.0, self._layouts[0]

        def flush() -> None:
            if waiting:
                found.append((waiting[0] if len(waiting) == 1 else JoinedGroups(tuple(waiting)),))
                waiting.clear()

        for whole, layout, group in self._groups():
            size = group.rows * (self._fixed_bytes + sum(group.texts.values()))
            full = filled + size > target_bytes or len(waiting) == MOST_JOINED
            if full or not layout.joins(before):
                flush()
                filled = 0.0
            before = layout
            if size > target_bytes:
                found += large(whole, self._column_bytes(group), target_bytes)
            elif group.rows:
                waiting.append(whole)
                filled += size
        flush()
        return found

    def _groups(self) -> Iterator[tuple[ParquetPartition, _Layout, _Group]]:
        """Every row group as one partition."""
        raw, units, first = tuple(self._raw.items()), tuple(self._units().items()), 0
        for file, layout in zip(self.files, self._layouts, strict=True):
            for number, group in enumerate(layout.groups):
                yield (
                    ParquetPartition(
                        file,
                        number,
                        group.rows,
                        first,
                        0,
                        group.rows,
                        raw,
                        layout.dictionaries,
                        self._options,
                        units,
                        layout.fields,
                        group.places,
                        self._token,
                    ),
                    layout,
                    group,
                )
                first += group.rows

    def _column_bytes(self, group: _Group) -> list[float]:
        """Of each declared column of a row group, decoded."""
        return [
            group.rows * (ROW_BYTES[raw] + group.texts.get(name, 0.0))
            for name, raw in self._raw.items()
        ]

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


def _into_rows(
    whole: ParquetPartition, column_bytes: Sequence[float], target_bytes: int
) -> list[tuple[Partition, ...]]:
    """Slices of a row group, of all its columns."""
    row_bytes = sum(column_bytes) / whole.rows
    return [
        (replace(whole, start=start, stop=stop),)
        for start, stop in slices(whole.rows, row_bytes, target_bytes)
    ]


def _into_columns(
    whole: ParquetPartition, column_bytes: Sequence[float], target_bytes: int
) -> list[tuple[Partition, ...]]:
    """All rows of some columns at a time, if every column is small enough."""
    if max(column_bytes) > MOST_COLUMN_BYTES:
        return _into_rows(whole, column_bytes, target_bytes)
    firsts: list[int] = []
    filled = math.inf
    for number, size in enumerate(column_bytes):
        if filled + size > target_bytes:
            firsts.append(number)
            filled = 0.0
        filled += size
    return [
        tuple(
            _columns_of(whole, first, last)
            for first, last in pairwise([*firsts, len(column_bytes)])
        )
    ]


def _columns_of(whole: ParquetPartition, first: int, last: int) -> ParquetPartition:
    """Some of its columns."""
    places = None if whole.places is None else whole.places.some(first, last)
    raw, fields = whole.raw[first:last], whole.fields[first:last]
    return replace(whole, raw=raw, fields=fields, places=places)


def _footer(file: DataFile, columns: int) -> Footer | None:
    try:
        return footer_of(file, columns)
    except OSError:
        return None  # Arrow finds out why


def _text_bytes(group: Group, numbers: Mapping[str, int]) -> dict[str, float]:
    """Bytes of the stored average of a row of each string column."""
    rows = max(1, group.rows)
    return {name: group.of(number).raw_bytes / rows for name, number in numbers.items()}


def _alike(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether equal values of both types have equal text."""
    left, right = (each.value_type if pt.is_dictionary(each) else each for each in (left, right))
    if left == right or pt.is_null(right):
        return True
    return any(
        kind(left) and kind(right) for kind in (is_text, pt.is_integer, pt.is_timestamp, pt.is_date)
    )
