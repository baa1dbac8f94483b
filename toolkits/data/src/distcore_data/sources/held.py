"""Files that are read whole: a JSON document, or any format that says how one of its files
becomes a table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from distcore_core.contracts import Source
from distcore_data.sources.datafile import DataFile, FileSource, watched
from distcore_data.sources.digests import combined
from distcore_data.sources.fetch import Workplace
from distcore_data.sources.formats import Given
from distcore_data.sources.memory import FrameSource, as_table
from distcore_data.sources.options import DelimitedOptions
from distcore_data.sources.unpacking import unpacked


class HeldSource(FileSource, FrameSource):
    """A file's rows, held in memory.

    Args:
        kind: What the digest says of how the bytes are read.
        original: The file as it was given.
    """

    def __init__(
        self,
        table: pa.Table,
        kind: str,
        original: DataFile,
        raw: Mapping[str, str],
        options: DelimitedOptions,
        place: Workplace,
    ) -> None:
        super().__init__(table, raw, options, original.shown)
        self.files, self._kind, self._place = [original], kind, place

    def digest(self) -> str:
        """Of the file's bytes, and of how values are spelled."""
        return combined([self._kind, self._content, *self._options.spellings])


class TableFormat:
    """Base of a `DataFormat` whose files fit into memory: what is left to say is how one becomes
    a table."""

    folders = False
    fetches = False

    def table(self, path: Path, shown: str) -> pa.Table:
        """The file's rows, every column with its own type.

        Args:
            path: Of the file, unpacked if it came compressed.
            shown: What the user calls it.

        Raises:
            DataError: Naming the file, the line and the column of what cannot be read.
        """
        raise NotImplementedError

    def open(self, given: Given, raw: Mapping[str, str]) -> Source:
        """The declared columns.

        Args:
            given: The file, and what the user said of it.
            raw: {column: "number", "category", "string" or "time"}.

        Raises:
            DataError: As `table`, and if the file changes meanwhile.
        """
        original = DataFile.given(given.local, given.shown)
        with watched([original]):
            table = self._read(given)
        kind = f"{type(self).__module__}.{type(self).__qualname__}"
        return HeldSource(table, kind, original, raw, given.options, given.place)

    def sample(self, given: Given, rows: int) -> pa.Table:
        """The first rows.

        Args:
            given: The file, and what the user said of it.
            rows: At most so many.

        Raises:
            DataError: As `table`.
        """
        return self._read(given).slice(0, rows)

    def _read(self, given: Given) -> pa.Table:
        table = self.table(unpacked(given.local, given.shown, given.place), given.shown)
        return as_table(table, shown=given.shown)
