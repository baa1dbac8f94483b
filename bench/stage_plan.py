"""What `plan` says beside what was seen: seconds and peak memory of each stage.

    python bench/stage_plan.py COMMAND ARGUMENT …

`doctor --calibrate` measures this machine first. Whole runs are on one processor, where seconds are
processor seconds: two epochs, batch 1024, two layers of 256. The shapes of the stage `shapes` are
preprocessed on all processors, where seconds are the clock's. Memory is all that lies in it, mapped
files too. Ours is what `plan` said.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import make_shapes
from measure import Figures, emit, run, say
from results import Row
from setting import ONE_THREAD, Bench
from stage_shapes import command, shapes

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
    command, started = [sys.executable, "-m", "distcore", *sys.argv[1:]], time.perf_counter()
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    stages = json.loads(said)["cost"]["stages"] if sys.argv[1] == "plan" else []
    emit(
        clock=time.perf_counter() - started,
        seconds=used.ru_utime + used.ru_stime,
        memory_bytes=1024 * used.ru_maxrss,
        planned={each["stage"]: each for each in stages},
    )


def measure(bench: Bench) -> list[Row]:
    scratch = bench.data / "plan"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    found = [*_runs(bench, scratch), *_preprocessings(bench, scratch)]
    seconds, memory = zip(*found, strict=True)
    return [*seconds, *memory]


def _seen(scratch: Path, *words: Any, alone: bool = False, times: int = 1) -> Figures:
    """A command of ours, the quickest of so many runs: constants are the least of several, too.

    alone: on one processor, by one thread."""
    found = []
    for _ in range(times):
        if words[0] == "preprocess":
            shutil.rmtree(scratch / "cache", ignore_errors=True)
        found.append(_once(scratch, *words, alone=alone))
    return min(found, key=lambda each: each["clock"])


def _once(scratch: Path, *words: Any, alone: bool) -> Figures:
    home = scratch / ("one" if alone else "all")
    before = ONE_PROCESSOR if alone else []
    command = [*before, sys.executable, __file__, *words]
    environment = {"XDG_CACHE_HOME": str(home), **(ONE_THREAD if alone else {})}
    return run([*map(str, command)], environment, folder=scratch / "here")


def _runs(bench: Bench, scratch: Path) -> Iterator[tuple[Row, Row]]:
    def seen(*words: Any, times: int = 1) -> Figures:
        return _seen(scratch, *words, alone=True, times=bench.pick(times, 1))

    say("  calibrating one processor")
    seen("doctor", "--calibrate")
    out = ("--output_directory", scratch / "out")
    for number, shape in enumerate(SHAPES):
        rows = bench.pick(*shape.rows)
        title = f"{rows:,} rows, {shape.title}"
        say(f"  {title}")
        config, data = scratch / f"{number}.yaml", shape.data(bench, rows)
        config.write_text(yaml.safe_dump(_config(shape, scratch / "cache"), sort_keys=False))
        given = ("--config", config, "--dataset", data)
        planned = seen("plan", "--json", *given)["planned"]
        yield line(title, planned["preprocess"], seen("preprocess", *given, times=3))
        yield line(title, planned["train"], seen("train", *given, *out, times=2))
        asked = ("--dataset", data, "--model_path", _model(scratch), *out, "--overwrite")
        yield line(title, planned["predict"], seen("predict", *asked, times=3))
        for made in ("cache", "out"):
            shutil.rmtree(scratch / made)


def _preprocessings(bench: Bench, scratch: Path) -> Iterator[tuple[Row, Row]]:
    say("  calibrating all processors")
    _seen(scratch, "doctor", "--calibrate")
    for shape in shapes(bench):
        if shape.target is None:  # plan says nothing of packed and quoted csv, and JSON lines
            continue
        say(f"  {shape.name}")
        given = command(bench, shape.kind, shape.data)[4:]
        planned = _seen(scratch, "plan", "--json", *given)["planned"]
        seen = _seen(scratch, "preprocess", *given, times=bench.pick(3, 1))
        seen["seconds"] = seen["clock"]
        yield line(f"shapes: {shape.name}", planned["preprocess"], seen)


def _model(scratch: Path) -> Path:
    """Of a run that trained."""
    return next(scratch.glob("out/*/model"))


def _config(shape: Shape, cache: Path) -> dict[str, Any]:
    return {
        **make_shapes.config(shape.columns, cache),
        "combiner": {"type": "concat", "num_fc_layers": 2, "output_size": 256},
        "trainer": {"epochs": 2, "batch_size": 1024, "eval_batch_size": 1024, "early_stop": -1},
    }


def line(title: str, planned: dict[str, Any], seen: Figures) -> tuple[Row, Row]:
    """A stage's seconds and its memory."""

    def of(what: str, unit: str, key: str, size: float) -> Row:
        value = planned[key] / seen[key]
        return Row(
            f"{title}: {planned['stage']}, {what}", unit, planned[key] / size, "seen", seen[key] / size,
            value, target=f"within {WITHIN:.0%}", met=abs(value - 1) <= WITHIN, rounds=1, others=seen["others"],
        )  # fmt: skip

    return of("seconds", "s", "seconds", 1), of("peak memory", "MB", "memory_bytes", 1e6)


if __name__ == "__main__":
    main()
