"""Which files a Parquet dataset has, and how one is opened and checked."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from distcore_core.errors import DataError
from distcore_data.sources.datafile import DataFile
from distcore_data.sources.encoding import refuse_damaged, refuse_foreign
from distcore_data.sources.fetch import PARQUET, existing, has_marks, is_parquet, is_pattern


def parquet_files(path: Path, shown: str) -> list[Path]:
    """The file itself, or the Parquet files of a folder or pattern, sorted by relative path."""
    if is_pattern(path):
        found = [
            Path(each)
            for each in sorted(glob.glob(str(path), recursive=True))
            if os.path.isfile(each)
        ]
        if not found:
            raise DataError(f"{shown}: no file fits this pattern. Correct it, or name a file.")
        return found
    if existing(path).is_file():
        return [path]
    depth = len(path.parts)
    found = sorted(
        (
            each
            for each in path.rglob("*")
            if is_parquet(each.name) and each.is_file() and not _hidden(each.parts[depth:])
        ),
        key=lambda each: each.parts[depth:],
    )
    if not found:
        raise DataError(
            f"{shown}: a folder with no Parquet files ({', '.join(PARQUET)}). Name another."
        )
    return found


def would_be_read(path: Path, dataset: Path) -> bool:
    """Whether a file of that path, once it is there, is one of the files of the folder or pattern
    `dataset`."""
    folder = dataset
    pattern: tuple[str, ...] = ()
    if is_pattern(dataset):
        fixed = next(at for at, part in enumerate(dataset.parts) if has_marks(part))
        folder, pattern = Path(*dataset.parts[:fixed]), dataset.parts[fixed:]
    elif not os.path.isdir(dataset):
        return False
    place, above = Path(os.path.realpath(path)), os.path.realpath(folder)
    if not place.is_relative_to(above):
        return False
    below = place.relative_to(above).parts
    return _fits(below, pattern) if pattern else is_parquet(path.name) and not _hidden(below)


def _fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether glob finds the path by the pattern."""
    if not pattern or not parts:
        return not parts and all(each == "**" for each in pattern)
    shown = not parts[0].startswith(".") or pattern[0].startswith(".")
    if pattern[0] == "**":
        return _fits(parts, pattern[1:]) or (shown and _fits(parts[1:], pattern))
    return shown and fnmatch(parts[0], pattern[0]) and _fits(parts[1:], pattern[1:])


def _hidden(parts: Sequence[str]) -> bool:
    return any(part.startswith(("_", ".")) for part in parts)


def open_file(
    path: str | Path, shown: str, dictionaries: Sequence[str] = (), buffer: int = 0
) -> pq.ParquetFile:
    """The open file. buffer: bytes of a column chunk that are read at once; 0: all. Raises
    DataError when it is not Parquet or is cut short."""
    try:
        return pq.ParquetFile(
            pa.OSFile(os.fsencode(path)),
            read_dictionary=list(dictionaries),
            buffer_size=buffer,
            page_checksum_verification=True,  # where a page has one, as Spark's have
            # Spark's timestamps. In nanoseconds, Arrow's choice, 9999-12-31 becomes 1816-03-29.
            coerce_int96_timestamp_unit="us",
            pre_buffer=not buffer,  # which reads all of a column chunk
        )
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        refuse_foreign(path, shown, "Parquet", error)


def schema_of(
    file: pq.ParquetFile, path: str | Path, shown: str, known: pa.Schema | None = None
) -> pa.Schema:
    """The schema, whose names are text; `known` itself if it is equal to that one, whose names were
    read before. Raises DataError for a file whose schema cannot be read."""
    try:
        schema = file.schema_arrow  # made anew whenever it is asked for
        if known is not None and schema.equals(known):
            return known
        _ = schema.names, column_paths(file)
        return schema
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        refuse_foreign(path, shown, "Parquet", error)


def column_paths(file: pq.ParquetFile) -> list[str]:
    """Path of each leaf column by its number, from the schema: a column chunk's own is not
    checked to be UTF-8."""
    schema = file.schema  # made anew whenever it is asked for
    return [schema.column(number).path for number in range(len(schema))]


def file_name(shown: str, path: str | Path) -> str:
    """What the user called the dataset, and which of its files."""
    name = os.path.basename(path)
    return shown if shown.endswith(name) else f"{shown} ({name})"


def checked_batches(
    file: DataFile,
    columns: Sequence[str] | None = None,
    rows: int = 1 << 16,
    group: int | None = None,
    buffer: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Batches of some columns (None: all) of a file, or of one of its row groups, each validated.
    buffer: as of `open_file`. Raises DataError."""
    opened = open_file(file.path, file.shown, buffer=buffer)
    schema_of(opened, file.path, file.shown)
    try:
        groups = None if group is None else [group]
        for batch in opened.iter_batches(rows, groups, columns, use_threads=False):
            batch.validate(full=True)
            yield batch
    except (pa.ArrowException, OSError) as error:
        refuse_damaged(file.shown, "the file", error)
