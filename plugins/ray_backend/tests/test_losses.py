"""Nodes that go while training runs."""

import logging
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import ray_jobs

from distcore.contracts import Gang
from distcore.testing.loops import TinyRun
from distcore_ray.backend import RayBackend
from distcore_ray.options import BackendOptions

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

FIXED = {"effective_batch_size": 32, "batch_size": "auto", "learning_rate_scaling": "constant", "epochs": 4}
RUN = TinyRun(FIXED, strategy="distcore_local.trainers:DDP", dropout=0.3, norm=True)


@pytest.fixture
def backend(own_nodes):
    made = RayBackend(BackendOptions(patience=200))
    yield made
    made.close()


def lose(own_nodes, begun):
    """Kill the node of the rank that waits, once it does; never the head's."""
    import ray

    def wait():
        while not begun.exists():
            time.sleep(0.1)
        node = begun.read_text()
        (gone,) = [each for each in own_nodes.nodes if each.node_id == node]
        own_nodes.cluster.remove_node(gone, allow_graceful=False)

    assert ray.is_initialized()
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_a_node_that_dies_in_training_is_replaced_and_changes_nothing(own_nodes, backend, tmp_path, caplog):
    undisturbed = backend.run_gang(Gang(ray_jobs.train_tiny, (RUN,), ranks=2, threads=1))
    run = replace(RUN, checkpoints=str(tmp_path / "checkpoints"))
    loser = lose(own_nodes, tmp_path / "begun")
    gang = Gang(ray_jobs.train_and_lose_a_node, (run, str(tmp_path)), ranks=2, threads=1, max_retries=2)
    with caplog.at_level(logging.INFO, "distcore"):
        found = backend.run_gang(gang)
    loser.join()
    assert found[0]["digest"] == undisturbed[0]["digest"]
    assert "went down with its node" in caplog.text
    assert "All ranks were started again" in caplog.text
