"""Whether the nodes of a cluster see the places of a search and of a training: asked before any
work."""

import pyarrow.csv as pacsv
import pytest

import distcore
from distcore_core.errors import UserError
from distcore_local.backend import LocalBackend
from distcore_testing import data


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """What the backend was asked for, {what it is: path}; it says that a node does not see it."""
    told = {}

    def blind(self, read, written):
        told.update(read, **written)
        raise UserError("The node 10.0.0.1 of the cluster does not see it.")

    monkeypatch.setattr(LocalBackend, "check_storage", blind)
    monkeypatch.chdir(tmp_path)
    pacsv.write_csv(data.table(100), "data.csv")
    return told


def test_a_search_asks_for_its_places_before_any_work(asked, tmp_path):
    """A trial on a node that does not see them was trained to its end, and lost."""
    section = {
        "goal": "minimize",
        "metric": "loss",
        "output_feature": "y",
        "parameters": {"trainer.learning_rate": {"space": "uniform", "lower": 0.1, "upper": 0.2}},
    }
    with pytest.raises(UserError, match="does not see it"):
        distcore.hyperopt(data.config("cache", hyperopt=section), "data.csv", view="none")
    assert set(asked.values()) == {"data.csv", "cache", "results"}
    assert [each.name for each in tmp_path.iterdir()] == ["data.csv"]


def test_a_training_asks_for_the_model_it_starts_from(asked, tmp_path, monkeypatch):
    with monkeypatch.context() as seeing:
        seeing.setattr(LocalBackend, "check_storage", lambda *_: None)
        found = distcore.train(data.config("cache"), "data.csv", view="none")
    with pytest.raises(UserError, match="does not see it"):
        distcore.train(
            data.config("cache"), "data.csv", model_load_path=found.directory, view="none"
        )
    assert str(found.directory) in asked.values()
