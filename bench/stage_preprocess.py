"""Preprocessing: CSV → z-scored, imputed, vocabulary-coded Parquet. Ours against polars' eager
script, same work.

    python bench/stage_preprocess.py VARIANT SOURCE.csv OUT_DIR SMALL.csv

Seconds are of the work inside the process, after the same work on a small file, so imports count
for nobody; memory is that of the whole process. Ours also digests the source, splits, writes a
manifest with sha256 of every file and forces everything to disk; `distcore_uncommitted` leaves out
fsync and sha256, to show what they cost.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from make_data import CATEGORIES, NUMBERS
from measure import emit, say
from results import Row, at_most, row
from setting import Bench, config

TITLE = "CSV → encoded Parquet"
MOST_COMMON = 10_000

Variant = Callable[[Path, Path], None]


# ------------------------------------------------------------------ what is run


def distcore_(source: Path, out: Path) -> None:
    import distcore

    distcore.preprocess(
        config(backend={"type": "local", "cache_dir": str(out / "cache")}), dataset=str(source)
    )


def distcore_uncommitted(source: Path, out: Path) -> None:
    class Nothing:
        def __init__(self, data: bytes = b"", **_: object) -> None: ...
        def update(self, data: object) -> None: ...
        def hexdigest(self) -> str:
            return "0" * 64

    os.fsync = os.fdatasync = lambda handle: None  # type: ignore[assignment]
    hashlib.sha256 = Nothing  # type: ignore[assignment, misc]
    distcore_(source, out)


def polars_eager(source: Path, out: Path) -> None:
    """What a careful user would write with polars: read, statistics, encode, write; everything
    in memory."""
    import polars as pl

    frame = pl.read_csv(source)
    statistics = frame.select(
        [pl.col(name).mean().alias(f"{name}_mean") for name in NUMBERS]
        + [pl.col(name).std(ddof=0).alias(f"{name}_std") for name in NUMBERS]
        + [
            pl.col(name).value_counts(sort=True).head(MOST_COMMON).implode().alias(name)
            for name in CATEGORIES
        ]
    )
    columns = [
        ((pl.col(name) - statistics[f"{name}_mean"][0]) / statistics[f"{name}_std"][0])
        .fill_null(0.0)
        .cast(pl.Float32)
        for name in NUMBERS
    ]
    for name in CATEGORIES:
        vocabulary = pl.Enum(statistics[name][0].struct.field(name))
        code = pl.col(name).cast(vocabulary, strict=False).to_physical().cast(pl.Int32) + 1
        columns.append(code.fill_null(0).alias(name))
    columns.append(pl.col("target").cast(pl.Int32))
    frame.select(columns).write_parquet(out / "encoded.parquet", compression="snappy")


VARIANTS: dict[str, Variant] = {
    "distcore": distcore_,
    "distcore_uncommitted": distcore_uncommitted,
    "polars_eager": polars_eager,
}


def main() -> None:
    variant, source, out, small = (
        sys.argv[1],
        Path(sys.argv[2]),
        Path(sys.argv[3]),
        Path(sys.argv[4]),
    )
    work = VARIANTS[variant]
    folder = out / f"{variant}-{os.getpid()}"
    try:
        for each in (small, source):
            (folder / each.stem).mkdir(parents=True)
            started = time.perf_counter()
            work(each, folder / each.stem)
            seconds = time.perf_counter() - started
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    emit(seconds=seconds)


# ------------------------------------------------------------------ what is compared


def measure(bench: Bench) -> list[Row]:
    """2 M rows against polars, then 10 M beside 2 M in the same rounds: time a row and memory
    must not grow."""
    small, rows, more = bench.csv(1000), *bench.pick((2_000_000, 10_000_000), (200_000, 600_000))
    out = bench.data / "preprocess"
    source = bench.csv(rows)
    found = bench.compare(
        {name: bench.script("stage_preprocess.py", name, source, out, small) for name in VARIANTS},
        (5, 2),
        "seconds",
    )
    label = f"{rows / 1e6:g} M rows"
    lines = [
        row(found, f"{label}, time", "distcore", "polars_eager", "seconds", "s", at_most(1.0)),
        row(found, f"{label}, peak anonymous memory", "distcore", "polars_eager", "peak_mb", "MB", at_most(0.3)),
        row(found, f"{label}, time without fsync and sha256", "distcore_uncommitted", "polars_eager", "seconds", "s",
            note="what committing costs is the difference from the first row"),
    ]  # fmt: skip
    large = bench.csv(more)
    variants = {
        name: bench.script("stage_preprocess.py", name, large, out, small)
        for name in ("distcore", "polars_eager")
    }
    variants["distcore, fewer rows"] = bench.script(
        "stage_preprocess.py", "distcore", source, out, small
    )
    after = bench.compare(variants, (3, 1), "seconds")
    if not bench.quick:
        say(f"  removing {large.name}")
        large.unlink()
    label = f"{more / 1e6:g} M rows"
    fewer = "distcore, fewer rows"
    per_row = median(after.ratios("distcore", fewer, "seconds")) * rows / more
    memory = median(after.ratios("distcore", fewer, "peak_mb"))
    flat = at_most(1.1)
    lines += [
        row(after, f"{label}, time", "distcore", "polars_eager", "seconds", "s", at_most(1.0)),
        row(after, f"{label}, peak anonymous memory", "distcore", "polars_eager", "peak_mb", "MB", at_most(0.3)),
        Row(f"time a row, {label} over {rows / 1e6:g} M", "µs", after.median("distcore", "seconds") / more * 1e6,
            "ours at fewer rows", after.median(fewer, "seconds") / rows * 1e6, per_row,
            target=str(flat), met=flat.met(per_row), others=after.others("distcore")),
        Row(f"peak memory, {label} over {rows / 1e6:g} M", "MB", after.median("distcore", "peak_mb"),
            "ours at fewer rows", after.median(fewer, "peak_mb"), memory,
            target=str(flat), met=flat.met(memory), others=after.others("distcore")),
    ]  # fmt: skip
    return lines


if __name__ == "__main__":
    main()
