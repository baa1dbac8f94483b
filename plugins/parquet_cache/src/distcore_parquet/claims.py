"""What a shard's footer and page headers claim, checked before pyarrow believes it.

pyarrow allocates what a page header says (600 bytes can claim gigabytes), and makes Arrow extension
types by whatever code is registered for their names. A shard of ours has neither dictionaries nor
extension types, so what has them is not ours. Formats:
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift, in Thrift's
compact protocol.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, BinaryIO

import pyarrow.parquet as pq

from distcore_data.columns import most_held

MAGIC = b"PAR1"
ARROW_SCHEMA = re.compile(rb"ARROW:schema")
EXTENSION = b"ARROW:extension"

TYPES = ("FLOAT", "INT32")
DATA_PAGE = 0
PLAIN, BYTE_STREAM_SPLIT = 0, 9
HEADER_BYTES = 96
"""More than any page header of ours takes: they have no statistics."""

BOOLEANS, BYTE, INTEGERS, BINARY, STRUCT = {1: True, 2: False}, 3, (4, 5, 6), 8, 12


def check_footer(source: BinaryIO) -> int:
    """The file's size. Raises ValueError if it is no Parquet, or its Arrow schema has an
    extension type."""
    size = source.seek(0, 2)
    tail = _read(source, max(size - 8, 0), 8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length > size - 12:
        raise ValueError("it does not end as a Parquet file")
    footer = _read(source, size - 8 - length, length)
    for found in ARROW_SCHEMA.finditer(footer):
        if EXTENSION in _schema(footer, found.end()):
            raise ValueError("its schema has an Arrow extension type, which no cache has")
    return size


def check_pages(source: BinaryIO, metadata: pq.FileMetaData, size: int) -> None:
    """Raises ValueError if the pages claim more than the file can hold, or are none of ours."""
    held = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.physical_type not in TYPES or column.has_dictionary_page:
                raise ValueError(f"column {column.path_in_schema!r} is stored as no cache's is")
            begin, length = column.data_page_offset, column.total_compressed_size
            if begin < 0 or length < 0 or begin + length > size:
                raise ValueError(
                    f"column {column.path_in_schema!r} lies beyond the end of the file, {size} "
                    "bytes"
                )
            held += _column(source, begin, begin + length)
            if held > most_held(size):
                raise ValueError(
                    f"its columns claim {held} bytes and more, which cannot come from a file of "
                    f"{size}"
                )
    source.seek(0)


# ------------------------------------------------------------------ inside


def _schema(footer: bytes, at: int) -> bytes:
    """The value that follows the key: a Thrift string of base64, spelt in the only way there is."""
    if footer[at : at + 1] != b"\x18":  # the next field is a string
        raise ValueError("its Arrow schema is not where it belongs")
    length, at = _varint(footer, at + 1)
    text = footer[at : at + length]
    try:
        plain = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("its Arrow schema is not base64") from error
    if base64.b64encode(plain) != text:
        raise ValueError("its Arrow schema is not base64")
    return plain


def _column(source: BinaryIO, at: int, end: int) -> int:
    """Bytes that the pages in [at, end) of the file hold once they are decompressed."""
    held = 0
    while at < end:
        header = _read(source, at, min(HEADER_BYTES, end - at))
        try:
            page, length = _struct(header, 0)
            plain, packed, data = page[2], page[3], page[5]
            wanted, encoding = 4 * data[1], data[2]
        except (IndexError, KeyError, TypeError) as error:
            raise ValueError(f"the page at byte {at} has no header of ours") from error
        if (
            page[1] != DATA_PAGE
            or encoding not in (PLAIN, BYTE_STREAM_SPLIT)
            or min(plain, packed, wanted) < 0
        ):
            raise ValueError(f"the page at byte {at} is stored as none of ours is")
        # Levels of ragged columns come in runs, so their number counts too, whatever bytes there
        # are.
        held += max(plain, wanted)
        at += length + packed
    if at != end:
        raise ValueError(f"a page ends at byte {at}, behind its column, which ends at {end}")
    return held


def _struct(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    """{field: value} of a Thrift struct, and where it ends. Raises IndexError if the data end
    before."""
    found: dict[int, Any] = {}
    field = 0
    while data[at]:
        step, kind = data[at] >> 4, data[at] & 15
        at += 1
        if step:
            field += step
        else:
            field, at = _integer(data, at)
        if kind in BOOLEANS:
            found[field] = BOOLEANS[kind]
        elif kind == BYTE:
            found[field], at = data[at], at + 1
        elif kind in INTEGERS:
            found[field], at = _integer(data, at)
        elif kind == STRUCT:
            found[field], at = _struct(data, at)
        else:
            raise ValueError("a page header has a field that no header of ours has")
    return found, at + 1


def _integer(data: bytes, at: int) -> tuple[int, int]:
    number, at = _varint(data, at)
    return number >> 1 ^ -(number & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return number, at


def _read(source: BinaryIO, at: int, length: int) -> bytes:
    source.seek(at)
    found = source.read(length)
    if len(found) != length:
        raise ValueError(f"it ends at byte {at + len(found)}, before its own end")
    return found
