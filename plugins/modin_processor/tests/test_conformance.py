"""distcore-modin holds what every processor must hold whose tasks run elsewhere, also when Ray
was started twice."""

from typing import ClassVar

import pytest

from distcore_testing import ClusterProcessorSuite, PluginSuite

pytestmark = pytest.mark.cluster


class TestPlugin(PluginSuite):
    kind, name = "processors", "modin"


# What `make clusters` shows of it is in test_processor.py, and in distcore-ray's test_losses.py.
@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
class TestProcessor(ClusterProcessorSuite):
    name = "modin"
    variants: ClassVar = ({}, {"parallelism": 1}, {"parallelism": 7})
