"""Tasks on a cluster: few at a time, lost ones again, and what they import comes along."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import ray_jobs

from distcore_core.errors import DataError, DistcoreError
from distcore_ray.backend import RayBackend
from distcore_ray.options import BackendOptions

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def backend(nodes):
    made = RayBackend(BackendOptions())
    yield made
    made.close()


def test_resources_are_those_of_all_nodes(backend):
    found = backend.resources()
    assert (found.cpus, found.gpus, found.nodes, found.workers) == (6, 0, 3, 3)
    assert found.memory_bytes > 0


def test_a_node_that_is_lost_before_it_is_asked_for_files_is_no_error(
    backend, tmp_path, monkeypatch
):
    """Ray lists a node as alive for a while after its death."""
    import ray

    from distcore_ray import storage

    backend.resources()
    listed = ray.nodes()
    lost = {**listed[0], "NodeID": "ab" * 28, "NodeManagerAddress": "lost.example"}
    monkeypatch.setattr(storage.ray, "nodes", lambda: [*listed, lost])
    (tmp_path / "data.csv").write_text("a\n1\n")
    storage.check({"the dataset": str(tmp_path / "data.csv")}, {"the results": str(tmp_path)})


def test_a_task_that_was_killed_runs_again(backend, tmp_path):
    assert list(backend.map(ray_jobs.die_once, [(each, str(tmp_path)) for each in range(6)])) == [
        0,
        10,
        20,
        30,
        40,
        50,
    ]


def test_results_that_nobody_takes_hold_up_the_rest(backend, tmp_path):
    """So the object store never holds more than a few."""
    results = backend.map(ray_jobs.note, [(each, str(tmp_path)) for each in range(100)])
    assert [next(results) for _ in range(10)] == list(range(10))
    import time

    time.sleep(2)
    assert len(list(tmp_path.iterdir())) <= 10 + 2 * 6
    assert list(results) == list(range(10, 100))


def test_a_task_that_always_dies_is_an_error(backend):
    with pytest.raises(DistcoreError, match="lost 4 times"):
        list(backend.map(ray_jobs.os._exit, [1]))


def test_an_error_of_a_plugin_that_no_pickle_takes_comes_with_its_words(backend):
    """It was told as a task that was lost 4 times."""
    with pytest.raises(DataError, match=r"^age is odd in row 3\."):
        list(backend.map(ray_jobs.odd, [1]))


def test_a_lambda_and_a_local_class_travel(backend):
    factor = 3
    assert list(backend.map(lambda item: item * factor, [1, 2])) == [3, 6]
