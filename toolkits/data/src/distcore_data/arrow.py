"""From numpy to Arrow and back without a copy, and without pandas.

`pyarrow.array`, `pyarrow.scalar` and `Array.to_numpy` import pandas wherever it is installed, to
ask whether what they were given is a pandas object: 0.2 s and 40 MB. The ways here do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

TYPES: dict[pa.DataType, np.dtype] = {
    kind: np.dtype(name)
    for name, kind in {
        "int8": pa.int8(),
        "int16": pa.int16(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "uint8": pa.uint8(),
        "uint16": pa.uint16(),
        "uint32": pa.uint32(),
        "uint64": pa.uint64(),
        "float32": pa.float32(),
        "float64": pa.float64(),
    }.items()
}
"""The types of a fixed number of bytes that both sides spell alike."""

_ARROW = {dtype: kind for kind, dtype in TYPES.items()}


def from_numpy(values: np.ndarray) -> pa.Array:
    """A numpy vector as an Arrow array on the same memory (copied if it is strided).

    Args:
        values: [n], of a type in TYPES.

    Raises:
        TypeError: It is none.
    """
    values = np.ascontiguousarray(values)
    if values.ndim != 1 or values.dtype not in _ARROW:
        raise TypeError(
            f"expected a vector of a number type, got {values.dtype} of shape {values.shape}"
        )
    return pa.Array.from_buffers(
        _ARROW[values.dtype], len(values), [None, pa.py_buffer(values)], null_count=0
    )


def with_nulls(values: np.ndarray, valid: np.ndarray) -> pa.Array:
    """A numpy vector as an Arrow array on the same memory, null where `valid`, bool [n], is not.

    Raises:
        TypeError: As `from_numpy`.
    """
    plain, bits = from_numpy(values), truths(valid).buffers()[1]
    return pa.Array.from_buffers(plain.type, len(plain), [bits, plain.buffers()[1]])


def scalar(value: float | str) -> pa.Scalar:
    """A number (of 64 bits) or a text as Arrow's functions take one beside an array."""
    return (strings([value]) if isinstance(value, str) else from_numpy(np.array([value])))[0]


def null(kind: pa.DataType) -> pa.Scalar:
    """A missing value of a type."""
    return pa.nulls(1, kind)[0]


def strings(values: Sequence[str]) -> pa.Array:
    """Some strings as utf8 [n]."""
    text = "".join(values)
    content, sized = text.encode(), values
    if not text.isascii():  # a character is not always a byte
        sized = [value.encode() for value in values]  # type: ignore[misc]
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, sized), np.int32, len(values)), out=ends[1:])
    return pa.Array.from_buffers(
        pa.utf8(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(content)]
    )


def joined(values: pa.Array, separator: str) -> pa.Scalar:
    """All strings of an array as one.

    Args:
        values: utf8 [n], none of them null.
        separator: What stands between two of them.
    """
    import pyarrow.compute as pc

    ends = from_numpy(np.array([0, len(values)], np.int32))
    return pc.binary_join(pa.ListArray.from_arrays(ends, values), scalar(separator))[0]


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The rows of a column as one array, dictionaries unified; an array is itself."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:  # combining copies also a single one
        return column.chunk(0)
    if not column.num_chunks:
        return pa.nulls(0, column.type)
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    return pa.concat_arrays(column.chunks)


def to_numpy(array: pa.Array) -> np.ndarray:
    """An Arrow array as a read-only numpy vector on the same memory.

    Args:
        array: [n], without nulls, of a type in TYPES.

    Raises:
        TypeError: It has nulls or is of another type.
    """
    if array.null_count or array.type not in TYPES:
        raise TypeError(
            f"expected an array of a number type without nulls, got {array.type}, "
            f"{array.null_count} nulls"
        )
    buffer = array.buffers()[1]
    if not len(array) or buffer is None:
        return np.zeros(0, TYPES[array.type])
    return np.frombuffer(buffer, TYPES[array.type])[array.offset : array.offset + len(array)]


def plain(values: pa.Array) -> np.ndarray:
    """The numbers of an array [n] without a copy; if a row is null anything may lie.

    Args:
        values: Of a type in TYPES.
    """
    dtype = TYPES[values.type]
    if not len(values):
        return np.zeros(0, dtype)
    return np.frombuffer(values.buffers()[1], dtype, len(values), values.offset * dtype.itemsize)


def validity(values: pa.Array) -> pa.Buffer | None:
    """The bits that say which rows are there, from the first row on; None if all are."""
    return truths(flags(values.is_valid())).buffers()[1] if values.null_count else None


def truths(values: np.ndarray) -> pa.Array:
    """A bool vector as Arrow booleans [n]."""
    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])


def flags(array: pa.Array) -> np.ndarray:
    """Arrow's booleans as a bool vector [n]; null is False."""
    if not len(array):
        return np.zeros(0, bool)
    valid, values = array.buffers()
    found = bits_of(values, array)
    return found & bits_of(valid, array) if array.null_count else found


def bits_of(buffer: pa.Buffer, array: pa.Array) -> np.ndarray:
    """The bits of an array's rows in one of its bitmaps, bool [n]."""
    first, last = array.offset // 8, (array.offset + len(array) + 7) // 8
    ones = np.unpackbits(np.frombuffer(buffer, np.uint8)[first:last], bitorder="little")
    start = array.offset - 8 * first
    return ones[start : start + len(array)].view(bool)
