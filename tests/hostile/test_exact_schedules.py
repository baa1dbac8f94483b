"""Exact runs that are killed, rescaled and moved to another launcher in mid-epoch end with the
undisturbed run's bits."""

import shutil

import pytest
from tests.conftest import some
from tests.exact_runs import CONFIGS, Exact

HERE = [("local", 1), ("data_parallel", 2), ("data_parallel", 3), ("torchrun", 2)]
CLUSTERS = [*HERE, ("horovodrun", 2), ("mpirun", 3), ("ray", 2)]
LONGER = {"epochs": 6, "steps_per_checkpoint": 5}


@pytest.mark.parametrize("config", some(CONFIGS, ["dropout and batch norm"]))
def test_a_disturbed_run_ends_with_the_same_bits(place, sweep, config):
    told = disturbed(Exact(place, LONGER), config, sweep, sweep.times(1, 57), HERE)
    sweep.tried(
        f"an exact run ({config}) killed, rescaled and moved between local, data_parallel and "
        "torchrun at random moments",
        *told,
    )


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("config", CONFIGS)
def test_a_run_moved_between_clusters_too(place, sweep, config):
    places = [each for each in CLUSTERS if each[0] != "mpirun" or shutil.which("mpirun")]
    told = disturbed(Exact(place, LONGER), config, sweep, sweep.times(1, 10), places)
    sweep.tried(
        f"an exact run ({config}) killed, rescaled and moved between "
        f"{', '.join(dict(places))} at random moments",
        *told,
    )


def disturbed(exact, config, sweep, count, places):
    """So many schedules: (their number, what came of them)."""
    alone, interruptions = exact.trained(config), 0
    for _ in range(count):
        steps = exact.disturbed(config, sweep.random, places)
        interruptions += len(steps) - 1
        assert exact.digests(config) == alone, steps
    return (
        count,
        f"{count} ended with the undisturbed run's bits after {interruptions} interruptions; 0 others",
    )
