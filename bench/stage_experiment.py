"""A whole `experiment`, shape by shape: preprocess, train 3 epochs, evaluate, predict, report.

    python bench/stage_experiment.py OURS_OUT DATA PROGRAM CONFIG

Nothing is cached. The first shape is that of the other stages, 200 k rows of csv; wide tables, many
categories and texts are 50 k rows of Parquet each, with the same network and trainer behind them.
Wall seconds of whole processes, imports and all: ours is the command line, Ludwig's a script of one
call (its command line pays its imports again for every command). The first shape is run three times,
the others, which take Ludwig minutes, once. Both live in environments of their
own, as installing them makes them (`make bench-ludwig`): if scipy is installed, torchmetrics
imports it, for 0.8 s.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from learnt_shapes import SHAPES
from measure import Comparison, emit
from results import Row, at_least, row
from setting import CONFIG, HERE, ONE_THREAD, Bench, config

TITLE = "whole experiments"
TARGET = at_least(6)

REFERENCE = 4.9 + 6.7 + 3.6 + 6.0
"""Ludwig 0.17.8's seconds on another machine (November 2026, 2 cores, one thread): preprocess,
train, predict, and its imports once. Used if Ludwig is not installed; a ratio to it says little."""


def main() -> None:
    """Ours, in a folder of its own, so that nothing is cached."""
    out, data = Path(sys.argv[1]) / str(os.getpid()), sys.argv[2]
    out.mkdir(parents=True)
    settings = yaml.safe_load(Path(sys.argv[4]).read_text())
    settings["backend"] = {"type": "local", "cache_dir": str(out / "cache")}
    written = out / "config.yaml"
    written.write_text(yaml.safe_dump(settings))
    command = [sys.argv[3], "experiment", "--config", str(written)]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, "--dataset", data, "--output_directory", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    wall = time.perf_counter() - started
    shutil.rmtree(out)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    emit(wall=wall)  # of the command alone, not of this script around it


def ludwig(
    bench: Bench, data: Path, holdout: Path | str = "-", seed: int = 42, config: Path = CONFIG
) -> list[str]:
    """The command of Ludwig's run."""
    assert bench.ludwig is not None
    out = bench.data / "ludwig"
    return [
        bench.ludwig,
        str(HERE / "peer_ludwig.py"),
        str(config),
        str(data),
        str(holdout),
        str(seed),
        str(out),
    ]


def shapes(bench: Bench) -> dict[str, tuple[Path, Path]]:
    """{what: (data, config)}; the first is the shape of the other stages."""
    folder = bench.data / "experiment"
    folder.mkdir(parents=True, exist_ok=True)
    found = {"": (bench.csv(bench.pick(200_000, 20_000)), CONFIG)}
    for name in bench.pick(("wide", "categories", "text"), ("text",)):
        shape = SHAPES[name]
        written = folder / f"{name}.yaml"
        inputs = [_in_both(each) for each in shape.inputs(bench.quick)]
        written.write_text(yaml.safe_dump(config(input_features=inputs, preprocessing={})))
        data = shape.data(bench.data / "shapes", bench.pick(*shape.rows), bench.quick)
        found[f"{shape.title}, "] = (data, written)
    return found


def _in_both(feature: dict[str, Any]) -> dict[str, Any]:
    """A feature as Ludwig takes it, too: its `embed` has no start of the words' vectors."""
    encoder = {
        key: value
        for key, value in feature.get("encoder", {}).items()
        if key != "weights_initializer"
    }
    return {**feature, "encoder": encoder} if encoder else feature


def measure(bench: Bench) -> list[Row]:
    """Each shape, with default threads and with one."""
    lines = []
    threaded: list[tuple[str, dict[str, str]]] = [
        ("default threads", {}),
        ("one thread", ONE_THREAD),
    ]
    for what, (data, written) in shapes(bench).items():
        for threads, environment in threaded[: bench.pick(2, 1)]:
            lines += measured(bench, f"{what}{threads}", data, written, environment)
    return lines


def measured(
    bench: Bench, what: str, data: Path, written: Path, environment: dict[str, str]
) -> list[Row]:
    program = Path(bench.plain).with_name("distcore")
    out = bench.data / "experiment"
    ours = bench.script("stage_experiment.py", out, data, program, written)
    commands = {"distcore": ours}
    if bench.ludwig:
        commands["ludwig"] = ludwig(bench, data, config=written)
    rounds = 3 if written == CONFIG else 1
    found = bench.compare(commands, (rounds, 1), "wall", environment)
    if not bench.ludwig:
        return [elsewhere(found, what, written)]
    peer = f"Ludwig {found.runs['ludwig'][0]['version']}"
    names = ("distcore", "ludwig")
    line = row(found, what, *names, "wall", "s", TARGET, inverse=True, peer_is=peer)
    imports, work = found.median("ludwig", "imports"), found.median("ludwig", "seconds")
    line.note = f"Ludwig's imports {imports:.1f} s, its experiment {work:.1f} s"
    return [line, row(found, f"{what}, peak memory", *names, "peak_mb", "MB", peer_is=peer)]


def elsewhere(found: Comparison, what: str, written: Path) -> Row:
    """Ours beside the figure of another machine, which is known of the first shape alone."""
    ours, reference = found.median("distcore", "wall"), REFERENCE if written == CONFIG else None
    line = Row(what, "s", ours, rounds=len(found.runs["distcore"]), others=found.others("distcore"))
    if reference is not None:
        line.peer, line.theirs = "Ludwig 0.17.8 on another machine", reference
        line.value, line.value_is = reference / ours, "peer / ours"
    line.note = "Ludwig is not installed here, so nothing is judged"
    return line


if __name__ == "__main__":
    main()
