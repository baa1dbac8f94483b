"""For every test of the workspace: no time limit for a property's example, and tests that start clusters run in turn.

A busy machine is no bug, so hypothesis has no deadline, and slow draws fail nothing. `make test` shares the tests out
over two processes, a file to each: tests marked `cluster` (Ray, Dask, Horovod) stay together in one of them, because
two clusters at once on two cores would only wait for each other, and they start first, because they take longest.
"""

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("distcore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("distcore")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One group a file for `--dist loadgroup`, and one for everything that starts a cluster."""
    for item in items:
        if not any(item.iter_markers("xdist_group")):
            cluster = any(item.iter_markers("cluster"))
            item.add_marker(pytest.mark.xdist_group("cluster" if cluster else str(item.path)))
    items.sort(key=lambda item: not any(item.iter_markers("cluster")))
