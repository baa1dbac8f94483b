"""Rows to records and back, a block of rows at once, every crc made and checked.

A record is the length of its data (8 bytes, little-endian), the masked crc32c of these (4), the
data, and the masked crc32c of the data (4).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence

import google_crc32c
import numpy as np

from distcore_data.columns import Values
from distcore_tfrecord.layout import DTYPES, HEAD, TAIL, Field, Layout, Segment
from distcore_tfrecord.varints import bytes_of, values_of

CRC_DELTA = np.uint32(0xA282EAD8)
FRAME = HEAD + TAIL
LENGTH = struct.Struct("<Q").unpack_from


def masked(crcs: np.ndarray) -> np.ndarray:
    """TFRecord's disguise of a crc, so that a crc of data that holds crcs is still a good one.
    uint32 to uint32."""
    return ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + CRC_DELTA


def framed(data: bytes) -> bytes:
    """One record."""
    length = np.array([len(data)], "<u8")
    ends = masked(
        np.array([google_crc32c.value(length.tobytes()), google_crc32c.value(data)], "<u4")
    )
    return length.tobytes() + ends[:1].tobytes() + data + ends[1:].tobytes()


def encode(layout: Layout, columns: Sequence[Values]) -> np.ndarray:
    """The records of some rows, one after the other: uint8."""
    rows = columns[0].rows
    packed = _packed_bytes(layout, columns)
    lengths = layout.fixed - FRAME + sum(packed.values(), np.zeros(rows, np.int64))
    starts = np.zeros(rows + 1, np.int64)
    np.cumsum(lengths + FRAME, out=starts[1:])
    out = np.empty(starts[-1], np.uint8)
    at = starts[:-1]
    for number, segment in enumerate(layout.segments):
        whole = len(layout.segments) == 1
        matrix = (
            out.reshape(rows, -1) if whole else np.empty((rows, len(segment.template)), np.uint8)
        )
        _fill(matrix, segment, layout, columns, packed)
        if number == 0:
            matrix[:, :8] = _as_bytes(lengths.astype("<u8"))
            matrix[:, 8:HEAD] = _as_bytes(_crcs_of_lengths(lengths))
        if not whole:
            _windows(out, len(segment.template))[at] = matrix
            at = at + len(segment.template)
            if number < len(layout.ragged):
                column = layout.ragged[number]
                _spread(out, at, columns[column], layout, column)
                at = at + packed[column]
    crcs = _crcs(out.tobytes(), starts)
    _windows(out, TAIL)[starts[1:] - TAIL] = _as_bytes(crcs)
    return out


def decode(layout: Layout, data: bytes, rows: int, wanted: Collection[int]) -> list[Values]:
    """The wanted columns (numbers in `layout.specs`) of a block of so many rows, in the layout's
    order.

    Raises ValueError for a wrong crc, and for a record that is not built by the layout."""
    buffer = np.frombuffer(data, np.uint8)
    starts = _starts(layout, data, rows)
    lengths = np.diff(starts) - FRAME
    if not np.array_equal(
        _windows(buffer, TAIL)[starts[1:] - TAIL], _as_bytes(_crcs(data, starts))
    ):
        raise ValueError("the crc of a record is wrong")
    at, packed, found = starts[:-1], {}, []
    for number, segment in enumerate(layout.segments):
        size = len(segment.template)
        whole = len(layout.segments) == 1
        if not whole and (at + size > starts[1:]).any():
            raise ValueError("a record ends before its columns do")
        matrix = buffer.reshape(rows, -1) if whole else _windows(buffer, size)[at]
        if number == 0 and not np.array_equal(
            matrix[:, :HEAD],
            np.hstack([_as_bytes(lengths.astype("<u8")), _as_bytes(_crcs_of_lengths(lengths))]),
        ):
            raise ValueError("the crc of a record's length is wrong")
        _check(matrix, segment)
        found += [
            _read(matrix, place, layout) for place in segment.fields if place.column in wanted
        ]
        at = at + size
        if number < len(layout.ragged):
            column = layout.ragged[number]
            packed[column] = _packed_length(matrix, segment)
            if column in wanted:
                found.append(_gather(buffer, at, packed[column], starts, layout, column))
            at = at + packed[column]
    _check_lengths(layout, buffer, starts, packed)
    return found


# ------------------------------------------------------------------ framing


def _starts(layout: Layout, data: bytes, rows: int) -> np.ndarray:
    """Where each record begins, and the end: int64 [rows + 1]."""
    if not layout.ragged:
        if len(data) != rows * layout.fixed:
            raise ValueError(
                f"{rows} records of {layout.fixed} bytes were expected in {len(data)} bytes"
            )
        return np.arange(rows + 1, dtype=np.int64) * layout.fixed
    starts, at, last = [0], 0, len(data) - layout.fixed
    for _ in range(rows):
        if at > last:
            raise ValueError("a record claims more bytes than there are")
        at += LENGTH(data, at)[0] + FRAME
        starts.append(at)
    found, end = np.array(starts, np.int64), len(data)
    if at != end or (np.diff(found) < layout.fixed).any():
        raise ValueError(f"{rows} records do not fill {end} bytes")
    return found


def _crcs(data: bytes, starts: np.ndarray) -> np.ndarray:
    """Masked crc32c of each record's data, as it is spelt in the file."""
    begins, ends, value = (
        (starts[:-1] + HEAD).tolist(),
        (starts[1:] - TAIL).tolist(),
        google_crc32c.value,
    )
    crcs = [value(data[begin:end]) for begin, end in zip(begins, ends, strict=True)]
    return masked(np.array(crcs, np.uint32)).astype("<u4")


def _crcs_of_lengths(lengths: np.ndarray) -> np.ndarray:
    different, which = np.unique(lengths.astype("<u8"), return_inverse=True)
    crcs = np.array([google_crc32c.value(length.tobytes()) for length in different], np.uint32)
    return masked(crcs)[which].astype("<u4")


# ------------------------------------------------------------------ segments


def _packed_bytes(layout: Layout, columns: Sequence[Values]) -> dict[int, np.ndarray]:
    """{ragged column: bytes of its values in each row}, int64 [rows]."""
    return {
        number: np.diff(offsets).astype(np.int64) * layout.specs[number].bytes
        for number in layout.ragged
        if (offsets := columns[number].offsets) is not None
    }


def _fill(
    matrix: np.ndarray,
    segment: Segment,
    layout: Layout,
    columns: Sequence[Values],
    packed: dict[int, np.ndarray],
) -> None:
    matrix[:] = np.frombuffer(segment.template, np.uint8)
    for place in segment.fields:
        if place.column is None:
            lengths = place.add + np.sum([packed[each] for each in place.of], axis=0)
            parts = bytes_of(lengths[:, None], place.bytes)
        else:
            spec, values = layout.specs[place.column], columns[place.column].values
            if spec.is_float:
                matrix[:, place.at : place.at + 4 * place.count] = _as_bytes(
                    values.astype("<f4", copy=False)
                )
                continue
            parts = bytes_of(values.reshape(len(values), place.count), place.bytes)
        for k, part in enumerate(parts):
            matrix[:, place.at + k : place.at + place.bytes * place.count : place.bytes] = part


def _check(matrix: np.ndarray, segment: Segment) -> None:
    template, mask = (
        np.frombuffer(segment.template, np.uint8),
        np.frombuffer(segment.mask, np.uint8),
    )
    if ((matrix ^ template) & mask).any():
        raise ValueError("a record is not built like the others")


def _parts(matrix: np.ndarray, place: Field) -> list[np.ndarray]:
    return [
        matrix[:, place.at + k : place.at + place.bytes * place.count : place.bytes]
        for k in range(place.bytes)
    ]


def _read(matrix: np.ndarray, place: Field, layout: Layout) -> Values:
    assert place.column is not None
    spec = layout.specs[place.column]
    if spec.is_float:
        part = np.ascontiguousarray(matrix[:, place.at : place.at + 4 * place.count])
        values = part.view(DTYPES[spec.dtype])
    else:
        values = values_of(_parts(matrix, place), DTYPES[spec.dtype])
    return Values(spec.name, values if spec.width else values.reshape(-1))


def _packed_length(matrix: np.ndarray, segment: Segment) -> np.ndarray:
    """What the last length of a segment says: bytes of the ragged values that follow. int64
    [rows]."""
    return values_of(_parts(matrix, segment.fields[-1]), np.dtype(np.int64))[:, 0]


def _check_lengths(
    layout: Layout, buffer: np.ndarray, starts: np.ndarray, packed: dict[int, np.ndarray]
) -> None:
    """Every length of a record says the same, down to the length of the record."""
    if not np.array_equal(layout.fixed + sum(packed.values(), 0 * starts[1:]), np.diff(starts)):
        raise ValueError("the lengths within a record contradict each other")
    at = starts[:-1]
    for number, segment in enumerate(layout.segments[: len(layout.ragged)]):
        for place in (each for each in segment.fields if each.column is None):
            parts = [buffer[at + place.at + k][:, None] for k in range(place.bytes)]
            said = values_of(parts, np.dtype(np.int64))[:, 0]
            if not np.array_equal(said, place.add + sum(packed[each] for each in place.of)):
                raise ValueError("the lengths within a record contradict each other")
        at = at + len(segment.template) + packed[layout.ragged[number]]


# ------------------------------------------------------------------ ragged columns


def _spread(out: np.ndarray, at: np.ndarray, column: Values, layout: Layout, number: int) -> None:
    """Put the values of every row where its ragged part begins."""
    spec, offsets = layout.specs[number], column.offsets
    assert offsets is not None
    places = _places(at, np.diff(offsets), spec.bytes)
    if spec.is_float:
        parts = list(_as_bytes(column.values.astype("<f4", copy=False)).T)
    else:
        parts = bytes_of(column.values, spec.bytes)
    for k, part in enumerate(parts):
        out[places + k] = part


def _gather(
    buffer: np.ndarray,
    at: np.ndarray,
    packed: np.ndarray,
    starts: np.ndarray,
    layout: Layout,
    number: int,
) -> Values:
    spec = layout.specs[number]
    if (packed < 0).any() or (packed % spec.bytes).any() or (at + packed > starts[1:]).any():
        raise ValueError(f"the values of column {spec.name!r} do not fit their record")
    counts = packed // spec.bytes
    places = _places(at, counts, spec.bytes)
    parts = [buffer[places + k] for k in range(spec.bytes)]
    if spec.is_float:
        values = np.stack(parts, axis=1).view(DTYPES[spec.dtype]).reshape(-1)
    else:
        values = values_of(parts, DTYPES[spec.dtype])
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return Values(spec.name, values, offsets)


def _places(at: np.ndarray, counts: np.ndarray, size: int) -> np.ndarray:
    """Where the first byte of each value is: rows begin at `at`, and hold so many values of
    `size` bytes. int64."""
    before = np.cumsum(counts) - counts
    return (
        np.repeat(at - before * size, counts) + np.arange(int(counts.sum()), dtype=np.int64) * size
    )


# ------------------------------------------------------------------ views


def _as_bytes(values: np.ndarray) -> np.ndarray:
    """Rows of numbers as rows of their bytes."""
    return (
        np.ascontiguousarray(values)
        .reshape(len(values), values.size // max(1, len(values)))
        .view(np.uint8)
    )


def _windows(buffer: np.ndarray, size: int) -> np.ndarray:
    """Row i is the `size` bytes from byte i on; indexing it by places copies whole pieces."""
    return np.lib.stride_tricks.as_strided(buffer, (max(0, len(buffer) - size + 1), size), (1, 1))
