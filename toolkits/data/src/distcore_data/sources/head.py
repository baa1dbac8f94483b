"""The first rows of a file, with inferred types: for looking at a dataset, not for reading it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import NoneType
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from distcore_core.errors import DataError
from distcore_data.sources import plaintext, ranges, records
from distcore_data.sources.datafile import DataFile
from distcore_data.sources.encoding import behind_mark
from distcore_data.sources.fetch import Workplace
from distcore_data.sources.memory import as_table
from distcore_data.sources.options import DelimitedOptions
from distcore_data.sources.unpacking import compression_of, head_of, lines_of_first, unpacked

SEVERAL = pa.dense_union([pa.field("one", pa.null()), pa.field("another", pa.null())])
"""The type of a column whose values are of several; they are left out."""

FILE_BYTES = 1 << 20
"""Of a file whose lines are counted, packed as they may be."""

MOST_FILES = 256
"""Of a folder that are looked at, however few rows they have."""


def parquet_head(path: Path, shown: str, rows: int) -> pa.Table:
    """The first rows of the first files."""
    from distcore_data.sources.parquet_files import (
        checked_batches,
        file_name,
        open_file,
        parquet_files,
    )

    paths = parquet_files(path, shown)[:MOST_FILES]
    files = [DataFile.at(each, file_name(shown, each)) for each in paths]
    found = _joined((each for file in files for each in checked_batches(file, rows=rows)), rows)
    if found is None:
        return open_file(paths[0], files[0].shown).schema_arrow.empty_table()
    return found


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


def json_head(
    path: Path, shown: str, may_be_document: bool, rows: int, place: Workplace, limit: int
) -> pa.Table:
    """The first rows of JSON lines, or of a document if the file may be one; at most `limit`
    bytes of lines. A column of several types, which need not be wanted, has the type SEVERAL."""
    from distcore_data.sources.json_document import document_columns, is_document
    from distcore_data.sources.jsonlines import parse, text_start

    text = json_text(path, shown, may_be_document, place, limit)
    if may_be_document and is_document(text):
        return _one_by_one(document_columns(text, shown), shown).slice(0, rows)
    start = text_start(text, shown)
    file = DataFile.at(text, shown)
    while True:
        stop = ranges.cuts(text, start, limit, b"\n", None, "")[1]
        lines = file.read(start, stop)
        if limit == 1 or not plaintext.is_scattered(lines):
            break
        limit = max(limit // 4, 1)
    try:
        return parse(file, start, stop, None, lines).slice(0, rows)
    except DataError:
        try:
            given = [json.loads(line) for line in lines.to_pybytes().split(b"\n") if line.strip()]
            names = dict.fromkeys(name for row in given for name in row)
            columns = {name: [row.get(name) for row in given] for name in names}
            found = _one_by_one(columns, shown)
        except (ValueError, AttributeError, TypeError, RecursionError):
            found = pa.table({})
        if SEVERAL not in found.schema.types:
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


def delimited_head(
    path: Path,
    shown: str,
    prefer: str | None,
    rows: int,
    options: DelimitedOptions,
    place: Workplace,
    limit: int,
) -> pa.Table:
    """The first rows of at most `limit` bytes. prefer: the delimiter if nothing else tells."""
    from distcore_data.sources.delimited import prepare

    prepared = prepare(path, shown, options, place, prefer, limit)
    dialect = prepared.dialect
    with open(prepared.path, "rb") as file:
        file.seek(dialect.data_start)
        text = file.read(limit)
        whole = not file.read(1) and not prepared.cut
    stop, count = 0, 0
    for _, end in records.records(text, 0, dialect.delimiter, dialect.quote):
        if end == len(text) and not whole and count:
            break
        stop, count = end, count + 1
        if count == rows:
            break
    shown_rows = behind_mark(pa.py_buffer(text[:stop]))
    read = pacsv.ReadOptions(
        use_threads=False, column_names=dialect.names, block_size=len(shown_rows) + 1
    )
    parse = pacsv.ParseOptions(delimiter=dialect.delimiter, quote_char=dialect.quote or False)
    convert = pacsv.ConvertOptions(
        strings_can_be_null=True,
        null_values=list(options.null_values),
        decimal_point=options.decimal,
    )
    try:
        return pacsv.read_csv(pa.BufferReader(shown_rows), read, parse, convert)
    except pa.ArrowInvalid as error:
        line = ranges.line_number(prepared.path, dialect.data_start, dialect.newline)
        raise DataError(
            f"{shown}: the rows from line {line} on cannot be read as delimited text ({error}). "
            "Correct them, or set preprocessing.csv.delimiter and quote."
        ) from error
