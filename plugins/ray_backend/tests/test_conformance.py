"""distcore-ray holds what every backend must hold, on a cluster of three nodes: a minute and a
half of worker groups."""

import pytest

from distcore_testing import BackendSuite, PluginSuite

pytestmark = pytest.mark.cluster


class TestPlugin(PluginSuite):
    kind, name = "backends", "ray"


@pytest.mark.slow
@pytest.mark.usefixtures("nodes")
class TestBackend(BackendSuite):
    name = "ray"
