"""What a processor must hold whose tasks run in other processes: nothing in the driver, the same
errors, lost workers.

A small file is cut into many partitions and many shards, so that every edge of one lies within
another.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from distcore_core.contracts import PROCESSOR, Block, ShardPlan, Source
from distcore_core.errors import DataError
from distcore_core.registry.manager import Plugins
from distcore_data.cache.remote import BucketBuilder
from distcore_data.encoding.shards import ShardWriter
from distcore_testing import buckets, data, jobs
from distcore_testing.processors import EDGES, PLANS, ProcessorSuite, digested

SHARD_ROWS = 450
PARTITION_BYTES = 8 << 10
DYING_BLOCK, DYING_SHARD = 3, 1


class ClusterProcessorSuite(ProcessorSuite):
    """Subclass with `name` and `variants`. The processor cuts its source with
    `distcore_data.sources.tiles.cut_evenly`."""

    @pytest.fixture(autouse=True)
    def _small_pieces(self, monkeypatch: pytest.MonkeyPatch) -> None:
        small_pieces(monkeypatch)

    def test_no_task_runs_in_the_driver(self, tmp_path: Path) -> None:
        for number, options in enumerate(self.variants):
            folder = tmp_path / str(number)
            with self.scanned(jobs.CountedSource(folder, EDGES), folder, options) as processor:
                folded, _ = processor.fold(jobs.process_of, jobs.union)
                written = processor.write_shards(PLANS, jobs.process_of)
            assert folded
            assert os.getpid() not in folded.union(*written)

    def test_every_kind_of_column_split_and_fill_gives_the_bytes_of_the_local_processor(
        self, tmp_path: Path
    ) -> None:
        for number, split in enumerate(SPLITS):
            reference = self.built("local", tmp_path / f"reference-{number}", {}, split)
            for variant, options in enumerate(self.variants):
                assert (
                    self.built(self.name, tmp_path / f"{number}-{variant}", options, split)
                    == reference
                )

    def test_workers_that_are_killed_cost_nothing_but_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reference = self.built("local", tmp_path / "reference", {}, SPLITS[0])
        for number, options in enumerate(self.variants[:2]):
            folder = tmp_path / str(number)
            folder.mkdir()
            with monkeypatch.context() as patched:
                hurt(patched, folder)
                assert self.built(self.name, folder, options, SPLITS[0]) == reference
            assert {path.name for path in folder.glob("died-*")} == {
                "died-BlockStatistics",
                "died-ShardWriter",
            }

    def test_workers_put_their_shards_into_a_bucket_themselves(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("moto")
        reference = self.built("local", tmp_path / "reference", {}, SPLITS[0])
        monkeypatch.setattr(
            BucketBuilder, "_store", lambda *_: pytest.fail("the driver put a shard")
        )
        with buckets.s3_server() as (proxy, _):
            for number, options in enumerate(self.variants[:2]):
                there = {
                    "cache_dir": f"s3://{buckets.BUCKET}/{number}",
                    "cache_credentials": proxy.options(),
                }
                assert (
                    self.built(self.name, tmp_path / str(number), options, SPLITS[0], backend=there)
                    == reference
                )

    def test_the_first_mistake_in_the_data_is_told_as_the_local_processor_tells_it(
        self, tmp_path: Path
    ) -> None:
        import pyarrow.csv

        source = tmp_path / "data.csv"
        pyarrow.csv.write_csv(data.table(self.rows), source)
        lines = source.read_bytes().splitlines(keepends=True)
        lines[1500] = b"one,two\n"
        lines[2500] = b"ten" + lines[2500]
        source.write_bytes(b"".join(lines))
        told = {}
        for number, (name, options) in enumerate(
            [("local", {}), *((self.name, each) for each in self.variants)]
        ):
            folder = tmp_path / str(number)
            with pytest.raises(DataError) as caught:
                self.built(name, folder, options, SPLITS[0], source)
            told[str(caught.value)] = type(caught.value)
            assert not list(folder.glob("*/manifest.json"))
            assert not [path for path in folder.rglob("*") if "building" in path.name]
        assert list(told.values()) == [DataError]
        assert re.search(r"data\.csv, line 1501: ", next(iter(told)))

    def built(
        self,
        processor: str,
        folder: Path,
        options: Mapping[str, Any],
        split: Any,
        dataset: Path | None = None,
        backend: Mapping[str, Any] | None = None,
    ) -> dict[str, str]:
        """Digests of the cache of a csv file, or of `dataset`. backend: more options of that
        section."""
        import pyarrow.csv

        if dataset is None:
            dataset = folder.with_name(f"{folder.name}.csv")
            pyarrow.csv.write_csv(data.table(self.rows), dataset)
        config = data.config(str(folder), input_features=FEATURES, output_features=TARGETS)
        config["preprocessing"] = {"split": split}
        config["backend"] |= {"processor": {"type": processor, **options}, **(backend or {})}
        return digested(config, str(dataset))


def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut a file of a few thousand rows into many partitions and several shards."""
    monkeypatch.setattr("distcore_data.sources.tiles.TARGET_BYTES", PARTITION_BYTES)
    monkeypatch.setattr("distcore_data.sources.tiles.SMALLEST_BYTES", PARTITION_BYTES // 8)
    monkeypatch.setattr("distcore_data.encoding.fit.SHARD_ROWS", SHARD_ROWS)
    monkeypatch.setattr("distcore_data.cache.builder.SHARD_ROWS", SHARD_ROWS)


def hurt(
    monkeypatch: pytest.MonkeyPatch, folder: Path, death: type[jobs.DiesOnce] = jobs.DiesOnce
) -> None:
    """From now on one task of a processor's first pass dies, and one that writes a shard; marks
    lie in the folder."""
    made = Plugins.make

    def make(plugins: Plugins, role: Any, name: str, options: Any = None, /, **context: Any) -> Any:
        found = made(plugins, role, name, options, **context)
        return _Hurt(found, str(folder), death) if role in (PROCESSOR, PROCESSOR.kind) else found

    monkeypatch.setattr(Plugins, "make", make)


def _feature(name: str, kind: str, **preprocessing: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "preprocessing": preprocessing}


FEATURES = [
    _feature("x0", "number", missing_value_strategy="bfill", normalization="zscore"),
    _feature("x1", "number", missing_value_strategy="fill_with_mean"),
    _feature("colour", "category", missing_value_strategy="fill_with_mode"),
    {"name": "words", "type": "text"},
    {"name": "tags", "type": "set"},
]
TARGETS = [{"name": "y", "type": "binary"}, {"name": "z", "type": "number"}]
SPLITS = (
    {"type": "stratify", "column": "k", "probabilities": [0.6, 0.2, 0.2]},
    {"type": "random", "probabilities": [0.7, 0.1, 0.2]},
)


class _Hurt:
    """A processor, one worker of which dies while it folds, and one while it writes."""

    def __init__(self, inner: Any, folder: str, death: type[jobs.DiesOnce]) -> None:
        self.inner, self.folder, self.death = inner, folder, death

    def scan(self, source: Source, scratch: Path | None = None) -> int:
        found: int = self.inner.scan(source, scratch)
        assert found > DYING_BLOCK
        return found

    def fold(self, partial: Callable[[Block], Any], merge: Callable[[Any, Any], Any]) -> Any:
        return self.inner.fold(self.death(partial, DYING_BLOCK, self.folder, os.getpid()), merge)

    def write_shards(self, plans: Sequence[ShardPlan], write: Callable[..., Any]) -> list[Any]:
        if isinstance(write, ShardWriter):
            write = self.death(write, DYING_SHARD, self.folder, os.getpid())
        found: list[Any] = self.inner.write_shards(plans, write)
        return found

    def close(self) -> None:
        self.inner.close()
