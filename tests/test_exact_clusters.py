"""`trainer.exact` under horovodrun and mpirun and on Ray, and a run that moves from one to the
other."""

import random
import shutil

import pytest
from tests.conftest import some
from tests.exact_runs import Exact

pytestmark = pytest.mark.cluster
NAME = "dropout and batch norm"


ON_RAY = pytest.param("ray", 2, marks=pytest.mark.slow)
"""`make faults` runs it; the test below it moves a run to Ray."""


@pytest.mark.parametrize(("launcher", "workers"), [("horovodrun", 2), ("mpirun", 3), ON_RAY])
def test_one_sha256_under_every_launcher(place, launcher, workers):
    if launcher == "mpirun" and shutil.which("mpirun") is None:
        pytest.skip("no mpirun here")
    exact = Exact(place)
    assert exact.trained(NAME, launcher, workers) == exact.trained(NAME)


def test_a_run_moves_from_a_laptop_to_horovod_to_ray_and_back(place, brake):
    exact = Exact(place, {"epochs": 60, "steps_per_checkpoint": 10})
    alone = exact.trained(NAME)
    folder, dice = exact.folder(NAME), random.Random(0)
    brake.apply(after=15)
    for launcher, workers in (("local", 1), ("horovodrun", 2), ("ray", 2)):
        resume = folder if folder.exists() else None
        process = exact.begin(NAME, launcher, workers, resume=resume, more=brake.environment)
        assert exact.disturb(process, NAME, dice, ("SIGTERM",), seconds=0) == "SIGTERM", (
            exact.place.finish(process)
        )
        done = exact.place.finish(process)
        assert done.code, f"{launcher}: {done.err}"
    done = exact.place.finish(exact.begin(NAME, resume=folder))
    assert done.code == 0, done.err
    assert exact.digests(NAME) == alone


@pytest.mark.parametrize("backend", some(["ray", "local"], ["local"]))
def test_a_run_of_two_workers_is_equal_to_its_replay_elsewhere(place, backend):
    exact = Exact(place)
    done = place.finish(exact.begin(NAME, "data_parallel", 2))
    assert done.code == 0, done.err
    words = [str(exact.bin / "distcore"), "verify", str(exact.folder(NAME)), "--backend", backend]
    told = place.finish(place.program(*words, TMPDIR="/tmp"))  # Ray's sockets' paths must be short
    assert told.code == 0, told.err
    assert told.out.startswith(
        "Equal: every sealed file is as it was written, and a replay came to"
    )
