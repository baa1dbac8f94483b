"""A range of delimited text that the fast reader refused: read it with care, or say what is
wrong and on which line."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from distcore_core.errors import DataError
from distcore_data.sources import ranges
from distcore_data.sources.delimited_range import DelimitedRange
from distcore_data.sources.encoding import check_utf8
from distcore_data.sources.values import TYPES, typed


def read_carefully(part: DelimitedRange, text: pa.Buffer, error: Exception) -> pa.RecordBatch:
    """The rows of the range, or DataError for the first thing in it that is wrong.

    Every column is read as bytes and then converted by the rules that other formats share, so True
    and False are numbers here too.
    """
    content = memoryview(text).tobytes()
    if not content.strip():
        return pa.RecordBatch.from_pylist(
            [], schema=pa.schema([(name, TYPES[raw]) for name, raw in part.raw])
        )
    refuse_ragged(part, text)
    place = part.place(text)
    try:
        table = part.parse(text, {name: pa.binary() for name, _ in part.raw}, block=len(text) + 1)
    except pa.ArrowInvalid as again:
        raise DataError(
            f"{part.file.shown}: no delimited text ({again}). Check delimiter and quote."
        ) from error
    columns = []
    for name, raw in part.raw:
        column = table.column(name).combine_chunks()
        try:
            texts = column.cast(pa.utf8())
        except pa.ArrowInvalid:
            _refuse_encoding(part, content)
            raise
        columns.append(typed(texts, raw, name, part.options, place))
    return pa.record_batch(columns, names=[name for name, _ in part.raw])


def refuse_ragged(part: DelimitedRange, text: pa.Buffer) -> None:
    """Raise DataError for the first row with more or fewer values than the header has names."""
    bad: list[Any] = []

    def note(row: Any) -> str:
        bad.append(row)
        return "skip"

    try:
        part.parse(text, {part.raw[0][0]: pa.binary()}, handler=note, block=len(text) + 1)
    except pa.ArrowInvalid:
        pass  # told by the caller, who parses again
    if not bad:
        return
    row = bad[0]
    line = part.place(text)(row.number - 1)
    raise DataError(
        f"{line}: {row.actual_columns} value{'s' if row.actual_columns != 1 else ''} where the "
        f"header has {row.expected_columns} columns: {row.text[:60]!r}. Correct the row, or set "
        f"preprocessing.csv.delimiter or quote if {part.dialect.delimiter!r} and "
        f"{part.dialect.quote!r} are not what the file uses."
    )


def _refuse_encoding(part: DelimitedRange, content: bytes) -> None:
    first = ranges.line_number(part.file.path, part.start, part.dialect.newline)
    check_utf8(content, part.file.shown, first)
