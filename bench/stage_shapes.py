"""Preprocessing of other shapes than make_data's table in csv.

Narrow and wide tables, categories of a million values, text, many small files, and csv as it comes:
quoted, packed, or as JSON lines. Ours is the whole command `distcore preprocess`, the peers whole
scripts of polars, DuckDB and chDB doing the same, from the start of the process to its end.

    python bench/stage_shapes.py WHO KIND DATASET OUT_DIR

Ours also digests the source, splits, writes a manifest with sha256 of every file and forces
everything to disk. chDB's rows are in no order.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import make_shapes
import peer_sql
from conditions import version
from measure import emit
from results import Row, Target, at_most, row
from setting import Bench

TITLE = "Preprocessing, shape by shape"
MEMORY = at_most(0.4)
SQL = {"duckdb": "DuckDB", "chdb": "chDB"}
MOST_COMMON = 10_000


@dataclass(frozen=True)
class Shape:
    """kind: what the script does with it. target: of the ratio of seconds."""

    name: str
    kind: str
    data: Path
    target: Target | None = None


def shapes(bench: Bench) -> list[Shape]:
    """Every shape, its data made if they are not there."""
    folder = bench.data / "shapes"
    rows, packed_rows = bench.pick(2_000_000, 20_000), bench.pick(500_000, 20_000)
    wide = bench.pick((50_000, 1000), (1000, 100))
    tall = bench.pick((2_000_000, 1_000_000), (20_000, 10_000))
    files = bench.pick((2000, 1000), (40, 500))
    texts = bench.pick(2_000_000, 5000)
    plain, size = bench.csv(packed_rows), "_".join(map(str, wide))
    quoted = make_shapes.quoted(folder / f"quoted_{packed_rows}.csv", packed_rows)
    lines = make_shapes.json_lines(folder / f"narrow_{packed_rows}.jsonl", packed_rows)
    return [
        Shape("narrow, csv", "narrow", bench.csv(rows), at_most(0.6)),
        Shape("narrow, Parquet", "narrow", bench.parquet(rows), at_most(0.7)),
        Shape(
            "wide, csv", "wide", make_shapes.wide(folder / f"wide_{size}.csv", *wide), at_most(0.9)
        ),
        Shape(
            "wide, Parquet",
            "wide",
            make_shapes.wide(folder / f"wide_{size}.parquet", *wide),
            at_most(0.9),
        ),
        Shape(
            "tall categories",
            "distinct",
            make_shapes.distinct(folder / f"tall_{tall[0]}.parquet", *tall, columns=2),
            at_most(0.9),
        ),
        Shape(
            "text", "text", make_shapes.text(folder / f"text_{texts}.parquet", texts), at_most(0.6)
        ),
        Shape(
            "many files",
            "narrow",
            make_shapes.files(folder / f"files_{files[0]}", *files),
            at_most(0.9),
        ),
        Shape("quoted csv with newlines", "narrow", quoted),
        Shape("csv, gzip", "narrow", make_shapes.packed(folder / f"{plain.name}.gz", plain)),
        Shape("csv, zstd", "narrow", make_shapes.packed(folder / f"{plain.name}.zst", plain)),
        Shape("JSON lines", "narrow", lines),
    ]


# ------------------------------------------------------------------ what is run


def columns_of(kind: str, dataset: Path) -> dict[str, str]:
    """{input: its type} of a shape."""
    if kind == "narrow":
        return make_shapes.narrow_columns()
    if kind == "text":
        return {"text": "text"}
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    names = (
        pacsv.open_csv(dataset).schema.names
        if dataset.suffix == ".csv"
        else pq.read_schema(dataset).names
    )
    return dict.fromkeys(
        [name for name in names if name != "target"], "number" if kind == "wide" else "category"
    )


def distcore_(dataset: Path, out: Path) -> None:
    """The command; its config was written beforehand."""
    from distcore.__main__ import main

    command = ["distcore", "preprocess", "--config", str(out / "config.yaml")]
    sys.argv = [*command, "--dataset", str(dataset)]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise


def polars_(kind: str, dataset: Path, out: Path) -> None:
    """What a careful user would write with polars, everything in memory."""
    import polars as pl

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
    found = frame.select([*columns, pl.col("target").cast(pl.Int32)])
    if kind == "text":
        found = found.with_columns(_tokens(frame))
    else:
        found = found.with_columns([_codes(frame, name) for name in texts])
    found.write_parquet(out / "encoded.parquet", compression="snappy")


def _codes(frame: Any, name: str) -> Any:
    import polars as pl

    counts = frame[name].value_counts(sort=True).with_row_index("code").select(name, "code")
    coded = frame.select(name).join(counts, on=name, how="left", maintain_order="left")
    return coded["code"].cast(pl.Int32).alias(name)


def _tokens(frame: Any) -> Any:
    import polars as pl

    words = frame.with_row_index("row").select("row", pl.col("text").str.split(" ").alias("word"))
    words = words.explode("word")
    counts = words["word"].value_counts(sort=True).head(MOST_COMMON).with_row_index("code")
    codes = counts.select("word", (pl.col("code") + 2).cast(pl.Int32))
    coded = words.join(codes, on="word", how="left", maintain_order="left")
    lists = coded.with_columns(pl.col("code").fill_null(1)).group_by("row", maintain_order=True)
    return lists.agg("code")["code"].alias("text")


PEERS: dict[str, Callable[[str, Path, Path], None]] = {
    "polars": polars_,
    "duckdb": partial(peer_sql.duckdb_, most_common=MOST_COMMON),
    "chdb": partial(peer_sql.chdb_, most_common=MOST_COMMON),
}


def main() -> None:
    who, kind, dataset, out = sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
    folder = out / f"{who}-{os.getpid()}"
    folder.mkdir(parents=True)
    try:
        if who == "distcore":
            shutil.copy(out / f"{config_name(kind, dataset)}", folder / "config.yaml")
            os.chdir(folder)
            distcore_(dataset, folder)
        else:
            PEERS[who](kind, dataset, folder)
        emit(seconds=time.time() - float(os.environ.get("BENCH_STARTED", "nan")))
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)


def config_name(kind: str, dataset: Path) -> str:
    return f"{kind}-{dataset.name}.yaml"


# ------------------------------------------------------------------ what is compared


def command(bench: Bench, who: str, kind: str, dataset: Path) -> list[str]:
    """How a child is started; ours finds its config, whose cache lies in the child's own folder."""
    out = bench.data / "shapes" / "out"
    out.mkdir(parents=True, exist_ok=True)
    columns = columns_of(kind, dataset)
    make_shapes.write_config(out / config_name(kind, dataset), columns, Path("cache"))
    return bench.script("stage_shapes.py", who, kind, dataset, out)


def measure(bench: Bench) -> list[Row]:
    """Each shape against polars and the databases, in turn."""
    lines = []
    for shape in shapes(bench):
        found = bench.compare(
            {who: command(bench, who, shape.kind, shape.data) for who in ("distcore", *PEERS)},
            (3, 1),
            "seconds",
        )
        pair, memory = ("distcore", "polars"), MEMORY if shape.target else None
        lines += [
            row(found, f"{shape.name}, time", *pair, "seconds", "s", shape.target),
            row(found, f"{shape.name}, peak anonymous memory", *pair, "peak_mb", "MB", memory),
            *(
                row(found, f"{shape.name}, time", "distcore", who, "seconds", "s", at_most(1), peer_is=f"{name} {version(who)}")
                for who, name in SQL.items()
            ),
        ]  # fmt: skip
    return lines


if __name__ == "__main__":
    main()
