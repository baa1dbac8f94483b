"""distcore-local holds what every backend, processor, loader and trainer must hold."""

from typing import ClassVar

import pytest

from distcore_testing import (
    BackendSuite,
    LoaderSuite,
    PluginSuite,
    ProcessorSuite,
    StrategySuite,
    TrainerSuite,
)


class TestPlugin(PluginSuite):
    kind, name = "backends", "local"


@pytest.mark.system
class TestBackend(BackendSuite):
    name = "local"


class TestProcessor(ProcessorSuite):
    name = "local"
    variants = ({"parallelism": 1}, {"parallelism": 2}, {"parallelism": 5})


class TestLoader(LoaderSuite):
    name = "packed"
    variants = ({}, {"prefetch": 0}, {"fully_executed": True}, {"fully_executed": False})


class TestLoaderOfWindows(LoaderSuite):
    """Windows much smaller than the split."""

    name = "packed"
    options: ClassVar = {"window_size_bytes": 4096, "lanes": 4}
    variants = (
        {**options, "fully_executed": False},
        {**options, "fully_executed": True},
        {**options, "prefetch": 0},
    )


@pytest.mark.system
class TestDataParallel(StrategySuite):
    strategy = "distcore_local.data_parallel:DataParallel"


class TestLocalTrainer(TrainerSuite):
    name = "local"


@pytest.mark.slow  # two ranks for each training; horovod's are in `make clusters`
class TestDdpTrainer(TrainerSuite):
    name = "data_parallel"
    options: ClassVar = {"num_workers": 2, "resources_per_worker": {"CPU": 1}, "use_gpu": False}
