"""A whole `experiment` on Ray, 200 k rows from Parquet: preprocess, train 3 epochs, evaluate,
predict; nothing cached.

    python bench/stage_ray_experiment.py DATA OUT_DIR

Ours is the command line with `backend: ray`, Ludwig's a script of one call on its backend `ray`;
both start a cluster of this machine, preprocess with Dask, and train with two workers of a CPU each
and batch 1024. Wall seconds of whole processes, in one round: Ludwig's takes minutes. Its cluster
is told to have four CPUs, for on two it was seen to stall elsewhere. `cpu` and `others` are not to
be read here: Ray's own processes count as others.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import yaml

from measure import emit
from results import Row, at_least, row
from setting import CONFIG, HERE, ONE_THREAD, Bench, config

TITLE = "whole experiments on Ray"
WORLD, CPUS = 2, 4

REFERENCE = 27.0 + 102.0 + 38.0 + 6.0
"""Ludwig 0.17.8's seconds on another machine (November 2026, 2 cores), the least it took:
preprocess, train, predict, and its imports once. Used if Ludwig is not installed; a ratio to it
says little."""


def main() -> None:
    """Ours, in a folder of its own, so that nothing is cached."""
    data, out = sys.argv[1], Path(sys.argv[2]) / str(os.getpid())
    out.mkdir(parents=True)
    written = out / "config.yaml"
    backend = {"type": "ray", "cache_dir": str(out / "cache"), "trainer": {"num_workers": WORLD}}
    written.write_text(yaml.safe_dump(config(backend=backend)))
    command = [
        str(Path(sys.executable).with_name("distcore")),
        "experiment",
        "--config",
        str(written),
    ]
    command += ["--dataset", data, "--output_directory", str(out)]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - started
    shutil.rmtree(out)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    emit(wall=wall)  # of the command alone, not of this script around it


def measure(bench: Bench) -> list[Row]:
    data, out = bench.parquet(200_000), bench.data / "ludwig"
    commands = {
        "distcore": bench.script("stage_ray_experiment.py", data, bench.data / "experiment")
    }
    if bench.ludwig is None:
        ours = [
            each["wall"]
            for each in bench.compare(commands, (1, 1), "wall", ONE_THREAD).runs["distcore"]
        ]
        return [quoted(ours[0])]
    peer = [bench.ludwig, HERE / "peer_ludwig.py", CONFIG, data, "-", 42, out, WORLD, CPUS]
    found = bench.compare(
        {**commands, "ludwig": [str(each) for each in peer]}, (1, 1), "wall", ONE_THREAD
    )
    is_ludwig = f"Ludwig {found.runs['ludwig'][0]['version']}, backend ray"
    line = row(
        found,
        "wall time",
        "distcore",
        "ludwig",
        "wall",
        "s",
        at_least(4),
        inverse=True,
        peer_is=is_ludwig,
    )
    imports, work = found.median("ludwig", "imports"), found.median("ludwig", "seconds")
    line.note = f"Ludwig's imports {imports:.1f} s, its experiment {work:.1f} s"
    return [
        line,
        row(found, "peak memory", "distcore", "ludwig", "peak_mb", "MB", peer_is=is_ludwig),
    ]


def quoted(ours: float) -> Row:
    """Ours beside what Ludwig took elsewhere."""
    return Row("wall time", "s", ours, "Ludwig 0.17.8, backend ray, on another machine", REFERENCE, REFERENCE / ours,
               value_is="peer / ours", rounds=1,
               note="Ludwig is not installed here: its figure is from another machine, so nothing "
                   "is judged")  # fmt: skip


if __name__ == "__main__":
    main()
