"""distcore-ridge holds what every plugin and every trainer must hold."""

import distcore
from distcore_testing import PluginSuite, TrainerSuite, data


class TestPlugin(PluginSuite):
    kind, name = "trainers", "ridge"


class TestTrainer(TrainerSuite):
    """It draws nothing, and each output has coefficients of its own."""

    name, random, weighs_losses = "ridge", False, False


def test_an_experiment_by_config_finds_the_coefficients(tmp_path):
    """z is 3 (x0 - x1 / 2 + red) + 1, but for the missing values."""
    config = data.config(str(tmp_path / "cache"), output_features=[{"name": "z", "type": "number"}])
    config["backend"]["trainer"] = {"type": "ridge", "penalty": 0.001}
    outcome = distcore.experiment(config, data.table(), output_directory=tmp_path)
    assert outcome.test_statistics["z"]["r2"] > 0.85


def test_a_number_is_clipped(tmp_path):
    output = {"name": "z", "type": "number", "clip": [0.0, 1.5]}
    config = data.config(str(tmp_path / "cache"), output_features=[output])
    config["backend"]["trainer"] = {"type": "ridge"}
    outcome = distcore.experiment(config, data.table(), output_directory=tmp_path)
    said = distcore.load(outcome.model).predict(data.table())["z_predictions"].to_pylist()
    assert (min(said), max(said)) == (0.0, 1.5)
