"""JSON lines: newline-aligned byte ranges. A file that is one JSON document is `json_document`'s.

A value's type is the column's, not the line's: a column of 1 and 2.5 is one of floats, whatever the
partition. So the file is parsed once for the types before it is parsed for the rows.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson
import pyarrow.types as pt

from distcore_core.contracts import Partition
from distcore_core.errors import DataError
from distcore_data.arrow import flags, scalar, strings
from distcore_data.sources import plaintext, ranges
from distcore_data.sources.datafile import DataFile, FileSource
from distcore_data.sources.digests import combined
from distcore_data.sources.encoding import UTF8_MARK, refuse_other_than_json
from distcore_data.sources.fetch import Workplace
from distcore_data.sources.options import DelimitedOptions
from distcore_data.sources.tables import require_columns, require_readable, typed_batch
from distcore_data.sources.tiles import whole_rows
from distcore_data.sources.times import settled
from distcore_data.threads import processors

DEEPEST = 256
"""Lists and objects inside of each other."""

EXACT = 2.0**53
"""From here on floats are further apart than whole numbers."""

FIRST_NULL, NULL_LINE = re.compile(rb"\s*null"), re.compile(rb"\n[ \t\r]*null")
"""A line that begins with `null`. Arrow 26 takes one for a row without values, and ends the process
with a segmentation fault where it is the first of a range."""

ROW = re.compile(r"JSON parse error: (?P<what>.*) in row (?P<row>\d+)", re.DOTALL)
"""What Arrow says is wrong with a row, of which the first is 0."""

FILLED = re.compile(r"\S")

MANY_DIGITS = re.compile(rb"\d{309}|[eE]\+?\d{3}")
"""A number that may be beyond the largest float has one of these."""

TYPING_BYTES = 1 << 24
"""Size of the ranges that are parsed for their types."""


def parse(
    file: DataFile, start: int, stop: int, schema: pa.Schema | None, text: pa.Buffer
) -> pa.Table:
    """The objects in `text`, the bytes [start, stop); schema: the columns to read (None: all, types
    inferred).

    Raises DataError naming the first line that is not a JSON object, or of which Arrow tells
    something else."""
    path, shown = file.path, file.shown
    refuse_deep(text, shown)
    if FIRST_NULL.match(text) or NULL_LINE.search(text):
        _refuse_line(path, shown, start, memoryview(text).tobytes())
    options = pajson.ParseOptions(
        explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else "ignore"
    )
    read = pajson.ReadOptions(use_threads=False, block_size=len(text) + 1)
    try:
        table = pajson.read_json(pa.BufferReader(text), read, options)
        table.validate(full=True)
        _ = table.column_names  # which reads every name as UTF-8
        return table
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        _refuse_line(path, shown, start, memoryview(text).tobytes())
        advice = "Give a column values of one type."
        if told := ROW.fullmatch(str(error)):
            where = line_of(file, start, text, int(told["row"]))
            advice = advice if "changed from" in told["what"] else "Correct the line."
            raise DataError(f"{where}: {told['what'].rstrip('.')}. {advice}") from error
        raise DataError(
            f"{shown}: {error} (between lines {ranges.line_number(path, start)} and "
            f"{ranges.line_number(path, stop)}). {advice}"
        ) from error


def refuse_deep(text: pa.Buffer | bytes, shown: str) -> None:
    """Raise DataError for JSON nested so deeply that parsers, which call themselves for each
    level, would crash."""
    found = plaintext.deepest(text)
    if found > DEEPEST:
        raise DataError(
            f"{shown}: its values are nested {found} levels deep, and at most {DEEPEST} are read. "
            "Leave that column out, or turn it into a string."
        )


def _refuse_line(path: str | Path, shown: str, start: int, text: bytes) -> None:
    """Raise DataError for the first line that is no JSON object."""
    for index, line in enumerate(text.split(b"\n")):
        if not line.strip():
            continue
        reason = "it is not an object"
        try:
            if isinstance(json.loads(line.decode()), dict):
                continue
        except ValueError as error:
            reason = str(error)
        number = ranges.line_number(path, start) + index
        raise DataError(
            f"{shown}, line {number}: not a JSON object ({reason}). Give one object a line."
        )


def line_of(file: DataFile, start: int, text: pa.Buffer, row: int) -> str:
    """File and line of a row of `text`, which begins at byte `start`. An object may take several
    lines, and a line may have several objects."""
    given = memoryview(text).tobytes().decode(errors="replace")
    decoder, place, found = json.JSONDecoder(strict=False), 0, FILLED.search(given)
    while found is not None:
        place, row = found.start(), row - 1
        if row < 0:
            break
        try:
            end = decoder.raw_decode(given, place)[1]
        except ValueError:  # such as Inf, which Arrow reads
            end = place + len(given[place:].partition("\n")[0])
        found = FILLED.search(given, end)
    number = ranges.line_number(file.path, start) + given.count("\n", 0, place)
    return f"{file.shown}, line {number}"


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type that holds values of both, or None. Times written as strings stay strings."""
    left, right = (pa.string() if pt.is_temporal(each) else each for each in (left, right))
    if left == right or pt.is_null(right):
        return left
    if pt.is_null(left):
        return right
    if {left, right} == {pa.int64(), pa.float64()}:
        return pa.float64()
    return None


def column_types(file: DataFile, start: int, wanted: Collection[str]) -> dict[str, pa.DataType]:
    """Name → type over the whole file, one bounded range after another; threads take them.

    Raises DataError for a wanted column whose values are of several types; of another one the type
    is of no meaning then."""
    found: dict[str, pa.DataType] = {}
    path, shown = file.path, file.shown
    parts = list(itertools.pairwise(ranges.cuts(path, start, TYPING_BYTES, b"\n", None, "")))
    threads = min(processors(), len(parts))
    with ThreadPoolExecutor(threads, thread_name_prefix="distcore-types") as pool:
        try:
            for (begin, end), types in zip(
                parts,
                pool.map(lambda part: _types(file, part[0], part[1], wanted), parts),
                strict=True,
            ):
                for name, each in types.items():
                    type_ = common_type(found.get(name, pa.null()), each)
                    if type_ is None and name in wanted:
                        raise DataError(
                            f"{shown}: column {name!r} holds {found[name]} and, between lines "
                            f"{ranges.line_number(path, begin)} and "
                            f"{ranges.line_number(path, end)}, {each}. Give a column values of "
                            "one type."
                        )
                    found[name] = each if type_ is None else type_
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return found


def _types(
    file: DataFile, start: int, stop: int, wanted: Collection[str]
) -> dict[str, pa.DataType]:
    """Name → type in the bytes [start, stop)."""
    text = file.read(start, stop)
    plain = plaintext.json_types(text)
    if plain is not None:
        return plain
    if plaintext.is_scattered(text):
        refuse_deep(text, file.shown)
        found = _types_by_line(text, wanted)
        if found is None:
            _refuse_line(file.path, file.shown, start, memoryview(text).tobytes())
            raise DataError(
                f"{file.shown}: of the columns {', '.join(map(repr, wanted))} one holds values of "
                f"several types between lines {ranges.line_number(file.path, start)} and "
                f"{ranges.line_number(file.path, stop)}. Give a column values of one type."
            )
        return found
    try:
        return {each.name: each.type for each in parse(file, start, stop, None, text).schema}
    except DataError:
        found = _types_by_line(text, wanted)
        if found is None:
            raise
        return found


def _types_by_line(text: pa.Buffer, wanted: Collection[str]) -> dict[str, pa.DataType] | None:
    """The same, where values of a column that is not wanted are of several types, so that Arrow
    finds the type of none; None if something else is wrong."""
    found: dict[str, pa.DataType] = {}
    try:
        for line in memoryview(text).tobytes().split(b"\n"):
            for name, value in json.loads(line).items() if line.strip() else ():
                if name not in wanted:
                    found[name] = pa.null()
                    continue
                type_ = common_type(found.get(name, pa.null()), _type_of(value))
                if type_ is None:
                    return None
                found[name] = type_
    except (ValueError, AttributeError, RecursionError):
        return None
    return found


def _type_of(value: Any) -> pa.DataType:
    """The type that Arrow finds for one value."""
    if isinstance(value, int) and not isinstance(value, bool):
        return pa.int64() if -(1 << 63) <= value < 1 << 63 else pa.float64()
    nested = {list: pa.list_(pa.null()), dict: pa.struct([])}
    plain = {type(None): pa.null(), bool: pa.bool_(), float: pa.float64(), str: pa.string()}
    return (plain | nested)[type(value)]


@dataclass(frozen=True)
class JsonPartition:
    """The lines in the bytes [start, stop); types: of each declared column."""

    file: DataFile
    start: int
    stop: int
    types: tuple[tuple[str, pa.DataType], ...]
    raw: tuple[tuple[str, str], ...]
    options: DelimitedOptions

    def read(self) -> pa.RecordBatch:
        """The rows, typed. Raises DataError naming file, line and column."""
        text = self.file.read(self.start, self.stop)
        batch = plaintext.read_json(text, dict(self.types), self.raw)
        if batch is not None and not self.options.null_numbers:
            if not any(map(self._has_null_spelling, batch.columns)):
                return batch
            return typed_batch(batch, self.raw, self.options, self.place_of, {})
        table = parse(self.file, self.start, self.stop, pa.schema(list(self.types)), text)
        for name, kind in self.raw:
            if kind != "number":
                self._refuse_rounded(name, table.column(name), text)
        return typed_batch(table, self.raw, self.options, self.place_of, {})

    def _has_null_spelling(self, column: pa.Array) -> bool:
        if not pt.is_dictionary(column.type):
            return False
        return bool(pc.any(pc.is_in(column.dictionary, strings(self.options.null_values))).as_py())

    def _refuse_rounded(self, name: str, values: pa.ChunkedArray, text: pa.Buffer) -> None:
        """Raise DataError for a float that may stand for several whole numbers: as categories
        they would be one. An infinity is itself, if it was written as one."""
        if not pt.is_floating(values.type):
            return
        large = flags(pc.greater_equal(pc.abs(values), scalar(float(EXACT))).combine_chunks())
        if large.any() and not MANY_DIGITS.search(text):
            large &= flags(pc.is_finite(values).combine_chunks())
        if large.any():
            row = int(large.argmax())
            raise DataError(
                f"{self.place_of(row)}, column {name!r}: {values[row]} is read as a float, which "
                "does not tell whole numbers of that size apart. Write the column as strings."
            )

    def place_of(self, row: int) -> str:
        """File and line of a row."""
        return line_of(self.file, self.start, self.file.read(self.start, self.stop), row)


class JsonSource(FileSource):
    """JSON lines as a `Source`. path: of the text. original: the file as it was given."""

    def __init__(
        self,
        path: Path,
        original: DataFile,
        raw: Mapping[str, str],
        options: DelimitedOptions,
        place: Workplace,
    ) -> None:
        shown = original.shown
        self.files, self._place = [original], place
        self._read = original if str(path) == original.path else DataFile.at(path, shown)
        # Times are texts here: those that JSON has are what a reader takes for one.
        self._raw, self._options = tuple(settled(raw, {}, ()).items()), options
        self._start = text_start(path, shown)
        types = column_types(self._read, self._start, raw)
        require_columns(shown, list(types), raw)
        require_readable(shown, types, raw)
        self._types = tuple((name, types[name]) for name in raw)

    def digest(self) -> str:
        """Of the file's bytes, and of how values are spelled."""
        return combined(["jsonlines", self._content, *self._options.spellings])

    def partitions(self, target_bytes: int) -> Sequence[JsonPartition]:
        """Byte ranges of about target_bytes, in row order."""
        offsets = ranges.cuts(self._read.path, self._start, target_bytes, b"\n", None, "")
        return [
            JsonPartition(self._read, begin, end, self._types, self._raw, self._options)
            for begin, end in itertools.pairwise(offsets)
        ]

    def tiles(self, target_bytes: int) -> Sequence[Sequence[Partition]]:
        """The same, larger if there are many columns."""
        return whole_rows(self.partitions, target_bytes, len(self._raw))


def text_start(path: Path, shown: str) -> int:
    """Where the text begins, behind a mark. Raises DataError for a file that holds nothing."""
    refuse_other_than_json(path, shown, lines=True)
    with open(path, "rb") as file:
        head = file.read(1 << 16)
    start = len(UTF8_MARK) if head.startswith(UTF8_MARK) else 0
    if not head[start:].strip():
        raise DataError(f"{shown}: the file is empty. Give a file with one JSON object a line.")
    return start
