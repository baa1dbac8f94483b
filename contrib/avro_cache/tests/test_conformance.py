"""distcore-avro holds what every cache format must hold."""

import distcore
from distcore_testing import CacheFormatSuite, PluginSuite, data


class TestPlugin(PluginSuite):
    kind, name = "caches", "avro"


class TestFormat(CacheFormatSuite):
    name = "avro"


def test_a_run_with_it_trains(tmp_path):
    config = data.config(str(tmp_path / "cache"))
    config["backend"]["cache_format"] = "avro"
    outcome = distcore.train(config, data.table(), output_directory=tmp_path / "results")
    assert outcome.model.is_dir()
    assert list((tmp_path / "cache").rglob("train/*.avro"))
