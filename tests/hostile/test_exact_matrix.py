"""`trainer.exact`: one sha256 a config, whatever the launcher, its workers and their threads."""

import itertools
import shutil

import pytest
from tests.exact_runs import CONFIGS, Exact

HERE = ("local", "data_parallel", "torchrun")
CLUSTERS = [
    pytest.param(each, marks=pytest.mark.cluster) for each in ("horovodrun", "mpirun", "ray")
]
pytestmark = pytest.mark.slow  # tests/test_exact.py and test_exact_clusters.py have a slice
WORKERS = (1, 2, 3, 4, 8)
THREADS = (1, 2)


@pytest.mark.parametrize("launcher", [*HERE, *CLUSTERS])
@pytest.mark.parametrize("config", CONFIGS)
def test_one_sha256(place, sweep, config, launcher):
    if launcher == "mpirun" and shutil.which("mpirun") is None:
        pytest.skip("no mpirun here")
    exact = Exact(place)
    weights = exact.trained(config)
    ways = list(itertools.product((1,) if launcher == "local" else WORKERS, THREADS))
    tried = sweep.random.sample(ways, sweep.times(1, len(ways)))
    for workers, threads in tried:
        found = exact.trained(config, launcher, workers, threads)
        assert found == weights, f"{launcher}, {workers} workers, {threads} threads"
    sweep.tried(
        f"an exact run ({config}) by {launcher}, workers and threads drawn from "
        f"{sorted({each for each, _ in ways})} and [1, 2]",
        len(tried),
        f"weights, optimizer and statistics of one sha256 each; the weights' begins {weights[0][:12]}",
    )
