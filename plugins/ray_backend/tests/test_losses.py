"""Nodes that go: while rows are read, while shards are written, while ranks train; and which
rows ranks are given."""

import gc
import logging
import sys
import threading
import time
from pathlib import Path

import pyarrow.parquet
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import ray_jobs
import ray_runs
import recorded

import distcore
from distcore_ray.backend import RayBackend
from distcore_ray.options import BackendOptions
from distcore_testing import data
from distcore_testing.clusters import hurt, small_pieces
from distcore_testing.processors import digested

pytestmark = pytest.mark.cluster

ROWS, BATCH, LOSS = 700, 32, (1, 5)
TRAINER = ray_runs.TRAINER | {"effective_batch_size": BATCH}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the dataset, and with the plugin `recorded` where this process and its ranks
    find it."""
    folder = tmp_path_factory.mktemp("runs")
    ray_runs.dataset(folder, ROWS)
    recorded.install(folder / "plugins")
    sys.path.append(str(folder / "plugins"))
    yield folder
    sys.path.remove(str(folder / "plugins"))


@pytest.fixture
def connected(own_nodes):
    """The driver's connection, kept over a test's runs."""
    made = RayBackend(BackendOptions())
    made.connect()
    yield made
    made.close()


@pytest.mark.parametrize("processor", ["dask", pytest.param("modin", marks=pytest.mark.slow)])
def test_a_node_lost_while_rows_are_read_and_one_while_shards_are_written_change_no_byte(
    own_nodes, tmp_path, monkeypatch, processor
):
    """What was kept on them is read again from the source."""
    own_nodes.fill(3)
    small_pieces(monkeypatch)
    path = ray_runs.dataset(tmp_path, 3000)
    expected = digested(ray_runs.config_of(tmp_path, "here", {"type": "local"}), str(path))
    hurt(monkeypatch, tmp_path, ray_jobs.TakesItsNode)
    config = ray_runs.config_of(tmp_path, "ray", {"type": "ray", "processor": {"type": processor}})
    assert digested(config, str(path)) == expected
    assert {each.name for each in tmp_path.glob("died-*")} == {
        "died-BlockStatistics",
        "died-ShardWriter",
    }
    assert sum(not each.remaining_processes_alive() for each in own_nodes.cluster.worker_nodes) == 2


def train(place, name, workers, lose=None, **more):
    """The outcome of a run, and {(epoch, step): its rows} as the loaders of its ranks wrote them
    down."""
    folder = place / f"rows-{name}"
    folder.mkdir()
    config = ray_runs.config_of(
        place,
        name,
        {
            "type": "ray",
            "trainer": {"num_workers": workers, "max_retries": 2},
            "loader": {"type": "recorded", "folder": str(folder), "lose": lose},
        },
        TRAINER,
    )
    config["output_features"] = [{"name": "y", "type": "binary"}, {"name": "z", "type": "number"}]
    found = distcore.train(
        config,
        dataset=place / "data.csv",
        output_directory=place,
        experiment_name=name,
        view="none",
        **more,
    )
    return found, folder


@pytest.fixture(scope="module")
def undisturbed(own_nodes, place):
    own_nodes.fill(3)
    return train(place, "undisturbed", 2)


@pytest.mark.slow
def test_each_rank_is_given_its_own_rows_and_each_row_once_an_epoch(undisturbed):
    _, folder = undisturbed
    shares = {}
    for line in recorded.read(folder):
        shares.setdefault((line["epoch"], line["rank"]), []).extend(line["rows"])
    first, second = set(shares[0, 0]), set(shares[0, 1])
    assert first.isdisjoint(second)
    for (_, rank), rows in shares.items():
        assert len(rows) == len(set(rows)), "a row twice in an epoch"
        assert set(rows) == (second if rank else first), (
            "a rank's lanes are the same in every epoch"
        )
    steps = -(-len(first | second) // BATCH)
    assert set(recorded.used(folder)) == {
        (epoch, step) for epoch in range(3) for step in range(steps)
    }


@pytest.mark.slow
def test_a_node_that_dies_in_training_is_replaced_and_changes_nothing(
    own_nodes, place, undisturbed, caplog
):
    own_nodes.fill(3)
    expected, rows = undisturbed
    with caplog.at_level(logging.INFO, "distcore"):
        found, folder = train(place, "fixed", 2, LOSS)
    assert (folder / "lost").exists()
    assert recorded.used(folder) == recorded.used(rows)
    assert ray_runs.weights(found.directory) == ray_runs.weights(expected.directory)
    assert "went down with its node" in caplog.text
    assert "All ranks were started again (1 of at most 2 times)" in caplog.text


@pytest.mark.slow
def test_an_elastic_worker_group_goes_on_with_the_nodes_that_are_left(
    own_nodes, place, undisturbed, caplog
):
    """Every row once an epoch, in the same global batches; the order of additions is another, so
    the last bits are."""
    own_nodes.fill(3)
    expected, rows = undisturbed
    with caplog.at_level(logging.INFO, "distcore"):
        found, folder = train(place, "elastic", [1, 4], LOSS)  # batches for four, on three nodes
    assert (folder / "lost").exists()
    assert recorded.used(folder) == recorded.used(rows)
    worlds = [line["world"] for line in recorded.read(folder)]
    assert (worlds[0], worlds[-1]) == (3, 2)
    assert "went down with its node" in caplog.text
    assert "now 2 of them" in caplog.text
    for split, metric in (("training", "loss"), ("validation", "accuracy"), ("validation", "loss")):
        curve = found.training_statistics[split]["y"][metric]
        assert curve == pytest.approx(expected.training_statistics[split]["y"][metric], rel=1e-3), (
            split,
            metric,
        )


@pytest.mark.slow
def test_training_reads_the_cache_and_leaves_the_object_store_empty(own_nodes, connected, tmp_path):
    """Beside a cache of many megabytes, what training puts into the object store is next to
    nothing."""
    import ray

    own_nodes.fill(3)
    path = tmp_path / "data.parquet"
    pyarrow.parquet.write_table(data.table(400_000), path)
    trainer = {"epochs": 2, "batch_size": 4096}
    config = ray_runs.config_of(
        tmp_path, "large", {"type": "ray", "trainer": {"num_workers": 2}}, trainer
    )
    size = sum(
        each.stat().st_size
        for each in distcore.preprocess(config, dataset=path).folder.rglob("*.parquet")
    )
    gc.collect()  # what preprocessing put there goes with the last reference to it
    ray_runs.until(lambda: in_object_store() < size // 4, 60)
    before = in_object_store()  # Ray's own, such as exported functions
    kept = ray.put(b"x" * (size // 4))
    ray_runs.until(lambda: in_object_store() - before >= size // 4, 60)
    del kept
    ray_runs.until(lambda: in_object_store() - before < size // 100, 60)
    seen, over = [], threading.Event()

    def watch():
        while not over.is_set():
            seen.append(in_object_store())
            time.sleep(0.05)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    found = distcore.train(config, dataset=path, output_directory=tmp_path, view="none")
    over.set()
    thread.join()
    assert found.training_statistics["validation"]["y"]["accuracy"]
    assert size > 1 << 20
    assert max(seen) - before < size // 10, (max(seen), before, size)


def in_object_store():
    """Bytes that the object stores of all nodes hold."""
    import ray

    has, free = ray.cluster_resources(), ray.available_resources()
    return has["object_store_memory"] - free.get("object_store_memory", 0)
