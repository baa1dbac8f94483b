"""distcore-modin holds what every processor must hold whose tasks run elsewhere, also when Ray was started twice."""

from typing import ClassVar

import pytest

from distcore.testing import ClusterProcessorSuite, PluginSuite

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def ray_cluster():
    """Ray on two CPUs of this machine."""
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=256 << 20)
    yield ray
    ray.shutdown()


class TestPlugin(PluginSuite):
    kind, name = "processors", "modin"


@pytest.mark.usefixtures("ray_cluster")
class TestProcessor(ClusterProcessorSuite):
    name = "modin"
    variants: ClassVar = ({}, {"parallelism": 1}, {"parallelism": 7})
