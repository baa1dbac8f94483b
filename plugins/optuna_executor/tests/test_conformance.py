"""distcore-optuna holds what distcore asks of every plugin and of every executor."""

from distcore.testing import ExecutorSuite, PluginSuite


class TestPlugin(PluginSuite):
    kind, name = "executors", "local"


class TestPluginByLudwigsName(PluginSuite):
    kind, name = "executors", "optuna"


class TestLocal(ExecutorSuite):
    name = "local"
