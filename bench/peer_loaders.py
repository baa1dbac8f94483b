"""Loaders side by side, ours and others', on the rows of `loading_rows.py`.

Every loader gives the numbers, codes, lists and targets of a batch as tensors, shuffles all rows of
an epoch, and can go on after some batches in a new loader. What each shuffle is:

- ours: every epoch's order of all rows is a function of seed and epoch, so epoch and step are the
  state;
- torchdata's StatefulDataLoader: its own RandomSampler in a BatchSampler, over the rows in memory,
  a gather a batch, and not a row at a time as its examples have it. Its state has the sampler's
  generator;
- Lance: a permutation of ours and a `take` of each batch's rows from its file (in the page cache):
  its own samplers shuffle batches or fragments, and not the rows in them. Seed and step, kept by
  hand, are the state;
- Ray Data: `random_shuffle` of all rows in the object store, then `iter_batches`. It has no state:
  the same seed again, and what was read is passed over.

From a bucket (the cache of `stage_store.build`) ours fetches the cache, StatefulDataLoader is given
its Parquet files by pyarrow, Lance reads a table of its own, and Ray reads the Parquet files too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import stage_store
from learnt_shapes import columns_of, described
from loading_rows import (
    BUCKET_TABLE,
    as_table,
    bucket_cuts,
    bucket_files,
    bucket_names,
    bucket_shards,
    cuts,
    lance_options,
    matrix_of,
    of_table,
    of_words,
    raw,
)

BATCH, SEED = 1024, 42
GOES_ON_AT = 1
"""Batches before a resumption."""

Batches = Iterator[tuple[Any, ...]]


class Ours:
    """The packed loader on the cache, in a process that keeps freed memory, as ranks do."""

    def __init__(self, folder: Path) -> None:
        import handmade

        known = described(folder)
        names = columns_of(known)
        self._open(
            handmade.open_cache(known["cache"]), names, columns_of(known)["outputs"], str(folder)
        )

    def _open(
        self, reader: Any, names: dict[str, list[str]], targets: list[str], scratch: str
    ) -> None:
        from distcore_core.contracts import LOADER, LoadRequest
        from distcore_core.registry.manager import Plugins
        from distcore_data.memory import keep_freed_memory

        keep_freed_memory()
        self.names, self.targets = names, targets
        self.rows = reader.rows("train")
        columns = [*names["numbers"], *names["categories"], *names["ragged"], *targets]
        request = LoadRequest(
            reader=reader,
            split="train",
            columns=columns,
            batch_size=BATCH,
            seed=SEED,
            scratch=scratch,
        )
        self.loader = Plugins().make(LOADER, "packed", {}, request=request)

    def epoch(self, number: int) -> Batches:
        return self._batches(number, 0)

    def _batches(self, number: int, start: int) -> Batches:
        numbers, codes = self.names["numbers"], self.names["categories"]
        for batch in self.loader.batches(number, start):
            yield (
                batch.block(numbers) if numbers else None,
                batch.block(codes) if codes else None,
                [batch[name] for name in self.names["ragged"]],
                batch.block(self.targets),
            )

    def resumed(self, number: int) -> Batches:
        return self._batches(number, GOES_ON_AT)


class OursBucket(Ours):
    """The cache in the bucket."""

    def __init__(self, endpoint: str) -> None:
        from distcore_data.cache import open_cache

        names = dict(zip(("numbers", "categories", "outputs"), bucket_names(), strict=True))
        reader = open_cache(stage_store.cache_at(endpoint))
        self._open(reader, {**names, "ragged": []}, names["outputs"], ".")


class Gather:
    """A dataset in memory whose item is a batch: the rows of a list of places."""

    def __init__(self, matrix: np.ndarray, ends: list[int], lists: dict[str, Any]) -> None:
        import torch

        self.matrix, self.ends = torch.from_numpy(matrix), ends
        self.lists = [tuple(map(torch.from_numpy, each)) for each in lists.values()]

    def __len__(self) -> int:
        return len(self.matrix)

    def __getitem__(self, places: list[int]) -> tuple[Any, ...]:
        import torch

        rows = torch.tensor(places)
        lists = [self._list(rows, *each) for each in self.lists]
        return of_words(self.matrix.index_select(0, rows), self.ends, lists)

    @staticmethod
    def _list(rows: Any, values: Any, offsets: Any) -> tuple[Any, Any]:
        import torch

        starts = offsets[rows]
        lengths = offsets[rows + 1] - starts
        ends = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        places = torch.repeat_interleave(starts - ends[:-1], lengths)
        return values[places + torch.arange(len(places))], ends


class Stateful:
    """torchdata's StatefulDataLoader."""

    def __init__(self, folder: Path) -> None:
        matrix, lists = raw(folder)
        self._open(Gather(matrix, cuts(described(folder)), lists))

    def _open(self, data: Gather) -> None:
        self.data, self.rows = data, len(data)
        self.loader = self._new()

    def _new(self) -> Any:
        import torch
        from torchdata.stateful_dataloader import StatefulDataLoader
        from torchdata.stateful_dataloader.sampler import BatchSampler, RandomSampler

        generator = torch.Generator().manual_seed(SEED)
        sampler = RandomSampler(self.data, generator=generator)  # type: ignore[arg-type]
        batches = BatchSampler(sampler, BATCH, False)
        return StatefulDataLoader(self.data, sampler=batches, batch_size=None)  # type: ignore[arg-type]

    def epoch(self, number: int) -> Batches:
        return iter(self.loader)

    def resumed(self, number: int) -> Batches:
        """From the state after some batches of the epoch that is read next."""
        reading = iter(self.loader)
        for _ in range(GOES_ON_AT):
            next(reading)
        state = self.loader.state_dict()
        self.rest = reading
        loader = self._new()
        loader.load_state_dict(state)
        return iter(loader)


class StatefulBucket(Stateful):
    """Rows that pyarrow reads from the bucket."""

    def __init__(self, endpoint: str) -> None:
        table = pq.read_table(bucket_shards(), filesystem=bucket_files(endpoint))
        self._open(Gather(matrix_of(table), bucket_cuts(), {}))


class Copy:
    """No loader: what the rows of each batch take to be copied, in order, to one place. It shuffles
    nothing, and beneath it only a loader that copies nothing could be."""

    def __init__(self, folder: Path) -> None:
        import torch

        matrix, _ = raw(folder)
        self.matrix, self.ends = torch.from_numpy(matrix), cuts(described(folder))
        self.rows, self.place = len(matrix), torch.zeros_like(self.matrix[:BATCH])

    def epoch(self, number: int) -> Batches:
        for first in range(0, self.rows, BATCH):
            rows = self.matrix[first : first + BATCH]
            yield of_words(self.place[: len(rows)].copy_(rows), self.ends, [])

    def resumed(self, number: int) -> Batches:
        found = self.epoch(number)
        for _ in range(GOES_ON_AT):
            next(found)
        return found


class Lance:
    """Lance's `take`."""

    def __init__(self, folder: Path) -> None:
        import lance

        self._open(lance.dataset(str(folder / "rows.lance")), cuts(described(folder)))

    def _open(self, data: Any, ends: list[int]) -> None:
        self.data, self.ends, self.rows = data, ends, data.count_rows()

    def epoch(self, number: int) -> Batches:
        return self._batches(number, 0)

    def _batches(self, number: int, start: int) -> Batches:
        order = np.random.default_rng([SEED, number]).permutation(self.rows)
        for first in range(start * BATCH, self.rows, BATCH):
            places = pa.array(order[first : first + BATCH])
            yield of_table(self.data.take(places), self.ends)

    def resumed(self, number: int) -> Batches:
        return self._batches(number, GOES_ON_AT)


class LanceBucket(Lance):
    def __init__(self, endpoint: str) -> None:
        import lance

        found = lance.dataset(BUCKET_TABLE, storage_options=lance_options(endpoint))
        self._open(found, bucket_cuts())


class Ray:
    """Ray Data's `random_shuffle`, on a cluster of this machine."""

    def __init__(self, folder: Path) -> None:
        matrix, lists = raw(folder)
        self.ends = cuts(described(folder))
        ray_data = self._start()
        table = as_table(matrix, lists)
        blocks = [table.slice(first, RAY_ROWS) for first in range(0, len(table), RAY_ROWS)]
        self.data = ray_data.from_arrow(blocks).materialize()
        self.rows = len(table)

    @staticmethod
    def _start() -> Any:
        import ray

        settings = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
        ray.init(ignore_reinit_error=True, **settings)  # type: ignore[arg-type]
        ray.data.DataContext.get_current().enable_progress_bars = False
        return ray.data

    def epoch(self, number: int) -> Batches:
        shuffled = self.data.random_shuffle(seed=SEED + number)
        for table in shuffled.iter_batches(batch_size=BATCH, batch_format="pyarrow"):
            yield of_table(table, self.ends)

    def resumed(self, number: int) -> Batches:
        found = self.epoch(number)
        for _ in range(GOES_ON_AT):
            next(found)
        return found


class RayBucket(Ray):
    """The cache's Parquet files; each block's columns become rows of words as it is read."""

    def __init__(self, endpoint: str) -> None:
        ray_data = self._start()
        self.ends = bucket_cuts()
        shards, files = bucket_shards(), bucket_files(endpoint)
        found = ray_data.read_parquet(shards, filesystem=files)
        self.data = found.map_batches(
            lambda table: as_table(matrix_of(table), {}), batch_format="pyarrow", batch_size=None
        )
        self.rows = sum(
            pq.ParquetFile(files.open_input_file(each)).metadata.num_rows for each in shards
        )


RAY_ROWS = 65_536
"""Of a block."""


LOADERS: dict[str, tuple[Any, Any]] = {
    "distcore": (Ours, OursBucket),
    "torchdata": (Stateful, StatefulBucket),
    "lance": (Lance, LanceBucket),
    "ray": (Ray, RayBucket),
    "copy": (Copy, None),
}
