"""distcore-spawn holds what every plugin and every backend must hold."""

import pytest

import distcore
from distcore_testing import BackendSuite, PluginSuite, data


class TestPlugin(PluginSuite):
    kind, name = "backends", "spawn"


@pytest.mark.system
class TestBackend(BackendSuite):
    name = "spawn"


@pytest.mark.system
def test_an_experiment_by_config(tmp_path):
    """With two ranks; the model is that of the backend `local`."""
    weights = []
    for backend in ("spawn", "local"):
        config = data.config(str(tmp_path / "cache"))
        config["trainer"] |= {"epochs": 8, "learning_rate": 0.01, "exact": True}
        config["backend"] |= {
            "type": backend,
            "trainer": {"type": "data_parallel", "num_workers": 2},
        }
        outcome = distcore.experiment(config, data.table(), output_directory=tmp_path / backend)
        assert outcome.test_statistics["y"]["accuracy"] > 0.6
        weights.append((outcome.model / "weights.safetensors").read_bytes())
    assert weights[0] == weights[1]
