"""`make bench`: every stage beside its peers and floors, in turn, in one run; writes results.json
and results.md.

    python bench/run.py [--quick] [--stages preprocess,loader] [--data DIR] [--results DIR] [--ludwig PYTHON]
        [--plain PYTHON] [--tensorflow PYTHON] [--ahead]

A stage that is measured again takes the place of its older figures; the others stay, each with its
own conditions. Exits with 1 if a stage could not be measured. Being behind a target is told, and is
no failure.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import curves
import results
from conditions import conditions, load
from measure import keep_ahead, say
from setting import HERE, Bench

STAGES = (
    "preprocess",
    "shapes",
    "growth",
    "formats",
    "store",
    "dask",
    "loader",
    "loading_shapes",
    "train",
    "kept",
    "training_shapes",
    "gpu",
    "ddp",
    "horovod",
    "network",
    "ray",
    "ray_experiment",
    "predict",
    "prediction_shapes",
    "experiment",
    "plan",
    "quality",
    "start",
)


NAMED = ("gpu",)
"""Stages that are measured only where they are named: most machines cannot."""


def main() -> int:
    arguments = parse()
    bench = Bench(
        arguments.data.resolve(),
        arguments.quick,
        arguments.ludwig,
        arguments.plain,
        arguments.tensorflow,
    )
    bench.data.mkdir(parents=True, exist_ok=True)
    if arguments.ahead:
        os.nice(-20)
        os.setsid()
        keep_ahead()
    folder = arguments.results or (bench.data / "quick" if bench.quick else HERE)
    known: dict[str, Any] = {}
    failed = []
    for name in arguments.stages:
        say(f"{name}:")
        try:
            known = results.merge(folder, {name: stage(name, bench)})
        except Exception:  # noqa: BLE001 - the other stages are still worth measuring
            traceback.print_exc()
            failed.append(name)
            continue
        path = results.write_table(folder, known, STAGES)
        if name == "growth":
            curves.draw(folder, known[name]["rows"])
    if known:
        print(path.read_text())
    if failed:
        say(f"could not be measured: {', '.join(failed)}")
    return 1 if failed else 0


def stage(name: str, bench: Bench) -> dict[str, Any]:
    """Measure one stage."""
    module = importlib.import_module(f"stage_{name}")
    found, before, started = conditions(bench.quick), load(), time.perf_counter()
    found["ahead"] = os.nice(0) < 0
    rows = module.measure(bench)
    if bench.quick:
        for each in rows:
            each.met = None
    seconds = time.perf_counter() - started
    return {
        "title": module.TITLE,
        "about": about(module.__doc__ or ""),
        "rows": results.as_json(rows),
        "conditions": {**found, "seconds": seconds, "load_before": before, "load_after": load()},
    }


def about(docstring: str) -> str:
    """A stage's docstring without the lines that say how to call it."""
    said = "\n".join(line for line in docstring.splitlines() if not line.startswith("    "))
    return re.sub(r"\n{3,}", "\n\n", said.strip())


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small rows, few rounds: some minutes, nothing judged",
    )
    parser.add_argument(
        "--stages",
        type=lambda text: text.split(","),
        default=[name for name in STAGES if name not in NAMED],
        help=", ".join(STAGES),
    )
    parser.add_argument(
        "--data", type=Path, default=HERE.parent / "build" / "bench", help="folder for data"
    )
    parser.add_argument(
        "--results", type=Path, help="folder of results.json and results.md (default: bench/)"
    )
    parser.add_argument(
        "--ludwig", default=os.environ.get("LUDWIG_PYTHON"), help="a Python that has Ludwig"
    )
    parser.add_argument(
        "--plain",
        default=sys.executable,
        help="a Python that has distcore and nothing it does not need",
    )
    parser.add_argument(
        "--tensorflow",
        default=os.environ.get("TENSORFLOW_PYTHON"),
        help="a Python that has TensorFlow",
    )
    parser.add_argument(
        "--ahead",
        action="store_true",
        help="run before everything else on the machine (root, Linux)",
    )
    arguments = parser.parse_args()
    unknown = set(arguments.stages) - set(STAGES)
    if unknown:
        parser.error(f"no stage {', '.join(sorted(unknown))}; stages are {', '.join(STAGES)}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
