"""A newline-aligned byte range of a delimited text: what it is, its bytes, and how Arrow parses
them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.csv as pacsv

from distcore_data.sources import ranges, records
from distcore_data.sources.datafile import DataFile
from distcore_data.sources.dialect import Dialect
from distcore_data.sources.encoding import behind_mark
from distcore_data.sources.options import DelimitedOptions


@dataclass(frozen=True)
class DelimitedRange:
    """The rows in the bytes [start, stop) of a file; `block` is how much of it the parser takes at
    once.

    plain: expect the empty text to be the only null spelling that occurs; if another one does, it
    is read again. Looking every value up among nineteen spellings costs an eighth of the parsing.
    quotes: whether there may be some.
    """

    file: DataFile
    start: int
    stop: int
    block: int
    dialect: Dialect
    raw: tuple[tuple[str, str], ...]
    options: DelimitedOptions
    plain: bool = False
    quotes: bool = True

    def text(self) -> pa.Buffer:
        """The bytes of the range."""
        return self.file.read(self.start, self.stop)

    def parse(
        self,
        text: pa.Buffer,
        types: Mapping[str, pa.DataType],
        handler: object = None,
        block: int | None = None,
        plain: bool = False,
    ) -> pa.Table:
        """The columns in `types` (none: all, as bytes). Raises ArrowInvalid as the Arrow reader
        does."""
        text = behind_mark(text)
        read = pacsv.ReadOptions(
            use_threads=False,
            column_names=self.dialect.names,
            block_size=min(block or self.block, len(text) + 1),
        )
        parse = pacsv.ParseOptions(
            delimiter=self.dialect.delimiter,
            quote_char=self.dialect.quote or False,
            invalid_row_handler=handler,
        )
        convert = pacsv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            strings_can_be_null=True,
            null_values=[""] if plain else list(self.options.null_values),
            check_utf8=not plain,
            decimal_point=self.options.decimal,
        )
        return pacsv.read_csv(pa.BufferReader(text), read, parse, convert)

    def place_of(self, row: int) -> str:
        """File and line of a row."""
        return self.place(self.text())(row)

    def place(self, text: pa.Buffer) -> _Line:
        """Row of this partition → file and line, found when it is asked for."""
        return _Line(self, text)


@dataclass(frozen=True)
class _Line:
    partition: DelimitedRange
    text: pa.Buffer

    def __call__(self, row: int) -> str:
        part = self.partition
        walk = records.records(
            memoryview(self.text).tobytes(), 0, part.dialect.delimiter, part.dialect.quote
        )
        start = next(start for index, (start, _) in enumerate(walk) if index == row)
        line = ranges.line_number(part.file.path, part.start + start, part.dialect.newline)
        return f"{part.file.shown}, line {line}"
