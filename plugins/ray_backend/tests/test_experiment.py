"""Whole runs on a cluster: the same cache and the same training as here, through a kill."""

import hashlib
import os
import re
import signal
import threading
import time
from pathlib import Path

import pyarrow.csv
import pytest

import distcore
from distcore.errors import TrainingError
from distcore.testing import data

pytestmark = pytest.mark.cluster

TRAINER = {"epochs": 3, "effective_batch_size": 32, "learning_rate": 0.01, "learning_rate_scaling": "constant"}
KILLED = TRAINER | {"epochs": 60, "steps_per_checkpoint": 40, "early_stop": -1}


@pytest.fixture(scope="module")
def place(nodes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    pyarrow.csv.write_csv(data.table(700), folder / "data.csv")
    return folder


def train(place, name, backend, trainer=TRAINER, **arguments):
    """The outcome of a run with a cache of its own."""
    config = data.config(str(place / f"cache-{name}"), trainer=trainer)
    config["backend"] = {**backend, "cache_dir": str(place / f"cache-{name}")}
    return distcore.train(
        config,
        dataset=place / "data.csv",
        output_directory=place,
        experiment_name=name,
        view="none",
        **arguments,
    )


def cache(place, name):
    """Digests of all that the cache holds."""
    files = [path for path in (place / f"cache-{name}").rglob("*") if path.is_file() and path.suffix == ".parquet"]
    assert files
    return {str(path.relative_to(place / f"cache-{name}")): sha256(path) for path in files}


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def weights(outcome):
    return {path.name: sha256(path) for path in outcome.model.iterdir() if path.suffix == ".safetensors"}


def ranks():
    """{rank: process} of the gang under way."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"distcore_ray.rank" in (folder / "cmdline").read_bytes():
                environment = dict(
                    each.split("=", 1) for each in (folder / "environ").read_bytes().decode().split("\0") if "=" in each
                )
                if environment["RAY_TMPDIR"] == os.environ["RAY_TMPDIR"]:
                    found[int(environment["RANK"])] = int(folder.name)
        except (OSError, KeyError):  # it ended meanwhile
            continue
    return found


def at_first_checkpoint(folder, action):
    """Call the action once, when a checkpoint of the run is there."""

    def wait():
        for _ in range(3000):
            if list((folder / "checkpoints").glob("step-*")):
                return action()
            time.sleep(0.1)
        return None

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def kill_rank_one():
    os.kill(ranks()[1], signal.SIGKILL)


def test_one_config_gives_one_cache_and_one_training_wherever_it_runs(place):
    here = train(place, "here", {"type": "local"})
    two_here = train(place, "two-here", {"type": "local", "trainer": {"type": "ddp", "num_workers": 2}})
    expected = cache(place, "here")
    for workers, processor in ((1, "dask"), (2, "dask"), (4, "local")):
        name = f"ray-{workers}"
        trainer = {"num_workers": workers}
        found = train(place, name, {"type": "ray", "processor": {"type": processor}, "trainer": trainer})
        assert cache(place, name) == expected
        for metric in ("loss", "accuracy", "roc_auc"):
            curve = found.training_statistics["validation"]["y"][metric]
            assert curve == pytest.approx(here.training_statistics["validation"]["y"][metric], rel=2e-3), (name, metric)
        if workers == 2:
            assert weights(found) == weights(two_here)
            assert found.training_statistics == two_here.training_statistics


def test_a_killed_rank_is_told_and_changes_nothing(place, caplog):
    whole = train(place, "whole", {"type": "local", "trainer": {"type": "ddp", "num_workers": 2}}, KILLED)
    killer = at_first_checkpoint(place / "killed_run", kill_rank_one)
    found = train(place, "killed", {"type": "ray", "trainer": {"num_workers": 2, "max_retries": 2}}, KILLED)
    killer.join()
    assert "was killed by SIGKILL. All ranks were started again (1 of at most 2 times)" in caplog.text
    assert weights(found) == weights(whole)
    assert found.training_statistics == whole.training_statistics


def test_without_retries_the_error_names_rank_node_signal_and_checkpoint(place):
    killer = at_first_checkpoint(place / "over_run", kill_rank_one)
    long = KILLED | {"epochs": 100_000}
    with pytest.raises(TrainingError) as caught:
        train(place, "over", {"type": "ray", "trainer": {"num_workers": 2, "max_retries": 0}}, long)
    killer.join()
    expected = (
        r"Training stopped: rank 1 on node [\d.]+ \(process \d+\) was killed by SIGKILL\. "
        r"The last checkpoint is .*/over_run/checkpoints/step-\d{8}; go on from it with --model_resume_path .*/over_run"
    )
    assert re.fullmatch(expected, str(caught.value))
