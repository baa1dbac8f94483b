"""What a cache costs a shard does not grow with its shards: counted in calls, up to a hundred
thousand."""

import bisect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distcore_core.contracts import Column, PluginRef
from distcore_data.cache.fetching import FetchedFiles
from distcore_data.cache.manifest import SHARD_ROWS, FileEntry, encode_manifest, parse_manifest
from distcore_data.cache.reader import CacheReader
from distcore_data.stores.local import LocalStore
from distcore_testing.counting import calls

KEY = "a" * 40
FORMAT = PluginRef(kind="caches", name="parquet", options={})


def entries(count: int, part: Any = "train") -> list[FileEntry]:
    return [
        FileEntry(part, i, f"{part}/{i:05d}.parquet", SHARD_ROWS, 1, "ab", "cd")
        for i in range(count)
    ]


def encoded(shards: int) -> bytes:
    files = [*entries(shards), *entries(shards, "rows")]
    source = {"digest": "d", "rows": shards * SHARD_ROWS}
    columns = [Column(name="x", dtype="float32", width=1)]
    return encode_manifest(KEY, FORMAT, columns, {}, source, files)


def test_writing_and_reading_a_manifest() -> None:
    def both(shards: int) -> int:
        return calls(lambda: parse_manifest(encoded(shards), KEY, "it"))

    assert both(5000) < 12 * both(500)


class Nothing:
    """A shard's reader without a file: rows are counted, none is read."""

    rows = SHARD_ROWS

    def read(self, start: int, stop: int, names: list[str]) -> Any:
        import pyarrow as pa

        return pa.record_batch([pa.nulls(stop - start).cast(pa.float32())], names=["x"])

    def close(self) -> None: ...


class Format:
    def open(self, file: Any) -> Nothing:
        return Nothing()


class Files(FetchedFiles):
    """Files that have nothing to fetch."""

    def _fetched(self, entry: FileEntry) -> Any:
        return open("/dev/null", "rb")


def reading(shards: int, folder: Path) -> Callable[[], None]:
    """A pass over a split of so many shards, three rows of each."""
    found = parse_manifest(encoded(shards), KEY, "it")
    reader = CacheReader(Files(LocalStore(folder), "cache/"), found, Format())  # type: ignore[arg-type]
    whole = reader.rows("train")

    def work() -> None:
        reader.expect("train", 0, whole)
        for start in range(0, whole, SHARD_ROWS):
            reader.read("train", start, start + 3)
        reader.close()

    return work


def test_a_pass_over_the_shards_of_a_bucket(tmp_path: Path) -> None:
    """The files that are expected were looked through for each that was opened."""
    few, many = (calls(reading(shards, tmp_path)) for shards in (300, 3000))
    assert many < 12 * few


@pytest.mark.slow
def test_a_hundred_thousand_shards() -> None:
    """Their manifest is written, read back and asked for a row, within the bytes that are read."""
    content = encoded(100_000)
    found = parse_manifest(content, KEY, "it")
    assert found.rows("train") == 100_000 * SHARD_ROWS
    reader = CacheReader(Files(LocalStore(Path("/")), "none/"), found, Format())  # type: ignore[arg-type]
    starts = reader._starts["train"]
    assert bisect.bisect_right(starts, 99_999 * SHARD_ROWS + 5) - 1 == 99_999
