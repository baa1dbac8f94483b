"""csv, tsv and other delimited text: newline-aligned byte ranges that any engine parses by
itself."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from distcore_core.contracts import Partition
from distcore_core.errors import DataError
from distcore_data.arrow import one_array, strings
from distcore_data.sources import plaintext, ranges, records
from distcore_data.sources.datafile import DataFile, FileSource
from distcore_data.sources.delimited_range import DelimitedRange
from distcore_data.sources.diagnosis import read_carefully
from distcore_data.sources.dialect import Dialect, find_dialect
from distcore_data.sources.digests import combined
from distcore_data.sources.encoding import as_utf8, refuse_binary
from distcore_data.sources.fetch import Workplace
from distcore_data.sources.options import DelimitedOptions
from distcore_data.sources.tiles import whole_rows
from distcore_data.sources.times import settled
from distcore_data.sources.unpacking import unpacked
from distcore_data.sources.values import TYPES, finite, typed

HEAD = 1 << 16
"""Bytes looked at to see which null spellings a file uses."""

BLOCK = 1 << 22
"""Bytes that the parser takes at once: smaller ones cost calls, larger ones fall out of the
processor's cache."""


class DelimitedPartition(DelimitedRange):
    """A range that is read fast, and with care if that is refused (`diagnosis.py`)."""

    def read(self) -> pa.RecordBatch:
        """The rows, typed. Raises DataError naming file, line and column of what cannot be read."""
        text = self.text()
        types = {name: TYPES[raw] for name, raw in self.raw}
        if self.plain and plaintext.readable(
            self.dialect.delimiter, self.options.decimal, self.raw
        ):
            quote = self.dialect.quote if self.quotes else ""
            batch = plaintext.read(
                text, self.dialect.delimiter, self.dialect.names, self.raw, quote
            )
            if batch is not None and self._texts_are_plain(batch):
                return batch
        try:
            table = (self._read_plainly(text, types) if self.plain else None) or self.parse(
                text, types
            )
        except pa.ArrowInvalid as error:
            return read_carefully(self, text, error)
        columns = []
        for name, raw in self.raw:
            column = one_array(table.column(name))
            if raw == "number" and not finite(column):
                try:
                    column = typed(column, raw, name, self.options, self.place(text))
                except DataError as error:  # which shows the number, and not what is written
                    return read_carefully(self, text, error)
            columns.append(column)
        return pa.record_batch(columns, names=[name for name, _ in self.raw])

    def _read_plainly(self, text: pa.Buffer, types: Mapping[str, pa.DataType]) -> pa.Table | None:
        """As `parse`, but spellings and encoding are looked at in distinct values; None if it is
        not the same."""
        try:
            table = self.parse(text, types, plain=True)
        except pa.ArrowInvalid:
            return None  # a spelling that is no number, or an error that the full parse will tell
        return table if self._texts_are_plain(table) else None

    def _texts_are_plain(self, table: pa.Table | pa.RecordBatch) -> bool:
        """Whether the categories are UTF-8 and none of them is a null spelling."""
        spellings = strings(self.options.null_values)
        columns = [table.column(name) for name, raw in self.raw if raw == "category"]
        for chunk in [chunk for each in columns for chunk in getattr(each, "chunks", [each])]:
            try:
                chunk.dictionary.validate(full=True)
            except pa.ArrowInvalid:
                return False
            if pc.any(pc.is_in(chunk.dictionary, spellings)).as_py():
                return False
        return True


def _is_number(spelling: str, decimal: str) -> bool:
    """Whether a null spelling would be read as a finite number, or as an infinity."""
    try:
        return not math.isnan(float(spelling.replace(decimal, ".")))
    except ValueError:
        return False


@dataclass(frozen=True)
class Prepared:
    """A delimited file as UTF-8 on this machine, and how it is written. cut: it is a copy of the
    first bytes that were wanted, and its last row may be half a row."""

    path: Path
    shown: str
    dialect: Dialect
    cut: bool = False


def prepare(
    path: Path,
    shown: str,
    options: DelimitedOptions,
    place: Workplace,
    prefer: str | None = None,
    limit: int | None = None,
) -> Prepared:
    """Unpack, refuse what is no text, turn to UTF-8, find the dialect. limit: bytes wanted at
    most of a file that is packed or in another encoding."""
    plain = unpacked(path, shown, place, limit)
    if options.encoding is None:
        refuse_binary(plain, shown)
    text = as_utf8(plain, shown, options.encoding, place, limit)
    cut = limit is not None and text != path and plain.stat().st_size >= limit
    return Prepared(text, shown, find_dialect(text, shown, options, prefer), cut)


class DelimitedSource(FileSource):
    """A delimited text as a `Source`. original: the file as it was given, whose bytes the digest
    is taken of."""

    def __init__(
        self,
        prepared: Prepared,
        original: DataFile,
        raw: Mapping[str, str],
        options: DelimitedOptions,
        place: Workplace,
    ) -> None:
        self._file = prepared
        self.files = [original]
        packed = str(prepared.path) != original.path
        self._read = DataFile.at(prepared.path, prepared.shown) if packed else original
        self._raw = tuple(settled(raw, {}, ()).items())
        self._options = options
        self._place = place
        self._scanned: ranges.Scan | None = None

    def _scan(self) -> ranges.Scan:
        if self._scanned is None:
            dialect = self._file.dialect
            found = ranges.scan(
                self._file.path, dialect.text_start, dialect.delimiter, dialect.quote
            )
            if found.regular and found.unclosed is not None:
                self._refuse_open_quote(found.unclosed)
            self._scanned = found
        return self._scanned

    def digest(self) -> str:
        """Of the file's bytes, and of what the options say about reading them."""
        content = self._scan().digest if self._read in self.files else self._content
        dialect = self._file.dialect
        return combined(
            [
                "delimited",
                content,
                dialect.delimiter,
                dialect.quote,
                self._options.encoding,
                *self._options.spellings,
            ]
        )

    def partitions(self, target_bytes: int) -> Sequence[DelimitedPartition]:
        """Byte ranges of about target_bytes, in row order."""
        found, dialect = self._scan(), self._file.dialect
        path, start = self._file.path, dialect.data_start
        if found.regular:
            offsets = ranges.cuts(path, start, target_bytes, dialect.newline, found, dialect.quote)
        else:
            offsets, unclosed = records.walked_cuts(
                path, start, target_bytes, dialect.delimiter, dialect.quote
            )
            if unclosed is not None:
                self._refuse_open_quote(unclosed)
        plain = self._is_plain(offsets)
        partitions = []
        for begin, end in itertools.pairwise(offsets):
            if end > begin:
                quotes = found.has_quotes(begin, end)
                partitions.append(
                    DelimitedPartition(
                        self._read,
                        begin,
                        end,
                        end - begin + 1 if quotes else BLOCK,
                        dialect,
                        self._raw,
                        self._options,
                        plain,
                        quotes,
                    )
                )
        return partitions

    def tiles(self, target_bytes: int) -> Sequence[Sequence[Partition]]:
        """The same, larger if there are many columns."""
        return whole_rows(self.partitions, target_bytes, len(self._raw))

    def _is_plain(self, offsets: Sequence[int]) -> bool:
        """Whether the fast way of reading is worth trying: every other null spelling is recognised
        when it comes.

        Strings would have to be looked at one by one, a spelling that is a number could not be told
        from one, and if a column's first lines hold a spelling, most partitions will."""
        nulls = self._options.null_values
        if "" not in nulls or len(nulls) < 3 or any(raw == "string" for _, raw in self._raw):
            return False
        if any(_is_number(spelling, self._options.decimal) for spelling in nulls):
            return False
        with open(self._file.path, "rb") as file:
            file.seek(offsets[0])
            head = file.read(min(HEAD, offsets[-1] - offsets[0]))
        fields = set(
            re.split(
                rb"[\r\n"
                + re.escape((self._file.dialect.delimiter + self._file.dialect.quote).encode())
                + b"]+",
                head,
            )
        )
        return not fields & {spelling.encode() for spelling in nulls if spelling}

    def _refuse_open_quote(self, offset: int) -> None:
        dialect = self._file.dialect
        line = ranges.line_number(self._file.path, offset, dialect.newline)
        raise DataError(
            f"{self._file.shown}, line {line}: a quote ({dialect.quote}) opens here and never "
            "closes. Close it, double it if it is part of a text, or set preprocessing.csv.quote "
            "to '' if quotes mean nothing in this file."
        )
