"""The Dask processor on a Dask cluster and on Ray: the same bits, the same errors, lost workers,
nothing collected."""

import pickle
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
