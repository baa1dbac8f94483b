"""What a delimited text looks like: delimiter, quote, header and line ends, found in its first
lines.

A candidate delimiter fits when every line, quoted fields considered, has as many fields as the
header. Of those that fit, the one that gives most fields wins; ties go by the order of
`DELIMITERS`. The same bytes always give the same answer.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from distcore_core.errors import DataError
from distcore_data.sources.encoding import UTF8_MARK
from distcore_data.sources.options import DelimitedOptions
from distcore_data.sources.records import records

DELIMITERS = (",", ";", "\t", "|")
HEAD = 1 << 18
LONGEST_HEADER = 1 << 26
LINES = 500
EXCELS = re.compile(rb"sep=[^\r\n](?=[\r\n])", re.IGNORECASE)
"""A first line that Excel alone understands."""


@dataclass(frozen=True)
class Dialect:
    """How a text is written.

    names: the header's columns. text_start: byte where the text begins (behind a mark). data_start:
    byte behind the header. newline: the byte that ends lines.
    """

    delimiter: str
    quote: str
    names: tuple[str, ...]
    text_start: int
    data_start: int
    newline: bytes


def find_dialect(path: Path, shown: str, options: DelimitedOptions, prefer: str | None) -> Dialect:
    """The dialect of a UTF-8 file; what `options` gives is taken as given, and `prefer` is tried
    first.

    Raises DataError for a file without rows and for column names that occur twice.
    """
    for name, value, least in (("delimiter", options.delimiter, 1), ("quote", options.quote, 0)):
        if value is not None and (not least <= len(value.encode()) <= 1 or value in ("\r", "\n")):
            raise DataError(
                f"preprocessing.csv.{name} is {value!r}; give one ASCII character that is no line "
                "end."
            )
    size = os.path.getsize(path)
    length = HEAD
    while True:
        head, whole = _head(path, length, size)
        start = len(UTF8_MARK) if head.startswith(UTF8_MARK) else 0
        if not head[start:].strip():
            if whole:
                raise DataError(
                    f"{shown}: the file is empty. Give a file with a header line and rows below it."
                )
        else:
            found = _dialect(head, start, whole, shown, options, prefer)
            if found is not None:
                return found
        if length >= LONGEST_HEADER:
            raise DataError(
                f"{shown}: no line ends within the first {length >> 20} MiB. Check the file and "
                "its quotes."
            )
        length *= 4


def _head(path: Path, length: int, size: int) -> tuple[bytes, bool]:
    with open(path, "rb") as file:
        head = file.read(length)
    return head, len(head) >= size


def _dialect(
    head: bytes, start: int, whole: bool, shown: str, options: DelimitedOptions, prefer: str | None
) -> Dialect | None:
    """The dialect seen in the head; None when the head does not reach the header's end."""
    newline = b"\n" if b"\n" in head or b"\r" not in head else b"\r"
    while head[start : start + 1] in (b"\r", b"\n"):
        start += 1
    if options.delimiter is not None and options.delimiter == options.quote:
        raise DataError(
            f"{shown}: {options.delimiter!r} is both preprocessing.csv.delimiter and "
            "preprocessing.csv.quote. Give one of them as another character."
        )
    if told := EXCELS.match(head, start):
        raise DataError(
            f"{shown}: the first line, {told[0].decode('latin-1')!r}, is a note for Excel, and the "
            "header is below it. Remove the line."
        )
    delimiter, quote = _choose(head[start:], whole, options, prefer)
    first, end = next(records(head, start, delimiter, quote))
    if end == len(head) and not whole:
        return None
    rows = _rows(head[first:end], delimiter, quote)
    if options.delimiter is None and len(rows[0]) == 1 and options.decimal == ",":
        _refuse_commas(_rows(head[first:end], ",", quote)[0], shown)
    names = tuple(name or f"Unnamed: {index}" for index, name in enumerate(rows[0]))
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        listed = ", ".join(map(repr, twice))
        raise DataError(
            f"{shown}: the header names {listed} more than once. Give every column a name of its "
            "own."
        )
    if whole and not head[end:].strip(b"\r\n"):
        raise DataError(
            f"{shown}: the file has a header and no rows. Give a file with rows below the header."
        )
    return Dialect(delimiter, quote, names, start, end, newline)


def _refuse_commas(fields: list[str], shown: str) -> None:
    """Raise DataError if there are several, so that nothing but the decimal sign separates them."""
    if len(fields) > 1:
        raise DataError(
            f"{shown}: ',' separates the fields of the header, and is preprocessing.csv.decimal, "
            "too. Write the file with another delimiter, such as ';'; if it has but one column, "
            "set preprocessing.csv.delimiter to ';'."
        )


def _choose(
    head: bytes, whole: bool, options: DelimitedOptions, prefer: str | None
) -> tuple[str, str]:
    """(delimiter, quote) that fit the head best."""
    if options.delimiter is not None:
        delimiters = [options.delimiter]
    else:
        taken = options.quote, options.decimal
        tried = DELIMITERS if prefer is None else (prefer, *DELIMITERS)
        delimiters = [each for each in dict.fromkeys(tried) if each not in taken]
    quotes = ('"', "'") if options.quote is None else (options.quote,)
    best: tuple[float, int] = (-1.0, 0)
    chosen = delimiters[0], quotes[0]
    for quote in quotes:
        for delimiter in delimiters:
            wrapped = quote == "'" and options.quote is None
            if wrapped and not _wrapped(head, whole, delimiter):
                continue
            score = _fit(_sample_rows(head, whole, delimiter, quote))
            if score > best or (wrapped and score == best):
                best, chosen = score, (delimiter, quote)
            if delimiter == prefer and score[0] == 1.0 and score[1] > 1:
                return delimiter, quote
    return chosen


def _fit(rows: list[list[str]]) -> tuple[float, int]:
    """Share of rows that have as many fields as the header, and that number; one field alone is
    the last resort."""
    if not rows or len(rows[0]) < 2:
        return 0.0, 1
    width = len(rows[0])
    return sum(len(row) == width for row in rows) / len(rows), width


def _wrapped(head: bytes, whole: bool, delimiter: str) -> bool:
    """Whether single quotes are the quotes: there are no others, every row has a field wrapped in
    them, and none of these goes on in the next line, as two apostrophes far apart seem to do."""
    if b'"' in head or b"'" not in head:
        return False
    d = re.escape(delimiter.encode())
    field = re.compile(rb"(?:\A|%s)'[^']*(?:''[^']*)*'(?=%s|[\r\n]|\Z)" % (d, d))
    spans = list(_sample(head, whole, delimiter, "'"))
    if spans != list(_sample(head, whole, delimiter, "")):
        return False
    return len(spans) > 1 and all(field.search(head[start:end]) for start, end in spans[1:])


def _sample(head: bytes, whole: bool, delimiter: str, quote: str) -> Iterator[tuple[int, int]]:
    """Where the head's first records lie; one that the head cuts is left out, unless it is the
    only one."""
    for count, (start, end) in enumerate(records(head, 0, delimiter, quote)):
        if count == LINES or (count and end == len(head) and not whole):
            return
        yield start, end


def _sample_rows(head: bytes, whole: bool, delimiter: str, quote: str) -> list[list[str]]:
    """The head's first records as fields; none if the delimiter is nowhere, which fits nothing
    either way."""
    if delimiter.encode() not in head:
        return []
    if quote.encode() not in head:
        quote = ""
    spans = _sample(head, whole, delimiter, quote)
    return [row for start, end in spans for row in _rows(head[start:end], delimiter, quote)]


def _rows(record: bytes, delimiter: str, quote: str) -> list[list[str]]:
    """One record's fields."""
    text = io.StringIO(record.decode(errors="replace"), newline="")
    if not quote:
        return [text.read().rstrip("\r\n").split(delimiter)]
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_HEADER))
    return list(csv.reader(text, delimiter=delimiter, quotechar=quote))
