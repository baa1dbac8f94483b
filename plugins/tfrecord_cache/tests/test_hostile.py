"""Files that mean harm, vouched for by a manifest: refused by name, with nothing run and little
memory."""

import gzip
import io
import json
import random
import struct
import tracemalloc
import zlib

import numpy as np
import pyarrow as pa
import pytest

from distcore_core.contracts import PluginRef
from distcore_core.errors import CacheError
from distcore_data.cache import open_cache
from distcore_testing.made_caches import cache_holding
from distcore_tfrecord import index
from distcore_tfrecord.blocks import framed
from distcore_tfrecord.format import TFRecordFormat
from distcore_tfrecord.layout import Spec
from distcore_tfrecord.options import TFRecordOptions

MEMORY = 48 << 20
COMPRESSIONS = ["none", "gzip"]


def good(rows=2000, columns=("x",), **options):
    target = io.BytesIO()
    values = {name: np.arange(rows, dtype=np.float32) for name in columns if name != "tokens"}
    if "tokens" in columns:
        values["tokens"] = pa.array(
            [list(range(row % 3)) for row in range(rows)], pa.list_(pa.int32())
        )
    TFRecordFormat(TFRecordOptions(**options)).write(target, pa.table(values))
    return target.getvalue()


def read(tmp_path, content, rows=2000, compression="none"):
    """What the cache's reader makes of the file, and of no more memory than MEMORY."""
    cache = cache_holding(
        tmp_path,
        PluginRef(kind="caches", name="tfrecord", options={"compression": compression}),
        content,
        rows,
    )
    tracemalloc.start()
    try:
        with open_cache(cache) as reader:
            return reader.read("train", 0, rows)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < MEMORY


def refused(tmp_path, content, words="", **more):
    with pytest.raises(
        CacheError, match=r"(00000\.tfrecord|^Column 'x' of the cache is list).*" + words
    ):
        read(tmp_path, content, **more)


COLUMN = {"name": "x", "dtype": "int32", "width": None, "bytes": 2}


@pytest.mark.parametrize(
    "changed",
    [
        {"bytes": 0},
        {"bytes": 11},  # no varint is longer than 10
        {"bytes": True},
        {"dtype": "object"},
        {"dtype": "float32"},
        {"width": -1},
        {"width": True},
        {"name": 1},
    ],
    ids=str,
)
def test_what_is_no_column_is_refused(changed):
    assert Spec.read(COLUMN) == Spec(**COLUMN)
    assert Spec.read({**COLUMN, "bytes": 10}).bytes == 10
    with pytest.raises(ValueError, match="is no column"):
        Spec.read({**COLUMN, **changed})


# ------------------------------------------------------------------ records


def with_length(content, length):
    """The first record claims another length, its checksum made right."""
    return struct.pack("<Q", length) + framed(struct.pack("<Q", length))[-4:] + content[12:]


@pytest.mark.parametrize("length", [1 << 63, (1 << 64) - 1, (1 << 63) - 1, 10 << 30, 1 << 20])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_first_record_of_any_length_is_refused(tmp_path, length, compression):
    """Negative as a signed number, or larger than the file."""
    content = with_length(good(), length)
    if compression == "gzip":
        content = gzip.compress(content)
    refused(tmp_path, content, compression=compression)


@pytest.mark.parametrize("length", [1 << 63, (1 << 64) - 16, 1 << 40, 0])
@pytest.mark.parametrize("columns", [("x",), ("x", "tokens")])
def test_any_other_record_of_any_length_is_refused(tmp_path, length, columns):
    content = good(columns=columns)
    (first,) = struct.unpack_from("<Q", content)
    at = first + 16
    refused(tmp_path, content[:at] + with_length(content[at:], length), "record")


@pytest.mark.parametrize("columns", [("x",), ("x", "tokens")])
def test_every_flipped_bit_is_noticed_by_the_records_own_checksums(columns):
    """Without the cache's hash before them."""
    content, dice = good(200, columns), random.Random(1)
    for place in [*range(400), *(dice.randrange(len(content) * 8) for _ in range(600))]:
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises((ValueError, KeyError, TypeError)):
            TFRecordFormat().open(io.BytesIO(bytes(damaged))).read()


def test_no_flipped_bit_of_a_gzip_file_is_read_as_other_values():
    """Some bits of a gzip header mean nothing."""
    content, dice = good(200, ("x", "tokens"), compression="gzip"), random.Random(2)
    expected = TFRecordFormat().open(io.BytesIO(content)).read()
    for place in [*range(200), *(dice.randrange(len(content) * 8) for _ in range(600))]:
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        try:
            assert TFRecordFormat().open(io.BytesIO(bytes(damaged))).read().equals(expected)
        except (ValueError, zlib.error):
            pass


def rebuilt(content, change):
    """The shard with the data of its third record changed, checksums made right."""
    places = [0]
    while places[-1] < len(content):
        places.append(places[-1] + struct.unpack_from("<Q", content, places[-1])[0] + 16)
    begin, end = places[2], places[3]
    return content[:begin] + framed(change(content[begin + 12 : end - 4])) + content[end:]


@pytest.mark.parametrize("columns", [("x",), ("x", "tokens")])
def test_a_record_that_is_built_otherwise_is_refused(columns):
    """Its checksums are right, but its lengths, names or types are not those of the index."""
    content = good(20, columns)
    for number in range(13):  # then x's own value begins

        def change(data, number=number):
            changed = bytearray(data)
            changed[number] ^= 1
            return bytes(changed)

        with pytest.raises(ValueError, match="record"):
            TFRecordFormat().open(io.BytesIO(rebuilt(content, change))).read()


# ------------------------------------------------------------------ an index that lies


def lying(content, change):
    """The shard with its index changed, checksums made right; the first row's data stays."""
    (length,) = struct.unpack_from("<Q", content)
    data, rest = content[12 : 12 + length], content[16 + length :]
    found, _ = index.head_of(io.BytesIO(content))
    suffix = index.suffix_of(found)
    assert data.endswith(suffix)
    begin = suffix.index(b"{")
    document = json.loads(suffix[begin:])
    text = change(document)
    text = (json.dumps(document) if text is None else text).encode()
    feature = index._message(b"\x0a", index._message(b"\x0a", text))
    entry = index._message(b"\x0a", index.INDEX.encode()) + index._message(b"\x12", feature)
    return (
        framed(data[: -len(suffix)] + index._message(b"\x0a", index._message(b"\x0a", entry)))
        + rest
    )


def column(**changes):
    return lambda document: document["columns"][0].update(changes)


LIES = {
    "rows": lambda d: d.update(rows=1 << 62, sizes=[]),
    "rows in one block": lambda d: d.update(rows=1 << 40, block_rows=1 << 40),
    "negative rows": lambda d: d.update(rows=-1),
    "float rows": lambda d: d.update(rows=2000.0),
    "no block rows": lambda d: d.update(block_rows=0),
    "block rows": lambda d: d.update(block_rows=7),
    "sizes": lambda d: d.update(sizes=[1 << 60]),
    "negative sizes": lambda d: d.update(sizes=[-1]),
    "members": lambda d: d.update(members=[1]),
    "length bytes": lambda d: d.update(length_bytes=1 << 40),
    "width": column(width=1 << 50),
    "negative width": column(width=-1),
    "ragged": column(width=None),
    "bytes": column(bytes=1 << 40),
    "a float of one byte": column(bytes=1),
    "dtype": column(dtype="object"),
    "another dtype": column(dtype="int32"),
    "name": column(name="y"),
    "no name": column(name=None),
    "twice": lambda d: d.update(columns=d["columns"] * 2),
    "no columns": lambda d: d.update(columns=[]),
    "more": lambda d: d.update(head=0),
    "nesting": lambda d: "[" * 100_000,
    "digits": lambda d: '{"columns":' + "9" * 10_000 + "}",
    "a list": lambda d: "[]",
    "no JSON": lambda d: "distcore",
}


@pytest.mark.parametrize("lie", LIES)
def test_an_index_that_lies_is_refused_by_the_name_of_the_file(tmp_path, lie):
    refused(tmp_path, lying(good(), LIES[lie]))


def test_a_file_of_another_writer_is_refused(tmp_path):
    for number, content in enumerate(
        (framed(b""), framed(b"\x0a\x00"), framed(b"\x0a\xff\xff"), framed(b"text"), b"PK")
    ):
        refused(tmp_path / str(number), content * 2000)


# ------------------------------------------------------------------ gzip


def zeros(length):
    """A gzip member of so many zeros."""
    packer = zlib.compressobj(1, wbits=31)
    piece = bytes(1 << 20)
    return b"".join([*(packer.compress(piece) for _ in range(length >> 20)), packer.flush()])


def test_a_bomb_in_place_of_the_first_record_is_refused(tmp_path):
    refused(tmp_path, zeros(128 << 20), compression="gzip")


def test_a_first_record_that_goes_on_and_on_is_refused(tmp_path):
    content = gzip.compress(with_length(good(), 1 << 10) + bytes(128 << 20), 1)
    refused(tmp_path, content, compression="gzip")


def test_a_bomb_in_place_of_a_block_is_refused(tmp_path):
    """No more of it is inflated than the block should have."""
    content, bomb = good(compression="gzip"), zeros(128 << 20)
    inner = zlib.decompressobj(wbits=31)
    head = inner.decompress(content)
    rest = inner.unused_data
    second = zlib.decompressobj(wbits=31)
    second.decompress(rest)
    found, _ = index.head_of(io.BytesIO(content))
    lied = lying_members(head, found, [len(bomb)])
    refused(
        tmp_path,
        lied + bomb + second.unused_data,
        r"does not inflate to \d+ bytes",
        compression="gzip",
    )


def test_a_bomb_that_tells_its_size_is_refused(tmp_path):
    content = good(compression="gzip")
    head = zlib.decompressobj(wbits=31).decompress(content)
    found, _ = index.head_of(io.BytesIO(content))
    lied = lying_members(head, found, [1000], [10 << 30])
    refused(tmp_path, lied + bytes(1000), "cannot come from", compression="gzip")


def lying_members(head, found, members, sizes=None):
    """The first gzip member, with other lengths of the blocks."""
    suffix = index.suffix_of(found)
    data = head[12:-4].removesuffix(suffix)
    changed = index.Index(
        found.specs,
        found.length_bytes,
        found.rows,
        found.rows,
        tuple(sizes or found.sizes[:1]),
        tuple(members),
    )
    return gzip.compress(framed(data + index.suffix_of(changed)), mtime=0)
