"""Files and folders are whole or not there, are on disk before they have a name, and failures
are told in words."""

import errno
import hashlib
import os

import pytest
import xxhash

from distcore_core.io.atomic import (
    DirectoryBuilder,
    commit_directory,
    remove_directory,
    sync_tree,
    write_file,
    write_new_file,
)
from distcore_core.io.digest import Digest, digest_file


@pytest.fixture
def calls(monkeypatch):
    """What is renamed and forced to disk, in order; the real calls are made."""
    seen = []
    fsync, rename, replace = os.fsync, os.rename, os.replace

    def spy_fsync(handle):
        seen.append(("fsync", os.path.basename(os.readlink(f"/proc/self/fd/{handle}"))))
        return fsync(handle)

    def spy_rename(real):
        def call(source, target):
            seen.append(("rename", os.path.basename(target)))
            return real(source, target)

        return call

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(os, "rename", spy_rename(rename))
    monkeypatch.setattr(os, "replace", spy_rename(replace))
    return seen


def test_write_file_returns_the_digests_of_what_is_on_disk(tmp_path):
    content = os.urandom(3_000_001)
    digest = write_file(tmp_path / "a", content)
    assert (tmp_path / "a").read_bytes() == content
    assert digest == Digest(
        len(content), xxhash.xxh3_64_hexdigest(content), hashlib.sha256(content).hexdigest()
    )
    assert digest == digest_file(tmp_path / "a")


def test_write_file_forces_bytes_before_the_name_and_the_name_after(tmp_path, calls):
    write_file(tmp_path / "a", b"1")
    (kind, temporary), *rest = calls
    assert kind == "fsync"
    assert temporary.startswith(".a.")
    assert rest == [("rename", "a"), ("fsync", tmp_path.name)]


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    write_file(tmp_path / "a", b"old")

    def fail(file):
        file.write(b"half of the new")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "a", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_write_new_file_never_touches_a_file_that_is_there(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        write_new_file(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"


def test_commit_directory_forces_everything_before_it_has_its_name(tmp_path, calls):
    temporary = tmp_path / "t"
    (temporary / "deep").mkdir(parents=True)
    (temporary / "a").write_bytes(b"1")
    (temporary / "deep" / "b").write_bytes(b"2")
    commit_directory(temporary, tmp_path / "final")
    renamed = calls.index(("rename", "final"))
    assert {name for kind, name in calls[:renamed] if kind == "fsync"} == {"a", "b", "deep", "t"}
    assert calls[renamed + 1 :] == [("fsync", tmp_path.name)]
    assert (tmp_path / "final" / "deep" / "b").read_bytes() == b"2"
    assert not temporary.exists()


def test_files_that_are_on_disk_already_are_not_forced_again(tmp_path, calls):
    (tmp_path / "t" / "deep").mkdir(parents=True)
    write_new_file(tmp_path / "t" / "deep" / "b", b"2")
    calls.clear()
    sync_tree(tmp_path / "t", synced={"deep/b"})
    assert calls == [("fsync", "deep"), ("fsync", "t")]


def test_commit_directory_refuses_a_name_that_is_taken_meanwhile(tmp_path, monkeypatch):
    real, final = os.rename, tmp_path / "final"

    def taken(old, new):
        real(old, new)
        if old == final:
            final.mkdir()

    (tmp_path / "t").mkdir()
    final.mkdir()
    (final / "old").write_bytes(b"1")
    monkeypatch.setattr(os, "rename", taken)
    with pytest.raises(FileExistsError):
        commit_directory(tmp_path / "t", final)
    assert (tmp_path / "t").exists()
    assert (final / "old").read_bytes() == b"1"


@pytest.mark.parametrize("there", ["folder", "file", "link", "nothing"])
def test_commit_directory_replaces_as_a_whole(tmp_path, there):
    final = tmp_path / "final"
    if there == "folder":
        final.mkdir()
        (final / "old").write_bytes(b"1")
    elif there == "file":
        final.write_bytes(b"1")
    elif there == "link":
        (tmp_path / "t0").mkdir()
        final.symlink_to(tmp_path / "t0")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "new").write_bytes(b"2")
    commit_directory(tmp_path / "t", final)
    assert [path.name for path in final.iterdir()] == ["new"]
    assert {path.name for path in tmp_path.iterdir()} <= {"final", "t0"}
    assert not final.is_symlink()


@pytest.mark.parametrize("there", [True, False])
def test_a_name_that_cannot_be_forced_to_disk_is_taken_back(tmp_path, monkeypatch, there):
    """The last step of all: what was there before has its name again, what should replace it has
    its own."""
    real = os.fsync

    def full(handle):
        if os.readlink(f"/proc/self/fd/{handle}") == str(tmp_path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    (tmp_path / "t").mkdir()
    if there:
        (tmp_path / "final").mkdir()
        (tmp_path / "final" / "old").write_bytes(b"1")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        commit_directory(tmp_path / "t", tmp_path / "final")
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert found == (["final", "final/old", "t"] if there else ["t"])


@pytest.mark.parametrize(
    ("there", "number"),
    [("folder", 1), ("folder", 2), ("link", 1), ("link", 2), ("nothing", 1)],
)
@pytest.mark.parametrize("after", [True, False])
def test_a_signal_that_comes_with_a_rename_leaves_the_old_folder(
    tmp_path, monkeypatch, there, number, after
):
    """Python raises it once the call has come back: the old version had no name then, or the new
    one was in its place."""
    real, renames = os.rename, []

    def rename(old, new):
        renames.append(old)
        if len(renames) == number and not after:
            raise KeyboardInterrupt
        real(old, new)
        if len(renames) == number:
            raise KeyboardInterrupt

    final, kept = tmp_path / "final", tmp_path / "kept"
    kept.mkdir()
    (kept / "old").write_bytes(b"1")
    if there == "folder":
        kept.rename(final)
    elif there == "link":
        final.symlink_to(kept)
    before = sorted(tmp_path.rglob("*"))

    def replaced():
        with DirectoryBuilder(final) as folder:
            (folder / "new").write_bytes(b"2")
            monkeypatch.setattr(os, "rename", rename)

    with pytest.raises(KeyboardInterrupt):
        replaced()
    assert sorted(tmp_path.rglob("*")) == before
    assert final.is_symlink() == (there == "link")


def test_a_replacement_that_fails_puts_the_old_folder_back(tmp_path):
    (tmp_path / "final").mkdir()
    (tmp_path / "final" / "old").write_bytes(b"1")

    class Gone(os.PathLike):
        """A folder that is there while it is forced to disk, and gone when it is to be renamed."""

        def __fspath__(self):
            return str(tmp_path / "t")

    with pytest.raises(FileNotFoundError):
        commit_directory(Gone(), tmp_path / "final")
    assert [path.name for path in tmp_path.iterdir()] == ["final"]
    assert (tmp_path / "final" / "old").read_bytes() == b"1"


def test_directory_builder_gives_the_whole_folder_or_nothing(tmp_path):
    with DirectoryBuilder(tmp_path / "final") as folder:
        (folder / "a").write_bytes(b"1")
        assert not (tmp_path / "final").exists()
    assert (tmp_path / "final" / "a").read_bytes() == b"1"

    def stopped():
        with DirectoryBuilder(tmp_path / "other") as folder:
            (folder / "a").write_bytes(b"1")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert [path.name for path in tmp_path.iterdir()] == ["final"]


def test_remove_directory_takes_the_name_away_first(tmp_path, calls):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"1")
    remove_directory(tmp_path / "a")
    assert calls[0][0] == "rename"
    assert list(tmp_path.iterdir()) == []
    remove_directory(tmp_path / "a")
