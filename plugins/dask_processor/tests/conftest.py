"""A small Ray for the tests of a module. Ray gives its own start half a minute, which a busy
machine may not keep."""

import pytest

STARTS = 4


@pytest.fixture(scope="module")
def ray_cluster():
    """Ray on two CPUs of this machine."""
    import ray

    for left in reversed(range(STARTS)):
        try:
            ray.init(
                address="local",
                num_cpus=2,
                include_dashboard=False,
                log_to_driver=False,
                object_store_memory=256 << 20,
            )
            break
        except Exception as error:  # Ray raises a bare Exception
            ray.shutdown()
            if not left or "timed out during startup" not in str(error):
                raise
    yield ray
    ray.shutdown()
