"""`trainer.exact`: one sha256 of weights, statistics and the last checkpoint, whatever computes
them."""

import pytest
from tests.conftest import some
from tests.exact_runs import CONFIGS, Exact, run_name

from distcore_torch.training.ledger import LEDGER, read_ledger

pytestmark = pytest.mark.system


@pytest.fixture
def exact(place):
    return Exact(place)


@pytest.mark.parametrize("config", some(CONFIGS, ["text, accumulation and clipping"]))
def test_one_sha256_for_every_number_of_workers(exact, config):
    alone = exact.trained(config)
    assert exact.trained(config, "data_parallel", 2) == alone
    assert exact.trained(config, "torchrun", 3) == alone


def test_one_sha256_for_every_number_of_threads(exact):
    name = "dropout and batch norm"
    assert exact.trained(name, threads=1) == exact.trained(name, threads=2)


GOES_ON = """
import sys
from distcore.cli.main import main
from distcore_local import processes

processes.START_SECONDS = processes.MEASURED_SECONDS = processes.OWN_SECONDS = 0.0
sys.exit(main(sys.argv[1:]))
"""
"""The command line, which goes on in several processes as soon as it has seen some steps."""


def test_one_process_goes_on_in_two_with_the_same_bits(exact):
    name = "embeddings and sets"
    exact.trainer = {"epochs": 20}
    alone = exact.trained(name)
    config = exact.config(name, {"type": "local"})
    command = exact.place.python(
        "-c", GOES_ON, "train", *exact.words(config, run_name(name)), OMP_NUM_THREADS="2"
    )
    done = exact.place.finish(command)
    assert done.code == 0, done.out + done.err
    assert "Going on in 2 processes" in done.err
    ledger, _ = read_ledger(exact.folder(name) / LEDGER)
    assert [each.run["workers"] for each in ledger if each.run] == [1, 2]
    assert exact.digests(name) == alone
