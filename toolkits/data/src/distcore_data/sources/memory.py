"""Frames in memory: pandas, polars, pyarrow, DuckDB, anything with Arrow's PyCapsule interface,
and dicts of lists."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator, Mapping, Sequence, Set, ValuesView
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from distcore_core.contracts import SourceBase
from distcore_core.errors import DataError
from distcore_data.sources.digests import combined, table_digest
from distcore_data.sources.options import DelimitedOptions
from distcore_data.sources.tables import (
    require_columns,
    require_readable,
    slices,
    timestamp_columns,
    typed_batch,
)
from distcore_data.sources.times import settled, unit_of

SHOWN = "the dataset in memory"
MANY = ("__iter__", "__arrow_array__", "__arrow_c_array__", "__arrow_c_stream__")
"""What has values of rows has one of these; so has a text, which is one value."""

LIBRARIES = ("pandas", "polars")
"""Whose frames hold their rows, also such as Arrow cannot."""


def is_frame(dataset: object) -> bool:
    """Whether the dataset is a frame that can be read here."""
    return isinstance(dataset, Mapping | pa.Table | pa.RecordBatch) or hasattr(
        dataset, "__arrow_c_stream__"
    )


def held(dataset: Any) -> Any:
    """The dataset, to be read as often as is needed, also in other processes: rows that come once,
    or are computed anew each time, as those of a relation of DuckDB's are, perhaps in another
    order, as a table; of a mapping, a dict. What is no frame, such as a path, as it is."""
    if isinstance(dataset, Mapping):
        return {name: _listed(values) for name, values in dataset.items()}
    for library in LIBRARIES:
        if _is_of(dataset, library):  # another process may lack its class, or what `attrs` holds
            return sys.modules[library].DataFrame(dataset)
    alone = isinstance(dataset, pa.Table)
    return _table(dataset) if is_frame(dataset) and not alone else dataset


def _listed(values: Any) -> Any:
    """A column of a mapping, as a list if it is gone after one look, or is another's."""
    return list(values) if isinstance(values, Iterator | ValuesView) else values


def _is_of(value: Any, library: str, kind: str = "DataFrame") -> bool:
    """Whether it is such an object of the library, or of a class that a user derived from it."""
    module = sys.modules.get(library)  # who has not imported it has none
    return isinstance(value, getattr(module, kind, ()))


def frame_columns(dataset: Any) -> list[str]:
    """Its column names, without pandas' unnamed index."""
    if isinstance(dataset, Mapping):
        return [str(name) for name in dataset]
    if isinstance(dataset, pa.RecordBatchReader):  # its rows come once, and are wanted later
        return [str(name) for name in dataset.schema.names]
    columns = getattr(dataset, "column_names", None)
    if columns is None:
        columns = getattr(dataset, "columns", None)
    names = (
        _table(dataset).column_names
        if columns is None or callable(columns)
        else [str(name) for name in columns]
    )
    return [name for name in names if not name.startswith("__index_level_")]


def as_table(dataset: Any, columns: Sequence[str] | None = None, shown: str = SHOWN) -> pa.Table:
    """The frame, or some of its columns, as an Arrow table; no copy if the frame is Arrow
    underneath. shown: what messages call it.

    Raises DataError naming the column when a column's values are of several types or unsound, or
    lengths differ.
    """
    return _validated(_table(dataset, columns, shown), shown)


def _table(dataset: Any, columns: Sequence[str] | None = None, shown: str = SHOWN) -> pa.Table:
    if isinstance(dataset, Mapping):
        named = {str(name): values for name, values in dataset.items()}
        if columns is not None:
            named = {name: named[name] for name in columns}
        return _from_mapping({name: _listed(each) for name, each in named.items()}, shown)
    # A column that nobody declared need not fit Arrow.
    of_pandas = _is_of(dataset, "pandas")
    if columns is not None and _is_of(dataset, "polars"):
        dataset = dataset[list(columns)]
    elif columns is not None and of_pandas:  # whose names may be numbers
        wanted = set(columns)
        places = [place for place, name in enumerate(dataset.columns) if str(name) in wanted]
        _refuse_turned(dataset, places, shown)
        dataset = dataset.iloc[:, places]
    try:
        if isinstance(dataset, pa.Table):
            table = dataset
        elif isinstance(dataset, pa.RecordBatch):
            table = pa.Table.from_batches([dataset])
        else:
            table = pa.RecordBatchReader.from_stream(dataset).read_all()
            if of_pandas:
                types = zip(dataset, table.schema.types, strict=False)
                for place, (name, type_) in enumerate(types):
                    if _is_of_times(type_):  # a Series is dear
                        where = f"{shown}, column {str(name)!r}"
                        _refuse_mixed_times(dataset.iloc[:, place], where)
    except OverflowError as error:
        raise _too_large(shown) from error
    except UnicodeEncodeError as error:
        raise _half_a_character(_where_halved(dataset, shown), error) from error
    except (pa.ArrowException, TypeError) as error:
        raise DataError(
            f"{shown}: {error}. Give every column values of one type, for instance with "
            "astype(str)."
        ) from error
    return table if columns is None else table.select(list(columns))


def _refuse_turned(frame: Any, places: Sequence[int], shown: str) -> None:
    """Raise DataError for numbers in another order of bytes than this machine's, as they come of
    FITS and netCDF: neither pandas nor Arrow reads them."""
    kinds = list(frame.dtypes)  # made anew each time it is asked for
    for place in places:
        kind = kinds[place]
        if getattr(kind, "byteorder", "=") in ("<", ">"):  # numpy's "=" is this machine's
            raise DataError(
                f"{shown}, column {str(frame.columns[place])!r}: its numbers ({kind.str}) have "
                "another order of bytes than this machine's. Turn them with "
                f"astype({kind.newbyteorder('=').name!r})."
            )


def _is_of_times(type_: pa.DataType) -> bool:
    return bool(pt.is_date(type_) or pt.is_timestamp(type_))


def _refuse_mixed_times(values: Any, where: str) -> None:
    """Raise DataError for Python's days among times, or times by several clocks. Arrow takes them
    all for what the first one is: it leaves hours out, or turns them."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return
    if str(getattr(values, "dtype", "object")) != "object":  # of numpy or pandas, all alike
        return
    kinds: dict[str, dt.date] = {}
    for each in values:
        if isinstance(each, dt.date) and each == each:  # pandas' NaT is a time, too
            clock = f"{each.tzinfo}" if isinstance(each, dt.datetime) else "of a day"
            kinds.setdefault(clock, each)
    if len(kinds) > 1:
        one, other, *_ = map(str, kinds.values())
        raise DataError(
            f"{where}: {one!r} and {other!r} are a day and a time, or times by two clocks, and one "
            "would be read as the other is. Give all of them alike, or as texts (astype(str))."
        )


def _too_large(where: str) -> DataError:
    return DataError(
        f"{where}: it holds a whole number beyond 64 bits. Give the column as strings or floats."
    )


def _half_a_character(where: str, error: UnicodeEncodeError) -> DataError:
    return DataError(
        f"{where}: {error.object!r:.60} has half of a character in it (a surrogate), which UTF-8 "
        "cannot hold. Correct the text, or read it with the encoding that it was written in."
    )


def _where_halved(dataset: Any, shown: str) -> str:
    """The frame and the column of which Arrow cannot write a text."""
    for name, values in getattr(dataset, "items", {}.items)():
        try:
            pa.array(values, from_pandas=True)
        except UnicodeEncodeError:
            return f"{shown}, column {str(name)!r}"
        except (pa.ArrowException, TypeError, OverflowError):  # another column's fault
            continue
    return shown


def _validated(table: pa.Table, shown: str) -> pa.Table:
    """The table, if all of its offsets, codes and texts are sound: whoever looks into it
    believes them."""
    try:
        names = table.column_names
        table.validate()
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{shown}: it is damaged ({error}). Make it again.") from error
    for name in names:
        try:
            table.column(name).validate(full=True)
        except pa.ArrowException as error:
            raise DataError(
                f"{shown}, column {name!r}: it is damaged ({error}). Make it again."
            ) from error
    return table


def _from_mapping(columns: Mapping[str, Any], shown: str) -> pa.Table:
    arrays = {}
    for name, values in columns.items():
        if isinstance(values, str | bytes) or not any(hasattr(values, each) for each in MANY):
            raise DataError(
                f"{shown}, column {name!r}: {values!r:.80} is one value. Give every column as a "
                f"list of its rows' values: {{{name!r}: [{values!r:.80}], …}}."
            )
        if isinstance(values, Mapping | Set):  # by whose keys, or in no order, rows would be paired
            raise DataError(
                f"{shown}, column {name!r}: a {type(values).__name__} is no list of rows' values. "
                "Give every column as a list, in the order of the rows (of a pandas frame, "
                'frame.to_dict("list")).'
            )
        try:
            arrays[name] = _array(values)
        except OverflowError as error:
            raise _too_large(f"{shown}, column {name!r}") from error
        except UnicodeEncodeError as error:
            raise _half_a_character(f"{shown}, column {name!r}", error) from error
        except (pa.ArrowException, TypeError) as error:
            raise DataError(
                f"{shown}, column {name!r}: {error}. Give the column values of one type."
            ) from error
        if _is_of_times(arrays[name].type):
            _refuse_mixed_times(values, f"{shown}, column {name!r}")
    _refuse_other_rows(columns, shown)
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(
            f"{shown}: its columns differ in length: {lengths}. Give every column as many values."
        )
    return pa.table(arrays)


def _refuse_other_rows(columns: Mapping[str, Any], shown: str) -> None:
    """Raise DataError for pandas' Series of other rows: pandas pairs them by their indexes, and
    here it would be by place."""
    series = {
        name: values.index for name, values in columns.items() if _is_of(values, "pandas", "Series")
    }
    first = next(iter(series), "")
    for name, index in series.items():
        if not index.equals(series[first]):
            raise DataError(
                f"{shown}: columns {first!r} and {name!r} are Series with other indexes, so their "
                "rows would be paired by place. Give pandas.DataFrame(columns), which pairs them "
                "by index, or lists (to_list())."
            )


def _array(values: Any) -> pa.Array:
    """Of a column of a mapping, NaN missing. A list with a float in it is one of floats, also if
    that is a NaN beside whole numbers: 1 is 1.0 then, as in JSON lines and in pandas."""
    found = pa.array(values, from_pandas=True)
    if pt.is_integer(found.type) and found.null_count and isinstance(values, list | tuple):
        has_float = any(isinstance(each, float) for each in values)
        return pa.array(values, pa.float64(), from_pandas=True) if has_float else found
    return found


class FramePartition:
    """Some rows of a frame. It pickles with these rows and no others."""

    def __init__(
        self,
        rows: pa.Table,
        first: int,
        raw: tuple[tuple[str, str], ...],
        options: DelimitedOptions,
        units: Mapping[str, str],
        shown: str = SHOWN,
    ) -> None:
        self._rows, self._first, self._shown = rows, first, shown
        self._raw, self._options, self._units = raw, options, units

    def read(self) -> pa.RecordBatch:
        """The rows, typed. Raises DataError naming row (the first is 0) and column."""
        return typed_batch(
            self._rows,
            self._raw,
            self._options,
            lambda row: f"{self._shown}, row {self._first + row}",
            self._units,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._rows.schema) as writer:
            writer.write_table(self._rows)
        stream = sink.getvalue().to_pybytes()
        return _unpickle, (
            stream,
            self._first,
            self._raw,
            self._options,
            dict(self._units),
            self._shown,
        )


def _unpickle(stream: bytes, *rest: Any) -> FramePartition:
    return FramePartition(pa.ipc.open_stream(stream).read_all(), *rest)


class FrameSource(SourceBase):
    """A frame in memory as a `Source`."""

    def __init__(
        self,
        table: pa.Table,
        raw: Mapping[str, str],
        options: DelimitedOptions,
        shown: str = SHOWN,
    ) -> None:
        require_columns(shown, table.column_names, raw)
        types = {name: table.schema.field(name).type for name in raw}
        require_readable(shown, types, raw)
        if not table.num_rows:
            raise DataError(f"{shown}: it has no rows. Give a dataset with at least one row.")
        raw = settled(raw, types, options.null_values)
        self._table = table.select(list(raw))
        self._raw, self._options, self._shown = tuple(raw.items()), options, shown
        self._known = ""
        self._units = {name: unit_of(table.column(name)) for name in timestamp_columns(types, raw)}

    def digest(self) -> str:
        """Of the declared columns' values, independent of chunks."""
        self._known = self._known or table_digest(self._table, self._table.column_names)
        return combined(["frame", self._known, *self._options.spellings])

    def check_unchanged(self, content: bool = True) -> None:
        """Raises DataError if the values are not those of the digest, if that was asked for: a
        cache would have others than its key says. Arrow shares the memory of numpy's arrays."""
        known = self._known if content else ""
        if known and known != table_digest(self._table, self._table.column_names):
            raise DataError(
                f"{self._shown}: the values changed while they were being read. Nothing that was "
                "read of them is kept. Give a copy, or run again when nobody writes to them."
            )

    def rows(self) -> int:
        """How many rows there are."""
        return int(self._table.num_rows)

    def partitions(self, target_bytes: int) -> Sequence[FramePartition]:
        """Slices of about target_bytes; nothing is copied."""
        rows = self._table.num_rows
        return [
            FramePartition(
                self._table.slice(start, stop - start),
                start,
                self._raw,
                self._options,
                self._units,
                self._shown,
            )
            for start, stop in slices(rows, self._table.nbytes / rows, target_bytes)
        ]

    def close(self) -> None:
        """Nothing was made."""
