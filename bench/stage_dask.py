"""Preprocessing on Dask: ours against hand-written `dask.dataframe`, same work, on the same
scheduler.

    python bench/stage_dask.py VARIANT SCHEDULER SOURCE.csv OUT_DIR SMALL.csv

Schedulers: Dask's threads, a `distributed.LocalCluster` of two workers, and Ray with two CPUs. By
hand means: read with `dask.dataframe`, mean, standard deviation and value counts in one `compute`,
encode with `map_partitions`, write Parquet; `held` persists the frame in memory between the two
passes, `reread` parses the file twice. Seconds are of the work inside the process, after the same
work on a small file, so imports and the start of a cluster count for nobody; memory is that of the
whole process tree. Ours also digests the source, splits, writes a manifest with sha256 of every
file and forces everything to disk.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from make_data import CATEGORIES, NUMBERS
from measure import emit
from results import Row, at_most, row
from setting import Bench, config

TITLE = "CSV → encoded Parquet on Dask"
MOST_COMMON = 10_000
WORKERS = 2


# ------------------------------------------------------------------ what is run


def distcore_dask(source: Path, out: Path, address: str | None) -> None:
    processor = {"type": "dask", **({"address": address} if address else {})}
    _preprocess(source, out, processor)


def distcore_local(source: Path, out: Path, address: str | None) -> None:
    _preprocess(source, out, {"type": "local"})


def _preprocess(source: Path, out: Path, processor: dict[str, Any]) -> None:
    import distcore

    backend = {"type": "local", "cache_dir": str(out / "cache"), "processor": processor}
    distcore.preprocess(config(backend=backend), dataset=str(source))


def reread(source: Path, out: Path, address: str | None, held: bool = False) -> None:
    """What a careful user of dask.dataframe would write."""
    import dask
    import dask.dataframe as dd
    import numpy as np
    import pandas as pd

    frame = dd.read_csv(source, blocksize="64MB")
    if held:
        frame = frame.persist()
    mean, deviation, *counts = dask.compute(
        frame[NUMBERS].mean(),
        frame[NUMBERS].std(ddof=0),
        *[frame[name].value_counts() for name in CATEGORIES],
    )
    vocabularies = {
        name: pd.Index(found.sort_values(ascending=False).index[:MOST_COMMON])
        for name, found in zip(CATEGORIES, counts, strict=True)
    }

    def encode(part: pd.DataFrame) -> pd.DataFrame:
        columns: dict[str, Any] = {
            name: ((part[name] - mean[name]) / deviation[name]).fillna(0.0).astype("float32")
            for name in NUMBERS
        }
        for name in CATEGORIES:
            columns[name] = (vocabularies[name].get_indexer(part[name]) + 1).astype(np.int32)
        columns["target"] = part["target"].astype("int32")
        return pd.DataFrame(columns)

    floats = {name: np.zeros(0, "f4") for name in NUMBERS}
    integers = {name: np.zeros(0, "i4") for name in [*CATEGORIES, "target"]}
    frame.map_partitions(encode, meta=pd.DataFrame({**floats, **integers})).to_parquet(
        out / "data", write_index=False
    )


def held(source: Path, out: Path, address: str | None) -> None:
    reread(source, out, address, held=True)


VARIANTS = {each.__name__: each for each in (distcore_dask, distcore_local, reread, held)}


@contextmanager
def scheduler(name: str) -> Iterator[str | None]:
    """The scheduler as default of dask collections; yields its address, if it has one."""
    if name == "threads":
        yield None
    elif name == "cluster":
        from distributed import Client, LocalCluster

        with (
            LocalCluster(
                n_workers=WORKERS, threads_per_worker=1, dashboard_address=None
            ) as cluster,
            Client(cluster),
        ):
            yield cluster.scheduler_address
    else:
        import dask
        import ray
        from ray.util.dask import ray_dask_get

        ray.init(address="local", num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
        with dask.config.set({"scheduler": ray_dask_get, "dataframe.shuffle.method": "tasks"}):
            yield None
        ray.shutdown()


def main() -> None:
    variant, where, source, out, small = sys.argv[1], sys.argv[2], *map(Path, sys.argv[3:])
    folder = out / f"{variant}-{where}-{os.getpid()}"
    try:
        with scheduler(where) as address:
            for each in (small, source):
                (folder / each.stem).mkdir(parents=True)
                started = time.perf_counter()
                VARIANTS[variant](each, folder / each.stem, address)
                seconds = time.perf_counter() - started
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    emit(seconds=seconds)


# ------------------------------------------------------------------ what is compared


def measure(bench: Bench) -> list[Row]:
    """Each scheduler: ours against both ways by hand."""
    small, rows = bench.csv(1000), bench.pick(2_000_000, 200_000)
    source, out = bench.csv(rows), bench.data / "dask"
    lines = []
    for where, label in (
        ("threads", "Dask's threads"),
        ("cluster", "a Dask cluster"),
        ("ray", "Ray"),
    ):
        names = ["distcore_dask", "reread", "held"]
        if where == "threads":
            names.append("distcore_local")
        found = bench.compare(
            {
                name: bench.script("stage_dask.py", name, where, source, out, small)
                for name in names
            },
            (3, 1),
            "seconds",
        )
        head = f"{rows / 1e6:g} M rows on {label}"
        for peer in ("held", "reread"):
            lines += [
                row(found, f"{head}, time", "distcore_dask", peer, "seconds", "s", at_most(1.0)),
                row(
                    found, f"{head}, peak anonymous memory", "distcore_dask", peer, "peak_mb", "MB"
                ),
            ]
        if where == "threads":
            lines.append(
                row(found, f"{head}, time", "distcore_dask", "distcore_local", "seconds", "s")
            )
    return lines


if __name__ == "__main__":
    main()
