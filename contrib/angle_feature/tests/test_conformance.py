"""distcore-angle holds what every plugin and every feature must hold."""

from typing import ClassVar

import pyarrow as pa

import distcore
from distcore_testing import FeatureSuite, PluginSuite, data


class TestPlugin(PluginSuite):
    kind, name = "features", "angle"


class TestAngle(FeatureSuite):
    name = "angle"
    options: ClassVar = {"offset": 90.0}

    def values(self):
        return pa.array([None if each % 7 == 0 else each * 1.5 for each in range(300)])


def test_a_run_with_an_angle(tmp_path):
    config = data.config(str(tmp_path / "cache"))
    config["input_features"].append({"name": "wind", "type": "angle", "offset": 90})
    table = data.table().append_column("wind", pa.array([each * 0.6 for each in range(600)]))
    outcome = distcore.experiment(config, table, output_directory=tmp_path)
    assert distcore.load(outcome.model).predict(table).num_rows == 600
