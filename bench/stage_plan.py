"""What `plan` says beside what was seen: processor seconds and peak memory of each stage.

    python bench/stage_plan.py COMMAND ARGUMENT …

`doctor --calibrate` measures this machine first. All commands run on one processor, where seconds
are processor seconds: two epochs, batch 1024, two layers of 256. Memory is all that lies in it,
mapped files too. Ours is what `plan` said.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import make_shapes
from measure import Figures, emit, run, say
from results import Row
from setting import ONE_THREAD, Bench

TITLE = "what a run will cost"

WITHIN = 0.2
ONE_PROCESSOR = ["taskset", "--cpu-list", "0"]


@dataclass(frozen=True)
class Shape:
    """title: as the results call it. columns: {input: its type}. rows: full and quick. data: makes
    a table of so many rows."""

    title: str
    columns: dict[str, str]
    rows: tuple[int, int]
    data: Callable[[Bench, int], Path]


def _of(kind: str, name: str, count: int) -> dict[str, str]:
    return {f"{name}{place}": kind for place in range(count)}


SHAPES = (
    Shape(
        "10 numbers, 6 categories, csv",
        make_shapes.narrow_columns(),
        (200_000, 2000),
        lambda bench, rows: bench.csv(rows),
    ),
    Shape(
        "the same, Parquet",
        make_shapes.narrow_columns(),
        (200_000, 2000),
        lambda bench, rows: bench.parquet(rows),
    ),
    Shape(
        "300 numbers, Parquet",
        _of("number", "x", 300),
        (40_000, 2000),
        lambda bench, rows: make_shapes.wide(bench.data / f"wide_{rows}_300.parquet", rows, 300),
    ),
    Shape(
        "2 categories of 200,000 values, Parquet",
        _of("category", "s", 2),
        (400_000, 2000),
        lambda bench, rows: make_shapes.distinct(
            bench.data / f"tall_{rows}_200000.parquet", rows, 200_000, 2
        ),
    ),
    Shape(
        "texts of 12 words, Parquet",
        {"text": "text"},
        (200_000, 2000),
        lambda bench, rows: make_shapes.text(bench.data / f"text_{rows}.parquet", rows),
    ),
)


def main() -> None:
    """A command of distcore's, and what it took."""
    command = [sys.executable, "-m", "distcore", *sys.argv[1:]]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    emit(seconds=used.ru_utime + used.ru_stime, memory_bytes=1024 * used.ru_maxrss)
    if sys.argv[1] == "plan":
        cost = json.loads(said)["cost"]
        emit(planned={each["stage"]: each for each in cost["stages"]}, why=cost["why"])


def measure(bench: Bench) -> list[Row]:
    scratch = bench.data / "plan"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    environment = {**ONE_THREAD, "XDG_CACHE_HOME": str(scratch)}
    out = ("--output_directory", scratch / "out")

    def seen(*arguments: Any) -> Figures:
        command = [*ONE_PROCESSOR, sys.executable, __file__, *arguments]
        return run([*map(str, command)], environment)

    say("  calibrating")
    seen("doctor", "--calibrate")
    found: list[tuple[Row, Row]] = []
    for number, shape in enumerate(SHAPES):
        rows = bench.pick(*shape.rows)
        title = f"{rows:,} rows, {shape.title}"
        say(f"  {title}")
        config, data = scratch / f"{number}.yaml", shape.data(bench, rows)
        config.write_text(yaml.safe_dump(_config(shape, scratch / "cache"), sort_keys=False))
        given = ("--config", config, "--dataset", data)
        planned = seen("plan", "--json", *given)["planned"]
        found += [
            line(title, stage, planned[stage], figures)
            for stage, figures in (
                ("preprocess", seen("preprocess", *given)),
                ("train", seen("train", *given, *out)),
                (
                    "predict",
                    seen("predict", "--dataset", data, "--model_path", _model(scratch), *out),
                ),
            )
        ]
        for made in ("cache", "out"):
            shutil.rmtree(scratch / made)
    seconds, memory = zip(*found, strict=True)
    return [*seconds, *memory]


def _model(scratch: Path) -> Path:
    """Of the run that trained last."""
    (found,) = scratch.glob("out/*/model")
    return found


def _config(shape: Shape, cache: Path) -> dict[str, Any]:
    return {
        **make_shapes.config(shape.columns, cache),
        "combiner": {"type": "concat", "num_fc_layers": 2, "output_size": 256},
        "trainer": {"epochs": 2, "batch_size": 1024, "eval_batch_size": 1024, "early_stop": -1},
    }


def line(title: str, stage: str, planned: dict[str, Any], seen: Figures) -> tuple[Row, Row]:
    """A stage's seconds and its memory."""

    def of(what: str, unit: str, key: str, size: float) -> Row:
        value = planned[key] / seen[key]
        return Row(
            f"{title}: {stage}, {what}", unit, planned[key] / size, "seen", seen[key] / size, value,
            target=f"within {WITHIN:.0%}", met=abs(value - 1) <= WITHIN, rounds=1, others=seen["others"],
        )  # fmt: skip

    return of("seconds", "s", "seconds", 1), of("peak memory", "MB", "memory_bytes", 1e6)


if __name__ == "__main__":
    main()
