"""Shards and caches that the suites of cache formats and readers are tried on."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pytest

from distcore_core.contracts import CACHE_FORMAT, CacheFormat, Column, PluginRef, ShardReader
from distcore_core.registry.manager import Plugins

if TYPE_CHECKING:
    from distcore_data.cache import Cache, CacheBuilder


def large_shard(rows: int) -> pa.Table:
    """Many columns of every kind, with the values at the ends of what they may hold."""
    dice = np.random.default_rng(2)
    odd = np.array([0x7FC00001, 0xFFC12345, 0x80000000, 1, 0x7F800000], np.uint32)
    limits = np.array([-(2**31), 2**31 - 1, 0, -1], np.int32)

    def floats(count: int) -> Any:
        made = dice.normal(size=count).astype(np.float32)
        made[: len(odd)] = odd.view(np.float32)
        made[-len(odd) :] = odd.view(np.float32)
        return made

    def codes(count: int) -> Any:
        made = dice.integers(-(2**31), 2**31, count).astype(np.int32)
        made[:4] = made[-4:] = limits
        return made

    def lists(longest: int) -> Any:
        lengths = dice.integers(0, longest, rows)
        lengths[100:3000] = 0
        lengths[[5, rows - 1]] = 3000, 4
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(codes(int(offsets[-1]))))

    def vectors(values: Any, width: int) -> Any:
        return pa.FixedSizeListArray.from_arrays(pa.array(values), width)

    return pa.table(
        {
            "x": floats(rows),
            "tags": lists(3),
            "code": codes(rows),
            "vector": vectors(floats(rows * 3), 3),
            "x2": floats(rows),
            "words": lists(6),
            "code2": codes(rows),
            "pair": vectors(floats(rows * 2), 2),
            "codes": vectors(codes(rows * 2), 2),
        }
    )


NAMES = (
    *("a", "A", "a/b", "a.b", "a_b", "a b", " ", "caf\u00e9", "cafe\u0301", "😀", "0"),
    *('a,\n"b"\'', "rows"),
    *("tokens", "tokens_offsets", "tokens_values", "tokens.offsets", "tokens/values"),
)
"""What columns may be called: some differ in case or in Unicode's form alone, or as a file's parts
may be called that a column is made of."""

ROUND = (1, 255, 256, 1000, 1024, 4096, 8192, 10_000, 16_384, 32_768, 65_536, 100_000, 131_072)
"""Numbers of rows at which a format's groups, blocks or counters end."""


def odd_shard() -> pa.Table:
    """As many columns as `NAMES` and some more, vectors of 300, a list of 70,000 values, and values
    that are the same in every row."""
    rows = 300
    numbers = np.arange(rows, dtype=np.int32)
    made: dict[str, Any] = {}
    for at, name in enumerate((*NAMES, *(f"column {number}" for number in range(300)))):
        lengths = (numbers + at) % 3
        if name == "tokens":
            lengths[7] = 70_000
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        values = np.arange(at, at + offsets[-1], dtype=np.int32)
        ragged = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
        kinds = (numbers + at, (numbers + at).astype(np.float32), ragged)
        made[name] = ragged if name == "tokens" else kinds[at % 3]
    wide = pa.array(np.arange(rows * 300, dtype=np.float32))
    made["wide"] = pa.FixedSizeListArray.from_arrays(wide, 300)
    return pa.table(made)


def counted_shard(rows: int) -> pa.Table:
    """Numbers, the same value in every row, and lists."""
    numbers = np.arange(rows, dtype=np.int32)
    offsets = np.concatenate([[0], np.cumsum(numbers % 3)]).astype(np.int32)
    values = pa.array(np.arange(offsets[-1], dtype=np.int32))
    same = np.full(rows, -7, np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), values)
    return pa.table({"code": numbers, "same": same, "tokens": lists})


def check_bits(found: pa.RecordBatch, expected: pa.Table) -> None:
    """Every bit of every column that was found."""
    assert found.num_rows == expected.num_rows
    for name in found.schema.names:
        got, right = found.column(name), expected.column(name).combine_chunks()
        if pa.types.is_list(right.type):
            assert got.value_lengths().equals(right.value_lengths()), name
        if pa.types.is_nested(right.type):
            got, right = got.flatten(), right.flatten()
        assert got.type == right.type, name
        assert np.array_equal(bits_of(got), bits_of(right)), name


class Runs:
    """Makes a folder where it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.folder),))


def cache_holding(folder: Path, format: PluginRef, content: bytes, rows: int = 1) -> Cache:
    """A committed cache whose one shard is `content`, with digests that vouch for it: what a
    hostile writer can make.

    Its one column is x, float32. What reads it must raise CacheError, run nothing, and keep its
    memory."""

    class Given:
        suffix = Plugins().make(CACHE_FORMAT, format.name, format.options).suffix

        def write(self, target: BinaryIO, table: pa.Table) -> None:
            target.write(content)

        def open(self, source: BinaryIO) -> ShardReader:
            raise NotImplementedError

    def build(builder: CacheBuilder) -> None:
        builder.maker = Given()
        builder.write_shard("train", 0, pa.table({"x": np.zeros(rows, np.float32)}))
        builder.write_split_map(0, np.zeros(rows, np.int8))
        builder.finish([Column(name="x", dtype="float32")], {}, {"digest": "", "rows": rows})

    return _ensured(folder, "bad0" * 10, format, build)


def caches_module() -> Any:
    """`distcore_data.cache`; a test that needs it is skipped if the toolkit is not installed."""
    return pytest.importorskip(
        "distcore_data.cache", reason="caches are distcore-data's: pip install distcore-data"
    )


def _ensured(
    folder: Path, key: str, format: PluginRef, build: Callable[[CacheBuilder], None]
) -> Cache:
    made: Cache = caches_module().ensure_cache(folder, key, format, build)
    return made


def written(format: CacheFormat, shard: pa.Table) -> bytes:
    """The file that the format makes of a shard."""
    target = io.BytesIO()
    format.write(target, shard)
    return target.getvalue()


def cache_of(folder: Path, format: PluginRef, shard: pa.Table) -> Cache:
    """A cache of one shard, as a run commits it."""
    columns = [
        Column(name="x", dtype="float32"),
        Column(name="code", dtype="int32"),
        Column(name="vector", dtype="float32", width=3),
    ]

    def build(builder: CacheBuilder) -> None:
        builder.write_shard("train", 0, shard)
        builder.write_split_map(0, np.zeros(shard.num_rows, np.int8))
        builder.finish(
            [*columns, Column(name="tokens", dtype="int32", width=None)],
            {},
            {"digest": "", "rows": shard.num_rows},
        )

    return _ensured(folder, "c0de" * 10, format, build)


def flipped(content: bytes, bit: int) -> bytes:
    """The same with one bit changed."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def bits_of(column: pa.Array) -> Any:
    """Its values of four bytes as whole numbers, so that two NaN can be compared."""
    return column.to_numpy(zero_copy_only=False).view(np.int32)
