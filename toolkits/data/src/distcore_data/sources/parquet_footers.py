"""What Parquet files say of their row groups: by compiled code, which takes some microseconds where
Arrow takes 150, or, where that does not take a footer, as Arrow has it."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow.parquet as pq

from distcore_data.sources.datafile import DataFile, read_range
from distcore_data.sources.parquet_columns import Places, compiled

UNPACKED, SNAPPY, OTHER = 0, 1, -1
"""Codecs: as numbers in a footer, and one that is not known."""

SMALL_BYTES = 1 << 19
"""Bytes of a column chunk that may be read in either way."""

TAIL = 1 << 14
"""Bytes at the end of a file that are read at once; larger footers are read again."""

ENDING = struct.Struct("<I4s")
"""How long the footer before it is, and a mark."""


class Facts(NamedTuple):
    """What is said of one column of a row group. start, bytes: where it lies; raw_bytes: how many
    they are unpacked; is_delta: whether a page may have an encoding of that name."""

    start: int
    bytes: int
    raw_bytes: int
    codec: int
    values: int
    is_delta: int


class Group(NamedTuple):
    """A row group. numbers: the `Facts` of each leaf column, one after the other."""

    rows: int
    numbers: Sequence[int]

    def of(self, leaf: int) -> Facts:
        size = len(Facts._fields)
        return Facts(*self.numbers[size * leaf : size * (leaf + 1)])


class Footer(NamedTuple):
    """A file's row groups; schema: its bytes, those of what the writer says besides too."""

    schema: bytes
    groups: list[Group]


def footer_of(file: DataFile, columns: int) -> Footer | None:
    """A file's footer; None if it is not plain, or not of so many leaf columns. Raises OSError if
    the file was cut."""
    if compiled is None:
        return None
    size = file.state.bytes
    tail = memoryview(read_range(file.path, max(0, size - TAIL), size))
    if len(tail) < ENDING.size:
        return None
    length, mark = ENDING.unpack(tail[-ENDING.size :])
    if mark != b"PAR1" or length > size - ENDING.size:
        return None
    if length > len(tail) - ENDING.size:
        tail = memoryview(read_range(file.path, size - ENDING.size - length, size))
    text = tail[len(tail) - ENDING.size - length : -ENDING.size]
    found = compiled.footer(text, columns)
    if found is None:
        return None
    numbers, (begin, end, first, last) = memoryview(found[0]).cast("q"), found[1]
    step = 1 + len(Facts._fields) * columns
    groups = [
        Group(numbers[at], numbers[at + 1 : at + step]) for at in range(0, len(numbers), step)
    ]
    return Footer(bytes(text[begin:end]) + bytes(text[first:last]), groups)


def groups_by_arrow(metadata: pq.FileMetaData, leaves: Iterable[int]) -> list[Group]:
    """The row groups of a file that Arrow has opened; of other leaf columns zeros.

    Where columns lie, and how they are packed, is left out: Arrow, asked for the name of a codec
    that there is not, ends the process."""
    found, size = [], len(Facts._fields)
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        numbers = array("q", bytes(8 * size * metadata.num_columns))
        for leaf in leaves:
            about = group.column(leaf)
            is_delta = any("DELTA" in each for each in about.encodings)
            facts = Facts(0, 0, about.total_uncompressed_size, OTHER, about.num_values, is_delta)
            numbers[size * leaf : size * (leaf + 1)] = array("q", facts)
        found.append(Group(group.num_rows, numbers))
    return found


def places_of(group: Group, leaves: Iterable[int], file_bytes: int) -> Places | None:
    """Where these columns lie; None if they are surely not plain, or not in a file of so many
    bytes."""
    facts = [group.of(leaf) for leaf in leaves]
    codecs = {each.codec for each in facts}
    if codecs not in ({UNPACKED}, {SNAPPY}):
        return None
    if any(min(each[:3]) < 0 or each.start + each.bytes > file_bytes for each in facts):
        return None
    return Places(
        codecs == {SNAPPY},
        array("q", [each.start for each in facts]),
        array("q", [each.bytes for each in facts]),
        array("q", [each.raw_bytes for each in facts]),
    )


def plain_columns(groups: Sequence[Group], numbers: Mapping[str, int]) -> set[str]:
    """Those of some columns, given by the numbers of their leaves, that are not to be read into a
    dictionary: Arrow cannot (DELTA encodings), or it takes ten times as long as decoding the texts
    (the writer gave its dictionary up, so that most texts lie plain)."""
    return {
        name
        for name, number in numbers.items()
        if any(_is_plain(group.of(number)) for group in groups)
    }


def _is_plain(facts: Facts) -> bool:
    # A code has at most 20 bits, a plain text at least its 4 bytes of length. Writers give up at
    # 1 MiB.
    if facts.raw_bytes > SMALL_BYTES and facts.raw_bytes > 4 * facts.values:
        return True
    return bool(facts.is_delta)
