"""How a row lies in its record: one `tf.train.Example`, every record of a shard built by the same
plan.

    Example  features = 1 ─► Features  feature = 1 ─► entry  key = 1, value = 2 ─► Feature
             float_list = 2 or
    int64_list = 3 ─► value = 1, packed

Whole numbers are varints of as many bytes as the shard's largest in that column needs, so all that
differs between two rows is at the same place of both. A ragged column is the exception: what stands
before it is one segment, what stands after it the next. Segments are then matrices of bytes, filled
and read a column at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distcore_data.columns import KINDS, Values
from distcore_tfrecord.varints import NEGATIVE_BYTES, encoded, pattern, width_of

HEAD, TAIL = 12, 4
"""Bytes of a record around its data: length and its crc before, the data's crc after."""

FLOAT_LIST, INT64_LIST = b"\x12", b"\x1a"
DTYPES = {dtype.name: dtype.newbyteorder("<") for dtype in KINDS}


@dataclass(frozen=True)
class Spec:
    """A column. width: 0 for a plain one, its length for a vector, None for a ragged one.
    bytes: of one value, 4 for a float, 1 to 10 for a whole number."""

    name: str
    dtype: str
    width: int | None
    bytes: int

    @classmethod
    def of(cls, column: Values) -> Spec:
        values = column.values
        width = None if column.offsets is not None else 0 if values.ndim == 1 else values.shape[1]
        return cls(
            column.name,
            values.dtype.name,
            width,
            4 if values.dtype.kind == "f" else width_of(values),
        )

    @classmethod
    def read(cls, document: dict[str, Any]) -> Spec:
        """From JSON. Raises ValueError, KeyError or TypeError for what is no column."""
        spec = cls(document["name"], document["dtype"], document["width"], document["bytes"])
        known = type(spec.bytes) is int and (
            spec.bytes == 4
            if spec.is_float
            else 0 < spec.bytes <= NEGATIVE_BYTES and spec.dtype in DTYPES
        )
        if not (
            isinstance(spec.name, str) and known and (spec.width is None or _is_count(spec.width))
        ):
            raise ValueError(f"{document} is no column")
        return spec

    def empty(self) -> Values:
        """The column without rows."""
        values = np.empty((0, self.width) if self.width else 0, DTYPES[self.dtype])
        return Values(self.name, values, np.zeros(1, np.int32) if self.width is None else None)

    @property
    def is_float(self) -> bool:
        return self.dtype == "float32"

    @property
    def count(self) -> int:
        """Values in a row; of a ragged column, none in its segment."""
        return 1 if self.width == 0 else self.width or 0


@dataclass
class Field:
    """A place in a segment: `count` values of `bytes` bytes each, from byte `at` on.

    column: whose values they are; None for a length: `add` bytes, and those of the ragged
        columns `of` in this row."""

    at: int
    bytes: int
    count: int
    column: int | None
    add: int = 0
    of: tuple[int, ...] = ()


@dataclass
class Segment:
    """Bytes that lie together in every record. template: those that never change; mask: which
    bits these are."""

    template: bytearray = field(default_factory=bytearray)
    mask: bytearray = field(default_factory=bytearray)
    fields: list[Field] = field(default_factory=list)

    def raw(self, content: bytes) -> None:
        self.template += content
        self.mask += b"\xff" * len(content)

    def place(self, spec: Spec, column: int) -> None:
        self.fields.append(Field(len(self.template), spec.bytes, spec.count, column))
        high = b"\0" * 4 if spec.is_float else pattern(spec.bytes)
        self.template += high * spec.count
        self.mask += (b"\0" * 4 if spec.is_float else b"\x80" * spec.bytes) * spec.count

    def length(self, width: int, add: int, of: tuple[int, ...]) -> None:
        """A length that follows ragged columns; a constant if there are none."""
        if not of:
            return self.raw(encoded(add))
        self.fields.append(Field(len(self.template), width, 1, None, add, of))
        self.template += pattern(width)
        self.mask += b"\x80" * width


class Layout:
    """The plan of a shard's records.

    length_bytes: bytes of every length that depends on a ragged column.
    segments: one more than there are `ragged` columns, which stand between them. fixed: bytes of a
    record without the values of ragged columns."""

    def __init__(self, specs: Sequence[Spec], length_bytes: int) -> None:
        self.specs = tuple(specs)
        self.length_bytes = length_bytes
        self.ragged = tuple(number for number, spec in enumerate(specs) if spec.width is None)
        self.segments = [Segment()]
        first = self.segments[0]
        first.raw(bytes(HEAD))
        entries = sum(_entry_bytes(spec, length_bytes) for spec in specs)
        first.raw(b"\x0a")
        first.length(length_bytes, entries, self.ragged)
        for number, spec in enumerate(specs):
            self._column(number, spec)
        self.segments[-1].raw(bytes(TAIL))
        for frame, part in ((slice(0, HEAD), first), (slice(-TAIL, None), self.segments[-1])):
            part.mask[frame] = bytes(len(part.mask[frame]))
        self.fixed = sum(len(segment.template) for segment in self.segments)

    @staticmethod
    def least(specs: Sequence[Spec]) -> int:
        """Bytes that a record has at least, known before a plan is made of what a file claims."""
        return sum(len(spec.name.encode()) + spec.count * spec.bytes for spec in specs)

    @classmethod
    def of(cls, columns: Sequence[Values]) -> Layout:
        """The plan for these rows."""
        specs = [Spec.of(column) for column in columns]
        longest = sum(_entry_bytes(spec, NEGATIVE_BYTES) for spec in specs)
        for column, spec in zip(columns, specs, strict=True):
            if column.offsets is not None and column.rows:
                longest += int(np.diff(column.offsets).max()) * spec.bytes
        return cls(specs, len(encoded(longest)))

    def _column(self, number: int, spec: Spec) -> None:
        here, size = self.segments[-1], self.length_bytes
        of = (number,) if spec.width is None else ()
        lengths = _lengths(spec, size)
        here.raw(b"\x0a")
        here.length(size, lengths[0], of)
        here.raw(_key(spec) + b"\x12")
        here.length(size, lengths[1], of)
        here.raw(FLOAT_LIST if spec.is_float else INT64_LIST)
        here.length(size, lengths[2], of)
        here.raw(b"\x0a")
        here.length(size, lengths[3], of)
        if spec.width is None:
            self.segments.append(Segment())
        else:
            here.place(spec, number)


# ------------------------------------------------------------------ inside


def _key(spec: Spec) -> bytes:
    name = spec.name.encode()
    return b"\x0a" + encoded(len(name)) + name


def _lengths(spec: Spec, size: int) -> tuple[int, int, int, int]:
    """Bytes of entry, Feature, list and packed values, without the values of a ragged column."""
    found = [spec.count * spec.bytes]
    for before in (b"", b"", _key(spec)):
        inner = size if spec.width is None else len(encoded(found[-1]))
        found.append(len(before) + 1 + inner + found[-1])
    packed, values, feature, entry = found
    return entry, feature, values, packed


def _entry_bytes(spec: Spec, size: int) -> int:
    """Bytes of the entry with the tag and the length before it."""
    entry = _lengths(spec, size)[0]
    return 1 + (size if spec.width is None else len(encoded(entry))) + entry


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0
