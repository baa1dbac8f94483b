"""The Dask processor on a Dask cluster and on Ray: the same bits, the same errors, lost workers,
nothing collected."""

import logging
import os
import pickle
import signal
import threading
import time
from typing import ClassVar

import pyarrow.csv as pacsv
import pytest

from distcore_testing import ClusterProcessorSuite, jobs
from distcore_testing.processors import EDGES, PLANS

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def dask_cluster():
    """A scheduler and two workers, each a process that a nanny starts again."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address


class TestOnDask(ClusterProcessorSuite):
    name = "dask"
    variants: ClassVar = ()

    @pytest.fixture(autouse=True)
    def _at(self, dask_cluster, monkeypatch):
        here = {"address": dask_cluster}
        monkeypatch.setattr(
            type(self), "variants", (here, {**here, "persist": False}, {**here, "parallelism": 7})
        )


# What `make clusters` shows of Dask on Ray is in distcore-ray's test_losses.py: the same bytes,
# with nodes that are lost.
@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
class TestOnRay(ClusterProcessorSuite):
    name = "dask"
    variants: ClassVar = ({}, {"persist": False}, {"parallelism": 7})


@pytest.mark.slow
def test_what_comes_back_to_the_driver_does_not_grow_with_the_rows(
    dask_cluster, tmp_path, monkeypatch
):
    """Bytes of every value that the engine hands to the driver, for two sizes."""
    import distcore
    from distcore_dask.engines import DistributedEngine
    from distcore_testing import data

    returned, run = [], DistributedEngine.run

    def spied(engine, graph, key, hold=()):
        value, held = run(engine, graph, key, hold)
        returned[-1] += len(pickle.dumps(value))
        return value, held

    monkeypatch.setattr(DistributedEngine, "run", spied)
    for rows in (20_000, 200_000):
        for persist in (True, False):
            returned.append(0)
            config = data.config(str(tmp_path / f"{rows}-{persist}"))
            config["backend"]["processor"] = {
                "type": "dask",
                "address": dask_cluster,
                "persist": persist,
                "parallelism": 4,
            }
            config["preprocessing"] = {"split": {"type": "stratify", "column": "k"}}
            source = tmp_path / f"{rows}.csv"
            pacsv.write_csv(data.table(rows), source)
            distcore.preprocess(config, dataset=str(source))
    assert max(returned) < (tmp_path / "200000.csv").stat().st_size / 100, returned


def test_rows_that_no_folder_can_keep_are_read_again(dask_cluster, tmp_path):
    """persist: false without a scratch folder: partitions are read once a pass, and nothing else
    differs."""
    from distcore_dask.options import DaskOptions
    from distcore_dask.processor import DaskProcessor

    made = DaskProcessor(DaskOptions(address=dask_cluster, persist=False))
    made.scan(jobs.CountedSource(tmp_path, EDGES))
    assert made.fold(jobs.total_of, jobs.add)[0] == (4950.0, 100)
    assert [found for _, found, _ in made.write_shards(PLANS, jobs.rows_of)] == [
        list(range(plan.start, plan.stop)) for plan in PLANS
    ]
    made.close()


def test_a_folder_that_tasks_do_not_see_is_noticed(dask_cluster, ray_cluster, tmp_path):
    from distcore_dask.engines import DistributedEngine, RayEngine

    distributed = DistributedEngine(dask_cluster)
    for engine in (distributed, RayEngine()):
        assert engine.sees(str(tmp_path))
        assert not engine.sees(str(tmp_path / "nowhere"))
        assert engine.cpus == 2
    distributed.close()


@pytest.fixture
def small_cluster():
    """A scheduler and a worker of its own, for a test that takes them away."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster:
        yield cluster


def test_that_no_worker_is_left_is_told_once_and_the_next_one_goes_on(small_cluster, monkeypatch):
    from distcore_dask import engines

    monkeypatch.setattr(engines, "LOOK_SECONDS", 0.1)
    engine, said = engines.DistributedEngine(small_cluster.scheduler_address), []
    small_cluster.scale(0)
    while engine._client.nthreads():
        time.sleep(0.05)

    def joins(text, *given):
        said.append(text % given)
        small_cluster.scale(1)

    monkeypatch.setattr(engines.log, "warning", joins)
    assert engine.run({"sum": (sum, [1, 2])}, "sum") == (3, [])
    engine.close()
    assert said == [
        f"No worker of the Dask cluster at {small_cluster.scheduler_address} is left. The work goes "
        "on when one joins it (`dask worker`)."
    ]


def test_a_scheduler_that_is_gone_is_named_once(small_cluster, monkeypatch, caplog):
    from distcore_core.errors import CacheError
    from distcore_dask import engines

    monkeypatch.setattr(engines, "CONNECT_SECONDS", 5)
    engine = engines.DistributedEngine(small_cluster.scheduler_address)
    threading.Timer(1, small_cluster.close).start()
    with pytest.raises(CacheError, match="the connection to its scheduler was lost"):
        engine.run({"sum": (time.sleep, 20)}, "sum")
    engine.close()
    assert not [
        each
        for each in caplog.records
        if each.name == "distributed.client" and each.levelno >= logging.WARNING
    ]


def test_a_worker_that_is_stopped_is_told_and_keeps_nobody_waiting(tmp_path, monkeypatch):
    """`sees` asks every worker, and Dask would wait for the stopped one for minutes."""
    from distributed import LocalCluster

    from distcore_dask import engines

    monkeypatch.setattr(engines, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(engines, "SILENT_SECONDS", 3)
    said = []
    monkeypatch.setattr(engines.log, "warning", lambda text, *given: said.append(text % given))
    with LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=None, local_directory=str(tmp_path)
    ) as cluster:
        engine = engines.DistributedEngine(cluster.scheduler_address)
        pid, address = cluster.workers[0].pid, cluster.workers[0].worker_address
        assert engine.sees(str(tmp_path))
        os.kill(pid, signal.SIGSTOP)
        goes_on = threading.Timer(8, os.kill, (pid, signal.SIGCONT))
        try:
            assert not engine.sees(str(tmp_path))
            goes_on.start()
            assert engine.run({"sum": (sum, [1, 2])}, "sum") == (3, [])
        finally:
            os.kill(pid, signal.SIGCONT)
            goes_on.cancel()
            engine.close()
    named = f"Nothing was heard of the worker {address} of the Dask cluster at "
    # On a busy machine it may be silent again after it went on.
    assert [line.startswith(named) for line in said[:2]] == [True, True]
