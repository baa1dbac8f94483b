"""From a dataset to typed Arrow batches in row order: finds the format, and the plugin that reads
it.

    source = open_source("data.csv", {"age": "number", "city": "category"}, scratch=Path("/tmp"))
    for partition in source.partitions(target_bytes=16 << 20):
        batch = partition.read()       # in any thread or process, in any order

A dataset is a path or fsspec URL of delimited text (also .gz, .zst, .bz2, .xz), JSON lines, Parquet
(also a folder or pattern), feather, or of what a plugin reads; or a frame in memory: anything with
Arrow's PyCapsule interface, or a dict of lists.
"""

from __future__ import annotations

import codecs
import difflib
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_core.errors import DataError
from distcore_core.registry.index import all_offers
from distcore_core.registry.manager import environment_plugins
from distcore_data.os_errors import readable
from distcore_data.roles import SOURCE
from distcore_data.sources.builtin import Delimited, Json, Parquet
from distcore_data.sources.fetch import (
    Workplace,
    download,
    existing,
    is_pattern,
    is_url,
    local_path,
    removed,
    without_secrets,
)
from distcore_data.sources.formats import HEAD_BYTES, DataFormat, Given
from distcore_data.sources.names import name_of
from distcore_data.sources.options import NULL_VALUES, DelimitedOptions
from distcore_data.sources.unpacking import compression_of, head_of

if TYPE_CHECKING:
    import pyarrow as pa

    from distcore_core.contracts import Source
    from distcore_core.registry.manager import Plugins

__all__ = [
    "NULL_VALUES",
    "DelimitedOptions",
    "column_names",
    "format_name",
    "open_source",
    "rows_about",
    "sample",
]

AUTO = "auto"
FRAME = "frame"
"""The format of what is no file; a file may have any other format's name for its ending."""

LUDWIG_NAMES = {"df": FRAME, "dataframe": FRAME, "dict": FRAME, "dictionary": FRAME}
ELSEWHERE = ("excel", "fwf", "hdf5", "html", "orc", "pickle", "sas", "spss", "stata")
PACKED = (".gz", ".zst", ".bz2", ".xz")


def open_source(
    dataset: Any,
    raw: Mapping[str, str],
    *,
    format: str | None = None,
    scratch: Path | Workplace | None = None,
    options: DelimitedOptions | None = None,
    plugins: Plugins | None = None,
) -> Source:
    """Open a dataset for reading some of its columns.

    Args:
        dataset: A path, a URL or a frame, as above.
        raw: The columns: name → "number", "category", "string" or "time".
        format: A member of the role `sources`, or Ludwig's word for one; None: by name and content.
        scratch: Folder for what must be downloaded or unpacked; None: a temporary one of the
            system's.
        options: How delimited text is written, and which spellings are missing values.
        plugins: Whose formats are read; None: those of the environment.

    Returns:
        A source whose batches hold these columns in this order, as float64,
        dictionary<int32, utf8> or utf8, null if a value is missing; "time" gives timestamp[s] where
        the format has times, and else what "category" gives. `close` removes what was made
        in scratch.

    Raises:
        DataError: Naming file, line or row, and column; nothing is left behind.
    """
    if not raw:
        raise DataError(
            f"{_shown(dataset)}: no column is asked for. Name at least one feature in the config."
        )
    plugins = plugins or environment_plugins()
    place = scratch if isinstance(scratch, Workplace) else Workplace(scratch)
    try:
        with _opening(dataset):
            found, given = _given(dataset, format, options, place, plugins)
            return found.open(given, raw)
    except BaseException:
        place.close()
        raise


def column_names(
    dataset: Any,
    *,
    format: str | None = None,
    options: DelimitedOptions | None = None,
    plugins: Plugins | None = None,
) -> list[str]:
    """The dataset's columns, from its header, schema or first rows. Raises DataError as
    `open_source` does."""
    if not isinstance(dataset, str | os.PathLike):
        from distcore_data.sources.memory import frame_columns

        _require_frame(dataset, _named(format, plugins or environment_plugins()))
        return frame_columns(dataset)
    return sample(dataset, 1, format=format, options=options, plugins=plugins).column_names


def sample(
    dataset: Any,
    rows: int,
    *,
    spread: bool = False,
    format: str | None = None,
    options: DelimitedOptions | None = None,
    plugins: Plugins | None = None,
) -> pa.Table:
    """The first rows (at most `rows`, and some 4 MiB of text), every column with the type that it
    seems to have.

    For looking, as `init` does: types are Arrow's inference, not what `open_source` gives.

    Args:
        dataset: As of `open_source`, as are the others.
        rows: How many at most.
        spread: Take them from several places of a larger dataset, if its format can.

    Raises:
        DataError: As `open_source`.
    """
    place = Workplace(None)
    try:
        with _opening(dataset):
            chosen = plugins or environment_plugins()
            found, given = _given(dataset, format, options, place, chosen)
            if spread and isinstance(found, Delimited | Json | Parquet):
                return found.spread(given, rows)
            return found.sample(given, rows)
    finally:
        place.close()


def rows_about(
    dataset: str | os.PathLike[str],
    column: str,
    *,
    format: str | None = None,
) -> int | None:
    """About how many rows a dataset has, at the cost of a look: exactly if its files say so, by
    the lines in its first bytes if it is text. None if it is remote, or cannot be read.

    Args:
        column: One that it has.
    """
    if is_url(os.fspath(dataset)):  # which would be downloaded for it
        return None
    place = Workplace(None)
    try:
        with _opening(dataset):
            found, given = _given(dataset, format, None, place, environment_plugins())
            rows = found.about(given) if isinstance(found, Delimited | Json) else None
            if rows is not None:
                return rows
            with closing(found.open(given, {column: "string"})) as source:
                return source.rows()
    except DataError:  # told by who reads it
        return None
    finally:
        place.close()


def format_name(dataset: Any, format: str | None, plugins: Plugins) -> str:
    """Which member of the role `sources` reads the dataset, without fetching it; of a remote one
    without an ending the format is found by its content, and is one of the built-in ones ("auto").
    Raises DataError for a format that nobody offers, or a file that is gone meanwhile."""
    name = _named(format, plugins)
    if name != AUTO:
        return name
    if not isinstance(dataset, str | os.PathLike):
        return FRAME
    text = os.fspath(dataset)
    if is_url(text):
        return _fetcher(text, plugins) or _by_ending(without_secrets(text), plugins) or AUTO
    path = local_path(dataset)
    if not path.is_file():
        return "parquet"
    with _opening(dataset):
        return _by_ending(path.name, plugins) or format_by_content(path)


@contextmanager
def _opening(dataset: Any) -> Iterator[None]:
    """The block finds the dataset and opens it, on this machine. Raises DataError if its disk
    cannot, or for a file of it that was found and is gone by then."""
    try:
        with readable(_shown(dataset)):
            yield
    except FileNotFoundError as error:
        if isinstance(dataset, str | os.PathLike) and error.filename is not None:
            beside = local_path(dataset).absolute().parent
            if Path(os.fsdecode(error.filename)).absolute().is_relative_to(beside):
                raise removed(os.fsdecode(error.filename)) from error
        raise


# ------------------------------------------------------------------ which format


def _named(format_: str | None, plugins: Plugins) -> str:
    """The format that the user names. Raises DataError for one that nobody offers."""
    name = (format_ or AUTO).lower()
    name = LUDWIG_NAMES.get(name, name)
    installed = plugins.names(SOURCE.kind)
    if name in (AUTO, *installed):
        return name
    known = f"Installed are: {', '.join(installed)}."
    if any(offer.name == name for offer in all_offers().get(SOURCE.kind, ())):
        raise DataError(
            f"Data format {name!r} is installed but blocked (plugins.block, DISTCORE_BLOCK or "
            f"DISTCORE_LOCK). {known}"
        )
    if name in ELSEWHERE:
        raise DataError(
            f"Data format {name!r} is one of Ludwig's, and no installed plugin reads it. {known} "
            "Write the data as parquet or csv."
        )
    near = difflib.get_close_matches(name, installed, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    raise DataError(f"Unknown data format {format_!r}. {hint}{known}")


def _require_frame(dataset: Any, name: str) -> None:
    from distcore_data.sources.memory import is_frame

    if not is_frame(dataset):
        raise DataError(
            f"A dataset of type {type(dataset).__name__} cannot be read. Give a path, a URL, a "
            "dict of lists, or a frame with Arrow's PyCapsule interface (pandas, polars, pyarrow, "
            "DuckDB); of rows as dicts, pyarrow.Table.from_pylist makes one."
        )
    if name not in (AUTO, FRAME):
        raise DataError(
            f"The dataset is a frame in memory, but its format is given as {name!r}. Leave the "
            "format out."
        )


def _shown(dataset: Any) -> str:
    if not isinstance(dataset, str | os.PathLike):
        return "the dataset in memory"
    return without_secrets(name_of(dataset))


def _given(
    dataset: Any,
    format_: str | None,
    options: DelimitedOptions | None,
    place: Workplace,
    plugins: Plugins,
) -> tuple[DataFormat, Given]:
    """Who reads the dataset, and what it is given: downloaded if it is remote."""
    name, options = _named(format_, plugins), options or DelimitedOptions()
    if not isinstance(dataset, str | os.PathLike):
        _require_frame(dataset, name)
        given = Given(
            dataset=dataset, path=None, shown=_shown(dataset), options=options, place=place
        )
        return plugins.make(SOURCE, FRAME), given
    shown, path = _shown(dataset), None
    if name == FRAME:
        raise DataError(
            f"{shown}: the format is given as a frame in memory, but this is a path. Leave the "
            "format out."
        )
    if is_url(shown):
        url = os.fspath(dataset)
        fetcher = _fetcher(url, plugins)
        if fetcher is None:
            path = download(url, shown, place)
            name = _of_file(path, shown, shown, name, options, plugins)
        elif name not in (AUTO, fetcher):
            raise DataError(
                f"{shown}: the format is given as {name}, but {fetcher} reads this address. Leave "
                "it out."
            )
        else:
            name = fetcher
    else:
        path = local_path(dataset)
        name = _of_file(path, shown, path.name, name, options, plugins)
    found = plugins.make(SOURCE, name)
    given = Given(
        dataset=dataset, path=path, shown=shown, options=options, place=place, head_bytes=HEAD_BYTES
    )
    return found, given


def _of_file(
    path: Path, shown: str, file_name: str, name: str, options: DelimitedOptions, plugins: Plugins
) -> str:
    """The format of what lies at a path. Raises DataError if it cannot be read as the user names
    it."""
    pattern = is_pattern(path)
    if pattern or existing(path).is_dir():
        wanted = _by_ending(file_name, plugins) if pattern and name == AUTO else name
        if wanted not in (None, AUTO) and not plugins.make(SOURCE, wanted).folders:
            what, one = ("pattern of files", "file") if pattern else ("folder", f"{wanted} file")
            raise DataError(
                f"{shown}: a {what} is not read as {wanted}, but as Parquet. Name one {one}."
            )
        return "parquet" if name == AUTO else name
    if not os.access(path, os.R_OK):
        raise DataError(
            f"{shown}: may not be read by this user. Change its permissions, or copy it."
        )
    if name != AUTO:
        return name
    found = _by_ending(file_name, plugins)
    if found is not None:
        return found
    found = format_by_content(path)
    if found == "csv" and options.encoding is None:
        _refuse_unknown(path, shown, file_name, plugins)
    return found


def _fetcher(url: str, plugins: Plugins) -> str | None:
    """The format that reads addresses of this scheme by itself."""
    scheme = url.partition("://")[0].lower()
    if scheme in plugins.names(SOURCE.kind) and plugins.make(SOURCE, scheme).fetches:
        return scheme
    return None


def _ending(name: str) -> str:
    """Without its dot, in lower case, beneath that of a compression."""
    stem = name.lower()
    for suffix in PACKED:
        stem = stem.removesuffix(suffix)
    return os.path.splitext(stem)[1].removeprefix(".")


def _by_ending(name: str, plugins: Plugins) -> str | None:
    ending = _ending(name)
    return ending if ending != FRAME and ending in plugins.names(SOURCE.kind) else None


def format_by_content(path: Path) -> str:
    """What a file is by the first bytes of what is in it: parquet, feather, json or, if it is
    none of these, csv."""
    head = head_of(path, 1 << 12)
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"ARROW1"):
        return "feather"
    if head.lstrip(codecs.BOM_UTF8 + b" \t\r\n").startswith((b"{", b"[{")):
        return "json"
    return "csv"


def _refuse_unknown(path: Path, shown: str, file_name: str, plugins: Plugins) -> None:
    """Raise DataError, with the formats that are installed, for what is no text."""
    from distcore_data.sources.encoding import refuse_binary

    if compression_of(path) is not None:
        return
    try:
        refuse_binary(path, shown)
    except DataError as error:
        ending = _ending(file_name)
        unknown = f"nobody reads the ending .{ending}" if ending else "the name has no ending"
        raise DataError(
            f"{error} By its name the file has no format either: {unknown}. Endings that are read: "
            f"{', '.join(each for each in plugins.names(SOURCE.kind) if each != FRAME)}."
        ) from None
