"""What is said of a disk: that it is full, or that it takes no more files, which the system
calls by one name."""

import copy
import errno
import os
import resource
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from distcore_core.errors import CacheError, CheckpointError, DataError, UserError
from distcore_data.os_errors import explained, in_words, is_of_the_system, note_whom, room

FILL = """
import sys
from pathlib import Path
from distcore_data.os_errors import explained
from distcore_core.errors import CacheError

try:
    with explained(sys.argv[1], "the cache"):
        for number in range(100):
            Path(sys.argv[1], str(number)).write_bytes(bytes(int(sys.argv[2])))
except CacheError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("options", "size", "said"),
    [
        ("nr_inodes=10", 0, "it takes no more files: all of its 10 inodes are used"),
        ("size=64k", 8192, "of 65.5 kB are free"),
    ],
)
def test_inodes_are_not_called_bytes(tmp_path: Path, options: str, size: int, said: str) -> None:
    words = (
        f'mount -t tmpfs -o {options} none {tmp_path} && {sys.executable} -c "$0" {tmp_path} {size}'
    )
    for command in (["unshare", "-m"], ["unshare", "-rm"]):
        if (
            shutil.which("unshare") is None
            or subprocess.run([*command, "true"], capture_output=True).returncode
        ):
            continue
        done = subprocess.run([*command, "sh", "-c", words, FILL], capture_output=True, text=True)
        if "mount" in done.stderr:
            continue
        assert done.returncode == 0, done.stderr
        assert "no space left on device; " in done.stdout.lower()
        assert said in done.stdout
        return
    pytest.skip("no mount namespace is allowed here")


def test_inodes_that_are_free_again_are_not_called_bytes(tmp_path, monkeypatch):
    """What was begun is removed before it is told. A disk that is nearly full of files stands in for
    one."""
    found = SimpleNamespace(f_files=27, f_favail=6, f_bavail=9, f_blocks=9, f_bfree=9, f_frsize=1)
    monkeypatch.setattr(os, "statvfs", lambda path: found)
    assert room(tmp_path).startswith("; it takes only 6 more files of the 27 that its inodes are")


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOSPC, CheckpointError, "There is no room for the checkpoint"),
        (errno.EDQUOT, CheckpointError, "There is no room for the checkpoint"),
        (errno.EROFS, UserError, "cannot be written"),
        (errno.EACCES, UserError, "cannot be written"),
        (errno.EIO, CheckpointError, "failed"),
        (errno.EFBIG, CheckpointError, "raise that limit (`ulimit -f`), or set"),
    ],
)
def test_storage_errors_say_where_and_what_to_do(tmp_path, number, kind, words):
    with (
        pytest.raises(kind) as caught,
        explained(
            tmp_path, "the checkpoint", CheckpointError, advice="set another output_directory"
        ),
    ):
        raise OSError(number, os.strerror(number))
    text = str(caught.value)
    assert words in text
    assert str(tmp_path) in text
    assert text.endswith("or set another output_directory.")


def test_a_full_disk_is_told_with_what_is_free(tmp_path):
    with (
        pytest.raises(CacheError, match=r"[0-9.]+ .B of [0-9.]+ .B are free"),
        explained(tmp_path / "missing", "it"),
    ):
        Path("/dev/full").write_bytes(b"1")


def test_errors_that_are_not_asked_for_pass_through(tmp_path):
    with pytest.raises(FileNotFoundError), explained(tmp_path, "it", only={errno.ENOSPC}):
        (tmp_path / "none").read_bytes()


def test_what_nobody_explained_names_the_file_and_the_refusal():
    said = in_words(OSError(errno.EBUSY, "busy", "/a/b"))
    assert said.startswith("/a/b: the system refused (device or resource busy). What was saved ")
    assert in_words(OSError(errno.EIO, "no file is known")).startswith("the system refused (input/")
    assert "free" not in in_words(OSError(errno.ENOSPC, "no file is known"))
    assert "look at that disk" in said
    assert "change the permissions" in in_words(PermissionError(errno.EACCES, "no", "/a/b"))
    assert "raise the limit of a process (`ulimit -n`), then" in in_words(OSError(errno.EMFILE, ""))
    assert "raise that limit (`ulimit -f`), then" in in_words(OSError(errno.EFBIG, ""))
    assert "end what holds them, then" in in_words(OSError(errno.ENFILE, "no more"))
    assert in_words(FileNotFoundError(errno.ENOENT, "ours", "/a")) == ""
    long = in_words(OSError(errno.ENAMETOOLONG, "File name too long", "/a/b"))
    assert long == "/a/b: File name too long. Give another path."
    beside = ConnectionRefusedError(errno.ECONNREFUSED, "refused")
    beside.__context__ = PermissionError(errno.EACCES, "no", "/a/b")
    assert in_words(beside) == "", "its own words are not to be lost"
    assert is_of_the_system(beside)
    beside.__cause__ = beside.__context__
    assert in_words(beside).startswith("/a/b: the system refused")
    assert in_words(ValueError("ours")) == ""
    of_another = FileNotFoundError(errno.ENOENT, "ours", "/a")
    of_another.__cause__ = PermissionError(errno.EACCES, "no", "/a/b")
    assert in_words(of_another) == in_words(of_another.__cause__)


def test_a_limit_of_processes_and_threads_is_told_as_one(monkeypatch):
    said = "raise the limit of processes and threads (`ulimit -u`, or that of the container), then"
    of_a_thread = RuntimeError("can't start new thread")
    arrow_s = pa.ArrowException(f"Failed to launch worker thread: {os.strerror(errno.EAGAIN)}")
    for error in (BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)), of_a_thread, arrow_s):
        assert said in in_words(error)
        assert is_of_the_system(error)
    for other in (
        RuntimeError("another"),
        RuntimeError(f"[gloo] read: {os.strerror(errno.EAGAIN)}"),
        BlockingIOError(errno.EAGAIN, "unable to lock file"),
        DataError("line 3: 'can't start new thread' is no number"),
    ):
        assert in_words(other) == ""
        assert not is_of_the_system(other)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (10**9, 10**9))
    for error in (of_a_thread, OSError(errno.ENOMEM, "")):
        assert "is limited to 1.0 GB (ulimit -v), which may be why" in in_words(error)


def test_another_process_to_whom_the_system_refused_something_is_named(tmp_path):
    error = OSError(errno.ENOSPC, "full", str(tmp_path))
    assert "free)" in in_words(error)
    note_whom(error, "rank 1", "node7")
    said = in_words(copy.copy(error))  # as pickling does
    assert "the system refused rank 1 on node7 (no space left on device). What" in said
    here = OSError(errno.ENOSPC, "full", str(tmp_path))
    note_whom(here, "rank 1", socket.gethostname())
    assert "the system refused rank 1 on " in in_words(here)
    assert "free)" in in_words(here)  # it is the same disk
    ours = ValueError("ours")
    note_whom(ours, "rank 1", "node7")
    assert not hasattr(ours, "__notes__")


def test_what_linux_alone_has_is_not_needed():
    """On macOS every command would have ended while it was imported."""
    code = """
import errno, os
for module, name in ((errno, "EREMOTEIO"), (os, "O_TMPFILE"), (os, "posix_fallocate")):
    delattr(module, name)
from distcore_data.stores import open_store
store = open_store("memory://place/a")
store.write("key/a", b"abc")
print(store.open("key/a", 3).read())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "b'abc'", done.stderr
