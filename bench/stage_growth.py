"""What one more column, one more file and one more distinct value cost.

Of the whole command `distcore preprocess`: processor seconds and peak memory between neighbouring
sizes, by the number of columns (files, values) between them. A cost that grows by itself would
show as a value above 1.

    python bench/stage_shapes.py distcore KIND DATASET OUT_DIR
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import make_shapes
from measure import Comparison
from results import Row, at_most
from setting import Bench
from stage_shapes import command

TITLE = "Cost of a column, a file and a distinct value"
FLAT = at_most(1.5)
ROWS_OF_COLUMNS = 1000
ROWS_OF_FILES = 100


def measure(bench: Bench) -> list[Row]:
    folder = bench.data / "shapes"
    columns = bench.pick((17, 100, 1000, 10_000), (17, 100, 300))
    files = bench.pick((20, 200, 2000, 20_000), (20, 100, 300))
    values = bench.pick((10_000, 100_000, 1_000_000, 10_000_000), (1000, 10_000, 50_000))
    return [
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
    """The cost of one more between neighbouring sizes, and that of the largest step over that of
    the first."""
    variants = {f"{size}": command(bench, "distcore", kind, data) for size, data in sizes.items()}
    found = bench.compare(variants, (3, 1), "cpu")
    steps = list(pairwise(sizes))
    costs = [cost(found, low, high, "cpu") * 1e6 for low, high in steps]
    memory = [cost(found, low, high, "peak_mb") * 1e3 for low, high in steps]
    lines = []
    for number, (low, high) in enumerate(steps):
        flat = number > 0
        value = costs[number] / costs[0] if flat else None
        lines.append(
            Row(f"{what}, {low:,} to {high:,}", "µs of processor", costs[number],
                f"{what}, {steps[0][0]:,} to {steps[0][1]:,}" if flat else "", costs[0] if flat else None,
                value, target=str(FLAT) if flat else "",
                met=FLAT.met(value) if value is not None else None,
                rounds=len(found.runs[f"{low}"]), others=found.others(f"{low}", f"{high}"),
                note=f"{memory[number]:.3g} kB of peak memory each")
        )  # fmt: skip
    return lines


def cost(found: Comparison, low: int, high: int, key: str) -> float:
    """Of one more, by the least that each size took: what else runs here only adds."""
    least = {size: min(each[key] for each in found.runs[f"{size}"]) for size in (low, high)}
    return (least[high] - least[low]) / (high - low)
