"""Training by two workers on Ray, a thread each, batch 1024 a worker, 3 epochs of 200 k rows. Ours
against a script.

    python bench/stage_ray.py ours DATA CACHE_DIR SCRATCH STEPS

Ours is `distcore train` with `backend: ray`; the script (`peer_ray.py`) is Ray Train V2's
TorchTrainer with DDP and fused Adam. Both find their data prepared, keep no checkpoints on the way,
and write the last weights. Each either starts a cluster of this machine or joins one that is there.
Rows a second are of both workers together, between batch 50 and the last; the start is from the
command to the end of the first step; end to end is the whole process, imports and the end of the
cluster among it. `cpu` and `others` are not to be read here: Ray's own processes count as others.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

import handmade
from handmade import BATCH
from measure import Comparison, emit
from results import Row, at_least, at_most, row
from setting import MORE_PLUGINS, ONE_THREAD, Bench
from stage_train import prepared, training

TITLE = "two workers on Ray"
WORLD, ROWS, EPOCHS, ROUNDS = 2, 200_000, 3, (3, 1)
TOKEN = {"RAY_AUTH_MODE": "token"}
"""A cluster on the machine's own address, as others would join it: ours refuses one without a
token."""


# ------------------------------------------------------------------ what is run


def ours(data: str, cache: str, scratch: str, steps: int) -> None:
    """`distcore train --backend ray`."""
    folder = Path(scratch)
    stamps, written = folder / f"stamps-{os.getpid()}", folder / f"config-{os.getpid()}.yaml"
    made = training(
        cache,
        stamps,
        {"train_steps": steps},
        trainer={"type": "data_parallel", "num_workers": WORLD},
    )
    made["backend"]["type"] = "ray"
    written.write_text(yaml.safe_dump(made))
    out = folder / f"results-{os.getpid()}"
    command = [
        distcore(),
        "train",
        "--config",
        str(written),
        "--dataset",
        data,
        "--output_directory",
        str(out),
    ]
    command += ["--skip_save_report", "--skip_save_progress"]
    began = time.time()
    finished(command)
    wall = time.time() - began
    noted = [json.loads(Path(f"{stamps}.{rank}").read_text()) for rank in range(WORLD)]
    shutil.rmtree(out)
    emit(
        rows_per_second=sum(handmade.rate(each, BATCH) for each in noted),
        start_seconds=max(each[1] for each in noted) - began,
        wall=wall,  # of the command alone, not of this script around it
    )


def distcore() -> str:
    return str(Path(sys.executable).with_name("distcore"))


def finished(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])


def cluster() -> None:
    """A cluster until this process's input ends; says its address."""
    import ray

    context: Any = ray.init(
        num_cpus=WORLD, include_dashboard=False, log_to_driver=False, logging_level="error"
    )
    print(context.address_info["gcs_address"], flush=True)
    sys.stdin.read()
    ray.shutdown()


@contextmanager
def cluster_there() -> Iterator[str]:
    """Address of a cluster of two CPUs that others join."""
    with subprocess.Popen(
        [sys.executable, __file__, "cluster"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **TOKEN},
    ) as keeper:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        try:
            yield keeper.stdout.readline().strip()
        finally:
            keeper.stdin.close()


def main() -> None:
    if sys.argv[1] == "cluster":
        cluster()
    else:
        data, cache, scratch, steps = sys.argv[2:6]
        ours(data, cache, scratch, int(steps))


# ------------------------------------------------------------------ what is compared


def measure(bench: Bench) -> list[Row]:
    data, cache, packed = prepared(bench, ROWS)
    scratch = bench.data / "ray"
    scratch.mkdir(exist_ok=True)
    steps = EPOCHS * -(-ROWS // (BATCH * WORLD))
    environment: dict[str, Any] = {**ONE_THREAD, **MORE_PLUGINS}
    commands = {
        "distcore_ray": bench.script("stage_ray.py", "ours", data, cache, scratch, steps),
        "by_hand": bench.script("peer_ray.py", packed, steps, scratch),
    }
    alone = bench.compare(commands, ROUNDS, "start_seconds", environment)
    with cluster_there() as address:
        joined = {**environment, **TOKEN, "RAY_ADDRESS": address}
        there = bench.compare(commands, ROUNDS, "start_seconds", joined)
    return [*lines(alone, "a cluster of its own"), *lines(there, "a cluster that is there")]


def lines(found: Comparison, where: str) -> list[Row]:
    """Start, rate and whole duration."""
    names, most, peer = (
        ("distcore_ray", "by_hand"),
        at_most(1.1),
        "a Ray Train V2 script, DDP, fused Adam",
    )
    rate, least = "rows_per_second", at_least(1 / 1.1)
    return [
        row(
            found,
            f"{where}: start to the end of the first step",
            *names,
            "start_seconds",
            "s",
            most,
            peer_is=peer,
        ),
        row(found, f"{where}: steady, both workers", *names, rate, "rows/s", least, peer_is=peer),
        row(found, f"{where}: end to end", *names, "wall", "s", most, peer_is=peer),
    ]


if __name__ == "__main__":
    main()
