"""distcore-report holds what every plugin, extension, command and section must hold."""

from distcore_testing import ExtensionSuite, PluginSuite


class TestPlugin(PluginSuite):
    kind, name = "extensions", "report"


class TestExtension(ExtensionSuite):
    name = "report"
    events = ("results_written",)
