"""From a dataset to typed Arrow batches in row order: finds the format, opens the family that reads it.

    source = open_source("data.csv", {"age": "number", "city": "category"}, scratch=Path("/tmp"))
    for partition in source.partitions(target_bytes=16 << 20):
        batch = partition.read()       # in any thread or process, in any order

A dataset is a path or fsspec URL of delimited text (also .gz, .zst, .bz2, .xz), JSON lines, Parquet (also a folder or
pattern) or feather, or a frame in memory: anything with Arrow's PyCapsule interface, or a dict of lists.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_core.errors import DataError
from distcore_data.sources.fetch import (
    Workplace,
    compression_of,
    download,
    existing,
    is_url,
    local_path,
    unpacked,
    without_secrets,
)
from distcore_data.sources.options import NULL_VALUES, DelimitedOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from distcore_core.contracts import Source
    from distcore_data.sources.datafile import DataFile

__all__ = ["NULL_VALUES", "DelimitedOptions", "column_names", "open_source", "sample"]

FORMATS = {
    "auto": "auto",
    "csv": "csv",
    "tsv": "tsv",
    "parquet": "parquet",
    "json": "json",
    "jsonl": "jsonl",
    "feather": "feather",
    "arrow": "feather",
    "df": "frame",
    "dataframe": "frame",
    "dict": "frame",
    "dictionary": "frame",
}
ELSEWHERE = ("excel", "fwf", "hdf5", "html", "orc", "pickle", "sas", "spss", "stata")
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".parq": "parquet",
    ".pq": "parquet",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".feather": "feather",
    ".arrow": "feather",
    ".ipc": "feather",
}
PACKED = (".gz", ".zst", ".bz2", ".xz")
HEAD_BYTES = 1 << 22
"""Bytes looked at, at most, where only names and first rows are wanted of text."""


def open_source(
    dataset: Any,
    raw: Mapping[str, str],
    *,
    format: str | None = None,
    scratch: Path | None = None,
    options: DelimitedOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Source:
    """Open a dataset for reading the columns in `raw`: name → "number", "category" or "string".

    Batches hold these columns in this order, as float64, dictionary<int32, utf8> or utf8, null where a value is
    missing. scratch: folder for what must be downloaded or unpacked (default: the system's); `close` removes it.
    storage_options: for fsspec. Raises DataError naming file, line or row, and column; nothing is left behind.
    """
    if not raw:
        raise DataError(f"{_shown(dataset)}: no column is asked for. Name at least one feature in the config.")
    options = options or DelimitedOptions()
    kind = _known(format)
    place = Workplace(scratch)
    try:
        return _open(dataset, raw, kind, options, place, storage_options)
    except BaseException:
        place.close()
        raise


def _open(
    dataset: Any,
    raw: Mapping[str, str],
    kind: str,
    options: DelimitedOptions,
    place: Workplace,
    storage_options: Mapping[str, Any] | None,
) -> Source:
    nulls = options.null_values
    if not isinstance(dataset, str | os.PathLike):
        from distcore_data.sources.memory import SHOWN, FrameSource, as_table, frame_columns
        from distcore_data.sources.tables import require_columns

        _require_frame(dataset, kind)
        require_columns(SHOWN, frame_columns(dataset), raw)
        return FrameSource(as_table(dataset, list(raw)), raw, nulls)
    shown, path, kind = _locate(dataset, kind, place, storage_options)
    files = _files(path, shown, kind)
    try:
        return _open_files(files, path, raw, kind, options, place)
    except Exception:
        for each in files:  # what changes meanwhile may look like anything
            each.check()
        raise


def _files(path: Path, shown: str, kind: str) -> list[DataFile]:
    """The dataset's files as they are now."""
    from distcore_data.sources.datafile import DataFile

    if kind != "parquet":
        return [DataFile.given(path, shown)]
    from distcore_data.sources.parquet import file_name, parquet_files

    return [DataFile.given(each, file_name(shown, each)) for each in parquet_files(path, shown)]


def _open_files(
    files: list[DataFile], path: Path, raw: Mapping[str, str], kind: str, options: DelimitedOptions, place: Workplace
) -> Source:
    first, nulls = files[0], options.null_values
    shown = first.shown
    if kind == "parquet":
        from distcore_data.sources.parquet import ParquetSource

        return ParquetSource(files, raw, nulls, place)
    if kind == "feather":
        from distcore_data.sources.feather import FeatherSource

        return FeatherSource(unpacked(path, shown, place), first, raw, nulls, place)
    if kind in ("json", "jsonl"):
        from distcore_data.sources.jsonlines import DocumentSource, JsonSource, is_document

        text = unpacked(path, shown, place)
        family = DocumentSource if kind == "json" and is_document(text) else JsonSource
        return family(text, first, raw, nulls, place)
    from distcore_data.sources.delimited import DelimitedSource, prepare
    from distcore_data.sources.tables import require_columns

    prepared = prepare(path, shown, options, place, "\t" if kind == "tsv" else None)
    require_columns(shown, prepared.dialect.names, raw)
    return DelimitedSource(prepared, first, raw, options, place)


def column_names(
    dataset: Any,
    *,
    format: str | None = None,
    options: DelimitedOptions | None = None,
    scratch: Path | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> list[str]:
    """The dataset's columns, from its header, schema or first rows. Raises DataError as `open_source` does."""
    if not isinstance(dataset, str | os.PathLike):
        from distcore_data.sources.memory import frame_columns

        _require_frame(dataset, _known(format))
        return frame_columns(dataset)
    return sample(
        dataset, 1, format=format, options=options, scratch=scratch, storage_options=storage_options
    ).column_names


def sample(
    dataset: Any,
    rows: int,
    *,
    format: str | None = None,
    options: DelimitedOptions | None = None,
    scratch: Path | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> pa.Table:
    """The first rows (at most `rows`, and some 4 MiB of text), every column with the type that it seems to have.

    For looking, as `init` and `plan` do: types are Arrow's inference, not what `open_source` gives.
    """
    from distcore_data.sources.head import head_table

    kind = _known(format)
    if not isinstance(dataset, str | os.PathLike):
        from distcore_data.sources.memory import as_table

        _require_frame(dataset, kind)
        return as_table(dataset).slice(0, rows)
    place = Workplace(scratch)
    try:
        shown, path, kind = _locate(dataset, kind, place, storage_options)
        return head_table(path, shown, kind, rows, options or DelimitedOptions(), place, HEAD_BYTES)
    finally:
        place.close()


# ------------------------------------------------------------------ which format


def _known(format_: str | None) -> str:
    """Our name of Ludwig's data format. Raises DataError for one that nobody knows or that is not read here."""
    name = (format_ or "auto").lower()
    if name in FORMATS:
        return FORMATS[name]
    known = ", ".join(FORMATS)
    if name in ELSEWHERE:
        raise DataError(f"Data format {name!r} is one of Ludwig's but not read here. Write the data as parquet or csv.")
    near = difflib.get_close_matches(name, FORMATS, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    raise DataError(f"Unknown data format {format_!r}. {hint}Known are: {known}.")


def _require_frame(dataset: Any, kind: str) -> None:
    from distcore_data.sources.memory import is_frame

    if not is_frame(dataset):
        raise DataError(
            f"A dataset of type {type(dataset).__name__} cannot be read. Give a path, a URL, a dict of lists, or a "
            f"frame with Arrow's PyCapsule interface (pandas, polars, pyarrow, DuckDB)."
        )
    if kind not in ("auto", "frame"):
        raise DataError(f"The dataset is a frame in memory, but its format is given as {kind!r}. Leave the format out.")


def _shown(dataset: Any) -> str:
    return os.fspath(dataset) if isinstance(dataset, str | os.PathLike) else "the dataset in memory"


def _locate(
    dataset: str | os.PathLike[str], kind: str, place: Workplace, storage_options: Mapping[str, Any] | None
) -> tuple[str, Path, str]:
    """(name to show, local file or folder, format), downloaded where it is remote."""
    shown = os.fspath(dataset)
    if kind == "frame":
        raise DataError(f"{shown}: the format is given as a frame in memory, but this is a path. Leave the format out.")
    if is_url(shown):
        url, shown = shown, without_secrets(shown)
        path = download(url, shown, place, storage_options)
        name = shown
    else:
        path = local_path(dataset)
        name = path.name
    if any(mark in str(path) for mark in "*?[") and not path.exists():
        if kind not in ("auto", "parquet"):
            raise DataError(f"{shown}: a pattern of files is read for Parquet only. Name one file.")
        return shown, path, "parquet"
    if existing(path).is_dir():
        if kind not in ("auto", "parquet"):
            raise DataError(f"{shown}: a folder is read as Parquet files only. Name one {kind} file.")
        return shown, path, "parquet"
    if not os.access(path, os.R_OK):
        raise DataError(f"{shown}: may not be read by this user. Change its permissions, or copy it.")
    return shown, path, _format_of(path, name) if kind == "auto" else kind


def _format_of(path: Path, name: str) -> str:
    """By the name's ending, else by the file's first bytes."""
    stem = name.lower()
    for suffix in PACKED:
        stem = stem.removesuffix(suffix)
    kind = SUFFIXES.get(os.path.splitext(stem)[1])
    if kind is not None:
        return kind
    with open(path, "rb") as file:
        head = file.read(1 << 12)
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"ARROW1"):
        return "feather"
    if compression_of(path) is None and head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[{")):
        return "json"
    return "csv"
