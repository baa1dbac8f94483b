"""distcore-avro holds what every cache format must hold."""

from distcore_testing import CacheFormatSuite, PluginSuite


class TestPlugin(PluginSuite):
    kind, name = "caches", "avro"


class TestFormat(CacheFormatSuite):
    name = "avro"
