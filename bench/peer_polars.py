"""Preprocessing of one shape as a careful user would write it with polars, everything in memory.

    python bench/peer_polars.py KIND DATASET

Writes `encoded.parquet` where it runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import polars as pl

from peer_sql import FIRST, MOST_COMMON, UNKNOWN


def main() -> None:
    kind, dataset = sys.argv[1], Path(sys.argv[2])
    read: Any = {".jsonl": pl.read_ndjson, ".parquet": pl.read_parquet, "": pl.read_parquet}
    frame = read.get(dataset.suffix, pl.read_csv)(dataset)
    numbers = [name for name in frame.columns if frame[name].dtype.is_float()]
    texts = [name for name in frame.columns if frame[name].dtype == pl.String]
    columns = [
        ((pl.col(name) - pl.col(name).mean()) / pl.col(name).std(ddof=0))
        .fill_null(0)
        .cast(pl.Float32)
        for name in numbers
    ]
    columns += [
        part for name in frame.columns if frame[name].dtype == pl.Datetime for part in parts(name)
    ]
    found = frame.select([*columns, pl.col("target").cast(pl.Int32)])
    if kind == "text":
        found = found.with_columns(tokens(frame))
    else:
        found = found.with_columns([codes(frame, name) for name in texts])
    found.write_parquet("encoded.parquet", compression="snappy")


def parts(name: str) -> list[pl.Expr]:
    """The nine that a date is for us."""
    time = pl.col(name).dt
    clock = [time.hour().cast(pl.Int32), time.minute().cast(pl.Int32), time.second().cast(pl.Int32)]
    of_day = 3600 * clock[0] + 60 * clock[1] + clock[2]
    day = [time.year(), time.month(), time.day(), time.weekday() - 1, time.ordinal_day()]
    return [
        each.cast(pl.Int32).alias(f"{name}_{number}")
        for number, each in enumerate([*day, *clock, of_day])
    ]


def codes(frame: pl.DataFrame, name: str) -> pl.Series:
    counts = frame[name].value_counts(sort=True).with_row_index("code").select(name, "code")
    coded = frame.select(name).join(counts, on=name, how="left", maintain_order="left")
    return coded["code"].cast(pl.Int32).alias(name)


def tokens(frame: pl.DataFrame) -> pl.Series:
    words = frame.with_row_index("row").select("row", pl.col("text").str.split(" ").alias("word"))
    words = words.explode("word")
    counts = words["word"].value_counts(sort=True).head(MOST_COMMON).with_row_index("code")
    known = counts.select("word", (pl.col("code") + FIRST).cast(pl.Int32))
    coded = words.join(known, on="word", how="left", maintain_order="left")
    lists = coded.with_columns(pl.col("code").fill_null(UNKNOWN)).group_by(
        "row", maintain_order=True
    )
    return lists.agg("code")["code"].alias("text")


if __name__ == "__main__":
    main()
