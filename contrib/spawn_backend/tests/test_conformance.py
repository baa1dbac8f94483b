"""distcore-spawn holds what every plugin and every backend must hold."""

from multiprocessing import Pipe
from types import SimpleNamespace

import pytest

import distcore
from distcore_core.errors import Diverged, RankLost, StoreError, TrainingError
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


@pytest.mark.parametrize(
    ("error", "attempts"),
    [(Diverged("NaN"), 1), (StoreError("busy"), 3), (RankLost("1 died"), 3)],
)
def test_what_another_attempt_would_meet_again_is_raised_at_once(monkeypatch, error, attempts):
    from distcore_spawn.backend import SpawnBackend  # seen by tests alone

    made = []

    def attempt(self, group):
        made.append(group)
        raise error

    monkeypatch.setattr(SpawnBackend, "_attempt", attempt)
    with pytest.raises(type(error)):
        SpawnBackend().run_group(SimpleNamespace(max_retries=2))
    assert len(made) == attempts


def test_a_rank_that_died_is_started_again():
    from distcore_spawn.backend import _told

    mine, theirs = Pipe()
    theirs.close()
    with pytest.raises(TrainingError, match="rank 1 died") as caught:
        _told(mine, 1)
    assert not caught.value.recurs
