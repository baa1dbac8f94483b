"""Loading, shape by shape: encoded rows → batches of 1024 in a full shuffle, beside other loaders.

    python bench/stage_loading_shapes.py WHO SHAPE CAP_SECONDS   (SHAPE: a folder, or an endpoint)

Every loader gives the numbers, codes, lists and targets of a batch as tensors, shuffles all rows of
an epoch, and goes on after its first batch at the end, in a new loader (`goes on exactly`: the
second batch is the same, by its bytes). What each shuffle is:

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

Rows lie in Lance and in Ray as one list of fixed size a row, so that no loader pays for a thousand
columns by name. torch computes with one thread, the engines of Lance and Ray with as many as they
take. Rows a second are the median of some epochs, opening not counted. From the bucket
(moto's server on this machine, as in the stage `store`) opening and one epoch are counted together:
what comes first is what a bucket is slow at. There ours fetches the cache, StatefulDataLoader is
given its Parquet files by pyarrow, and Ray reads them too.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import stage_store
from conditions import version
from learnt_shapes import SHAPES, columns_of, described, home, prepared
from measure import Comparison, emit, run, say
from results import Row, at_least, row
from setting import ONE_THREAD, Bench
from stage_formats import CARDINALITIES

TITLE = "cache → batches, shape by shape"
BATCH, SEED = 1024, 42
EPOCHS = 9
GOES_ON_AT = 1
LEAST = at_least(5)
NARROW, WIDE, RAGGED = "plain", "wide", "sets"
PEERS = {"torchdata": "StatefulDataLoader", "lance": "Lance", "ray": "Ray Data"}
DISTRIBUTIONS = {"torchdata": "torchdata", "lance": "pylance", "ray": "ray"}
BUCKET_TABLE = "s3://bucket/lance/rows.lance"

Batches = Iterator[tuple[Any, ...]]


# ------------------------------------------------------------------ rows


def cuts(known: dict[str, Any]) -> list[int]:
    """Where numbers, codes and targets end in a row of 32-bit words."""
    names = columns_of(known)
    counts = [len(names[each]) for each in ("numbers", "categories", "outputs")]
    return [int(each) for each in np.cumsum(counts)]


def of_words(words: Any, ends: list[int], lists: list[Any]) -> tuple[Any, ...]:
    """A batch, as views of its rows of words, an int32 tensor [B, words]."""
    import torch

    numbers, codes, _ = ends
    floats = words.view(torch.float32)
    return floats[:, :numbers], words[:, numbers:codes], lists, floats[:, codes:]


def as_table(matrix: np.ndarray, lists: dict[str, tuple[np.ndarray, np.ndarray]]) -> pa.Table:
    """Rows as Arrow: `row`, a list of fixed size of the words of a row, and each ragged column.

    lists: {name: (values, offsets)}."""
    words = pa.array(np.ascontiguousarray(matrix).reshape(-1))
    columns: dict[str, Any] = {"row": pa.FixedSizeListArray.from_arrays(words, matrix.shape[1])}
    for name, (values, offsets) in lists.items():
        columns[name] = pa.ListArray.from_arrays(
            pa.array(offsets.astype(np.int32)), pa.array(values)
        )
    return pa.table(columns)


def of_table(table: pa.Table, ends: list[int]) -> tuple[Any, ...]:
    """A batch of what `as_table` made; tensors are views of it."""
    import torch

    words = _whole(table.column("row")).flatten().to_numpy(zero_copy_only=False)
    lists = []
    for name in table.column_names:
        if name != "row":
            column = _whole(table.column(name))
            offsets = column.offsets.to_numpy()
            lists.append(
                (_tensor(column.flatten().to_numpy()), torch.from_numpy(offsets - offsets[0]))
            )
    return of_words(_tensor(words).view(-1, ends[-1]), ends, lists)


def _whole(column: Any) -> Any:
    """A column without chunks."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _tensor(values: np.ndarray) -> Any:
    import torch

    with warnings.catch_warnings():  # Arrow's memory is read-only; nobody writes to it here
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(values)


def raw(folder: Path) -> tuple[np.ndarray, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """A prepared shape's rows of words, and its ragged columns."""
    known = described(folder)
    matrix = np.fromfile(folder / "packed.i32", np.int32).reshape(-1, cuts(known)[-1])
    lists = {}
    for name in columns_of(known)["ragged"]:
        with np.load(folder / f"{name}.npz") as found:
            lists[name] = (found["values"].astype(np.int32), found["offsets"])
    return matrix, lists


# ------------------------------------------------------------------ what is run


class Ours:
    """The packed loader on the cache."""

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


# ------------------------------------------------------------------ the bucket


def bucket_names() -> tuple[list[str], list[str], list[str]]:
    """Numbers, categories and targets of what `stage_store.build` puts there."""
    categories = [f"cat_{place}" for place in range(len(CARDINALITIES))]
    return [f"num_{place}" for place in range(10)], categories[:-1], categories[-1:]


def bucket_cuts() -> list[int]:
    return [int(each) for each in np.cumsum([len(each) for each in bucket_names()])]


def bucket_files(endpoint: str) -> Any:
    from pyarrow.fs import S3FileSystem

    return S3FileSystem(
        access_key="bench",
        secret_key="bench",
        region="us-east-1",
        scheme="http",
        endpoint_override=endpoint.removeprefix("http://"),
    )


def bucket_shards() -> list[str]:
    return [f"{stage_store.BUCKET}/{name}" for name in os.environ["BUCKET_SHARDS"].split(",")]


def lance_options(endpoint: str) -> dict[str, str]:
    return {
        "aws_access_key_id": "bench",
        "aws_secret_access_key": "bench",
        "aws_region": "us-east-1",
        "aws_endpoint": endpoint,
        "allow_http": "true",
    }


def matrix_of(table: pa.Table) -> np.ndarray:
    """Columns as rows of words."""
    names = [name for each in bucket_names() for name in each]
    found = np.empty((len(table), len(names)), np.int32)
    for place, name in enumerate(names):
        found[:, place] = table.column(name).to_numpy().view(np.int32)
    return found


# ------------------------------------------------------------------ a child


WHO: dict[str, tuple[Any, Any]] = {
    "distcore": (Ours, OursBucket),
    "torchdata": (Stateful, StatefulBucket),
    "lance": (Lance, LanceBucket),
    "ray": (Ray, RayBucket),
}


def main() -> None:
    if sys.argv[1] in PREPARE:
        PREPARE[sys.argv[1]](sys.argv[2])
        emit(done=True)
        return
    who, where, cap = sys.argv[1:4]
    if where.startswith("http"):
        from_bucket(WHO[who][1], where, float(cap))
    else:
        from_memory(WHO[who][0](Path(where)), float(cap))
    sys.stdout.flush()
    os._exit(0)  # threads and clusters of others need seconds to end


def from_memory(loader: Any, cap: float) -> None:
    """Some epochs, the first of which counts as opening; then whether it goes on exactly."""
    one(loader, 0, cap)
    started, rates = time.perf_counter(), []
    for number in range(1, EPOCHS + 1):
        rates.append(one(loader, number, cap))
        if time.perf_counter() - started > cap:
            break
    emit(rows_per_second=statistics.median(rates), goes_on=goes_on(loader))


def from_bucket(kind: Any, endpoint: str, cap: float) -> None:
    """Opening and an epoch, after libraries are imported and connections made. One that takes
    longer than `cap` seconds is left in its middle."""
    next(kind(endpoint).epoch(0))
    started = time.perf_counter()
    loader = kind(endpoint)
    seen = sum(len(batch[3]) for batch in until(loader.epoch(0), started + cap))
    seconds = time.perf_counter() - started
    emit(rows_per_second=seen / seconds, whole=float(seen == loader.rows))


def one(loader: Any, number: int, cap: float) -> float:
    """Rows a second of an epoch."""
    started = time.perf_counter()
    seen = sum(len(batch[3]) for batch in until(loader.epoch(number), started + cap))
    seconds = time.perf_counter() - started
    assert seen == loader.rows or seconds > cap, (seen, loader.rows)
    return seen / seconds


def until(batches: Batches, end: float) -> Batches:
    for batch in batches:
        yield batch
        if time.perf_counter() > end:
            return


def goes_on(loader: Any) -> float:
    """1 if a new loader's first batch after a resumption is the one that would have come."""
    number = EPOCHS + 1
    other = next(loader.resumed(number))
    if isinstance(loader, Stateful):  # its epochs have no numbers: the rest of the same one
        return float(same(next(loader.rest), other))
    batches = loader.epoch(number)
    for _ in range(GOES_ON_AT):
        next(batches)
    return float(same(next(batches), other))


def same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    def tensors(batch: tuple[Any, ...]) -> list[Any]:
        lists = [part for column in batch[2] for part in column]
        return [each.contiguous() for each in (*batch[:2], *lists, batch[3]) if each is not None]

    def raw_bytes(tensor: Any) -> bytes:
        found: bytes = tensor.numpy().tobytes()
        return found

    return list(map(raw_bytes, tensors(one))) == list(map(raw_bytes, tensors(other)))


def write_lance(folder: str) -> None:
    """Lance's file of a shape."""
    import lance

    target = Path(folder, "rows.lance")
    part = target.with_name("rows.lance.part")
    shutil.rmtree(part, ignore_errors=True)
    lance.write_dataset(as_table(*raw(Path(folder))), str(part))
    os.rename(part, target)


def write_lance_bucket(endpoint: str) -> None:
    """The rows of the bucket's cache, for Lance."""
    import lance

    table = pq.read_table(bucket_shards(), filesystem=bucket_files(endpoint))
    rows = as_table(matrix_of(table), {})
    lance.write_dataset(rows, BUCKET_TABLE, storage_options=lance_options(endpoint))


PREPARE = {"--lance": write_lance, "--lance-bucket": write_lance_bucket}


# ------------------------------------------------------------------ what is compared


def measure(bench: Bench) -> list[Row]:
    """Three shapes in memory, and the narrow one from a bucket."""
    names = bench.pick((NARROW, WIDE, RAGGED), (RAGGED,))
    prepared(bench, names)
    lines = []
    for name in names:
        folder = home(bench, name)
        if not (folder / "rows.lance").exists():
            say(f"  writing {name} for Lance")
            run(bench.script("stage_loading_shapes.py", "--lance", folder))
        found = compared(bench, str(folder), {}, bench.pick(8, 1))
        lines += against(found, SHAPES[name].title)
    return lines + bucket(bench)


def bucket(bench: Bench) -> list[Row]:
    with stage_store.server() as endpoint:
        stage_store.build(endpoint, bench.pick(8, 1))
        environment = {"BUCKET_SHARDS": ",".join(stage_store.objects(endpoint))}
        run(bench.script("stage_loading_shapes.py", "--lance-bucket", endpoint), environment)
        found = compared(bench, endpoint, environment, bench.pick(30, 2))
    return against(found, "10 numbers, 6 categories, from a bucket")


def compared(bench: Bench, where: str, environment: dict[str, str], cap: float) -> Comparison:
    commands = {who: bench.script("stage_loading_shapes.py", who, where, cap) for who in WHO}
    return bench.compare(commands, (3, 1), "rows_per_second", {**ONE_THREAD, **environment})


def against(found: Comparison, what: str) -> list[Row]:
    """A row for each peer."""
    lines = []
    for who, name in PEERS.items():
        peer = f"{name} {version(DISTRIBUTIONS[who])}"
        line = row(found, what, "distcore", who, "rows_per_second", "rows/s", LEAST, peer_is=peer)
        if all("goes_on" in each for each in found.runs[who]):
            exact = {x: all(each["goes_on"] for each in found.runs[x]) for x in ("distcore", who)}
            told = {True: "yes", False: "no"}
            line.note = (
                f"goes on exactly: ours {told[exact['distcore']]}, {name} {told[exact[who]]}"
            )
        elif not all(each["whole"] for each in found.runs[who]):
            line.note = f"{name} was left in the middle of its epoch"
        lines.append(line)
    return lines


if __name__ == "__main__":
    main()
