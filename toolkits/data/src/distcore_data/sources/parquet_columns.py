"""The compiled reader of Parquet's columns, if it was built: two to four times as fast as Arrow's,
to the same values.

It takes columns of floats, of whole numbers of 32 and 64 bits, of days and timestamps and of texts,
in PLAIN and dictionary
pages, packed by Snappy or not at all, and says None to all others, damaged ones too: those Arrow's
reader takes. So nothing but speed depends on whether a C compiler was there when distcore was
installed.
"""

from __future__ import annotations

import os
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from operator import add
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from distcore_data.sources.datafile import DataFile, read_open, read_range

if TYPE_CHECKING:
    from types import ModuleType

compiled: ModuleType | None
try:
    from distcore_data.sources import _columns as compiled
except ImportError:
    compiled = None

CODES = pa.dictionary(pa.int32(), pa.utf8())

FEWEST_ROWS = 10_000
"""Of fewer, calls for each column cost more than they save."""

TEXT_BYTES = 64
"""Room for a row of texts, beside twice what the file has of them: those of a dictionary stand in
the file once. Columns that need more are read again."""

MOST_TEXT_BYTES = (1 << 30) - 1
"""Room at first, whatever a file says of itself; the compiled reader writes as many at most."""

WORDS, SHORT_WORDS = (pa.float64(), pa.int64()), (pa.float32(), pa.int32(), pa.date32())
"""Of 64 and of 32 bits; timestamps are of 64, too. Those of 96 have not as many bytes as are looked
for, which the compiled reader refuses."""


HEADER_BYTES = (1 << 9, 1 << 16)
"""Bytes of a page that are read for its header, and what else if that is longer."""

CHUNKS_KEPT = 1 << 12
"""Columns of row groups of which it is remembered where their pages lie."""

MOST_BESIDE = 0.25
"""Bytes of a dictionary and of a page, unpacked, over those of the rows that are wanted, up to
which the pages of these are read alone: Arrow goes over all of a row group, but once."""

LARGEST_GAP = 1.25
"""Bytes from the first to the last of the columns that are wanted, over their own, up to which all
are read at once."""


class Places(NamedTuple):
    """Where columns of a row group lie. starts, sizes, raw_sizes: of each the first byte, how many
    there are, and how many they are unpacked."""

    is_packed: bool
    starts: array[int]
    sizes: array[int]
    raw_sizes: array[int]

    def some(self, first: int, last: int) -> Places:
        """Those of the columns [first, last)."""
        return Places(self.is_packed, *(each[first:last] for each in self[1:]))


class Pages(NamedTuple):
    """Where the pages of a column of a row group lie that have rows; before them lies that of the
    dictionary, if there is one.

    rows, starts, raw_sizes: at each of them and behind the last, how many rows lie before it, where
        it begins in the file, and how many bytes all before it are unpacked.
    by_codes: of each of them, whether all its values stand in the dictionary."""

    rows: array[int]
    starts: array[int]
    raw_sizes: array[int]
    by_codes: list[bool]


class Piece(NamedTuple):
    """Columns of so many rows: of each its bytes as the file has them, and how many they are
    unpacked."""

    rows: int
    is_packed: bool
    columns: list[tuple[pa.Buffer, int]]


def piece_at(path: str, rows: int, places: Places) -> Piece:
    """Columns that lie there. Raises OSError if the file ends before."""
    ends = list(map(add, places.starts, places.sizes))
    first, last = min(places.starts), max(ends)
    if last - first <= LARGEST_GAP * sum(places.sizes):
        whole = read_range(path, first, last)
        contents = [
            whole.slice(start - first, size)
            for start, size in zip(places.starts, places.sizes, strict=True)
        ]
    else:
        contents = [
            read_range(path, start, end) for start, end in zip(places.starts, ends, strict=True)
        ]
    return Piece(rows, places.is_packed, list(zip(contents, places.raw_sizes, strict=True)))


def columns_at(
    path: str, rows: int, places: Places, fields: Sequence[pa.Field]
) -> dict[str, pa.Array]:
    """Those of the columns of a row group that are plain. fields: what each is, in the order of
    the places; of labels, that they are wanted as codes."""
    if compiled is None or rows < FEWEST_ROWS:
        return {}
    try:
        piece = piece_at(path, rows, places)
    except OSError:
        return {}  # Arrow finds out why
    found = {
        field.name: _column([piece], number, field.type, field.nullable)
        for number, field in enumerate(fields)
    }
    return {name: column for name, column in found.items() if column is not None}


def rows_at(
    file: DataFile, rows: int, start: int, stop: int, places: Places, fields: Sequence[pa.Field]
) -> dict[str, pa.Array]:
    """As `columns_at`, rows [start, stop) of a row group of `rows` alone, of columns whose pages
    have few others beside them.

    A column is given for all slices or for none, or Arrow would go over all of them for one: what
    decides is the same for each. One that is damaged, or has more text than is taken, is not
    tried again."""
    if compiled is None or start == stop:
        return {}
    usual = rows // round(rows / (stop - start))  # some slices have a row more than others
    if usual < FEWEST_ROWS:
        return {}
    found = {}
    for field, place, size in zip(fields, places.starts, places.sizes, strict=True):
        with _chunks_lock:
            chunk = _chunk(file, place, size)
        if not _is_taken(field.type) or chunk.is_refused:
            continue
        try:
            around = chunk.around(rows, start, stop, usual / rows, field.type == CODES)
        except OSError:
            continue  # Arrow finds out why
        if around is not None:
            first, several, content = around
            piece = Piece(several, places.is_packed, [content])
            column = _column([piece], 0, field.type, field.nullable)
            if column is None:
                chunk.is_refused = True
            else:
                found[field.name] = column.slice(start - first, stop - start)
    return found


def joined(pieces: Sequence[Piece], fields: Sequence[pa.Field]) -> pa.Table | None:
    """The columns of several row groups, one after the other; None if one is not plain. Labels that
    are read as codes elsewhere are texts here: each row group has its own dictionary of them."""
    columns = {}
    if compiled is None or sum(piece.rows for piece in pieces) < FEWEST_ROWS:
        return None
    for number, field in enumerate(fields):
        type_ = pa.utf8() if field.type == CODES else field.type
        column = _column(pieces, number, type_, field.nullable)
        if column is None:
            return None
        columns[field.name] = column
    return pa.table(columns)


# ------------------------------------------------------------------ inside


class _Chunk:
    """A column of a row group, of which rows are read by their pages. Where these lie is looked up
    once.

    is_refused: Arrow's reader is to take it."""

    def __init__(self, file: DataFile, start: int, size: int) -> None:
        self.is_refused = False
        self._file, self._start, self._stop = file, start, start + size
        self._lock = threading.Lock()
        self._pages: Pages | None = None

    def around(
        self, rows: int, start: int, stop: int, share: float, as_codes: bool
    ) -> tuple[int, int, tuple[pa.Buffer, int]] | None:
        """The pages that have the rows [start, stop), and the dictionary: the first of their rows,
        how many there are, and the bytes as in `Piece`; None if it is refused. Raises OSError if
        the file ends before.

        Args:
            rows: How many the row group has.
            share: The part of them that is read at once.
            as_codes: Whether all values must stand in the dictionary.
        """
        with self._lock:  # others wait for where the pages lie
            if self._pages is None and not self.is_refused:
                self._pages = self._found()
                self.is_refused = self._pages is None
        pages = self._pages
        if pages is None or pages.rows[-1] != rows or (as_codes and not all(pages.by_codes)):
            return None
        dictionary, unpacked = pages.raw_sizes[0], pages.raw_sizes[-1] - pages.raw_sizes[0]
        beside = dictionary + unpacked / (len(pages.rows) - 1)
        if beside > MOST_BESIDE * unpacked * share:
            return None
        low, high = bisect_right(pages.rows, start) - 1, bisect_left(pages.rows, stop)
        content = read_range(self._file.path, pages.starts[low], pages.starts[high])
        if pages.starts[0] > self._start:
            before = read_range(self._file.path, self._start, pages.starts[0])
            content = pa.py_buffer(b"".join([before, content]))
        raw_size = dictionary + pages.raw_sizes[high] - pages.raw_sizes[low]
        return pages.rows[low], pages.rows[high] - pages.rows[low], (content, raw_size)

    def _found(self) -> Pages | None:
        """None if a page is not plain. Raises OSError if the file ends before."""
        assert compiled is not None
        found, place = None, self._start
        with open(self._file.path, "rb", buffering=0) as file:
            while place < self._stop:
                for most in HEADER_BYTES:
                    text = read_open(file, place, min(place + most, self._stop))
                    page = compiled.page(text)
                    if page is not None:
                        break
                else:
                    return None
                header, packed, raw, rows, is_dictionary, by_codes = page
                if is_dictionary and place > self._start:
                    return None
                place += header + packed
                if found is None:
                    begins, before = (place, raw) if is_dictionary else (self._start, 0)
                    found = Pages(array("q", [0]), array("q", [begins]), array("q", [before]), [])
                if not is_dictionary:
                    found.rows.append(found.rows[-1] + rows)
                    found.starts.append(place)
                    found.raw_sizes.append(found.raw_sizes[-1] + raw)
                    found.by_codes.append(by_codes)
        return found if place == self._stop else None


def _is_words(type_: pa.DataType) -> bool:
    return type_ in WORDS or pa.types.is_timestamp(type_)


def _is_taken(type_: pa.DataType) -> bool:
    return _is_words(type_) or type_ in (*SHORT_WORDS, CODES, pa.utf8())


_chunks_lock = threading.Lock()


@lru_cache(maxsize=CHUNKS_KEPT)
def _chunk(file: DataFile, start: int, size: int) -> _Chunk:
    return _Chunk(file, start, size)


def _in_a_fork() -> None:
    """A thread of the parent may hold the lock, or that of a chunk: it is not in the child."""
    global _chunks_lock
    _chunks_lock = threading.Lock()
    _chunk.cache_clear()


os.register_at_fork(after_in_child=_in_a_fork)


def _column(
    pieces: Sequence[Piece], number: int, type_: pa.DataType, nullable: bool
) -> pa.Array | None:
    """One column of all rows; None if it is not plain."""
    assert compiled is not None
    rows = sum(piece.rows for piece in pieces)
    chunks = [(piece.columns[number][0], piece.is_packed, nullable, piece.rows) for piece in pieces]
    valid = pa.allocate_buffer((rows + 7) // 8) if nullable else None
    if _is_words(type_) or type_ in SHORT_WORDS:
        values = pa.allocate_buffer(type_.byte_width * rows)
        read = compiled.words if _is_words(type_) else compiled.short_words
        missing = read(chunks, values, valid)
        if missing is None:
            return None
        return pa.Array.from_buffers(type_, rows, [valid, values], missing)
    if type_ == CODES:
        codes = pa.allocate_buffer(4 * rows)
        coded = compiled.codes(chunks, codes, valid)
        return None if coded is None else _labelled(rows, valid, codes, *coded)
    if type_ == pa.utf8():
        ends = pa.allocate_buffer(4 * (rows + 1))
        unpacked = sum(piece.columns[number][1] for piece in pieces)
        data = pa.allocate_buffer(min(2 * unpacked + TEXT_BYTES * rows, MOST_TEXT_BYTES))
        found = compiled.texts(chunks, ends, valid, data)
        if found is not None and found[1] > data.size:
            del data  # before there is the other one
            data = pa.allocate_buffer(found[1])
            found = compiled.texts(chunks, ends, valid, data)
        if found is None:
            return None
        missing, used = found
        return pa.Array.from_buffers(type_, rows, [valid, ends, data.slice(0, used)], missing)
    return None


def _labelled(
    rows: int, valid: pa.Buffer | None, codes: pa.Buffer, missing: int, ends: bytes, labels: bytes
) -> pa.DictionaryArray:
    indices = pa.Array.from_buffers(pa.int32(), rows, [valid, codes], missing)
    texts = [None, pa.py_buffer(ends), pa.py_buffer(labels)]
    dictionary = pa.Array.from_buffers(pa.utf8(), len(ends) // 4 - 1, texts, 0)
    # Unchecked: the reader gives no index that is not in the dictionary.
    return pa.DictionaryArray.from_arrays(indices, dictionary, safe=False)
