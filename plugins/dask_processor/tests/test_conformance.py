"""distcore-dask holds what every processor must hold, on Dask's own threads."""

from distcore_testing import PluginSuite, ProcessorSuite


class TestPlugin(PluginSuite):
    kind, name = "processors", "dask"


class TestProcessor(ProcessorSuite):
    name = "dask"
    variants = ({}, {"parallelism": 1}, {"parallelism": 7}, {"persist": False})
