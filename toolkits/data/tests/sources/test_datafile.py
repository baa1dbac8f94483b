"""A dataset's file as it was: what counts as another version of it."""

import os

import pytest

from distcore_core.errors import DataError
from distcore_data.sources.datafile import DataFile, file_system

MOUNTS = """\
36 35 98:0 / / rw,noatime shared:1 - ext4 /dev/root rw,errors=continue
41 36 0:52 / /mnt/bucket rw,nosuid - fuse.gcsfuse bucket rw,user_id=0
42 36 0:53 / /mnt/a\\040b rw - nfs4 server:/ rw
"""


def test_the_kind_of_a_file_system():
    assert file_system(os.makedev(98, 0), MOUNTS) == "ext4"
    assert file_system(os.makedev(0, 52), MOUNTS) == "fuse.gcsfuse"
    assert file_system(os.makedev(0, 53), MOUNTS) == "nfs4"
    assert file_system(os.makedev(7, 7), MOUNTS) == ""


def test_a_file_that_changed_just_now_is_digested_and_an_old_one_is_not(tmp_path, monkeypatch):
    path = tmp_path / "data.csv"
    path.write_bytes(b"x\n1\n")
    assert DataFile.given(path, "data.csv").content is not None
    monkeypatch.setattr("distcore_data.sources.datafile.RECENT", 0.0)
    assert DataFile.given(path, "data.csv").content is None


def test_a_write_that_its_times_do_not_tell_of_is_found_by_content(tmp_path, monkeypatch):
    """As of one that was under way when the file was opened."""
    path = tmp_path / "data.csv"
    path.write_bytes(b"x\n1\n")
    file = DataFile.given(path, "data.csv")
    file.check(content=True)
    path.write_bytes(b"x\n2\n")
    now = DataFile.at(path, "data.csv")
    monkeypatch.setattr("distcore_data.sources.datafile.state_of", lambda path: file.state)
    assert now.state != file.state
    file.check()
    with pytest.raises(DataError, match=r"data\.csv: the file changed while it was being read"):
        file.check(content=True)


@pytest.mark.parametrize("fails", [False, True])
def test_a_file_that_is_removed_while_it_is_read_is_told_of(tmp_path, fails):
    path = tmp_path / "data.csv"
    path.write_bytes(b"x\n1\n")
    file = DataFile.given(path, "data.csv")

    def read():
        with file.unchanged():
            path.unlink()
            if fails:
                path.read_bytes()

    with pytest.raises(DataError, match=r"data\.csv: the file was removed, or got another name"):
        read()


def test_a_file_that_is_removed_before_a_change_would_show_is_told_of(tmp_path, monkeypatch):
    path = tmp_path / "data.csv"
    path.write_bytes(b"x\n1\n")
    monkeypatch.setattr("distcore_data.sources.datafile.TICK", 1e9)
    monkeypatch.setattr("time.sleep", lambda seconds: path.unlink())
    with pytest.raises(DataError, match=r"data\.csv: the file was removed, or got another name"):
        DataFile.given(path, "data.csv")
