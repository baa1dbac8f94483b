"""A file and the list that vouches for it are never both without the other."""

import json

import pytest

from distcore_core.errors import UserError
from distcore_core.io import atomic
from distcore_search import vouched
from distcore_search.vouched import DIGESTS, read_vouched, write_vouched


def killed_between(monkeypatch, path, document):
    """The list is written, the file is not."""

    def write(target, content):
        if target == path:
            raise KeyboardInterrupt
        atomic.write_file(target, content)

    with monkeypatch.context() as patch:
        patch.setattr(vouched, "write_file", write)
        with pytest.raises(KeyboardInterrupt):
            write_vouched(path, document)


@pytest.mark.parametrize("kills", [1, 2, 3])
def test_a_file_is_vouched_for_however_often_its_writing_was_killed(tmp_path, monkeypatch, kills):
    path = tmp_path / "scores.json"
    write_vouched(path, {"loss": 1.0})
    for number in range(kills):
        killed_between(monkeypatch, path, {"loss": 2.0 + number})
        assert read_vouched(path) == {"loss": 1.0}
    write_vouched(path, {"loss": 9.0})
    assert read_vouched(path) == {"loss": 9.0}


def test_the_list_is_the_same_whether_a_process_was_killed_before_or_not(tmp_path, monkeypatch):
    path = tmp_path / "scores.json"
    killed_between(monkeypatch, path, {"loss": 1.0})
    write_vouched(path, {"loss": 1.0})
    write_vouched(path, {"loss": 1.0})
    assert len(json.loads((tmp_path / DIGESTS).read_text())["files"]["scores.json"]) == 1


@pytest.mark.parametrize("vouched_for", [True, False])
def test_a_file_that_was_changed_later_or_that_nobody_vouches_for_is_refused(tmp_path, vouched_for):
    path = tmp_path / "scores.json"
    write_vouched(path if vouched_for else tmp_path / "others.json", {"loss": 1.0})
    path.write_text('{"loss": 0.5}')
    with pytest.raises(UserError, match=r"scores\.json .*its digest is not the one in"):
        read_vouched(path)
