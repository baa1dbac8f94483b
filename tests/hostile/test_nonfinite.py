"""NaN and infinity at random steps, in a loss, a gradient, weights, moments or statistics, in one
rank or in all: never a model of NaN, never a checkpoint of it, and the last good checkpoint goes
on to the bits of an undisturbed run."""

import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from tests.hostile.conftest import SEED
from tests.hostile.planting import PLACES, SETTINGS, STEPS, Case, all_tried

from distcore_core.contracts import Rank, WorkerGroup


def cases(count, world, folder):
    """So many, every place and setting among them in turn."""
    chance = random.Random(SEED)
    found = []
    for number in range(count):
        place = PLACES[number % len(PLACES)]
        value = chance.choice([float("nan"), float("inf"), float("-inf")])
        ranks = tuple(range(world)) if chance.random() < 0.3 else (chance.randrange(world),)
        step = chance.randrange(1, STEPS)
        found.append(
            Case(place, value, step, ranks, number // 2 % len(SETTINGS), str(folder / str(number)))
        )
    return found


def judge(sweep, what, given, found):
    """Every case ended as it may; the counts go into the table."""
    counts = Counter(outcome for outcome, _, _ in found)
    assert counts.keys() <= {"finished", "Diverged", "ranks differ"}, counts
    for case, (outcome, again, whole) in zip(given, found, strict=True):
        if case.place not in ("loss", "logits", "gradient"):
            assert outcome != "finished", case
        if outcome != "finished":
            assert again == whole, case
    ended = len(found) - counts["finished"]
    sweep.tried(
        what,
        len(found),
        f"{ended} ended with an error and went on from the last good checkpoint to the undisturbed "
        f"bits, {counts['finished']} stayed finite; no NaN was saved",
    )


def test_in_one_process(sweep, tmp_path):
    given = cases(sweep.times(6, 150), 1, tmp_path)
    judge(
        sweep,
        "NaN or infinity planted in a run of one process",
        given,
        all_tried(Rank(), given, ""),
    )


def test_in_a_rank_of_two(sweep, tmp_path):
    from distcore_local.backend import LocalBackend
    from distcore_local.options import BackendOptions

    given = cases(sweep.times(6, 100), 2, tmp_path)
    group = WorkerGroup(
        function=all_tried, arguments=(given, "distcore_local.data_parallel:DataParallel"), ranks=2
    )
    first, second = LocalBackend(BackendOptions()).run_group(group)
    assert first == second
    judge(sweep, "NaN or infinity planted in one rank of ddp, or in both", given, first)


MODEL = """
import os
from torch import nn

class Plants(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.calls = 0

    def forward(self, batch):
        self.calls += self.training
        found = self.layer(batch["age"].float().reshape(-1, 1))[:, 0]
        planted = self.training and self.calls == STEP and os.environ.get("RANK") in RANKS
        return {"bought": found * float("nan") if planted else found}
"""
CONFIG = """
input_features: [{name: age, type: number}]
output_features: [{name: bought, type: binary}]
model: {type: module, class: "plants:Plants"}
trainer: {epochs: 5, batch_size: 32, early_stop: -1}
backend: {type: local, trainer: TRAINER}
"""
ANY_RANK = "(None, '0', '1')"
CLUSTERS = {
    "horovodrun": "horovod",
    "ray": "{type: ray, address: local, num_cpus: 2, object_store_memory: 100000000, "
    "trainer: {type: ddp, num_workers: 2, use_gpu: false}}",
}
"""{name: the config's backend}."""


@pytest.mark.parametrize(
    "trainer", ["{type: local}", "{type: ddp, num_workers: 2}"], ids=["local", "ddp"]
)
def test_through_the_command_line(sweep, place, monkeypatch, trainer):
    """The exit code is 1, and the error names the last good checkpoint."""
    chance = random.Random(SEED)
    steps = 5 * (6 if "local" in trainer else 3)
    monkeypatch.setenv("PYTHONPATH", str(place.folder))
    for number in range(sweep.times(1, 6)):
        step = steps if not number else chance.randrange(steps // 2, steps)  # the last one first
        place.write("plants.py", MODEL.replace("STEP", str(step)).replace("RANKS", ANY_RANK))
        config = place.write("config.yaml", CONFIG.replace("TRAINER", trainer))
        results = place.folder / f"results{number}"
        done = place.process("train", "--config", config, "--output_directory", results)
        assert done.code == 1, done.err
        assert "Traceback" not in done.err
        assert "weights are not finite" in done.err
        kept = re.search(
            r"The last checkpoint is (\S+); go on from it with --model_resume_path (\S+)", done.err
        )
        assert kept, done.err
        assert Path(kept[1]).is_dir()
        assert not (results / "experiment_run" / "model").exists()
    kind = "ddp" if "ddp" in trainer else "one process"
    sweep.tried(
        f"NaN in a step of `distcore train` ({kind})",
        number + 1,
        "exit code 1, the last good checkpoint named",
    )


@pytest.fixture
def short_folder():
    """For Ray's sockets: the path of one may have 107 letters."""
    found = tempfile.mkdtemp(prefix="dr-", dir="/tmp")
    yield found
    shutil.rmtree(found, ignore_errors=True)


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("launcher", CLUSTERS)
def test_in_a_rank_of_a_cluster(sweep, place, monkeypatch, short_folder, launcher):
    """In one rank at a random step; then the run goes on without it, to undisturbed weights."""
    monkeypatch.setenv("PYTHONPATH", str(place.folder))
    monkeypatch.setenv("RAY_TMPDIR", short_folder)
    backend = "backend: {type: local, trainer: TRAINER}"
    config = place.write("config.yaml", CONFIG.replace(backend, f"backend: {CLUSTERS[launcher]}"))

    def run(results, rank, step, *more):
        text = MODEL.replace("STEP", str(step)).replace("RANKS", f"({rank!r},)")
        place.write("plants.py", text)
        words = ("train", "--config", config, "--output_directory", results, *more)
        started = ["-m", "distcore.cli.main", *map(str, place.words(*words))]
        if launcher == "horovodrun":
            launch = ("-m", "horovod.runner.launch", "--gloo", "-np", "2", sys.executable)
            started = [*launch, *started]
        return place.finish(place.python(*started))

    def weights(results):
        return (results / "experiment_run" / "model" / "weights.safetensors").read_bytes()

    whole = place.folder / "whole"
    done = run(whole, "none", 0)
    assert done.code == 0, done.err
    count = sweep.times(1, 5)
    for number in range(count):
        results = place.folder / f"results{number}"
        step = sweep.random.randrange(4, 16)  # from the second epoch of three steps to the last
        done = run(results, sweep.random.choice("01"), step)
        assert done.code == 1, done.err
        assert "weights are not finite" in done.err
        kept = re.search(r"go on from it with --model_resume_path (\S+)", done.err)
        assert kept, done.err
        assert not (results / "experiment_run" / "model").exists()
        done = run(results, "none", 0, "--model_resume_path", kept[1])
        assert done.code == 0, done.err
        assert weights(results) == weights(whole)
    sweep.tried(
        f"NaN in a step of one of two ranks under {launcher}",
        count,
        "exit code 1, the last good checkpoint named, from which the run went on to the undisturbed "
        "weights",
    )
