"""A build killed, or out of room, at every call it makes of the system, in every format: all or
nothing, and never both."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import faulty_builds
from faulty_builds import EVERY, FORMATS, ROOM, Build, count_down, killed_at, listing, start_from

from distcore_core.errors import CacheError
from distcore_data.cache import Cache

pytestmark = pytest.mark.system


@pytest.fixture(scope="module", params=FORMATS)
def build(request):
    return Build(request.param)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, build):
    """A cache that nothing happened to."""
    return build.ensure(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def root(tmp_path):
    """In memory if that is possible: forcing to disk is counted all the same, and takes no time."""
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path
    ) as folder:
        yield Path(folder, "root")


@pytest.mark.parametrize("state", ["nothing", "damaged"])
def test_killed_at_any_call_leaves_no_half_cache_that_is_read(root, build, whole, state):
    """Enumerated: every write (half of it done), fsync, rename, mkdir, unlink and rmdir of a build,
    until one gets to its end. Syncing happens in threads, so their order varies; the number of
    calls does not."""
    cache, number, finished = Cache(directory=str(root), key=faulty_builds.KEY), 0, False
    while not finished:
        number += 1
        start_from(state, root, whole)
        finished = killed_at(number, root, build, EVERY)
        assert build.is_whole(cache) or not finished
        build.assert_recovers(cache, whole)
    assert number > 30


SYSTEM = (
    ("write", "pwrite64", "writev"),
    ("fsync", "fdatasync"),
    ("rename", "renameat", "renameat2"),
    ("mkdir", "mkdirat"),
    ("unlink", "unlinkat", "rmdir"),
)
"""System calls by what they do. strace counts each for itself, so each is enumerated for itself."""


@pytest.mark.slow
@pytest.mark.skipif(
    not shutil.which("strace"), reason="strace is not installed; the forked enumeration above ran"
)
@pytest.mark.parametrize("call", [each for group in SYSTEM for each in group])
def test_killed_by_strace_at_any_call_leaves_no_half_cache_that_is_read(root, build, whole, call):
    """The same with the system's own calls, so that nothing goes around Python. strace counts them
    thread by thread, so there is one."""
    cache, number, status = Cache(directory=str(root), key=faulty_builds.KEY), 0, None
    while status != 0:
        number += 1
        start_from("damaged", root, whole)
        inject = f"inject={call}:signal=KILL:when={number}"
        command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject]
        command += [sys.executable, faulty_builds.__file__, root, build.name]
        environment = {**os.environ, "ONE_THREAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        ran = subprocess.run(command, capture_output=True, env=environment)
        status = ran.returncode
        assert status in (0, -signal.SIGKILL, 128 + signal.SIGKILL), ran.stderr
        assert build.is_whole(cache) or status
        build.assert_recovers(cache, whole)


@pytest.mark.parametrize("state", ["nothing", "damaged"])
def test_any_call_that_fails_for_want_of_room_leaves_all_as_it_was(root, build, whole, state):
    """Enumerated: ENOSPC from every write (half of it done), fsync and mkdir of a build, until
    it has all that it wants."""
    number, full = 0, True

    def no_room():
        nonlocal full
        full = True
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    while full:
        number, full = number + 1, False
        start_from(state, root, whole)
        before = listing(root.parent)
        put_back, told = count_down(number, no_room, ROOM), None
        try:
            build.ensure(root)
        except CacheError as error:
            told = str(error)
        finally:
            put_back()
        if full:
            assert told is not None
            assert "no room for the cache" in told
            assert "Make room" in told
            assert listing(root.parent) == before
        else:
            assert told is None
    assert number > 15
