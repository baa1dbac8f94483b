"""The app's own commands that are plugins hold what every command must hold."""

import distcore
from distcore_testing import CommandSuite, PluginSuite, data


class TestPlugin(PluginSuite):
    kind, name = "commands", "cache"


class TestCache(CommandSuite):
    name = "cache"

    def words(self, folder):
        if not (folder / "cache").exists():
            distcore.preprocess(data.config(str(folder / "cache")), dataset=data.table())
        return ["verify", "--cache_dir", "cache"]

    def mistake(self, folder):
        return ["list", "--cache_dir", "nowhere://bucket/cache"]
