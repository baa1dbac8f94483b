"""Encoded columns as numpy vectors and back, for cache formats that lay out the bytes of a file
by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from distcore_core.contracts import Column
from distcore_core.errors import CacheError
from distcore_data.arrow import TYPES, from_numpy, one_array, to_numpy

KINDS: tuple[np.dtype, ...] = (np.dtype("float32"), np.dtype("int32"), np.dtype("int8"))
"""What a cache holds: encoded columns have 32 bits, the split map 8."""

FLOOR_BYTES, MOST_RATIO = 1 << 28, 64
"""What a file holds may have at most MOST_RATIO times the file's bytes, or FLOOR_BYTES if that is
more: deflate alone lets a file of 10 MB claim 10 GB. A writer leaves out compression if a shard
would be beyond it."""


def most_held(file_bytes: int) -> int:
    """Most bytes that a file of this size may hold."""
    return max(FLOOR_BYTES, MOST_RATIO * file_bytes)


@dataclass(frozen=True)
class Values:
    """Some rows of one column, without missing values.

    values: of one of KINDS, C-contiguous: [n] of a plain column, [n, width] of a vector; of a
        ragged column, the values of all rows one after the other.
    offsets: int32 [n + 1] of a ragged column, from 0: row i is values[offsets[i]:offsets[i + 1]];
        else None.
    """

    name: str
    values: np.ndarray
    offsets: np.ndarray | None = None

    @property
    def rows(self) -> int:
        return len(self.values) if self.offsets is None else len(self.offsets) - 1


def columns_of(table: pa.Table) -> list[Values]:
    """The columns of a shard, on the table's own memory if each is one chunk.

    Raises:
        CacheError: There are missing values, or types that are none of a cache's.
    """
    return [
        _values(name, column)
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]


def refuse_missing(name: str, missing: int) -> None:
    """Raise CacheError if a column of a shard has missing values, so many."""
    if missing:
        raise CacheError(
            f"Encoded column {name!r} has {missing} missing values in a shard. "
            "Features must fill them; report this to the feature's authors."
        )


def batch_of(columns: Sequence[Values]) -> pa.RecordBatch:
    """The columns as a batch of required fields, without a copy.

    Raises:
        ValueError: Offsets do not fit the values: Arrow would read beyond them.
    """
    arrays = [_array(column) for column in columns]
    fields = [
        pa.field(column.name, array.type, nullable=False)
        for column, array in zip(columns, arrays, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def row_range(start: int, stop: int | None, rows: int) -> tuple[int, int]:
    """The range of rows that a reader was asked for.

    Args:
        stop: None is the end.
        rows: Of the shard.

    Raises:
        IndexError: [start, stop) does not lie in it.
    """
    stop = rows if stop is None else stop
    if not 0 <= start <= stop <= rows:
        raise IndexError(f"rows [{start}, {stop}) of a shard of {rows}")
    return start, stop


def arrow_type(column: Column) -> pa.DataType:
    """How the values of an encoded column come from a cache."""
    value = pa.float32() if column.dtype == "float32" else pa.int32()
    element = pa.field("element", value, nullable=False)
    if column.width is None:
        return pa.list_(element)
    return value if column.width == 1 else pa.list_(element, column.width)


def fits(found: pa.DataType, column: Column) -> bool:
    """Whether values of this type are those of an encoded column."""
    expected = arrow_type(column)
    if pa.types.is_fixed_size_list(expected):
        return (
            pa.types.is_fixed_size_list(found)
            and found.list_size == column.width
            and _same_value(found, expected)
        )
    if pa.types.is_list(expected):
        return pa.types.is_list(found) and _same_value(found, expected)
    return found == expected


# ------------------------------------------------------------------ inside


def _values(name: str, column: pa.ChunkedArray) -> Values:
    array = one_array(column)
    kind, missing, flat, offsets = array.type, array.null_count, array, None
    if pa.types.is_fixed_size_list(kind):
        flat = array.flatten()
    elif pa.types.is_list(kind):
        flat, ends = array.flatten(), to_numpy(array.offsets)
        offsets = ends - ends[0] if len(ends) else np.zeros(1, np.int32)
    if flat is not array:
        missing += flat.null_count
    refuse_missing(name, missing)
    if TYPES.get(flat.type) not in KINDS or (
        pa.types.is_fixed_size_list(kind) and not kind.list_size
    ):
        raise CacheError(
            f"Encoded column {name!r} is {kind}, but a cache holds float32, int32 and int8, "
            "fixed-size lists of them and lists of them. Report this to the feature's authors."
        )
    values = to_numpy(flat)
    if pa.types.is_fixed_size_list(kind):
        values = values.reshape(len(array), kind.list_size)
    return Values(name, values, offsets)


def _array(column: Values) -> pa.Array:
    flat = from_numpy(column.values.reshape(-1))
    element = pa.field("element", flat.type, nullable=False)
    if column.offsets is not None:
        offsets = column.offsets
        if (
            not len(offsets)
            or offsets[0] != 0
            or offsets[-1] > len(flat)
            or (offsets[1:] < offsets[:-1]).any()
        ):
            raise ValueError(
                f"the offsets of column {column.name!r} do not fit its {len(flat)} values"
            )
        return pa.ListArray.from_arrays(from_numpy(offsets), flat, type=pa.list_(element))
    if column.values.ndim == 1:
        return flat
    return pa.FixedSizeListArray.from_arrays(flat, type=pa.list_(element, column.values.shape[1]))


def _same_value(found: pa.DataType, expected: pa.DataType) -> bool:
    return found.value_type == expected.value_type
