"""The records of delimited text, walked one by one as Arrow's reader reads them: exact for any
quotes, some 50 MB/s."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

WINDOW = 1 << 22
"""Bytes read at once."""

LONGEST = 1 << 30
"""Bytes of a record at most; in a longer one a quote is missing."""


def walked_cuts(
    path: str | Path, start: int, target_bytes: int, delimiter: str, quote: str
) -> tuple[list[int], int | None]:
    """As `cuts`, exact for any text, by walking the records one by one (some 50 MB/s).

    Also the offset of the record whose quote never closes, or None."""
    offsets, unclosed = [start], None
    with open(path, "rb", buffering=0) as text:
        size = os.fstat(text.fileno()).st_size
        for begin, end, closed in _walked(text.fileno(), size, start, delimiter, quote):
            if end - offsets[-1] >= target_bytes and end < size:
                offsets.append(end)
            if not closed:
                unclosed = begin
    return [*offsets, size], unclosed


def _walked(
    text: int, size: int, start: int, delimiter: str, quote: str
) -> Iterator[tuple[int, int, bool]]:
    """(start, end, whether its quotes close) of each record of an open file, from a part of it
    in memory at a time."""
    length = WINDOW
    while piece := os.pread(text, length, start):
        whole, used = len(piece) < length or start + length >= size or length >= LONGEST, 0
        for match in _walk(piece, 0, delimiter, quote):
            if match.end() == len(piece) and not whole:
                break  # it may go on behind the window
            used = match.end()
            yield start + match.start(), start + used, match.lastindex is None
        length = WINDOW if used else 2 * length
        start += used


def records(text: bytes, start: int, delimiter: str, quote: str) -> Iterator[tuple[int, int]]:
    """(start, end) of each record that is not blank, read as the Arrow reader reads it.

    A quote opens at the start of a field only; behind a closing quote the rest of the field is
    taken as it stands.
    """
    for match in _walk(text, start, delimiter, quote):
        if text[match.start() : match.start() + 1] not in (b"\n", b"\r"):
            yield match.span()


def _walk(text: bytes, start: int, delimiter: str, quote: str) -> Iterator[re.Match[bytes]]:
    """A match for every record, blank ones too; its group is set when a quote is still open at
    the end."""
    record = _record_pattern(delimiter, quote)
    size = len(text)
    while start < size:
        match = record.match(text, start)
        assert match is not None  # the pattern matches the empty record
        start = match.end()
        yield match


def _record_pattern(delimiter: str, quote: str) -> re.Pattern[bytes]:
    d = re.escape(delimiter.encode())
    plain = rb"[^\r\n%s]*+" % d
    if quote:
        q = re.escape(quote.encode())
        field = rb"(?:%s[^%s]*+(?:%s%s[^%s]*+)*+(?:%s|(\Z)))?+%s" % (q, q, q, q, q, q, plain)
    else:
        field = plain
    return re.compile(rb"%s(?:%s%s)*+(?:\r\n|\n|\r|\Z)" % (field, d, field))
