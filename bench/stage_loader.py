"""Loading: encoded cache → shuffled batches of 1024, whole epochs. Ours against one gather a batch,
all in memory.

    python bench/stage_loader.py VARIANT CACHE PACKED SCRATCH EPOCHS CAP_SECONDS

A row is 17 32-bit words. Rows a second of an epoch (the median of some), from asking for it to its
last batch; opening and packing are told apart as `open_seconds`. Quality of the shuffle: the mean
deviation of the rows' positions within a batch over that of the whole (num_9 is the row's position,
z-scored); a full shuffle has 1.0.
"""

from __future__ import annotations

import mmap
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import handmade
import limit
import make_data
from handmade import BATCH
from make_data import CATEGORIES, COLUMNS, NUMBERS
from measure import compare, emit, run, say
from results import Row, at_least, row
from setting import Bench, all_training, config

TITLE = "cache → batches"

Epoch = Iterator[Any]


# ------------------------------------------------------------------ what is run


class PackedGather:
    """The floor: everything in memory, one permutation, one gather a batch, column groups as
    views."""

    def __init__(self, cache: str, packed: str, scratch: str) -> None:
        self.matrix = handmade.load(packed)
        self.rows = len(self.matrix)

    def epoch(self, number: int) -> Epoch:
        import torch

        order = torch.randperm(self.rows)
        for start in range(0, self.rows, BATCH):
            yield handmade.views(self.matrix.index_select(0, order[start : start + BATCH]))


class MappedGather(PackedGather):
    """The same over the file, memory-mapped: all it can do if the matrix does not fit."""

    def __init__(self, cache: str, packed: str, scratch: str) -> None:
        import torch

        drop_pages(packed)
        with open(packed, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        mapped.madvise(
            mmap.MADV_RANDOM
        )  # else every row brings megabytes that are thrown away unread
        self.matrix = torch.from_numpy(np.frombuffer(mapped, np.int32).reshape(-1, handmade.WORDS))
        self.rows = len(self.matrix)


class RawRead:
    """The floor of whatever reads the file once an epoch: its rows in the order they lie there,
    4 MiB a read."""

    def __init__(self, cache: str, packed: str, scratch: str) -> None:
        self.file = open(packed, "rb", buffering=0)  # noqa: SIM115 - for as long as the process lives
        self.rows = os.path.getsize(packed) // (4 * handmade.WORDS)

    def epoch(self, number: int) -> Epoch:
        import torch

        drop_pages(self.file.name)
        buffer = torch.empty((4 << 20) // (4 * handmade.WORDS), handmade.WORDS, dtype=torch.int32)
        raw = buffer.numpy().reshape(-1).view(np.uint8)
        self.file.seek(0)
        while count := self.file.readinto(raw):
            yield handmade.views(buffer[: count // (4 * handmade.WORDS)])


def drop_pages(path: str | Path) -> None:
    """Let the kernel forget a file's pages: those that another group brought in would cost the
    limited one nothing."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class DataLoader:
    """torch's own loader the fast way: a batch sampler over a TensorDataset."""

    def __init__(self, cache: str, packed: str, scratch: str) -> None:
        from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

        data = TensorDataset(*(each.contiguous() for each in handmade.views(handmade.load(packed))))
        self.rows = len(data)
        self.loader = DataLoader(
            data, sampler=BatchSampler(RandomSampler(data), BATCH, False), batch_size=None
        )

    def epoch(self, number: int) -> Epoch:
        return iter(self.loader)


class Ours:
    """The packed loader on the cache; each batch gives the same groups of columns as views."""

    options: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, cache: str, packed: str, scratch: str) -> None:
        from distcore_core.contracts import LOADER, LoadRequest
        from distcore_core.registry.manager import Plugins

        reader = handmade.open_cache(cache)
        self.rows = reader.rows("train")
        request = LoadRequest(
            reader=reader,
            split="train",
            columns=COLUMNS,
            batch_size=BATCH,
            seed=42,
            scratch=scratch,
        )
        self.loader = Plugins().make(LOADER, "packed", self.options, request=request)
        next(iter(self.loader.batches(0)))

    def epoch(self, number: int) -> Epoch:
        for batch in self.loader.batches(number + 1):
            yield batch.block(NUMBERS), batch.block(CATEGORIES), batch["target"]


class OursFile(Ours):
    options = {"fully_executed": False}  # noqa: RUF012


VARIANTS: dict[str, Any] = {
    "packed_gather": PackedGather,
    "mapped_gather": MappedGather,
    "raw_read": RawRead,
    "torch_dataloader": DataLoader,
    "distcore": Ours,
    "distcore_file": OursFile,
}


def main() -> None:
    variant, cache, packed, scratch, epochs, cap = sys.argv[1:7]

    import distcore_data.cache  # noqa: F401

    started = time.perf_counter()
    loader = VARIANTS[variant](cache, packed, scratch)
    opened = time.perf_counter() - started
    found = [one(loader, number, float(cap)) for number in range(int(epochs))]
    rates, spreads = zip(*found, strict=True)
    emit(
        rows_per_second=statistics.median(rates),
        open_seconds=opened,
        quality=statistics.median(spreads),
        rows=loader.rows,
    )
    sys.stdout.flush()
    os._exit(0)


def one(loader: Any, number: int, cap: float) -> tuple[float, float]:
    """Rows a second, and quality, of an epoch; one that takes longer than `cap` seconds is left
    in its middle."""
    spreads, seen, whole = [], 0, True
    started = time.perf_counter()
    for index, batch in enumerate(loader.epoch(number)):
        seen += len(batch[0])
        if index % 64 == 0:
            positions = batch[0][:, -1]
            if len(positions) > 8:
                spreads.append(float(positions.std()))
        if time.perf_counter() - started > cap:
            whole = False
            break
    seconds = time.perf_counter() - started
    assert seen == loader.rows or not whole, (seen, loader.rows)
    return seen / seconds, float(np.mean(spreads))


# ------------------------------------------------------------------ what is compared


def measure(bench: Bench) -> list[Row]:
    """In memory and from the scratch file at 2 M rows; windows on 40 M rows under 1 GiB."""
    lines = small(bench)
    lines += large(bench)
    return lines


def small(bench: Bench) -> list[Row]:
    rows = bench.pick(2_000_000, 500_000)
    cache, packed = prepared(bench, rows)
    scratch = bench.data / "scratch"
    commands = {
        name: bench.script(
            "stage_loader.py",
            name,
            cache,
            packed,
            scratch,
            1 if name == "torch_dataloader" else 9,
            8,
        )
        for name in ("distcore", "distcore_file", "packed_gather", "torch_dataloader")
    }
    found = bench.compare(commands, (5, 2), "rows_per_second")
    label, unit = f"{rows / 1e6:g} M rows", "rows/s"
    return [
        row(found, f"{label}, default (in memory)", "distcore", "packed_gather", "rows_per_second", unit, at_least(0.9)),
        row(found, f"{label}, from the scratch file", "distcore_file", "packed_gather", "rows_per_second", unit, at_least(0.9)),
        row(found, f"{label}, against torch's DataLoader with a batch sampler", "distcore", "torch_dataloader", "rows_per_second", unit),
        quality(found, label, "distcore"),
    ]  # fmt: skip


def large(bench: Bench) -> list[Row]:
    """More rows than the limit lets into memory: ours is under it, the gather is not (it could
    not run)."""
    rows, bound = bench.pick((40_000_000, "1G"), (4_000_000, "448M"))
    cache, packed = prepared(bench, rows)
    scratch = bench.data / "scratch"
    epochs = bench.pick(2, 2)
    free = {
        name: bench.script("stage_loader.py", name, cache, packed, scratch, epochs, 60)
        for name in ("distcore_file", "packed_gather")
    }
    label, unit = f"{rows / 1e6:g} M rows", "rows/s"
    can = limit.available()
    if can:
        for name, variant in (
            ("distcore under the limit", "distcore"),
            ("raw_read under the limit", "raw_read"),
        ):
            bounded = bench.script("stage_loader.py", variant, cache, packed, scratch, epochs, 60)
            free[name] = bench.script("limit.py", bound, *bounded)
    found = compare(free, bench.pick(3, 1), "rows_per_second")
    lines = [
        row(found, f"{label}, windows, no limit", "distcore_file", "packed_gather", "rows_per_second", unit, at_least(1.0)),
    ]  # fmt: skip
    lines[0].more["open_seconds"] = found.median("distcore_file", "open_seconds")
    if can:
        under = "distcore under the limit"
        lines.append(
            row(found, f"{label}, windows under {bound}iB", under, "packed_gather", "rows_per_second", unit, at_least(1.0),
                peer_is="packed_gather without a limit",
                note="the group's limit counts page cache, so every epoch reads the whole scratch "
                    f"file from the disk; packing took {found.median(under, 'open_seconds'):.0f} s "
                    "once"),
        )  # fmt: skip
        lines.append(
            row(found, f"{label}, windows under {bound}iB", under, "raw_read under the limit", "rows_per_second", unit,
                peer_is="the same bytes read from the disk in order, same limit")
        )  # fmt: skip
        mapped = bench.script("stage_loader.py", "mapped_gather", cache, packed, scratch, 1, 20)
        say("  the gather from a mapped file, under the same limit")
        theirs = run(bench.script("limit.py", bound, *mapped))
        ratio = found.median(under, "rows_per_second") / theirs["rows_per_second"]
        target = at_least(1.0)
        lines.append(
            Row(f"{label}, windows under {bound}iB", unit, found.median(under, "rows_per_second"),
                "packed_gather from a mapped file, same limit", theirs["rows_per_second"], ratio,
                target=str(target), met=target.met(ratio), others=theirs["others"])
        )  # fmt: skip
        quality_name = under
    else:
        quality_name = "distcore_file"
        lines[
            0
        ].note = "no memory control group can be made here (it takes root), so no limit was set"
    lines += [
        quality(found, f"{label}, windows", quality_name),
        row(
            found,
            f"{label}, windows, peak anonymous memory",
            quality_name,
            "packed_gather",
            "peak_mb",
            "MB",
        ),
    ]
    return lines


def quality(found: Any, label: str, name: str) -> Row:
    value, target = found.median(name, "quality"), at_least(0.99)
    return Row(f"{label}, quality of the shuffle", "deviation", value, "a full shuffle", 1.0, value,
               value_is="", target=str(target), met=target.met(value), others=found.others(name))  # fmt: skip


# ------------------------------------------------------------------ data


def prepared(bench: Bench, rows: int) -> tuple[str, Path]:
    """The cache (`directory:key`) of rows whose num_9 is their position, and its packed file;
    made once."""
    folder = bench.data / f"positions_{rows}"
    packed, note = folder / "packed.i32", folder / "cache.txt"
    if not note.exists():
        raw = positions(bench, rows)
        say(f"  building the cache of {rows} rows")
        command = bench.script("stage_loader.py", "--prepare", raw, folder / "cache", packed)
        note.write_text(run(command)["cache"])
    return note.read_text(), packed


def positions(bench: Bench, rows: int) -> Path:
    """A folder of Parquet files: the first 2 M rows of the benchmark's data again and again,
    num_9 the position."""
    folder = bench.data / f"positions_{rows}" / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    per_file = min(rows, 1_000_000)
    tables = [
        pa.concat_tables(make_data.chunks(per_file, first=20 * part))
        for part in range(min(2, -(-rows // per_file)))
    ]
    for index, start in enumerate(range(0, rows, per_file)):
        table = tables[index % len(tables)].slice(0, min(per_file, rows - start))
        place = pa.array((np.arange(start, start + len(table)) / rows).astype(np.float64))
        at = table.schema.get_field_index("num_9")
        pq.write_table(table.set_column(at, "num_9", place), folder / f"part-{index:05d}.parquet")
    return folder


def prepare() -> None:
    """Build the cache and the packed file. python stage_loader.py --prepare RAW CACHE_DIR PACKED"""
    import distcore

    raw, directory, packed = sys.argv[2:5]
    settings = config(
        preprocessing=all_training(), backend={"type": "local", "cache_dir": directory}
    )
    cache = distcore.preprocess(settings, dataset=raw)
    name = f"{cache.directory}:{cache.key}"
    handmade.pack(name, Path(packed))
    emit(cache=name)


if __name__ == "__main__":
    prepare() if sys.argv[1] == "--prepare" else main()
