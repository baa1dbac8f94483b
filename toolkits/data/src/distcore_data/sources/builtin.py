"""The formats that come with the toolkit; what reads one is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from distcore_data.sources.formats import DataFormat, Given

if TYPE_CHECKING:
    import pyarrow as pa

    from distcore_core.contracts import Source


class Delimited(NamedTuple):
    """Delimited text. delimiter: the likelier one if nothing else tells."""

    delimiter: str | None = None
    folders: bool = False
    fetches: bool = False

    def open(self, given: Given, raw: Mapping[str, str]) -> Source:
        from distcore_data.sources.datafile import DataFile, watched
        from distcore_data.sources.delimited import DelimitedSource, prepare
        from distcore_data.sources.tables import require_columns

        file = DataFile.given(given.local, given.shown)
        with watched([file]):
            prepared = prepare(given.local, given.shown, given.options, given.place, self.delimiter)
            require_columns(given.shown, prepared.dialect.names, raw)
            return DelimitedSource(prepared, file, raw, given.options, given.place)

    def sample(self, given: Given, rows: int) -> pa.Table:
        from distcore_data.sources.head import delimited_head

        return delimited_head(given, self.delimiter, rows)

    def spread(self, given: Given, rows: int) -> pa.Table:
        """As `sample`, but from several places: the first rows of a sorted table are not like the
        others."""
        from distcore_data.sources.head import delimited_head

        return delimited_head(given, self.delimiter, rows, spread=True)

    def about(self, given: Given) -> int | None:
        """About how many rows there are, if that is told without reading all of them."""
        from distcore_data.sources.head import text_rows

        looked = self.sample(given, given.head_bytes).num_rows
        return text_rows(given.local, given.place, looked, given.head_bytes)


class Json(NamedTuple):
    """JSON lines; or, if it may be one, a document."""

    may_be_document: bool
    folders: bool = False
    fetches: bool = False

    def open(self, given: Given, raw: Mapping[str, str]) -> Source:
        from distcore_data.sources.datafile import DataFile, watched
        from distcore_data.sources.held import HeldSource
        from distcore_data.sources.json_document import document_columns, is_document
        from distcore_data.sources.jsonlines import JsonSource
        from distcore_data.sources.memory import as_table
        from distcore_data.sources.unpacking import unpacked

        file = DataFile.given(given.local, given.shown)
        with watched([file]):
            text = unpacked(given.local, given.shown, given.place)
            if self.may_be_document and is_document(text):
                columns = document_columns(text, given.shown, raw)
                table = as_table(columns, shown=given.shown)
                return HeldSource(table, "json", file, raw, given.options, given.place)
            return JsonSource(text, file, raw, given.options, given.place)

    def sample(self, given: Given, rows: int) -> pa.Table:
        from distcore_data.sources.head import json_head

        return json_head(given, self.may_be_document, rows)

    def spread(self, given: Given, rows: int) -> pa.Table:
        """As of delimited text."""
        from distcore_data.sources.head import json_head

        return json_head(given, self.may_be_document, rows, spread=True)

    def about(self, given: Given) -> int | None:
        """As of delimited text; of a document none, which is read whole in any case."""
        from distcore_data.sources.head import json_text, text_rows
        from distcore_data.sources.json_document import is_document

        where = (given.local, given.shown, self.may_be_document, given.place, given.head_bytes)
        if self.may_be_document and is_document(json_text(*where)):
            return None
        looked = self.sample(given, given.head_bytes).num_rows
        return text_rows(given.local, given.place, looked, given.head_bytes)


class Parquet(NamedTuple):
    """A Parquet file, or all of a folder or pattern."""

    folders: bool = True
    fetches: bool = False

    def open(self, given: Given, raw: Mapping[str, str]) -> Source:
        from distcore_data.sources.datafile import DataFile, watched
        from distcore_data.sources.parquet import ParquetSource
        from distcore_data.sources.parquet_files import file_name, parquet_files

        paths = parquet_files(given.local, given.shown)
        files = [DataFile.given(each, file_name(given.shown, each)) for each in paths]
        with watched(files):
            return ParquetSource(files, raw, given.options, given.place)

    def sample(self, given: Given, rows: int) -> pa.Table:
        from distcore_data.sources.head import parquet_head

        return parquet_head(given.local, given.shown, rows)

    def spread(self, given: Given, rows: int) -> pa.Table:
        """As of delimited text."""
        from distcore_data.sources.head import parquet_head

        return parquet_head(given.local, given.shown, rows, spread=True)


class Feather(NamedTuple):
    """feather and other Arrow IPC files."""

    folders: bool = False
    fetches: bool = False

    def open(self, given: Given, raw: Mapping[str, str]) -> Source:
        from distcore_data.sources.datafile import DataFile, watched
        from distcore_data.sources.feather import FeatherSource
        from distcore_data.sources.unpacking import unpacked

        file = DataFile.given(given.local, given.shown)
        with watched([file]):
            path = unpacked(given.local, given.shown, given.place)
            return FeatherSource(path, file, raw, given.options, given.place)

    def sample(self, given: Given, rows: int) -> pa.Table:
        from distcore_data.sources.head import feather_head

        return feather_head(given.local, given.shown, rows, given.place)


class Frame(NamedTuple):
    """A frame in memory."""

    folders: bool = False
    fetches: bool = False

    def open(self, given: Given, raw: Mapping[str, str]) -> Source:
        from distcore_data.sources.memory import FrameSource, as_table, frame_columns, held
        from distcore_data.sources.tables import require_columns

        dataset = held(given.dataset)
        require_columns(given.shown, frame_columns(dataset), raw)
        return FrameSource(as_table(dataset, list(raw)), raw, given.options)

    def sample(self, given: Given, rows: int) -> pa.Table:
        from distcore_data.sources.memory import as_table, frame_columns, held
        from distcore_data.sources.tables import require_columns

        dataset = held(given.dataset)
        require_columns(given.shown, frame_columns(dataset), ())
        return as_table(dataset).slice(0, rows)


FORMATS: Mapping[str, DataFormat] = {
    **dict.fromkeys(("csv",), Delimited()),
    **dict.fromkeys(("tsv", "tab"), Delimited("\t")),
    **dict.fromkeys(("parquet", "parq", "pq"), Parquet()),
    **dict.fromkeys(("json",), Json(True)),
    **dict.fromkeys(("jsonl", "ndjson"), Json(False)),
    **dict.fromkeys(("feather", "arrow", "ipc"), Feather()),
    "frame": Frame(),
}
"""By name, which is also the ending of files."""
