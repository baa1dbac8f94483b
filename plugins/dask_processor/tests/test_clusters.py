"""The Dask processor on a Dask cluster and on Ray: the same bits, the same errors, lost workers, nothing collected."""

from typing import ClassVar

import pytest

from distcore.testing import ProcessorSuite

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def dask_cluster():
    """A scheduler and two workers, each a process that a nanny starts again."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def ray_cluster():
    """Ray on two CPUs of this machine."""
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=256 << 20)
    yield ray
    ray.shutdown()


class TestOnDask(ProcessorSuite):
    name = "dask"
    variants: ClassVar = ()

    @pytest.fixture(autouse=True)
    def _at(self, dask_cluster, monkeypatch):
        here = {"address": dask_cluster}
        monkeypatch.setattr(type(self), "variants", (here, {**here, "persist": False}, {**here, "parallelism": 7}))


@pytest.mark.usefixtures("ray_cluster")
class TestOnRay(ProcessorSuite):
    name = "dask"
    variants: ClassVar = ({}, {"persist": False}, {"parallelism": 7})
