"""Faults while a cache is built: files forced to disk too late, a full disk, a read-only folder,
several runs at once.

All real. Builds that are killed at every call are in test_cache_kills.py."""

import errno
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import faulty_builds
from faulty_builds import (
    FORMATS,
    KEY,
    PATIENCE,
    Build,
    ended,
    forked,
    listing,
    shard,
    signed,
    until,
)

from distcore_core.errors import CacheError, DistcoreError, UserError
from distcore_data.arrow import from_numpy
from distcore_data.cache import Cache
from distcore_data.cache.listing import list_caches
from distcore_data.cache.syncer import WAITING, Syncer
from distcore_data.locks import locked, locked_if_free

SCRIPT = faulty_builds.__file__
build = Build("parquet")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A cache that nothing happened to."""
    return build.ensure(tmp_path_factory.mktemp("whole"))


# ------------------------------------------------------------------ forced to disk


@pytest.mark.parametrize("copied", [False, True])
def test_every_file_is_on_disk_before_the_manifest_is_written(tmp_path, monkeypatch, copied):
    """Also if disks are slow. A copy of the builder in another process waits for each file that
    it writes."""
    done, real = [], os.fsync

    def slow(handle):
        name = os.readlink(f"/proc/self/fd/{handle}")
        time.sleep(0.05 if ".parquet" in name else 0.0)
        real(handle)
        done.append(name)

    def built(builder):
        copy = pickle.loads(pickle.dumps(builder))  # noqa: S301
        if copied:
            values, _ = build.encoded()
            entry = copy.write_shard(
                "test", 0, pa.Table.from_arrays([from_numpy(values[:10])], names=["x"])
            )
            assert [os.path.basename(entry.file) in name for name in done] == [True]
            (builder.folder / entry.file).unlink()
            (builder.folder / "test").rmdir()
        build(builder)

    monkeypatch.setattr(os, "fsync", slow)
    cache = build.ensure(tmp_path / "root", build=built)
    at = next(index for index, name in enumerate(done) if name.endswith("manifest.json"))
    assert sum(".parquet" in name for name in done[:at]) == 4 + copied
    assert not any(".parquet" in name for name in done[at:])
    build.assert_whole(cache)


def test_a_disk_that_fails_behind_the_writer_stops_the_build(tmp_path, monkeypatch):
    real = os.fsync

    def broken(handle):
        if "/validation/" in os.readlink(f"/proc/self/fd/{handle}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(handle)

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(CacheError, match="Input/output error"):
        build.ensure(tmp_path / "root")
    assert listing(tmp_path) == []


def test_a_file_that_did_not_reach_the_disk_is_told_at_the_end_and_before_the_next(
    tmp_path, monkeypatch
):
    """The last files of a build have none after them."""

    def broken(handle):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", broken)
    syncer = Syncer()
    with open(tmp_path / "a", "wb") as first, open(tmp_path / "b", "wb") as second:
        syncer.add(first)
        with pytest.raises(OSError, match="Input/output error"):
            syncer.wait()
        assert first.closed
        with pytest.raises(OSError, match="Input/output error"):
            syncer.add(second)
        assert not second.closed  # it is the caller's


def test_files_wait_for_those_before_them_and_all_are_on_disk_at_the_end(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(os, "fsync", done.append)
    with ExitStack() as opened:
        paths = [tmp_path / str(number) for number in range(3 * WAITING)]
        files = [opened.enter_context(open(path, "wb")) for path in paths]
        handles = [each.fileno() for each in files]
        syncer = Syncer()
        for each in files:
            syncer.add(each)
        syncer.wait()
        assert sorted(done) == sorted(handles)
        assert all(each.closed for each in files)


# ------------------------------------------------------------- a disk of its own, full or read-only

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
    """The command for a mount namespace of one's own, or None if the system allows none."""
    for command in (["unshare", "-m"], ["unshare", "-rm"]):
        mount = [*command, "mount", "-t", "tmpfs", "none", "/mnt"]
        if shutil.which("unshare") and subprocess.run(mount, capture_output=True).returncode == 0:
            return command
    return None


def on_a_disk(tmp_path, mode, size="64m", below="", there="", builds=build):
    """Build in a folder of a small disk; what was there before and after, the exit status, and
    what was said."""
    command = namespace()
    if command is None:
        pytest.skip(
            "no mount namespace is allowed here; calls that find no room were enumerated in "
            "test_cache_kills.py"
        )
    names = {
        "size": size,
        "mode": mode,
        "below": f"{below} {builds.name} {builds.rows}",
        "there": there,
    }
    disk = tmp_path / "disk"
    disk.mkdir()
    script = MOUNTED.format(disk=disk, python=sys.executable, script=SCRIPT, **names)
    ran = subprocess.run([*command, "sh", "-c", script], capture_output=True, text=True)
    said = dict(line.split(": ", 1) for line in ran.stdout.splitlines())
    return said["before"], said["after"], int(said["status"]), ran.stderr


PAGE = os.sysconf("SC_PAGE_SIZE")


def room(folder):
    """Bytes that the files take on a disk in memory."""
    return sum(
        -(-path.stat().st_size // PAGE) * PAGE for path in folder.rglob("*") if path.is_file()
    )


@pytest.fixture(scope="module", params=FORMATS)
def large(request, tmp_path_factory):
    """A build of some hundred pages, and how it ends."""
    builds = Build(request.param, 60_000)
    return builds, builds.ensure(tmp_path_factory.mktemp("large"))


@pytest.mark.parametrize("percent", [10, 50, 99, 100])
def test_a_disk_that_is_full_after_a_part_of_the_cache_is_as_it_was(tmp_path, large, percent):
    """Of a hundred percent it needs the last page: only that is enough."""
    builds, cache = large
    size = room(cache.folder) * percent // 100 // PAGE * PAGE
    before, after, status, said = on_a_disk(
        tmp_path, "rw", size, below="/deep/cache", builds=builds
    )
    if percent == 100:
        assert (status, said) == (0, "built\n")
        return
    assert after == before
    assert status == 1
    assert "There is no room for the cache in" in said
    assert "free" in said
    assert "backend.cache_dir" in said
    assert "Traceback" not in said


def test_a_full_disk_leaves_a_damaged_cache_as_it_was(tmp_path, large):
    builds, cache = large
    there = shutil.copytree(cache.directory, tmp_path / "there")
    shard(there).write_bytes(b"cut")
    size = room(there) + room(cache.folder) // 2
    before, after, status, said = on_a_disk(tmp_path, "rw", size, there=there, builds=builds)
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


def refusal_of(call):
    """What a UserError said; None if none was raised."""
    try:
        call()
    except UserError as error:
        return str(error)
    return None


def test_a_folder_of_another_user_is_told_and_nothing_is_left(public_folder, as_another_user):
    refused = as_another_user(lambda: refusal_of(lambda: build.ensure(public_folder / "cache")))
    assert "cannot be written" in refused
    assert "permission denied" in refused
    assert listing(public_folder) == []


@pytest.mark.parametrize("closed", [".", "manifest.json", "train/00000.parquet"])
def test_a_cache_that_another_user_keeps_closed_is_told_before_anything_is_built(
    closed, public_folder, as_another_user
):
    """In a folder for all, as /tmp is, nobody else may take it away: the new one would find no
    place once it was built."""
    root, built = public_folder / "caches", []
    (build.ensure(root).folder / closed).chmod(0o600)
    root.chmod(0o1777)
    assert [entry.state for entry in list_caches(root)] == ["whole"]
    before = listing(root)

    def look():
        listed = [entry.why for entry in list_caches(root)]
        return listed, refusal_of(lambda: build.ensure(root, build=built.append)), built

    (listed,), refused, built = as_another_user(look)
    path = root / KEY / closed
    assert f"this user may not read {path} (permission denied)" in refused
    assert str(path) in listed
    assert built == []
    assert listing(root) == before


@pytest.mark.parametrize("place", ["/proc/distcore", "/dev/null", "/dev/null/cache"])
def test_a_place_that_is_no_folder_is_told(place):
    with pytest.raises(DistcoreError, match=r"the cache .*backend\.cache_dir\.$"):
        build.ensure(place)


@pytest.mark.parametrize("below", ["", "cache"])
def test_a_link_that_leads_nowhere_is_told(tmp_path, below):
    link = tmp_path / "Link"
    link.symlink_to(tmp_path / "gone")
    with pytest.raises(UserError, match=rf"\(the link {link} leads nowhere\).*backend\.cache_dir"):
        build.ensure(link / below)
    assert os.listdir(tmp_path) == ["Link"]


def test_no_room_for_scratch_is_told_too(tmp_path):
    """Whoever spills beside the cache need not explain a full disk."""

    def spill(builder):
        (builder.scratch / "full").symlink_to("/dev/full")
        (builder.scratch / "full").write_bytes(b"1")

    with pytest.raises(CacheError, match="There is no room for the cache"):
        build.ensure(tmp_path / "root", build=spill)
    assert listing(tmp_path) == []


def test_trouble_with_the_source_is_not_called_trouble_with_the_cache(tmp_path):
    def unreadable(builder):
        raise PermissionError(errno.EACCES, "no", "/data.csv")

    with pytest.raises(PermissionError):
        build.ensure(tmp_path / "root", build=unreadable)


# ------------------------------------------------------------------ several runs at once


class Run:
    """Another process that builds the same cache, and what it says."""

    def __init__(self, root, signs):
        command = [sys.executable, SCRIPT, root, build.name, str(build.rows), signs]
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
    build.assert_whole(Cache(directory=str(tmp_path / "root"), key=KEY))


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
    build.assert_whole(Cache(directory=str(tmp_path / "root"), key=KEY))


@pytest.mark.parametrize("killed", [0, 1, 3], ids=["", "one killed", "three killed"])
@pytest.mark.parametrize("name", FORMATS)
def test_eight_processes_that_ask_for_one_key_build_it_once(tmp_path, signs, name, killed):
    """A builder that is killed in the middle of its work is taken over, again and again."""
    builds, root = Build(name), tmp_path / "root"

    def ask():
        outcome = []
        work = signed(builds, signs, outcome)
        cache = builds.ensure(root, build=work)
        builds.assert_whole(cache)
        (signs / f"ended-{os.getpid()}").write_text(outcome[-1] if outcome else "hit")

    def builders():
        return {int(path.name.removeprefix("building-")) for path in signs.glob("building-*")}

    asking, dead = {forked(ask) for _ in range(8)}, set()
    for _ in range(killed):
        until(lambda: builders() - dead)
        (builder,) = builders() - dead
        os.kill(builder, signal.SIGKILL)
        assert ended(builder) == -signal.SIGKILL
        dead.add(builder)
    (signs / "go").touch()
    assert {ended(each) for each in asking - dead} == {0}
    outcomes = sorted(path.read_text() for path in signs.glob("ended-*"))
    assert outcomes == ["built"] + ["hit"] * (7 - killed)
    assert len(builders()) == killed + 1
    assert os.listdir(root) == [KEY]


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
    for name in (
        f"{dead}.building-{tail}",
        f"{dead}.removing-{tail}",
        f"{live}.building-{tail}",
        "my.building-1",
    ):
        (tmp_path / name).mkdir()
    theirs = {"poetry.lock", f"{dead}.csv", "my-experiment-results-2024-final-version.lock"}
    for name in (f"{dead}.lock", *theirs):
        (tmp_path / name).write_bytes(b"")
    with locked(tmp_path / f"{live}.lock"):
        build.ensure(tmp_path)
        expected = {
            KEY,
            f"{live}.building-{tail}",
            f"{live}.lock",
            "my.building-1",
            *theirs,
        }
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
