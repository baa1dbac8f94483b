"""What one more row, one more column, one more file and one more distinct value cost.

Of the whole command `distcore preprocess`: processor seconds and peak memory between neighbouring
sizes, by the number of rows (columns, files, values) between them, beside the seconds between the
smallest and the last but one. A cost that grows by itself would show as a value above 1. Rows are
those of one Parquet file of 2 M, which lies in a folder once or up to 50 times.

![What one more costs, and the memory of the whole](growth.svg)

    distcore preprocess --config CONFIG --dataset DATASET
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import make_shapes
from measure import Comparison
from results import Row, at_most
from setting import Bench
from stage_shapes import command, runs_in

TITLE = "Cost of a row, a column, a file and a distinct value"
FLAT = at_most(1.5)
ROWS_OF_COLUMNS = 1000
ROWS_OF_FILES = 100


def measure(bench: Bench) -> list[Row]:
    folder = bench.data / "shapes"
    rows, times = bench.pick((2_000_000, (1, 5, 15, 50)), (2000, (1, 2, 4)))
    columns = bench.pick((17, 100, 1000, 10_000), (17, 100, 300))
    files = bench.pick((20, 200, 2000, 20_000), (20, 100, 300))
    values = bench.pick((10_000, 100_000, 1_000_000, 10_000_000), (1000, 10_000, 50_000))
    source = bench.parquet(rows)
    return [
        *curve(bench, "a row", "narrow", {
            rows * each: make_shapes.repeated(folder / f"growth_rows_{rows * each}", source, each)
            for each in times}),
        *curve(bench, "a column", "wide", {
            size: make_shapes.wide(folder / f"growth_columns_{size}.parquet", ROWS_OF_COLUMNS, size)
            for size in columns}),
        *curve(bench, "a file", "narrow", {
            size: make_shapes.files(folder / f"growth_files_{size}", size, ROWS_OF_FILES)
            for size in files}),
        *curve(bench, "a distinct value", "distinct", {
            size: make_shapes.every_row_another(folder / f"growth_values_{size}.parquet", size)
            for size in values}),
    ]  # fmt: skip


def curve(bench: Bench, what: str, kind: str, sizes: dict[int, Path]) -> list[Row]:
    """The cost of one more between neighbouring sizes, beside that between the smallest and the
    last but one: so many of them cost more than two runs of a command differ by."""
    variants = {f"{size}": command(bench, kind, data) for size, data in sizes.items()}
    found = bench.compare(variants, (3, 1), "cpu", folder=runs_in(bench))
    first, *_, middle, _ = sizes
    base = cost(found, first, middle, "cpu") * 1e6
    lines = []
    for low, high in pairwise(sizes):
        one_more, judged = cost(found, low, high, "cpu") * 1e6, low == middle
        memory = cost(found, low, high, "peak_mb") * 1e3
        lines.append(
            Row(f"{what}, {low:,} to {high:,}", "µs of processor", one_more,
                f"{what}, {first:,} to {middle:,}", base, one_more / base,
                target=str(FLAT) if judged else "", met=FLAT.met(one_more / base) if judged else None,
                rounds=len(found.runs[f"{low}"]), others=found.others(f"{low}", f"{high}"),
                note=f"{memory:.3g} kB of peak memory each",
                more={"sizes": [low, high], "peak_mb": [peak(found, size) for size in (low, high)]})
        )  # fmt: skip
    return lines


def peak(found: Comparison, size: int) -> float:
    return found.median(f"{size}", "peak_mb")


def cost(found: Comparison, low: int, high: int, key: str) -> float:
    """Of one more, by the least that each size took: what else runs here only adds."""
    least = {size: min(each[key] for each in found.runs[f"{size}"]) for size in (low, high)}
    return (least[high] - least[low]) / (high - low)
