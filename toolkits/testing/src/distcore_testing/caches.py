"""What every cache format must hold.

Core, numpy and pyarrow are enough for what a format does by itself; its place in a cache is tried
if distcore-data is installed."""

from __future__ import annotations

import errno
import gc
import hashlib
import io
import json
import os
import pickle
import random
import tempfile
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from distcore_core.contracts import CACHE_FORMAT, CacheFormat, PluginRef, ShardReader
from distcore_core.errors import CacheError
from distcore_core.registry.manager import Plugins
from distcore_testing.counting import descriptors
from distcore_testing.made_caches import (
    NAMES,
    ROUND,
    Runs,
    bits_of,
    cache_holding,
    cache_of,
    caches_module,
    check_bits,
    counted_shard,
    flipped,
    large_shard,
    odd_shard,
    written,
)
from distcore_testing.other_place import CHANGES, in_another_place


class CacheFormatSuite:
    """Subclass with `name`, and `options` if the defaults are not what you want to try.

    flips: how many single bits of each file are changed, one after the other, each of which must
        be noticed."""

    name: str
    options: Mapping[str, Any] = {}
    flips = 50

    @pytest.fixture
    def format(self) -> CacheFormat:
        return Plugins().make(CACHE_FORMAT, self.name, self.options)

    @pytest.fixture
    def shard(self) -> pa.Table:
        """Every kind of column: float32 with odd bit patterns, int32, a vector, a ragged column
        with empty rows."""
        dice = np.random.default_rng(1)
        rows = 5000
        floats = dice.normal(size=rows).astype(np.float32)
        floats[:4] = np.array([np.nan, -0.0, np.inf, 1e-45], np.float32)
        lengths = dice.integers(0, 4, rows)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        codes = dice.integers(-(2**31), 2**31 - 1, rows).astype(np.int32)
        vector = pa.FixedSizeListArray.from_arrays(
            pa.array(dice.normal(size=rows * 3).astype(np.float32)), 3
        )
        tokens = pa.array(dice.integers(0, 99, offsets[-1]).astype(np.int32))
        return pa.table(
            {
                "x": floats,
                "code": codes,
                "vector": vector,
                "tokens": pa.ListArray.from_arrays(pa.array(offsets), tokens),
            }
        )

    def test_reading_gives_back_every_bit(self, format: CacheFormat, shard: pa.Table) -> None:
        with_all = self._open(format, shard).read()
        assert with_all.schema.names == shard.schema.names
        for name in ("x", "code"):
            assert np.array_equal(
                bits_of(with_all.column(name)), bits_of(shard.column(name).combine_chunks())
            )
        assert np.array_equal(
            bits_of(with_all.column("vector").flatten()),
            bits_of(shard.column("vector").combine_chunks().flatten()),
        )
        assert with_all.column("tokens").to_pylist() == shard.column("tokens").to_pylist()

    def test_equal_tables_give_equal_bytes(self, format: CacheFormat, shard: pa.Table) -> None:
        """However the rows are cut into chunks and slices, whatever metadata and nullability the
        table carries, and from another instance."""
        again = Plugins().make(CACHE_FORMAT, self.name, self.options)
        dice = random.Random(self.name)
        for rows in (shard.num_rows, 1, *(dice.randint(2, shard.num_rows) for _ in range(4))):
            values = shard.slice(dice.randint(0, shard.num_rows - rows), rows)
            cuts = sorted(dice.randint(0, rows) for _ in range(3))
            parts = [values.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, rows], strict=True)]
            others = [
                pa.concat_tables(parts).replace_schema_metadata({"from": "elsewhere"}),
                values.combine_chunks(),
                values.cast(pa.schema([field.with_nullable(False) for field in values.schema])),
            ]
            content = written(format, values)
            assert content == written(format, values)
            for other in others:
                assert content == written(again, other)

    @pytest.mark.parametrize(
        ("start", "stop"), [(0, 0), (0, 1), (17, 4097), (4999, 5000), (0, None), (4096, None)]
    )
    def test_ranges_of_rows(
        self, format: CacheFormat, shard: pa.Table, start: int, stop: int | None
    ) -> None:
        reader = self._open(format, shard)
        expected = shard.slice(start, (stop if stop is not None else shard.num_rows) - start)
        found = reader.read(start, stop)
        assert reader.rows == shard.num_rows
        assert found.num_rows == expected.num_rows
        assert found.column("code").to_pylist() == expected.column("code").to_pylist()
        assert found.column("tokens").to_pylist() == expected.column("tokens").to_pylist()

    @pytest.fixture(scope="class")
    @classmethod
    def large(cls) -> pa.Table:
        """More rows than a block of a format has, several columns of each type, every extreme."""
        return large_shard(20_011)

    def test_a_large_shard_of_many_columns_gives_back_every_bit(
        self, format: CacheFormat, large: pa.Table
    ) -> None:
        """In whole, and in ranges that lie in a block, at its edges and across several."""
        reader = self._open(format, large)
        assert reader.rows == large.num_rows
        dice = random.Random(self.name)
        ranges = [(0, 20_011), (8_191, 8_193), (16_383, 16_385), (19_999, 20_011), (20_010, 20_011)]
        for _ in range(8):
            start, stop = sorted(dice.randint(0, 20_011) for _ in range(2))
            ranges.append((start, stop))
        names = large.column_names
        for number, (start, stop) in enumerate(ranges):
            asked = None if number % 2 == 0 else dice.sample(names, dice.randint(1, len(names)))
            found = reader.read(start, stop, asked)
            found.validate(full=True)
            assert found.schema.names == (asked or names)
            check_bits(found, large.slice(start, stop - start))
        reader.close()

    def test_batches_outlive_the_next_read_and_the_reader(
        self, format: CacheFormat, large: pa.Table
    ) -> None:
        reader = self._open(format, large)
        kept = [(start, reader.read(start, start + 700)) for start in (0, 9_000, 4_000, 0)]
        reader.close()
        for start, found in kept:
            check_bits(found, large.slice(start, 700))

    @pytest.mark.parametrize("rows", [*ROUND, 70_001])
    def test_a_shard_of_any_number_of_rows_gives_back_every_bit(
        self, format: CacheFormat, rows: int
    ) -> None:
        """How many rows a shard has is up to the config: groups of rows that are just full, and
        more than sixteen bits count."""
        shard = counted_shard(rows)
        reader = self._open(format, shard)
        assert reader.rows == rows
        for start, stop in ((0, rows), (rows // 2, min(rows // 2 + 9, rows)), (rows - 1, rows)):
            check_bits(reader.read(start, stop), shard.slice(start, stop - start))
        reader.close()

    def test_columns_of_any_name_width_and_number_give_back_every_bit(
        self, format: CacheFormat
    ) -> None:
        """Names are a dataset's, and so is how long a row's list is."""
        shard = odd_shard()
        reader = self._open(format, shard)
        found = reader.read()
        assert found.schema.names == shard.column_names
        check_bits(found, shard)
        asked = ["wide", *reversed(NAMES)]
        some = reader.read(5, 9, asked)
        assert some.schema.names == asked
        check_bits(some, shard.slice(5, 4))
        reader.close()

    def test_writing_and_reading_leave_nothing_open_and_no_file(
        self, format: CacheFormat, shard: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A cache has thousands of shards, which loaders open time and again."""
        self._open(format, shard).close()  # what is imported for it is imported now
        temporary, place = tmp_path / "temporary", tmp_path / "shard"
        temporary.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        monkeypatch.setenv("TMPDIR", str(temporary))
        before = descriptors()
        for _ in range(5):
            with open(place, "wb") as target:
                format.write(target, shard)
            reader = format.open(open(place, "rb"))  # noqa: SIM115 - the reader closes it
            reader.read(7, 30)
            reader.close()
            del reader
        gc.collect()
        assert descriptors() <= before, "files stay open"
        assert sorted(each.name for each in tmp_path.rglob("*")) == ["shard", "temporary"]

    @pytest.fixture(scope="class")
    @classmethod
    def found_abroad(cls) -> dict[str, Any]:
        """{options as JSON: what `abroad` found}."""
        return {}

    @pytest.fixture
    def abroad(self, found_abroad: dict[str, Any], large: pa.Table, tmp_path: Path) -> Any:
        """What another process writes and runs that has another host, user, folder and time."""
        key = json.dumps(dict(self.options), default=str)
        if key not in found_abroad:
            table = large.slice(0, 3000)
            found_abroad[key] = in_another_place(self.name, self.options, table, tmp_path)
        return found_abroad[key]

    def test_another_process_writes_the_same_bytes(
        self, format: CacheFormat, large: pa.Table, abroad: Any, tmp_path: Path
    ) -> None:
        """Whatever its hashes begin with, and wherever, when and by whom it is run."""
        table = large.slice(0, 3000)

        def ours() -> str:
            return hashlib.sha256(written(format, table)).hexdigest()

        def same(*changes: str) -> bool:
            found = in_another_place(self.name, self.options, table, tmp_path, changes)
            return bool(found["digest"] == ours())

        if abroad["digest"] != ours():
            guilty = [each for each in CHANGES if not same(each)] if same() else []
            where = ", ".join(guilty) or "the process"
            pytest.fail(f"equal tables gave other bytes: these depend on {where}")

    def test_reading_runs_nothing_that_a_file_says(self, abroad: Any) -> None:
        """A header that is read by `pickle` or `eval` runs what whoever wrote the file wants."""
        assert not abroad["ran"], (
            f"reading a shard runs {'; '.join(abroad['ran'])}: keep what it says in numbers or JSON"
        )

    def test_chosen_columns_in_the_order_asked(self, format: CacheFormat, shard: pa.Table) -> None:
        found = self._open(format, shard).read(10, 20, columns=["code", "x"])
        assert found.schema.names == ["code", "x"]

    def test_any_ranges_in_any_order_of_one_open_shard(
        self, format: CacheFormat, shard: pa.Table
    ) -> None:
        """What is kept of an earlier read never leaks into a later one."""
        shard = shard.append_column("split", pa.array(np.arange(shard.num_rows) % 4 - 1, pa.int8()))
        dice, reader = random.Random(self.name), self._open(format, shard)
        for _ in range(40):
            start, stop = sorted(dice.randint(0, shard.num_rows) for _ in range(2))
            if dice.random() < 0.5:  # as a loader reads, a little at a time
                stop = min(stop, start + 100)
            names = dice.choice([None, ["code"], ["x", "tokens"], ["split", "vector", "code"]])
            found = reader.read(start, stop, names)
            found.validate(full=True)
            expected = shard.slice(start, stop - start).select(names or shard.column_names)
            # As text, since no NaN equals another.
            assert str(found.to_pydict()) == str(expected.to_pydict())

    def test_several_open_shards_do_not_see_each_other(
        self, format: CacheFormat, shard: pa.Table
    ) -> None:
        """A loader has many open at a time, of one shape, reads them in turn, and closes some."""
        size, dice = 1200, random.Random(self.name)
        shards = [shard.slice(start, size) for start in (0, 1300, 2600, 3800)]
        readers = [self._open(format, each) for each in shards]
        for turn in range(60):
            if turn == 40:
                readers.pop(0).close()
                del shards[0]
            at = dice.randrange(len(readers))
            start = dice.choice([0, 100, size - 100])
            found = readers[at].read(start, start + 100)
            expected = shards[at].slice(start, 100)
            assert str(found.to_pydict()) == str(expected.to_pydict())  # no NaN equals another
        for each in readers:
            each.close()

    def test_rows_out_of_range_are_refused(self, format: CacheFormat, shard: pa.Table) -> None:
        reader = self._open(format, shard.slice(0, 10))
        for start, stop in ((-1, 5), (5, 11), (6, 5)):
            with pytest.raises(IndexError):
                reader.read(start, stop)

    def test_close_closes_the_source(self, format: CacheFormat, shard: pa.Table) -> None:
        source = io.BytesIO(written(format, shard.slice(0, 10)))
        format.open(source).close()
        assert source.closed

    @pytest.mark.skipif(
        not os.path.exists("/dev/full"), reason="this system has no disk that is always full"
    )
    def test_a_full_disk_keeps_its_errno(self, format: CacheFormat, shard: pa.Table) -> None:
        """So that whoever catches it can say what it is."""
        with (
            open("/dev/full", "wb", buffering=0) as full,
            pytest.raises(OSError, match="No space") as caught,
        ):
            format.write(full, shard)
        assert caught.value.errno == errno.ENOSPC

    def test_an_empty_shard(self, format: CacheFormat, shard: pa.Table) -> None:
        reader = self._open(format, shard.slice(0, 0))
        assert reader.rows == 0
        assert reader.read().schema.names == shard.schema.names

    def test_a_shard_that_was_cut_is_not_read_as_a_shorter_one(
        self, format: CacheFormat, shard: pa.Table
    ) -> None:
        whole = written(format, shard)
        for length in (0, len(whole) // 3, len(whole) - 1):
            with pytest.raises(Exception):  # noqa: B017,PT011 - formats raise their own library's errors
                format.open(io.BytesIO(whole[:length])).read()

    def boundaries(self, content: bytes) -> list[int]:
        """Places between two of the format's own pieces, where a shard that was cut looks whole.
        Override."""
        return []

    def test_no_damage_is_read_silently(self, shard: pa.Table, tmp_path: Path) -> None:
        """Read through the cache, a file that was cut, or has one bit changed, is an error that
        names it.

        So with the shard, the split map and the manifest."""
        plugins, open_cache = Plugins(), caches_module().open_cache
        cache = cache_of(
            tmp_path, PluginRef(kind="caches", name=self.name, options=self.options), shard
        )
        paths = sorted(path for path in cache.folder.rglob("*") if path.is_file())
        assert [path.parent.name for path in paths] == [cache.key, "rows", "train"]

        def read() -> None:
            with open_cache(cache, plugins) as reader:
                assert len(reader.row_numbers("train")) == shard.num_rows
                assert reader.read("train", 0, shard.num_rows).num_rows == shard.num_rows

        read()
        dice = random.Random(self.name)
        for path in paths:
            content = path.read_bytes()
            between = [] if path.parent == cache.folder else self.boundaries(content)
            cuts = [0, len(content) // 3, len(content) - 1, *between]
            places = [dice.randrange(len(content) * 8) for _ in range(self.flips)]
            for damaged in chain(
                (content[:cut] for cut in cuts), (flipped(content, place) for place in places)
            ):
                path.write_bytes(damaged)
                with pytest.raises(CacheError, match=f"{path.parent.name}/{path.name}"):
                    read()
            path.write_bytes(content)
        read()

    @pytest.mark.parametrize("protocol", [0, 2, 5])
    def test_a_pickle_in_place_of_a_shard_is_refused_and_not_run(
        self, tmp_path: Path, protocol: int
    ) -> None:
        """Also if a manifest vouches for it."""
        mark = tmp_path / "mark"
        format = PluginRef(kind="caches", name=self.name, options=self.options)
        cache = cache_holding(tmp_path / "cache", format, pickle.dumps(Runs(mark), protocol))
        with (
            caches_module().open_cache(cache) as reader,
            pytest.raises(CacheError, match=r"train/00000\."),
        ):
            reader.read("train", 0, 1)
        assert not mark.exists()

    def _open(self, format: CacheFormat, shard: pa.Table) -> ShardReader:
        return format.open(io.BytesIO(written(format, shard)))
