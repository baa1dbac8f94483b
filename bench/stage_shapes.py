"""Preprocessing of other shapes than make_data's table in csv.

Narrow and wide tables, categories of a million values, text, times, many small files, and csv as it
comes: quoted, packed, or as JSON lines. Ours is the whole command `distcore preprocess`, the peers whole
scripts of polars, DuckDB and chDB doing the same, from the start of the process to its end.

    distcore preprocess --config CONFIG --dataset DATASET
    python bench/peer_polars.py KIND DATASET
    python bench/peer_sql.py duckdb KIND DATASET

Ours also digests the source, splits, writes a manifest with sha256 of every file and forces
everything to disk. chDB's rows are in no order.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import make_shapes
from conditions import version
from results import Row, Target, at_most, row
from setting import Bench

TITLE = "Preprocessing, shape by shape"
MEMORY = at_most(0.4)
SQL = {"duckdb": "DuckDB", "chdb": "chDB"}


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
            "wide, float32 in Parquet",
            "wide",
            make_shapes.wide(folder / f"floats_{size}.parquet", *wide, np.float32),
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
            "times, Parquet",
            "times",
            make_shapes.times(folder / f"times_{rows}.parquet", rows, columns=4),
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
    type_ = {"wide": "number", "times": "date", "distinct": "category"}[kind]
    return dict.fromkeys([name for name in names if name != "target"], type_)


# ------------------------------------------------------------------ what is compared


def command(bench: Bench, kind: str, dataset: Path) -> list[str]:
    """Ours; its cache lies in the folder that it runs in."""
    config = bench.data / "shapes" / f"{kind}-{dataset.name}.yaml"
    make_shapes.write_config(config, columns_of(kind, dataset), Path("cache"))
    asked = ["preprocess", "--config", str(config), "--dataset", str(dataset)]
    return [sys.executable, "-m", "distcore", *asked]


def measure(bench: Bench) -> list[Row]:
    """Each shape against polars and the databases, in turn."""
    lines = []
    for shape in shapes(bench):
        given = shape.kind, shape.data
        commands = {
            "distcore": command(bench, *given),
            "polars": bench.script("peer_polars.py", *given),
            **{who: bench.script("peer_sql.py", who, *given) for who in SQL},
        }
        found = bench.compare(commands, (3, 1), "wall", folder=runs_in(bench))
        pair, memory = ("distcore", "polars"), MEMORY if shape.target else None
        lines += [
            row(found, f"{shape.name}, time", *pair, "wall", "s", shape.target),
            row(found, f"{shape.name}, peak anonymous memory", *pair, "peak_mb", "MB", memory),
            *(
                row(found, f"{shape.name}, time", "distcore", who, "wall", "s", at_most(1), peer_is=f"{name} {version(who)}")
                for who, name in SQL.items()
            ),
        ]  # fmt: skip
    return lines


def runs_in(bench: Bench) -> Path:
    """The folder that each command runs in, on the data's disk."""
    return bench.data / "shapes" / "out"
