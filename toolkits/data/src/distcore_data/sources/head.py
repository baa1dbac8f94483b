"""The first rows of a file, with inferred types: for looking at a dataset, not for reading it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.csv as pacsv

from distcore_core.errors import DataError
from distcore_data.sources import plaintext, ranges, records
from distcore_data.sources.datafile import DataFile
from distcore_data.sources.dialect import Dialect
from distcore_data.sources.encoding import behind_mark
from distcore_data.sources.fetch import Workplace
from distcore_data.sources.formats import Given
from distcore_data.sources.memory import as_table
from distcore_data.sources.options import DelimitedOptions
from distcore_data.sources.unpacking import compression_of, head_of, lines_of_first, unpacked

SEVERAL = pa.dense_union([pa.field("one", pa.null()), pa.field("another", pa.null())])
"""The type of a column whose values are of several; they are left out."""

FILE_BYTES = 1 << 20
"""Of a file whose lines are counted, packed as they may be."""

Part = TypeVar("Part")

MOST_FILES = 256
"""Of a folder that are looked at, however few rows they have."""


MOST_LINES = 20
"""Of a row, among which a look that begins within it finds its end."""

PAGE_BYTES = 1 << 16
"""Of a column that are read at once; all of it is more than its first rows need."""

MOST_VALUES, LEAST_ROWS = 1 << 24, 1000
"""Values of Parquet, which may have thousands of columns, that a spread look decodes, and rows of
which it decodes all the same; 128 MiB of numbers."""

PLACES = 32
"""Of a large dataset from which a spread look takes its rows."""


def parquet_head(path: Path, shown: str, rows: int, spread: bool = False) -> pa.Table:
    """The first rows of the first files; spread: of files, or of row groups, from all over,
    and of very many columns fewer."""
    from distcore_data.sources.parquet_files import (
        checked_batches,
        file_name,
        open_file,
        parquet_files,
    )

    paths = parquet_files(path, shown)
    paths = _spread(paths) if spread and len(paths) >= PLACES else paths
    files = [DataFile.at(each, file_name(shown, each)) for each in paths[:MOST_FILES]]
    parts: list[tuple[DataFile, int | None]] = [(file, None) for file in files]
    if spread and len(files) < PLACES:
        groups = [open_file(file.path, file.shown).num_row_groups for file in files]
        numbered = zip(files, groups, strict=True)
        parts = _spread([(file, number) for file, of in numbered for number in range(of)])
    if spread:
        columns = len(open_file(paths[0], files[0].shown).schema_arrow)
        rows = min(rows, max(LEAST_ROWS, MOST_VALUES // max(1, columns)))
    most = max(1, rows // min(PLACES, len(parts))) if spread and parts else rows
    batches = (
        batch
        for file, group in parts
        for batch in islice(
            checked_batches(file, None, most, group, PAGE_BYTES), 1 if spread else None
        )
    )
    found = _joined(batches, rows)
    if found is None:
        return open_file(paths[0], files[0].shown).schema_arrow.empty_table()
    return found


def _spread(parts: list[Part]) -> list[Part]:
    """The same parts, those first that are far from one another."""
    step = -(-len(parts) // PLACES)
    return [part for first in range(step) for part in parts[first::step]]


def _further(path: Path, start: int, limit: int, newline: bytes) -> Iterator[bytes]:
    """Whole lines, at most `limit` bytes of them, from each of the PLACES behind the first."""
    with open(path, "rb") as file:
        rest = os.fstat(file.fileno()).st_size - start
        for number in range(1, PLACES):
            file.seek(start + rest * number // PLACES)
            text = file.read(limit)
            yield text[text.find(newline) + 1 : text.rfind(newline) + 1]


def feather_head(path: Path, shown: str, rows: int, place: Workplace) -> pa.Table:
    """The first rows of the first record batches."""
    from distcore_data.sources.feather import checked_batch, open_file

    reader = open_file(unpacked(path, shown, place), shown)
    numbers = range(reader.num_record_batches)
    found = _joined((checked_batch(reader, number, shown) for number in numbers), rows)
    return reader.schema.empty_table() if found is None else found


def _joined(batches: Iterable[pa.RecordBatch], rows: int) -> pa.Table | None:
    """The first rows, up to a batch whose columns do not fit those before; None: there are none."""
    found: list[pa.Table] = []
    schema, count = None, 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if schema is not None and batch.schema != schema:
            if set(batch.schema.names) != set(schema.names):
                break
            try:
                schema = pa.unify_schemas([schema, batch.schema], promote_options="permissive")
            except pa.ArrowException:
                break
        schema = schema or batch.schema
        found.append(pa.Table.from_batches([batch]))
        count += batch.num_rows
        if count >= rows:
            break
    if not found:
        return None
    alike = all(each.schema == found[0].schema for each in found)
    joined = pa.concat_tables(found, promote_options="none" if alike else "permissive")
    return joined.slice(0, rows)


def json_head(given: Given, may_be_document: bool, rows: int, spread: bool = False) -> pa.Table:
    """The first rows of JSON lines, or of a document if the file may be one; lines of as many bytes
    as may be looked at. A column of several types, which need not be wanted, has the type
    SEVERAL."""
    from distcore_data.sources.json_document import document_columns, is_document
    from distcore_data.sources.jsonlines import parse, text_start

    shown, limit = given.shown, given.head_bytes
    text = json_text(given.local, shown, may_be_document, given.place, limit)
    if may_be_document and is_document(text):
        return _one_by_one(document_columns(text, shown), shown).slice(0, rows)
    start = text_start(text, shown)
    file = DataFile.at(text, shown)
    spread = spread and text.stat().st_size - start > limit
    if spread:
        limit //= PLACES
    while True:
        stop = ranges.cuts(text, start, limit, b"\n", None, "")[1]
        lines = file.read(start, stop)
        if limit == 1 or not plaintext.is_scattered(lines):
            break
        limit = max(limit // 4, 1)
    if spread:
        pieces = [lines.to_pybytes(), *_further(text, start, limit, b"\n")]
        most = max(1, rows // PLACES)
        first_lines = (line for piece in pieces for line in islice(BytesIO(piece), most))
        lines = pa.py_buffer(b"".join(first_lines))
    try:
        return parse(file, start, stop, None, lines).slice(0, rows)
    except DataError:
        try:
            objects = [json.loads(line) for line in lines.to_pybytes().split(b"\n") if line.strip()]
            names = dict.fromkeys(name for row in objects for name in row)
            columns = {name: [row.get(name) for row in objects] for name in names}
            found = _one_by_one(columns, shown)
        except (ValueError, AttributeError, TypeError, RecursionError):
            found = pa.table({})
        if SEVERAL not in found.schema.types:
            if spread:  # the first ones are shown with their lines
                return json_head(given, may_be_document, rows)
            raise
        return found.slice(0, rows)


def json_text(path: Path, shown: str, may_be_document: bool, place: Workplace, limit: int) -> Path:
    """What is in a file of JSON; of packed lines the first alone, some more than `limit` bytes: to
    be looked at the others need not be unpacked."""
    from distcore_data.sources.json_document import is_document

    first = head_of(path, 2 * limit) if compression_of(path) is not None else b""
    if end := first.rfind(b"\n", limit) + 1:
        text = place.path(path.stem)
        text.write_bytes(first[:end])
        if not (may_be_document and is_document(text)):
            return text
    return unpacked(path, shown, place)


def _one_by_one(columns: Mapping[str, Any], shown: str) -> pa.Table:
    """The columns as a table; without its values one that has some of several types."""
    try:
        return as_table(columns, shown=shown)
    except DataError as error:
        found = {}
        for name, values in columns.items():
            try:
                found[name] = as_table({name: values}, shown=shown).column(0)
            except DataError:
                if not isinstance(values, list) or len(set(map(type, values)) - {NoneType}) < 2:
                    raise
                found[name] = pa.nulls(len(values), SEVERAL)
        if len({len(each) for each in found.values()}) > 1:
            raise error
        return pa.table(found)


def text_rows(path: Path, place: Workplace, looked: int, limit: int) -> int:
    """About how many rows of text a file holds, by the lines in its first bytes.

    Args:
        looked: Rows of its first `limit` bytes, unpacked.
    """
    head = head_of(path, limit + 1)
    if len(head) <= limit:
        return looked
    lines, size = lines_of_first(path, FILE_BYTES, place)
    a_line = looked / max(1, head.count(b"\n"))  # a row may have several, and a line no row
    return max(looked, round(a_line * lines * path.stat().st_size / size))


def delimited_head(given: Given, prefer: str | None, rows: int, spread: bool = False) -> pa.Table:
    """The first rows of as many bytes as may be looked at. prefer: the delimiter if nothing else
    tells."""
    from distcore_data.sources.delimited import prepare
    from distcore_data.sources.delimited_range import DelimitedRange
    from distcore_data.sources.diagnosis import refuse_ragged

    shown, options, limit = given.shown, given.options, given.head_bytes
    prepared = prepare(given.local, shown, options, given.place, prefer, limit)
    dialect = prepared.dialect
    size = prepared.path.stat().st_size - dialect.data_start
    spread = spread and size > limit
    if spread:
        limit, rows = limit // PLACES, max(1, rows // PLACES)
    with open(prepared.path, "rb") as file:
        file.seek(dialect.data_start)
        text = file.read(limit)
    whole = size <= limit and not prepared.cut
    text = first = text[: _end_of_rows(text, dialect, rows, whole)]
    if spread:
        further = _further(prepared.path, dialect.data_start, limit, dialect.newline)
        pieces = [each[: _end_of_rows(each, dialect, rows, False)] for each in further]
        try:
            return _parsed(b"".join((text, *pieces)), dialect, options)
        except pa.ArrowInvalid:  # one begins within a row; each alone takes long of many columns
            found = (_rows_of(each, dialect, options) for each in pieces)
            text = b"".join((text, *found))
    try:
        return _parsed(text, dialect, options)
    except pa.ArrowInvalid as error:
        start, raw = dialect.data_start, ((dialect.names[0], "string"),)
        stop = start + len(first)
        looked_at = DataFile.at(prepared.path, shown)
        part = DelimitedRange(looked_at, start, stop, len(first), dialect, raw, options)
        refuse_ragged(part, pa.py_buffer(first))
        line = ranges.line_number(prepared.path, start, dialect.newline)
        raise DataError(
            f"{shown}: the rows from line {line} on cannot be read as delimited text ({error}). "
            "Correct them, or set preprocessing.csv.delimiter and quote."
        ) from error


def _end_of_rows(text: bytes, dialect: Dialect, rows: int, whole: bool) -> int:
    """Where the first rows end. whole: whether the last of them ends with the text."""
    stop, count = 0, 0
    for _, end in records.records(text, 0, dialect.delimiter, dialect.quote):
        if end == len(text) and not whole and count:
            break
        stop, count = end, count + 1
        if count == rows:
            break
    return stop


def _rows_of(text: bytes, dialect: Dialect, options: DelimitedOptions) -> bytes:
    """The rows of a text that may begin within one of several lines, which have other numbers of
    fields; none if there are none."""
    for _ in range(MOST_LINES):
        rows = text[: _end_of_rows(text, dialect, len(text), False)]
        try:
            _parsed(rows, dialect, options)
        except pa.ArrowInvalid:
            text = text.partition(dialect.newline)[2]
        else:
            return rows
    return b""


def _parsed(text: bytes, dialect: Dialect, options: DelimitedOptions) -> pa.Table:
    """The rows, with inferred types. Raises pa.ArrowInvalid."""
    rows = behind_mark(pa.py_buffer(text))
    read = pacsv.ReadOptions(
        use_threads=False, column_names=dialect.names, block_size=len(rows) + 1
    )
    parse = pacsv.ParseOptions(delimiter=dialect.delimiter, quote_char=dialect.quote or False)
    convert = pacsv.ConvertOptions(
        strings_can_be_null=True,
        null_values=list(options.null_values),
        decimal_point=options.decimal,
    )
    return pacsv.read_csv(pa.BufferReader(rows), read, parse, convert)
