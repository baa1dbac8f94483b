"""What the first record of a shard tells about the rest: columns, rows, and where each block of
rows lies.

Every number is checked against the file before it is believed, and nothing is inflated beyond what
the index says, so no claim of a file makes anyone allocate more than it can fill.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, BinaryIO

import google_crc32c
import numpy as np

from distcore_data.columns import most_held
from distcore_data.seals import parse_json
from distcore_tfrecord.blocks import framed, masked
from distcore_tfrecord.layout import HEAD, TAIL, Layout, Spec
from distcore_tfrecord.varints import NEGATIVE_BYTES, encoded

INDEX = "distcore:index"
"""The name of the feature that holds the index."""

STEP = 1 << 16
"""Bytes that are inflated at once while the end of the first record is not known."""

GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Index:
    """rows: of the shard. sizes: bytes of the records of each block of `block_rows` rows, after the
    first row.
    members: compressed bytes of each block; none without gzip. head: bytes of the file before
        the first block."""

    specs: tuple[Spec, ...]
    length_bytes: int
    rows: int
    block_rows: int
    sizes: tuple[int, ...]
    members: tuple[int, ...] = ()
    head: int = 0

    @cached_property
    def layout(self) -> Layout:
        return Layout(self.specs, self.length_bytes)

    @cached_property
    def _offsets(self) -> list[int]:
        return list(accumulate(self.members or self.sizes, initial=self.head))

    def parts(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """(first row, row after the last, number) of the blocks that rows [start, stop) touch;
        -1: the first row."""
        if start == 0 < stop:
            yield 0, 1, -1
        if start < stop:
            for number in range(
                max(start - 1, 0) // self.block_rows, -(-(stop - 1) // self.block_rows)
            ):
                first = 1 + number * self.block_rows
                yield first, min(first + self.block_rows, self.rows), number

    def block(self, source: BinaryIO, number: int) -> bytes:
        """The records of a block. Raises ValueError if they are not there."""
        begin, end = self._offsets[number : number + 2]
        source.seek(begin)
        found = source.read(end - begin)
        if self.members:
            inflate = zlib.decompressobj(wbits=31)
            found = inflate.decompress(found, self.sizes[number] + 1)
            if not inflate.eof:
                raise ValueError(f"block {number} does not inflate to {self.sizes[number]} bytes")
        if len(found) != self.sizes[number]:
            raise ValueError(
                f"block {number} should have {self.sizes[number]} bytes, but has {len(found)}"
            )
        return found


def suffix_of(index: Index) -> bytes:
    """The index as a second `Features` message, which parsers merge with the first; it ends the
    first record."""
    listed = {
        "columns": [asdict(spec) for spec in index.specs],
        **{
            name: getattr(index, name)
            for name in ("length_bytes", "rows", "block_rows", "sizes", "members")
        },
    }
    text = json.dumps(listed, separators=(",", ":")).encode()
    feature = _message(b"\x0a", _message(b"\x0a", text))
    entry = _message(b"\x0a", INDEX.encode()) + _message(b"\x12", feature)
    return _message(b"\x0a", _message(b"\x0a", entry))


def head_of(source: BinaryIO) -> tuple[Index, bytes]:
    """The index of a shard, and the record of its first row without it. Raises ValueError for
    any other file."""
    size = source.seek(0, 2)
    source.seek(0)
    packed = source.read(2) == GZIP
    source.seek(0)
    record, head = _first_member(source, size) if packed else _first_record(source, size)
    data = record[HEAD:-TAIL]
    if record != framed(data):
        raise ValueError("the crc of its first record is wrong")
    _, end = _field(data, 0, b"\x0a")
    cut = 0 if end == len(data) else end
    found = _parse(_text(data, cut), head)
    _check(found, size, cut, packed)
    return found, framed(data[:cut])


# ------------------------------------------------------------------ inside


def _message(tag: bytes, content: bytes) -> bytes:
    return tag + encoded(len(content)) + content


def _field(data: bytes, at: int, tag: bytes) -> tuple[int, int]:
    """[begin, end) of the content of the field of this tag at `at`."""
    if data[at : at + 1] != tag:
        raise ValueError("its first record holds no index; distcore did not write it")
    length, shift, at = 0, 0, at + 1
    while True:
        byte = data[at] if at < len(data) and shift < 70 else None
        if byte is None:
            raise ValueError("its first record ends within a length")
        length, shift, at = length | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            break
    if at + length > len(data):
        raise ValueError("its first record ends before its fields do")
    return at, at + length


def _text(data: bytes, at: int) -> bytes:
    """The JSON in the suffix that begins at `at` and ends with the data."""
    begin, end = _field(data, at, b"\x0a")
    begin, entry = _field(data, begin, b"\x0a")
    key, after = _field(data, begin, b"\x0a")
    if data[key:after] != INDEX.encode() or not end == entry == len(data):
        raise ValueError("its first record holds no index; distcore did not write it")
    for tag in (b"\x12", b"\x0a", b"\x0a"):
        after, end = _field(data, after, tag)
        if end != len(data):
            raise ValueError("the index in its first record is damaged")
    return data[after:end]


def _first_record(source: BinaryIO, size: int) -> tuple[bytes, int]:
    length = _length(source.read(HEAD)) + HEAD + TAIL
    if length > size:
        raise ValueError(f"its first record claims {length} bytes, but the file has only {size}")
    source.seek(0)
    return source.read(length), length


def _first_member(source: BinaryIO, size: int) -> tuple[bytes, int]:
    inflate, found, fed, expected = zlib.decompressobj(wbits=31), bytearray(), 0, None
    while not inflate.eof:
        chunk = inflate.unconsumed_tail
        if not chunk:
            chunk = source.read(STEP)
            fed += len(chunk)
        if not chunk:
            raise ValueError("it ends within its first record")
        found += inflate.decompress(chunk, STEP)
        if expected is None and len(found) >= HEAD:
            expected = _length(bytes(found[:HEAD])) + HEAD + TAIL
        if len(found) > min(most_held(size), STEP if expected is None else expected):
            raise ValueError(
                f"its first record does not end where it should, after {expected} bytes"
            )
    return bytes(found), fed - len(inflate.unused_data)


def _length(head: bytes) -> int:
    """The length of a record's data, its crc checked."""
    crc = masked(np.array([google_crc32c.value(head[:8])], np.uint32)).astype("<u4").tobytes()
    if len(head) != HEAD or head[8:] != crc:
        raise ValueError("it does not begin with a TFRecord")
    return int.from_bytes(head[:8], "little")


def _parse(text: bytes, head: int) -> Index:
    document: dict[str, Any] = parse_json(text)
    specs = tuple(Spec.read(each) for each in document.pop("columns"))
    sizes, members = tuple(document.pop("sizes")), tuple(document.pop("members"))
    return Index(specs=specs, sizes=sizes, members=members, head=head, **document)


def _check(index: Index, size: int, first: int, packed: bool) -> None:
    """Every number is one, and blocks and first row fill the file. first: bytes of the first
    row's data."""
    numbers = (index.rows, index.block_rows, index.length_bytes, *index.sizes, *index.members)
    if any(type(number) is not int or number < 0 for number in numbers) or not (
        index.block_rows and 0 < index.length_bytes <= NEGATIVE_BYTES
    ):
        raise ValueError("the numbers of its index make no sense")
    blocks = -(-(index.rows - 1) // index.block_rows) if index.rows else 0
    if len(index.sizes) != blocks or len(index.members) != (blocks if packed else 0):
        raise ValueError(
            f"its index lists {len(index.sizes)} blocks, but {index.rows} rows are {blocks}"
        )
    end = index.head + sum(index.members or index.sizes)
    if end != size:
        raise ValueError(f"it should have {end} bytes, but has {size}")
    if len({spec.name for spec in index.specs}) != len(index.specs):
        raise ValueError("two of its columns have one name")
    held, least = first + sum(index.sizes), Layout.least(index.specs)
    if held > most_held(size) or (
        index.rows and (least > first or (index.rows - 1) * least > held)
    ):
        raise ValueError(
            f"its {index.rows} rows claim {max(held, least)} bytes, which cannot come from {size}"
        )
