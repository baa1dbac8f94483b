"""What is installed, found in the metadata of distributions."""

import shutil
from importlib import metadata

import pytest

from distcore_core.registry.index import Installed, all_offers


def test_a_distributions_metadata_are_read_once_whatever_it_offers(tmp_path, monkeypatch):
    info = tmp_path / "many-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: many\nVersion: 1.0\n")
    lines = "".join(f"number{each} = many\n" for each in range(20))
    (info / "entry_points.txt").write_text(f"[distcore.extensions]\n{lines}")
    monkeypatch.syspath_prepend(str(tmp_path))
    # The backport of importlib.metadata, once anything has imported it, finds in its place.
    (found,) = metadata.distributions(path=[str(tmp_path)])
    read, text_of = [], type(found).read_text

    def counted(self, name):
        if name == "METADATA" and self._path == info:
            read.append(name)
        return text_of(self, name)

    monkeypatch.setattr(type(found), "read_text", counted)
    offers = [each for each in all_offers()["extensions"] if each.distribution == "many"]
    assert len(offers) == 20
    assert len(read) == 1  # its name and its version


def test_metadata_are_read_again_once_something_was_installed_or_removed(tmp_path, monkeypatch):
    reads, read = [], metadata.entry_points
    monkeypatch.setattr(metadata, "entry_points", lambda: reads.append(1) or read())
    monkeypatch.setattr("sys.path", [str(tmp_path)])  # others may be installed meanwhile
    assert all_offers() is all_offers()
    assert len(reads) == 1
    info = tmp_path / "later-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: later\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[distcore.extensions]\nlater = later\n")
    assert "later" in Installed().names("extensions")
    assert "later" in Installed().names("extensions")
    assert len(reads) == 2
    shutil.rmtree(info)
    assert "later" not in Installed().names("extensions")
    assert len(reads) == 3


@pytest.mark.parametrize("finder", ["of Python", "of importlib_metadata"])
def test_a_distribution_without_a_name_is_left_out(tmp_path, monkeypatch, finder):
    """What pip is just removing, beside what took its place."""
    if finder == "of importlib_metadata":  # once something imports it, it answers for Python's
        pytest.importorskip("importlib_metadata")
    for folder in ("~ne-1.0.dist-info", "one-1.1.dist-info"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "entry_points.txt").write_text("[distcore.extensions]\none = one\n")
    (tmp_path / "one-1.1.dist-info/METADATA").write_text("Name: one\nVersion: 1.1\n")
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert Installed().find("extensions", "one").version == "1.1"
