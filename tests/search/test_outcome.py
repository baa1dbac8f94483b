"""What a search leaves when it is interrupted."""

import shutil

import pytest

from distcore.search.outcome import _delivered, delivered_before
from distcore_core.errors import ArtifactError


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
