"""`trainer.exact`: one sha256 of weights, statistics and the last checkpoint, whatever computes
them."""

import pytest
from tests.exact_runs import CONFIGS, Exact

pytestmark = pytest.mark.system


@pytest.fixture
def exact(place):
    return Exact(place)


@pytest.mark.parametrize("config", CONFIGS)
def test_one_sha256_for_every_number_of_workers(exact, config):
    alone = exact.trained(config)
    assert exact.trained(config, "data_parallel", 2) == alone
    assert exact.trained(config, "torchrun", 3) == alone


def test_one_sha256_for_every_number_of_threads(exact):
    name = "dropout and batch norm"
    assert exact.trained(name, threads=1) == exact.trained(name, threads=2)
