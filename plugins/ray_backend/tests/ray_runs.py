"""Whole runs of a small config, here and on a cluster, and what tests look at: digests, ranks, a
moment to strike."""

import hashlib
import os
import time
from pathlib import Path

import pyarrow.csv

import distcore
from distcore_testing import data

TRAINER = {
    "epochs": 3,
    "effective_batch_size": 32,
    "learning_rate": 0.01,
    "learning_rate_scaling": "constant",
}
LONG = TRAINER | {"epochs": 60, "steps_per_checkpoint": 40, "early_stop": -1}
"""Lasts a few seconds, with a checkpoint every 40 of its 840 steps."""


def dataset(folder, rows=700):
    """Write the dataset of the runs in this folder."""
    path = folder / "data.csv"
    pyarrow.csv.write_csv(data.table(rows), path)
    return path


def config_of(place, name, backend, trainer=TRAINER):
    """The config, with a cache of its own: `cache-<name>`."""
    cache = str(place / f"cache-{name}")
    return data.config(cache, trainer=trainer) | {"backend": {**backend, "cache_dir": cache}}


def train(place, name, backend, trainer=TRAINER, **arguments):
    """The outcome of a run on `data.csv` in this folder."""
    return distcore.train(
        config_of(place, name, backend, trainer),
        dataset=place / "data.csv",
        output_directory=place,
        experiment_name=name,
        view="none",
        **arguments,
    )


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def cache(place, name):
    """Digests of all that the cache holds, but for the manifest."""
    root = place / f"cache-{name}"
    files = [path for path in root.rglob("*") if path.is_file() and path.suffix == ".parquet"]
    assert files
    return {str(path.relative_to(root)): sha256(path) for path in files}


def weights(folder):
    """Digests of the weights and statistics of a run's folder."""
    paths = [*(folder / "model").glob("*.safetensors"), folder / "training_statistics.json"]
    return {path.name: sha256(path) for path in paths}


def ranks():
    """{rank: process} of the worker group under way on this test's cluster."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"distcore_ray.rank" in (folder / "cmdline").read_bytes():
                environment = dict(
                    each.split("=", 1)
                    for each in (folder / "environ").read_bytes().decode().split("\0")
                    if "=" in each
                )
                if environment["RAY_TMPDIR"] == os.environ["RAY_TMPDIR"]:
                    found[int(environment["RANK"])] = int(folder.name)
        except (OSError, KeyError):  # it ended meanwhile
            continue
    return found


def checkpoints(folder):
    """Names of the whole checkpoints of a run's folder."""
    return {each.name for each in (folder / "checkpoints").glob("step-*") if not each.suffix}


def until(condition, seconds=300):
    """Wait until the condition holds; what it gave."""
    for _ in range(int(seconds / 0.05)):
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {seconds} s in vain")
