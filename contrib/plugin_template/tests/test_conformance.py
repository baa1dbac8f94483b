"""distcore-lines holds what every plugin and every extension must hold."""

from distcore_testing import ExtensionSuite, ManifestSuite, PluginSuite


class TestPlugin(PluginSuite):
    kind, name = "extensions", "lines"


class TestManifest(ManifestSuite):
    distribution = "distcore-lines"


class TestExtension(ExtensionSuite):
    name = "lines"
    events = ("epoch_finished",)

    def options_in(self, folder):
        return {"path": str(folder / "evaluations.jsonl")}
