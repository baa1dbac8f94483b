"""`distcore train` and the other commands under horovodrun and mpirun: one process prints, the bits
are ddp's, a killed rank is named, a run goes on."""

import hashlib
import json
import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.cluster


def weights(folder):
    """sha256 of the weights in a results folder."""
    files = sorted(Path(folder).glob("*/model/*.safetensors"))
    assert files, list(Path(folder).rglob("*"))
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]


def shards(folder):
    """sha256 of every file of the caches in a folder, but for the manifests."""
    files = [
        path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix == ".parquet"
    ]
    assert files
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]


@pytest.fixture(scope="module")
def by_ddp(tmp_path_factory, launch):
    """(weights, cache, test statistics) of two ranks of ddp on this machine, and of four."""
    import pyarrow.csv

    import distcore
    from distcore_testing import data

    folder = tmp_path_factory.mktemp("ddp")
    pyarrow.csv.write_csv(data.table(600), folder / "data.csv")
    config = data.config(str(folder / "cache"))
    config["trainer"] = {"epochs": 2, "batch_size": 32}
    config["backend"]["trainer"] = {"type": "data_parallel", "num_workers": 2, "use_gpu": False}
    outcome = distcore.experiment(
        config, dataset=str(folder / "data.csv"), output_directory=folder / "results"
    )
    return weights(folder / "results"), shards(folder / "cache"), outcome


@pytest.mark.parametrize("launcher", ["horovodrun", "mpirun"])
def test_an_experiment_has_the_bits_of_ddp(launch, tiny, by_ddp, launcher):
    """Cache, weights and scores; and one process alone prints."""
    words = launch.distcore(
        "experiment", "-c", "config.yaml", "--dataset", "data.csv", "-od", "results"
    )
    ran = launch.finish(launch.start([*getattr(launch, launcher)(2), *words], tiny))
    assert ran.code == 0, ran.text
    expected, cache, outcome = by_ddp
    assert shards(tiny / "cache") == cache
    assert weights(tiny / "results") == expected
    lines = re.findall(r"^(?:\[0\]<stdout>:)?results/experiment_run$", ran.text, re.MULTILINE)
    assert len(lines) == 1, ran.text
    assert "[1]<" not in ran.text, ran.text
    loss = outcome.test_statistics["combined"]["loss"]
    assert re.search(rf"combined\s+loss\s.*\s{loss:.6g}$", ran.text, re.MULTILINE), ran.text


def test_four_ranks_have_the_scores_of_one_process(launch, tiny):
    """At the same effective batch size; with more than two ranks a ring's sums round in another
    order."""
    import distcore

    config = yaml.safe_load((tiny / "config.yaml").read_text())
    config["trainer"] = {
        "epochs": 2,
        "effective_batch_size": 64,
        "learning_rate_scaling": "constant",
    }
    (tiny / "config.yaml").write_text(yaml.safe_dump(config))
    words = launch.distcore(
        "experiment", "-c", "config.yaml", "--dataset", "data.csv", "-od", "results"
    )
    ran = launch.finish(launch.start([*launch.horovodrun(4), *words], tiny))
    assert ran.code == 0, ran.text
    found = json.loads((tiny / "results" / "experiment_run" / "test_statistics.json").read_text())
    config["backend"] = {"type": "local", "cache_dir": str(tiny / "alone")}
    alone = distcore.experiment(
        config, dataset=str(tiny / "data.csv"), output_directory=tiny / "local"
    )
    assert shards(tiny / "cache") == shards(tiny / "alone")
    for name, value in alone.test_statistics["y"].items():
        assert found["y"][name] == pytest.approx(value, rel=1e-3), name


@pytest.mark.parametrize("launcher", ["mpirun", pytest.param("horovodrun", marks=pytest.mark.slow)])
def test_adasum_trains_under_mpirun_and_is_refused_without_mpi(launch, tiny, launcher):
    config = yaml.safe_load((tiny / "config.yaml").read_text())
    config["backend"]["trainer"] = {"op": "adasum"}
    (tiny / "config.yaml").write_text(yaml.safe_dump(config))
    words = launch.distcore(
        "experiment", "-c", "config.yaml", "--dataset", "data.csv", "-od", "results"
    )
    ran = launch.finish(launch.start([*getattr(launch, launcher)(2), *words], tiny))
    if launcher == "horovodrun":
        assert ran.code != 0
        assert "adasum needs MPI" in ran.text, ran.text
        return
    assert ran.code == 0, ran.text
    statistics = json.loads(
        (tiny / "results" / "experiment_run" / "training_statistics.json").read_text()
    )
    losses = statistics["validation"]["combined"]["loss"]
    assert losses[-1] < losses[0], losses


def test_predict_and_evaluate_take_part_and_keep_the_order(launch, tiny, by_ddp):
    import pyarrow.parquet

    import distcore

    _, _, outcome = by_ddp
    expected = distcore.load(outcome.model).predict(str(tiny / "data.csv"))
    words = launch.distcore(
        "predict", "-m", outcome.model, "--dataset", "data.csv", "-od", "predictions", "-bs", "64"
    )
    ran = launch.finish(launch.start([*launch.horovodrun(2), *words], tiny))
    assert ran.code == 0, ran.text
    found = pyarrow.parquet.read_table(tiny / "predictions" / "predictions.parquet")
    assert found["y_predictions"].to_pylist() == expected["y_predictions"].to_pylist()
    words = launch.distcore(
        "evaluate", "-m", outcome.model, "--dataset", "data.csv", "-od", "scores"
    )
    ran = launch.finish(launch.start([*launch.horovodrun(2), *words], tiny))
    assert ran.code == 0, ran.text
    assert ran.text.count("roc_auc") == 1, ran.text


def test_a_mistake_in_the_config_ends_all_ranks(launch, tiny):
    config = yaml.safe_load((tiny / "config.yaml").read_text())
    config["trainer"]["learning_rat"] = 1
    (tiny / "config.yaml").write_text(yaml.safe_dump(config))
    words = launch.distcore("train", "-c", "config.yaml", "--dataset", "data.csv")
    ran = launch.finish(launch.start([*launch.horovodrun(2), *words], tiny))
    assert ran.code != 0
    assert "learning_rat" in ran.text


def test_the_config_names_another_backend(launch, tiny):
    """A model for each process, all writing to one folder, is refused."""
    config = yaml.safe_load((tiny / "config.yaml").read_text())
    config["backend"] |= {"type": "local", "trainer": {"type": "horovod"}}
    (tiny / "config.yaml").write_text(yaml.safe_dump(config))
    words = launch.distcore("train", "-c", "config.yaml", "--dataset", "data.csv")
    ran = launch.finish(launch.start([*launch.horovodrun(2), *words], tiny))
    assert ran.code != 0
    assert "--backend horovod" in ran.text, ran.text


def started(launch, folder, words, beyond=0):
    """A run under way that has saved a checkpoint after more than `beyond` steps."""
    process = launch.start(words, folder)
    while not [step for step in steps(folder) if step > beyond]:
        assert process.poll() is None, launch.finish(process).text
        time.sleep(0.05)
    return process


def steps(folder):
    names = [
        path.name.removeprefix("step-") for path in folder.glob("results/*/checkpoints/step-*")
    ]
    return [int(name) for name in names if name.isdigit()]


@pytest.mark.parametrize("launcher", ["horovodrun", pytest.param("mpirun", marks=pytest.mark.slow)])
def test_a_killed_rank_is_named_and_the_run_goes_on(launch, tiny, launcher):
    """All ranks end and no process is left; resuming goes on at the step of the last checkpoint."""
    config = yaml.safe_load((tiny / "config.yaml").read_text())
    config["trainer"] |= {"epochs": 5000, "early_stop": -1}
    (tiny / "config.yaml").write_text(yaml.safe_dump(config))
    run = getattr(launch, launcher)(2)
    words = launch.distcore("train", "-c", "config.yaml", "--dataset", "data.csv", "-od", "results")
    process = started(launch, tiny, [*run, *words])
    victim = next(iter(ranks_of(tiny, 1)))
    os.kill(victim, signal.SIGKILL)
    ran = launch.finish(process)
    assert ran.code != 0
    assert f"rank 1 (process {victim}" in ran.text, ran.text
    all_gone(tiny)
    if launcher == "mpirun":  # the same checkpoints, the same resuming
        return
    reached = max(steps(tiny))
    words = launch.distcore("train", "-mrp", "results/experiment_run", "--dataset", "data.csv")
    process = started(launch, tiny, [*run, *words], beyond=reached)
    # Both are looked for before one is killed: the launcher ends the other.
    for each in [*ranks_of(tiny, 0), *ranks_of(tiny, 1)]:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    ran = launch.finish(process)
    assert f"Going on after step {reached} " in ran.text, ran.text


def all_gone(folder, seconds=60):
    """Wait until no rank is left; a busy machine takes its time to end the last one."""
    end = time.monotonic() + seconds
    while left := [*ranks_of(folder, 0), *ranks_of(folder, 1)]:
        assert time.monotonic() < end, left
        time.sleep(0.05)


def ranks_of(folder, rank):
    """Processes of this rank of distcore that work in the folder."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            environment = (path / "environ").read_bytes().split(b"\0")
            words = (path / "cmdline").read_bytes().split(b"\0")
            here = os.readlink(path / "cwd") == str(folder)
        except OSError:
            continue
        mine = {f"HOROVOD_RANK={rank}".encode(), f"OMPI_COMM_WORLD_RANK={rank}".encode()} & set(
            environment
        )
        if here and mine and words[1:3] == [b"-m", b"distcore.cli.main"]:
            yield int(path.name)
