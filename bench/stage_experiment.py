"""A whole `experiment` on 200 k rows: preprocess, train 3 epochs, evaluate, predict, report;
nothing cached.

    python bench/stage_experiment.py OURS_OUT DATA PROGRAM

Wall seconds of whole processes, imports and all: ours is the command line, Ludwig's a script of one
call (its command line pays its imports again for every command). Both live in environments of their
own, as installing them makes them (`make bench-ludwig`): if scipy is installed, torchmetrics
imports it, for 0.8 s.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import yaml

from measure import emit
from results import Row, at_least, row
from setting import CONFIG, HERE, ONE_THREAD, Bench, config

TITLE = "whole experiments"

REFERENCE = 4.9 + 6.7 + 3.6 + 6.0
"""Ludwig 0.17.8's seconds on another machine (November 2026, 2 cores, one thread): preprocess,
train, predict, and its imports once. Used if Ludwig is not installed; a ratio to it says little."""


def main() -> None:
    """Ours, in a folder of its own, so that nothing is cached."""
    out, data = Path(sys.argv[1]) / str(os.getpid()), sys.argv[2]
    out.mkdir(parents=True)
    written = out / "config.yaml"
    written.write_text(
        yaml.safe_dump(config(backend={"type": "local", "cache_dir": str(out / "cache")}))
    )
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


def ludwig(bench: Bench, data: Path, holdout: Path | str = "-", seed: int = 42) -> list[str]:
    """The command of Ludwig's run."""
    assert bench.ludwig is not None
    out = bench.data / "ludwig"
    return [
        bench.ludwig,
        str(HERE / "peer_ludwig.py"),
        str(CONFIG),
        str(data),
        str(holdout),
        str(seed),
        str(out),
    ]


def measure(bench: Bench) -> list[Row]:
    data, program = bench.csv(200_000), Path(bench.plain).with_name("distcore")
    lines = []
    target = at_least(5)
    for threads, environment in (("default threads", {}), ("one thread", ONE_THREAD)):
        commands = {
            "distcore": bench.script(
                "stage_experiment.py", bench.data / "experiment", data, program
            )
        }
        if bench.ludwig:
            commands["ludwig"] = ludwig(bench, data)
        found = bench.compare(commands, (3, 1), "wall", environment)
        if bench.ludwig:
            line = row(
                found,
                threads,
                "distcore",
                "ludwig",
                "wall",
                "s",
                target,
                inverse=True,
                peer_is="Ludwig 0.17.8",
            )
            imports, work = found.median("ludwig", "imports"), found.median("ludwig", "seconds")
            line.note = f"Ludwig's imports {imports:.1f} s, its experiment {work:.1f} s"
            lines += [
                line,
                row(
                    found,
                    f"{threads}, peak memory",
                    "distcore",
                    "ludwig",
                    "peak_mb",
                    "MB",
                    peer_is="Ludwig 0.17.8",
                ),
            ]
        else:
            ours = [each["wall"] for each in found.runs["distcore"]]
            value = REFERENCE / statistics.median(ours)
            lines.append(
                Row(threads, "s", statistics.median(ours), "Ludwig 0.17.8 on another machine", REFERENCE, value,
                    value_is="peer / ours", rounds=len(ours), others=found.others("distcore"),
                    note="Ludwig is not installed here: its figure is from another machine, so "
                        "nothing is judged")
            )  # fmt: skip
    return lines


if __name__ == "__main__":
    main()
