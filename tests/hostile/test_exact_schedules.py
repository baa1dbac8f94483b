"""Exact runs that are killed, rescaled and moved to another launcher in mid-epoch end with the
undisturbed run's bits."""

import pytest
from tests.exact_runs import CONFIGS, Exact

HERE = [("local", 1), ("data_parallel", 2), ("data_parallel", 3), ("torchrun", 2)]
LONGER = {"epochs": 6, "steps_per_checkpoint": 5}
FEW = dict(zip(CONFIGS, (4, 3, 3), strict=True))
"""Ten in `make system`."""


@pytest.mark.parametrize("config", CONFIGS)
def test_a_disturbed_run_ends_with_the_same_bits(place, sweep, config):
    exact = Exact(place, LONGER)
    alone, count, told = exact.trained(config), sweep.times(FEW[config], 67), 0
    for _ in range(count):
        steps = exact.disturbed(config, sweep.random, HERE)
        told += len(steps) - 1
        assert exact.digests(config) == alone, steps
    sweep.tried(
        f"an exact run ({config}) killed, rescaled and moved between local, data_parallel and "
        "torchrun at random moments",
        count,
        f"{count} ended with the undisturbed run's bits after {told} interruptions; 0 others",
    )
