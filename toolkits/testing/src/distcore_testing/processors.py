"""What every processor must hold: each partition read once, rows in order, shards that do not
depend on partitions."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from distcore_core.contracts import PROCESSOR, Processor, ShardPlan
from distcore_core.registry.manager import Plugins
from distcore_testing import data, jobs
from distcore_testing.app import app
from distcore_testing.rank_jobs import processes_of, until

EDGES = (0, 5, 5, 6, 40, 41, 100)
"""Partitions of all sizes, an empty one among them."""

PLANS = (
    ShardPlan(index=0, start=0, stop=33),
    ShardPlan(index=1, start=33, stop=66),
    ShardPlan(index=2, start=66, stop=100),
)


class ProcessorSuite:
    """Subclass with `name`; `variants` are options under which everything must come out the
    same."""

    name: str
    variants: tuple[Mapping[str, Any], ...] = ({},)
    rows = 3000

    @contextmanager
    def scanned(
        self, source: jobs.CountedSource, folder: Path, options: Mapping[str, Any]
    ) -> Iterator[Processor]:
        """A processor that has cut the source, with a scratch folder in `folder`."""
        (folder / "scratch").mkdir(parents=True)
        made = Plugins().make(PROCESSOR, self.name, options)
        assert made.scan(source, folder / "scratch") == len(source.parts)
        yield made
        made.close()

    def test_every_partition_is_read_once_and_every_row_comes_in_its_shard(
        self, tmp_path: Path
    ) -> None:
        for number, options in enumerate(self.variants):
            folder = tmp_path / str(number)
            with self.scanned(jobs.CountedSource(folder, EDGES), folder, options) as processor:
                merged, rows = processor.fold(jobs.total_of, jobs.add)
                assert merged == (4950.0, 100)
                assert rows == [stop - start for start, stop in pairwise(EDGES)]
                shards = processor.write_shards(PLANS, jobs.rows_of)
            expected = [(plan.index, list(range(plan.start, plan.stop))) for plan in PLANS]
            assert [(index, found) for index, found, _ in shards] == expected
            assert [names for _, _, names in shards] == [
                [jobs.name_of(row) for row in found] for _, found in expected
            ]
            reads = [path.read_text().splitlines() for path in folder.glob("read-*")]
            assert reads == [["read"]] * (len(EDGES) - 1)

    def test_statistics_and_writers_see_every_value_where_it_is(self, tmp_path: Path) -> None:
        """Missing ones are missing in every block, and a block says which row is its first."""
        parts = [range(start, stop) for start, stop in pairwise(EDGES)]
        known = [
            (
                index,
                sum(jobs.name_of(row) is not None for row in rows),
                sum(jobs.size_of(row) is not None for row in rows),
                sum(jobs.size_of(row) or 0.0 for row in rows),
            )
            for index, rows in enumerate(parts)
        ]
        for number, options in enumerate(self.variants):
            folder = tmp_path / str(number)
            with self.scanned(jobs.CountedSource(folder, EDGES), folder, options) as processor:
                merged, _ = processor.fold(jobs.known_of, jobs.together)
                shards = processor.write_shards(PLANS, jobs.values_of)
            assert sorted(merged) == known
            for plan, blocks in zip(PLANS, shards, strict=True):
                row = plan.start
                for start, index, table in blocks:
                    assert start == row, "a block's start is not its first row's number"
                    assert row in parts[index], "a block's index is not that of its rows"
                    wanted = [
                        {"row": each, "name": jobs.name_of(each), "size": jobs.size_of(each)}
                        for each in range(row, row + len(table))
                    ]
                    assert table == wanted
                    row += len(table)
                assert row == plan.stop

    def test_nothing_is_left_once_it_is_closed(self, tmp_path: Path) -> None:
        """Neither files nor threads nor processes."""
        for number, options in enumerate(self.variants):
            folder = tmp_path / str(number)
            threads, me = set(threading.enumerate()), os.getpid()
            processes = processes_of(me)
            with self.scanned(jobs.CountedSource(folder, EDGES), folder, options) as processor:
                processor.fold(jobs.total_of, jobs.add)
                processor.write_shards(PLANS, jobs.rows_of)
            assert list((folder / "scratch").iterdir()) == [], "it leaves files in its scratch"
            assert until(lambda: processes_of(me) <= processes, 20), "it leaves processes"  # noqa: B023
            assert until(lambda: set(threading.enumerate()) <= threads, 20), "it leaves threads"  # noqa: B023

    def test_a_partition_that_cannot_be_read_is_told(self, tmp_path: Path) -> None:
        source = jobs.CountedSource(tmp_path, EDGES, bad=[3])
        with (
            self.scanned(source, tmp_path, self.variants[0]) as processor,
            pytest.raises(ValueError, match="rows 6 to 40 are damaged"),
        ):
            processor.fold(jobs.total_of, jobs.add)

    def test_of_several_errors_the_first_in_row_order_is_told(self, tmp_path: Path) -> None:
        """Also if it comes last."""
        for number, options in enumerate(self.variants):
            folder = tmp_path / str(number)
            source = jobs.CountedSource(folder, EDGES, bad=[3, 4, 5])
            with (
                self.scanned(source, folder, options) as processor,
                pytest.raises(ValueError, match="rows 6 to 40 are damaged"),
            ):
                processor.fold(jobs.total_of, jobs.add)

    def test_errors_of_statistics_and_writers_are_told_as_they_are(self, tmp_path: Path) -> None:
        """Of writers too the first in row order; nothing is as if it had been written."""
        for number, options in enumerate(self.variants):
            folder = tmp_path / str(number)
            for name, partial, merge, said in (
                ("partial", jobs.refuse_block, jobs.add, "block 3 has no statistics"),
                ("merge", jobs.total_of, jobs.refuse_merge, "these do not merge"),
            ):
                (folder / name).mkdir(parents=True)
                source = jobs.CountedSource(folder / name, EDGES)
                with (
                    self.scanned(source, folder / name, options) as processor,
                    pytest.raises(ValueError, match=said),
                ):
                    processor.fold(partial, merge)
            with self.scanned(jobs.CountedSource(folder, EDGES), folder, options) as processor:
                processor.fold(jobs.total_of, jobs.add)
                with pytest.raises(ValueError, match="shard 1 cannot be written"):
                    processor.write_shards(PLANS, jobs.refuse_shards)

    @pytest.mark.parametrize("edges", [(0, 0, 0, 7, 7, 7, 30, 30), (0, 0, 0), (0, 1)])
    def test_empty_partitions(self, tmp_path: Path, edges: tuple[int, ...]) -> None:
        """First, last, several together, and no row at all."""
        rows = edges[-1]
        plans = [ShardPlan(index=0, start=0, stop=rows)] if rows else []
        for number, options in enumerate(self.variants):
            folder = tmp_path / str(number)
            with self.scanned(jobs.CountedSource(folder, edges), folder, options) as processor:
                merged, found = processor.fold(jobs.total_of, jobs.add)
                shards = processor.write_shards(plans, jobs.rows_of)
            assert merged == (rows * (rows - 1) / 2, rows)
            assert found == [stop - start for start, stop in pairwise(edges)]
            assert [each for _, each, _ in shards] == [list(range(rows)) for _ in plans]

    def test_every_variant_gives_the_bytes_of_the_local_processor(self, tmp_path: Path) -> None:
        table = data.table(self.rows)
        reference = digests("local", tmp_path / "reference", {}, table)
        for number, options in enumerate(self.variants):
            assert digests(self.name, tmp_path / str(number), options, table) == reference

    def test_a_file_gives_the_bytes_of_the_frame(self, tmp_path: Path) -> None:
        import pyarrow.csv
        import pyarrow.parquet

        table, options = data.table(self.rows), self.variants[0]
        pyarrow.csv.write_csv(table, tmp_path / "data.csv")
        pyarrow.parquet.write_table(table, tmp_path / "data.parquet", row_group_size=777)
        frame = digests(self.name, tmp_path / "a", options, table)
        assert digests(self.name, tmp_path / "b", options, str(tmp_path / "data.csv")) == frame
        assert digests(self.name, tmp_path / "c", options, str(tmp_path / "data.parquet")) == frame


def digests(
    processor: str, folder: Path, options: Mapping[str, Any], dataset: pa.Table | str
) -> dict[str, str]:
    """sha256 of every file of the cache that this processor builds, but for the manifest."""
    zscore = {"normalization": "zscore", "missing_value_strategy": "ffill"}
    features = [
        {"name": "x0", "type": "number", "preprocessing": zscore},
        {
            "name": "x1",
            "type": "number",
            "preprocessing": {"missing_value_strategy": "fill_with_mean"},
        },
        {"name": "colour", "type": "category"},
        {"name": "tags", "type": "set"},
    ]
    config = data.config(str(folder), input_features=features)
    config["backend"]["processor"] = {"type": processor, **options}
    return digested(config, dataset)


def digested(config: Mapping[str, Any], dataset: pa.Table | str) -> dict[str, str]:
    """sha256 of every file of the cache that this config builds, but for the manifest and notes
    of its use."""
    cache = app().preprocess(config, dataset=dataset)
    store = cache.store()
    files = [name for name in sorted(store.list(f"{cache.key}/")) if not name.endswith(".json")]
    assert files
    # In a bucket they lie in the folder of a version: two parts of the name are the split and the
    # shard.
    return {
        "/".join(name.split("/")[-2:]): hashlib.sha256(store.read(name)).hexdigest()
        for name in files
    }
