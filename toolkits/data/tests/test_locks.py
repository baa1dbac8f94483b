"""Locks, and processes that are forked while one is held."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from distcore_data.cache.use import FolderUse
from distcore_data.locks import (
    file_if_free,
    folder_if_free,
    is_held,
    lock_file,
    locked,
    locked_if_free,
)


@contextmanager
def used(folder: Path) -> Iterator[None]:
    handle = lock_file(folder / "manifest.json", fcntl.LOCK_SH)
    assert handle is not None
    use = FolderUse(handle)
    try:
        yield
    finally:
        use.close()


LOCKS: dict[str, Callable[[Path], AbstractContextManager[Any]]] = {
    "file": lambda folder: locked(folder / "a.lock"),
    "file, if it is free": lambda folder: locked_if_free(folder / "a.lock"),
    "folder": lambda folder: folder_if_free(folder),
    "cache": used,
    "cache, if it is free": lambda folder: file_if_free(folder / "manifest.json", unwritable=True),
}


def forked(work: Callable[[], None]) -> int:
    """The process that does the work and then waits; it has begun to wait."""
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        work()
        os.write(writing, b".")
        signal.pause()
    os.close(writing)
    assert os.read(reading, 1) == b"."
    os.close(reading)
    return process


def ended(process: int) -> None:
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "manifest.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize("name", LOCKS)
def test_a_forked_process_does_not_hold_a_lock_that_was_given_up(folder: Path, name: str) -> None:
    """A run's folder was taken for one at work for as long as any process lived that its program
    forked meanwhile."""
    with LOCKS[name](folder):
        process = forked(lambda: None)
        kind = name.partition(",")[0]
        place = {"folder": folder, "cache": folder / "manifest.json"}.get(kind, folder / "a.lock")
        waiting = os.open(place, os.O_RDONLY)  # of somebody who came meanwhile
    try:
        fcntl.flock(waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(waiting)
        ended(process)


def test_a_forked_process_gives_up_no_lock_of_its_parent(folder: Path) -> None:
    """It may close what it has of its parent's, such as the use of a cache."""
    handle = lock_file(folder / "manifest.json", fcntl.LOCK_SH)
    assert handle is not None
    use = FolderUse(handle)
    ended(forked(use.close))
    try:
        with pytest.raises(BlockingIOError):
            lock_file(folder / "manifest.json", fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        use.close()


@pytest.mark.parametrize("lock", [locked, locked_if_free])
def test_a_forked_process_that_leaves_the_block_leaves_the_lock_to_its_parent(
    folder: Path, lock: Callable[[Path], AbstractContextManager[Any]]
) -> None:
    """With the name of its file gone, somebody else would hold another one."""
    path = folder / "a.lock"
    with ExitStack() as stack:
        stack.enter_context(lock(path))
        ended(forked(stack.close))
        with locked_if_free(path) as free:
            assert not free
    assert not path.exists()


def test_a_folder_is_held_by_one_at_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with folder_if_free(folder) as first, folder_if_free(folder) as second:
        assert (first, second) == (True, False)
    with folder_if_free(folder) as free:
        assert free

    def lockless(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", lockless)
    for unknown in (True, False):
        with folder_if_free(folder, unknown) as free:
            assert free is unknown


@pytest.mark.parametrize("name", ["file, if it is free", "folder"])
def test_who_looks_whether_a_lock_is_held_keeps_nobody_from_it(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may ask at the very moment, as `runs` does."""
    place = folder if name == "folder" else folder / "a.lock"
    place.touch()
    look, real = os.open(place, os.O_RDONLY), fcntl.flock
    real(look, fcntl.LOCK_SH)

    def flock(handle: int, how: int) -> None:
        try:
            real(handle, how)
        except BlockingIOError:
            real(look, fcntl.LOCK_UN)  # it has seen what it wanted
            raise

    monkeypatch.setattr(fcntl, "flock", flock)
    with LOCKS[name](folder) as free:
        assert free
    os.close(look)


@pytest.mark.parametrize("name", ["file, if it is free", "folder"])
def test_who_goes_on_sharing_a_lock_holds_it(folder: Path, name: str) -> None:
    place = folder if name == "folder" else folder / "a.lock"
    place.touch()
    shared = os.open(place, os.O_RDONLY)
    fcntl.flock(shared, fcntl.LOCK_SH)
    with LOCKS[name](folder) as free:
        assert not free
    os.close(shared)


@pytest.mark.usefixtures("in_a_minute")
def test_a_pipe_in_the_place_of_a_lock_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.lock")
    assert not is_held(tmp_path / "a.lock")


def test_a_link_in_the_place_of_a_lock_is_not_followed(tmp_path: Path) -> None:
    """In a folder of several users it could have a file made wherever its maker wants."""
    link = tmp_path / "a.lock"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link") as caught, locked(link):
        pass
    assert caught.value.errno == errno.ELOOP
    assert link.is_symlink()
    assert not (tmp_path / "elsewhere").exists()
