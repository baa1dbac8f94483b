"""Faults while a cache is built: killed at every call, a full disk, a read-only folder, two runs at once. All real.

Run as a script, this file builds one small cache: `test_cache_faults.py ROOT [FOLDER]`. With a FOLDER it says there
where it stands (`building-<pid>`) and goes on when `go` appears.
"""

import errno
import itertools
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import cache as once
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from distcore.arrow import from_numpy
from distcore.cache import SHARD_ROWS, Cache, ensure_cache, open_cache, verify
from distcore.cache import reader as cache_reader
from distcore.cache.locks import locked, locked_if_free
from distcore.contracts import Column, PluginRef
from distcore.errors import CacheError, DistcoreError, UserError

KEY, OTHER_KEY = "00ff" * 10, "ee11" * 10
FORMAT = PluginRef("caches", "parquet", {})
ROWS = SHARD_ROWS + 50
PATIENCE = 60.0
HERE = Path(__file__)


@once
def encoded():
    """Noise, so that it takes space; a tenth is kept."""
    values = np.random.default_rng(3).integers(-(2**31), 2**31, ROWS).astype(np.int32)
    return values, np.where(np.arange(ROWS) % 10 < 8, -1, np.arange(ROWS) % 10 - 8).astype(np.int8)


def build(builder):
    values, splits = encoded()
    (builder.scratch / "spill").write_bytes(b"1")
    for index in range(2):
        part = slice(index * SHARD_ROWS, (index + 1) * SHARD_ROWS)
        for code, split in enumerate(("train", "validation")):
            kept = from_numpy(values[part][splits[part] == code])
            builder.write_shard(split, index, pa.Table.from_arrays([kept], names=["x"]))
        builder.write_split_map(index, splits[part])
    builder.finish([Column("x", "int32")], {}, {"digest": "d", "rows": ROWS})


def assert_whole(cache):
    """Every byte is what it should be."""
    verify(cache)
    values, splits = encoded()
    with open_cache(cache) as reader:
        for code, split in enumerate(("train", "validation")):
            found = reader.read(split, 0, reader.rows(split)).column(0)
            assert found.equals(from_numpy(values[splits == code]))


def listing(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A cache that nothing happened to."""
    return ensure_cache(tmp_path_factory.mktemp("whole"), KEY, FORMAT, build)


# ------------------------------------------------------------------ killed, or failing, at every call

DURABLE = ("fsync", "rename", "replace")
EVERY = (*DURABLE, "mkdir", "unlink", "rmdir")


def count_down(number, then, calls):
    """Let `then` happen instead of the number-th of these system calls (1 is the first), in whatever thread.

    Making a folder that is there already does not count."""
    numbers = itertools.count(1)  # next() is atomic

    def wrapped(name, real):
        def call(*arguments, **keywords):
            counts = name != "mkdir" or not os.path.isdir(arguments[0])
            if counts and next(numbers) == number:
                then()
            return real(*arguments, **keywords)

        return call

    for name in calls:
        setattr(os, name, wrapped(name, getattr(os, name)))


def killed_at(number, root, calls):
    """Build in a forked process that is killed at its number-th call of these; True where it got to its end before."""
    child = os.fork()
    if child == 0:
        try:
            count_down(number, lambda: os.kill(os.getpid(), signal.SIGKILL), calls)
            ensure_cache(root, KEY, FORMAT, build)
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status == 0


def start_from(state, root, whole):
    """What is there before the build: nothing, or a damaged cache of the same key."""
    shutil.rmtree(root, ignore_errors=True)
    if state == "damaged":
        shutil.copytree(whole.directory, root)
        (root / KEY / "train" / "00000.parquet").write_bytes(b"cut")


def assert_recovers(cache, whole):
    """The next run hits or builds, and the next build removes whatever is left, of this key or another."""
    ensure_cache(cache.directory, KEY, FORMAT, build)
    assert_whole(cache)
    other = ensure_cache(cache.directory, OTHER_KEY, FORMAT, lambda b: b.finish([], {}, {"digest": "", "rows": 0}))
    shutil.rmtree(other.folder)
    assert listing(cache.directory) == listing(whole.directory)


@pytest.mark.parametrize("calls", [DURABLE, pytest.param(EVERY, marks=pytest.mark.slow)], ids=["durable", "every"])
@pytest.mark.parametrize("state", ["nothing", "damaged"])
def test_killed_at_any_call_leaves_no_half_cache_that_is_read(tmp_path, whole, state, calls):
    """Enumerated: every fsync and rename of a build (slow: mkdir, unlink and rmdir too), until one gets to its end."""
    cache, number = Cache(str(tmp_path / "root"), KEY), 0
    while True:
        number += 1
        start_from(state, tmp_path / "root", whole)
        finished = killed_at(number, tmp_path / "root", calls)
        cache_reader._verified.clear()
        try:
            verify(cache)
        except CacheError:
            assert not finished
        else:
            assert_whole(cache)
        assert_recovers(cache, whole)
        if finished:
            break
    assert number > 10


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed; the forked enumeration above ran")
@pytest.mark.parametrize("state", ["nothing", "damaged"])
def test_killed_by_strace_at_any_call_leaves_no_half_cache_that_is_read(tmp_path, whole, state):
    """The same with the system's own calls, so that nothing goes around `os`. strace counts them thread by thread, so
    there is one."""
    cache, number = Cache(str(tmp_path / "root"), KEY), 0
    calls = "fsync,fdatasync,rename,renameat,renameat2"
    while True:
        number += 1
        start_from(state, tmp_path / "root", whole)
        inject = f"inject={calls}:signal=KILL:when={number}"
        command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}", "-e", inject]
        command += [sys.executable, HERE, tmp_path / "root"]
        status = subprocess.run(command, capture_output=True, env={**os.environ, "ONE_THREAD": "1"}).returncode
        assert status in (0, -signal.SIGKILL, 128 + signal.SIGKILL)
        cache_reader._verified.clear()
        try:
            verify(cache)
        except CacheError:
            assert status
        else:
            assert_whole(cache)
        assert_recovers(cache, whole)
        if status == 0:
            break
    assert number > 8


@pytest.mark.parametrize("state", ["nothing", "damaged"])
@pytest.mark.parametrize("number", [2, 3, 5, 9, 13])
def test_a_call_that_fails_for_want_of_room_leaves_all_as_it_was(tmp_path, whole, monkeypatch, state, number):
    """ENOSPC from a call that wants room on the disk (a temporary that goes away wants none)."""
    start_from(state, tmp_path / "root", whole)
    before = listing(tmp_path)

    def full():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        for name in ("fsync", "mkdir"):
            patch.setattr(os, name, getattr(os, name))
        count_down(number, full, calls=("fsync", "mkdir"))
        with pytest.raises(CacheError, match=r"no room for the cache .* Make room"):
            ensure_cache(tmp_path / "root", KEY, FORMAT, build)
    assert listing(tmp_path) == before


@pytest.mark.parametrize("copied", [False, True])
def test_every_file_is_on_disk_before_the_manifest_is_written(tmp_path, monkeypatch, copied):
    """Also where disks are slow. A copy of the builder in another process waits for each file that it writes."""
    done, real = [], os.fsync

    def slow(handle):
        name = os.readlink(f"/proc/self/fd/{handle}")
        time.sleep(0.05 if name.endswith(".parquet") else 0.0)
        real(handle)
        done.append(name)

    def built(builder):
        copy = pickle.loads(pickle.dumps(builder))  # noqa: S301
        if copied:
            values, _ = encoded()
            entry = copy.write_shard("test", 0, pa.Table.from_arrays([from_numpy(values[:10])], names=["x"]))
            assert [os.path.basename(name) for name in done] == [os.path.basename(entry.file)]
            (builder.folder / entry.file).unlink()
            (builder.folder / "test").rmdir()
        build(builder)

    monkeypatch.setattr(os, "fsync", slow)
    cache = ensure_cache(tmp_path / "root", KEY, FORMAT, built)
    at = next(index for index, name in enumerate(done) if name.endswith("manifest.json"))
    assert sum(name.endswith(".parquet") for name in done[:at]) == 6 + copied
    assert not any(name.endswith(".parquet") for name in done[at:])
    assert_whole(cache)


def test_a_disk_that_fails_behind_the_writer_stops_the_build(tmp_path, monkeypatch):
    real = os.fsync

    def broken(handle):
        if os.readlink(f"/proc/self/fd/{handle}").endswith("validation/00001.parquet"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(handle)

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="Input/output error"):
        ensure_cache(tmp_path / "root", KEY, FORMAT, build)
    assert listing(tmp_path) == []


# ------------------------------------------------------------------ a disk of its own, full or read-only

MOUNTED = """
set -e
mount -t tmpfs -o size={size} none {disk}
[ -z "{there}" ] || cp -r {there}/. {disk}
echo "before: $(find {disk} | sort | tr '\\n' ' ')"
[ "{mode}" = rw ] || mount -o remount,ro {disk}
set +e
{python} {script} {disk}{below}
echo "status: $?"
echo "after: $(find {disk} | sort | tr '\\n' ' ')"
"""


def namespace():
    """The command for a mount namespace of one's own, or None where the system allows none."""
    for command in (["unshare", "-m"], ["unshare", "-rm"]):
        mount = [*command, "mount", "-t", "tmpfs", "none", "/mnt"]
        if shutil.which("unshare") and subprocess.run(mount, capture_output=True).returncode == 0:
            return command
    return None


def on_a_disk(tmp_path, mode, size="64m", below="", there=""):
    """Build in a folder of a small disk; what was there before and after, the exit status, and what was said."""
    command = namespace()
    if command is None:
        pytest.skip("no mount namespace is allowed here; the test with a folder of another user ran")
    names = {"size": size, "mode": mode, "below": below, "there": there, "python": sys.executable, "script": HERE}
    disk = tmp_path / "disk"
    disk.mkdir()
    script = MOUNTED.format(disk=disk, **names)
    ran = subprocess.run([*command, "sh", "-c", script], capture_output=True, text=True)
    said = dict(line.split(": ", 1) for line in ran.stdout.splitlines())
    return said["before"], said["after"], int(said["status"]), ran.stderr


@pytest.mark.parametrize("below", ["", "/deep/cache"])
def test_a_full_disk_leaves_all_as_it_was(tmp_path, below):
    before, after, status, said = on_a_disk(tmp_path, "rw", size="150k", below=below)
    assert after == before
    assert status == 1
    assert "There is no room for the cache in" in said
    assert "free" in said
    assert "backend.cache_dir" in said
    assert "Traceback" not in said


def test_a_full_disk_leaves_a_damaged_cache_as_it_was(tmp_path, whole):
    there = shutil.copytree(whole.directory, tmp_path / "there")
    (there / KEY / "train" / "00000.parquet").write_bytes(b"cut")
    before, after, status, said = on_a_disk(tmp_path, "rw", size="250k", there=there)
    assert after == before
    assert status == 1
    assert "There is no room for the cache in" in said


@pytest.mark.parametrize("below", ["", "/deep/cache"])
def test_a_read_only_cache_dir_is_told_and_nothing_is_left(tmp_path, below):
    before, after, status, said = on_a_disk(tmp_path, "ro", below=below)
    assert after == before
    assert status == 2
    assert "cannot be written, so there is no place for the cache (read-only file system)" in said
    assert said.rstrip().endswith("choose another folder with backend.cache_dir.")


def test_a_cache_in_a_read_only_folder_is_a_hit(tmp_path, whole):
    before, after, status, said = on_a_disk(tmp_path, "ro", there=whole.directory)
    assert (after, status, said) == (before, 0, "hit\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user; then no folder is out of its reach")
def test_a_folder_of_another_user_is_told_and_nothing_is_left(tmp_path):
    (tmp_path / "theirs").mkdir(mode=0o755)
    report = tmp_path / "report"
    child = os.fork()
    if child == 0:
        file = report.open("w")
        try:
            os.setuid(65534)
            ensure_cache(tmp_path / "theirs" / "cache", KEY, FORMAT, build)
        except UserError as error:
            file.write(str(error))
            file.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert "cannot be written" in report.read_text()
    assert "permission denied" in report.read_text()
    assert listing(tmp_path / "theirs") == []


@pytest.mark.parametrize("place", ["/proc/distcore", "/dev/null", "/dev/null/cache"])
def test_a_place_that_is_no_folder_is_told(place):
    with pytest.raises(DistcoreError, match=r"the cache .*backend\.cache_dir\.$"):
        ensure_cache(place, KEY, FORMAT, build)


def test_no_room_for_scratch_is_told_too(tmp_path):
    """Whoever spills beside the cache need not explain a full disk."""

    def spill(builder):
        (builder.scratch / "full").symlink_to("/dev/full")
        (builder.scratch / "full").write_bytes(b"1")

    with pytest.raises(CacheError, match="There is no room for the cache"):
        ensure_cache(tmp_path / "root", KEY, FORMAT, spill)
    assert listing(tmp_path) == []


def test_trouble_with_the_source_is_not_called_trouble_with_the_cache(tmp_path):
    def unreadable(builder):
        raise PermissionError(errno.EACCES, "no", "/data.csv")

    with pytest.raises(PermissionError):
        ensure_cache(tmp_path / "root", KEY, FORMAT, unreadable)


# ------------------------------------------------------------------ several runs at once


class Run:
    """Another process that builds the same cache, and what it says."""

    def __init__(self, root, signs):
        command = [sys.executable, HERE, root, signs]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.said = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.said += line

    def end(self):
        status = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return status


def until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@pytest.fixture
def signs(tmp_path):
    folder = tmp_path / "signs"
    folder.mkdir()
    return folder


def test_two_runs_at_once_build_one_cache(tmp_path, signs):
    """The second waits, says so, and then hits."""
    first, second = (Run(tmp_path / "root", signs) for _ in range(2))
    until(lambda: "waiting for it" in first.said + second.said)
    (signs / "go").touch()
    assert [first.end(), second.end()] == [0, 0]
    assert len(list(signs.glob("building-*"))) == 1
    assert sorted(each.said.splitlines()[-1] for each in (first, second)) == ["built", "hit"]
    assert listing(tmp_path / "root")[0] == KEY
    assert_whole(Cache(str(tmp_path / "root"), KEY))


def test_a_killed_builder_lets_the_one_that_waits_build(tmp_path, signs):
    """The lock goes with its holder, and what it left is removed."""
    first = Run(tmp_path / "root", signs)
    until(lambda: list(signs.glob("building-*")))
    second = Run(tmp_path / "root", signs)
    until(lambda: "waiting for it" in second.said)
    first.process.kill()
    first.end()
    (signs / "go").touch()
    assert second.end() == 0
    assert second.said.splitlines()[-1] == "built"
    assert os.listdir(tmp_path / "root") == [KEY]
    assert_whole(Cache(str(tmp_path / "root"), KEY))


def test_ctrl_c_ends_the_wait(tmp_path, signs):
    first = Run(tmp_path / "root", signs)
    until(lambda: list(signs.glob("building-*")))
    second = Run(tmp_path / "root", signs)
    until(lambda: "waiting for it" in second.said)
    second.process.send_signal(signal.SIGINT)
    assert second.end() != 0
    assert first.process.poll() is None
    (signs / "go").touch()
    assert first.end() == 0
    assert os.listdir(tmp_path / "root") == [KEY]


def test_leftovers_of_other_keys_go_when_their_owner_is_dead(tmp_path):
    """And nothing that is not ours: the default folder lies beside the dataset."""
    dead, live, tail = "dead" * 10, "11fe" * 10, "0" * 32
    for name in (f"{dead}.building-{tail}", f"{dead}.removing-{tail}", f"{live}.building-{tail}", "my.building-1"):
        (tmp_path / name).mkdir()
    for name in (f"{dead}.lock", "poetry.lock", f"{dead}.csv"):
        (tmp_path / name).write_bytes(b"")
    with locked(tmp_path / f"{live}.lock"):
        ensure_cache(tmp_path, KEY, FORMAT, build)
        expected = {KEY, f"{live}.building-{tail}", f"{live}.lock", "my.building-1", "poetry.lock", f"{dead}.csv"}
        assert set(os.listdir(tmp_path)) == expected


def test_a_lock_is_held_by_one_and_leaves_no_file(tmp_path):
    path, inside, most = tmp_path / "lock", [], []

    def work():
        for _ in range(30):
            with locked(path):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.0005)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 120
    assert max(most) == 1
    with locked(path), locked_if_free(path) as free:
        assert not free
    with locked_if_free(path) as free:
        assert free
    assert not path.exists()


def main():
    root, *rest = map(Path, sys.argv[1:])
    outcome = []

    def signed(builder):
        outcome.append("built")
        if "ONE_THREAD" in os.environ:
            builder._syncer = None
        for signs in rest:
            (signs / f"building-{os.getpid()}").touch()
            until((signs / "go").exists)
        build(builder)

    try:
        ensure_cache(root, KEY, FORMAT, signed, on_hit=lambda cache: outcome.append("hit"))
    except DistcoreError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(*outcome, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
