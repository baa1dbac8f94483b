"""The benchmark's data: a made-up binary target with numeric, categorical and missing inputs,
written in chunks.

    num_0 … num_9   float, 5 % missing
    cat_0 … cat_5   strings, cardinality 10, 50, 100, 500, 1000, 5000 (Zipf-like frequencies)
    target          0/1

The log-odds of the target are linear, squared and pairwise terms of the numbers plus one random
effect a category level, so a model has to use both kinds of column. The data depend on (rows, seed)
alone, and rows are made in chunks of a fixed size, so the first N rows of a larger set are the rows
of a smaller one, and memory does not grow with rows. `--first-chunk` starts further along the same
stream: a hold-out set from the same distribution.

    python bench/make_data.py OUT_DIR --rows 200000 --formats csv parquet
    python bench/make_data.py OUT_DIR --rows 50000 --first-chunk 1000 --formats parquet --name holdout
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

CARDINALITIES = (10, 50, 100, 500, 1000, 5000)
NUMBERS = [f"num_{i}" for i in range(10)]
CATEGORIES = [f"cat_{i}" for i in range(len(CARDINALITIES))]
COLUMNS = [*NUMBERS, *CATEGORIES, "target"]
CHUNK = 50_000


def parameters(seed: int) -> dict[str, Any]:
    """Coefficients and level effects, from a stream of their own so that they do not depend on
    the number of rows."""
    random = np.random.default_rng([seed, 0])
    count = len(NUMBERS)
    return {
        "linear": random.normal(0.0, 0.5, count),
        "square": random.normal(0.0, 0.25, count),
        "pair": random.normal(0.0, 0.3, count // 2),
        "scale": np.exp(random.normal(0.0, 1.0, count)),
        "shift": random.normal(0.0, 5.0, count),
        "levels": [random.normal(0.0, 0.5, k) for k in CARDINALITIES],
        "frequencies": [(w := 1.0 / np.arange(1, k + 1) ** 0.7) / w.sum() for k in CARDINALITIES],
        "labels": [
            pa.array([f"c{i}_{j:04d}" for j in range(k)]) for i, k in enumerate(CARDINALITIES)
        ],
    }


def chunk(made: dict[str, Any], rows: int, seed: int, index: int, missing: float) -> pa.Table:
    """The first `rows` rows of chunk `index`."""
    random = np.random.default_rng([seed, 1, index])
    z = random.normal(size=(CHUNK, len(NUMBERS)))
    codes = [
        random.choice(k, size=CHUNK, p=p)
        for k, p in zip(CARDINALITIES, made["frequencies"], strict=True)
    ]
    logit = z @ made["linear"] + (z**2 - 1.0) @ made["square"]
    logit += (z[:, 0::2] * z[:, 1::2]) @ made["pair"]
    for effect, code in zip(made["levels"], codes, strict=True):
        logit += effect[code]
    target = (random.random(CHUNK) < 1.0 / (1.0 + np.exp(-logit))).astype(np.int64)
    values = z * made["scale"] + made["shift"]
    holes = random.random(values.shape) < missing
    columns: dict[str, Any] = {
        name: pa.array(values[:rows, i], mask=holes[:rows, i]) for i, name in enumerate(NUMBERS)
    }
    for name, labels, code in zip(CATEGORIES, made["labels"], codes, strict=True):
        columns[name] = labels.take(pa.array(code[:rows]))
    columns["target"] = target[:rows]
    return pa.table(columns)


def chunks(rows: int, seed: int = 7, missing: float = 0.05, first: int = 0) -> Iterator[pa.Table]:
    """The rows, a chunk at a time."""
    made = parameters(seed)
    for index, start in enumerate(range(0, rows, CHUNK), start=first):
        yield chunk(made, min(CHUNK, rows - start), seed, index, missing)


def write(path: Path, rows: int, seed: int = 7, missing: float = 0.05, first: int = 0) -> Path:
    """Write the rows as the path's suffix says (.csv or .parquet), unless the file is there
    already; whole or not."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    tables = chunks(rows, seed, missing, first)
    if path.suffix == ".csv":
        options = pa.csv.WriteOptions(include_header=False, quoting_style="none")
        with open(part, "wb") as file:
            file.write((",".join(COLUMNS) + "\n").encode())
            for table in tables:
                pa.csv.write_csv(table, file, options)
    else:
        with pq.ParquetWriter(part, next(chunks(1)).schema) as writer:
            group: list[pa.Table] = []
            for table in tables:
                group.append(table)
                if len(group) == 20:
                    writer.write_table(pa.concat_tables(group))
                    group.clear()
            if group:
                writer.write_table(pa.concat_tables(group))
    os.rename(part, path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--missing", type=float, default=0.05)
    parser.add_argument("--first-chunk", type=int, default=0)
    parser.add_argument("--name", help="file stem (default: tab_<rows>)")
    parser.add_argument(
        "--formats", nargs="+", choices=("csv", "parquet"), default=["csv", "parquet"]
    )
    arguments = parser.parse_args()
    for name in arguments.formats:
        path = arguments.out_dir / f"{arguments.name or f'tab_{arguments.rows}'}.{name}"
        write(path, arguments.rows, arguments.seed, arguments.missing, arguments.first_chunk)
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
