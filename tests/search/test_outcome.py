"""What a search leaves when it is interrupted."""

import shutil
from types import SimpleNamespace

import pytest

from distcore.search.outcome import _delivered, conclude, delivered_before
from distcore_core.errors import ArtifactError, TrainingError
from distcore_search.objective import Objective
from distcore_search.records import ROUNDS, read_record, write_record
from distcore_search.rounds import add_round


def test_an_earlier_end_s_model_is_no_trial_s_if_none_is_there(tmp_path):
    """An IndexError hid that the search was stopped."""
    assert delivered_before(tmp_path, []) is None


def test_a_best_model_that_cannot_be_copied_says_why(tmp_path, monkeypatch):
    """A full disk ended a search whose trials were done with an error that nobody expected, and
    without its statistics."""

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    (tmp_path / "trial").mkdir()
    (tmp_path / "trial" / "weights").touch()
    monkeypatch.setattr(shutil.copytree, "__defaults__", (False, None, full, False, False))
    with pytest.raises(ArtifactError, match=r"cannot be copied to .*: .*No space left on device"):
        _delivered(tmp_path / "trial", tmp_path / "model", {})
    assert not (tmp_path / "model").exists()
    monkeypatch.undo()
    monkeypatch.setattr("distcore.search.outcome.check_model", lambda made, record: None)
    monkeypatch.setattr("distcore_core.io.atomic.commit_directory", full)
    with pytest.raises(ArtifactError, match=r"cannot be copied to .*: No space left on device"):
        _delivered(tmp_path / "trial", tmp_path / "model", {})


def test_of_a_best_model_that_is_gone_it_is_said_where_its_values_are(tmp_path):
    """It said to remove the trial's folder, which holds the only record of them."""
    objective = Objective("y", "loss", "minimize", "validation")
    work = SimpleNamespace(objective=objective, directory=tmp_path)
    work.folder = lambda name: tmp_path / "trials" / name
    record = {"name": "0000", "state": "finished", "score": 0.5, "parameters": {"a": 1}}
    write_record(work.folder("0000"), {**record, "model": "0" * 64})
    session = SimpleNamespace(results_written=lambda: None)
    with pytest.raises(TrainingError, match=r"is missing\..* no model was delivered\. ") as caught:
        conclude(session, work, {}, {"skip_save_hyperopt_statistics"})
    assert "remove" not in str(caught.value)
    assert f"go on with --model_resume_path {tmp_path}; or train once with" in str(caught.value)
    assert read_record(work.folder("0000"))["parameters"] == {"a": 1}


def test_where_the_best_trial_s_model_cannot_be_written_the_next_one_s_is_taken(
    tmp_path, monkeypatch, caplog
):
    objective = Objective("y", "loss", "minimize", "validation")
    work = SimpleNamespace(objective=objective, directory=tmp_path)
    work.folder = lambda name: tmp_path / "trials" / name
    more = {"0000": {"state": "stopped"}, "0001": {"state": "finished", "model": "0" * 64}}
    for loss, (name, each) in enumerate(more.items()):
        write_record(work.folder(name), {"name": name, "score": loss, "parameters": {}, **each})
        metrics = {"validation": {"y": {"loss": loss}}}
        told = {"step": 1, "epoch": 1, "seconds": 1.0, "metrics": metrics}
        add_round(work.folder(name) / ROUNDS, told)
    (work.folder("0001") / "model").mkdir()
    (work.folder("0001") / "model" / "model.json").write_text("1")

    def refused(*_):
        raise TrainingError("Its rows are gone.")

    monkeypatch.setattr("distcore.search.outcome.finish_stopped", refused)
    monkeypatch.setattr("distcore.search.outcome.check_model", lambda made, record: None)
    session = SimpleNamespace(results_written=lambda: None)
    found = conclude(session, work, {}, {"skip_save_hyperopt_statistics"})
    assert found.best["name"] == "0000"
    assert (found.model / "model.json").read_text() == "1"
    assert "The model of trial 0000 cannot be written: Its rows are gone." in caplog.messages
    assert "Trial 0000 has the best score, but its model was not saved." in caplog.messages
