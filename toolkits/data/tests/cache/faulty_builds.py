"""Caches that the fault tests build, kill and starve: importable by name from this folder, which
they put on sys.path.

Run as a script, it builds one: `faulty_builds.py ROOT [FORMAT] [ROWS] [SIGNS]`. With a folder of
SIGNS it says there that it builds (`building-<pid>`), and goes on when `go` appears.
"""

import io
import itertools
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path

import numpy as np
import pyarrow as pa

from distcore_core.contracts import SPLITS, Column, PluginRef
from distcore_core.errors import CacheError, DistcoreError
from distcore_core.io import digest as digests
from distcore_data.arrow import from_numpy
from distcore_data.cache import ensure_cache, open_cache, verify
from distcore_data.cache import files as cache_files

KEY, OTHER_KEY = "00ff" * 10, "ee11" * 10
FORMATS = ("parquet", "hdf5", "tfrecord")
PATIENCE = 60.0


@dataclass(frozen=True)
class Build:
    """What fills a cache of one shard a split, of noise, so that it takes space; one row in four
    is dropped."""

    name: str = "parquet"
    rows: int = 6000

    @property
    def format(self):
        return PluginRef(kind="caches", name=self.name, options={})

    def encoded(self):
        """The values of all rows, and the split of each: int8 codes."""
        return _encoded(self.rows)

    def __call__(self, builder):
        values, splits = self.encoded()
        (builder.scratch / "spill").write_bytes(b"1")
        for code, split in enumerate(SPLITS):
            builder.write_shard(split, 0, pa.table({"x": from_numpy(values[splits == code])}))
        builder.write_split_map(0, splits)
        builder.finish([Column(name="x", dtype="int32")], {}, {"digest": "d", "rows": self.rows})

    def ensure(self, root, **more):
        """Hit or build."""
        return ensure_cache(root, KEY, self.format, more.pop("build", self), **more)

    def assert_whole(self, cache):
        """Every byte is what it should be."""
        verify(cache)
        values, splits = self.encoded()
        with open_cache(cache) as reader:
            assert [entry["name"] for entry in reader.manifest["columns"]] == ["x"]
            for code, split in enumerate(SPLITS):
                found = reader.read(split, 0, reader.rows(split)).column(0)
                assert found.equals(from_numpy(values[splits == code]))

    def is_whole(self, cache):
        """Whether there is a cache; if there is, it must be whole."""
        cache_files._verified.clear()
        try:
            verify(cache)
        except CacheError:
            return False
        self.assert_whole(cache)
        return True

    def assert_recovers(self, cache, whole):
        """The next run hits or builds, and the next build removes whatever is left, of this key
        or another."""
        self.ensure(cache.directory)
        self.assert_whole(cache)
        other = ensure_cache(
            cache.directory,
            OTHER_KEY,
            self.format,
            lambda b: b.finish([], {}, {"digest": "", "rows": 0}),
        )
        shutil.rmtree(other.folder)
        assert listing(cache.directory) == listing(whole.directory)


@once
def _encoded(rows):
    values = np.random.default_rng(3).integers(-(2**31), 2**31, rows).astype(np.int32)
    return values, (np.arange(rows) % 4 - 1).astype(np.int8)


def listing(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*"))


def start_from(state, root, whole):
    """What is there before the build: nothing, or a damaged cache of the same key."""
    shutil.rmtree(root, ignore_errors=True)
    if state == "damaged":
        shutil.copytree(whole.directory, root)
        shard(root).write_bytes(b"cut")


def shard(root):
    """The file of the training rows of the cache under `root`."""
    (path,) = (root / KEY / "train").iterdir()
    return path


# ------------------------------------------------------------------ at the n-th call

ROOM = ("write", "fsync", "mkdir")
"""Calls that want room on the disk (a temporary that goes away wants none)."""

EVERY = (*ROOM, "rename", "replace", "unlink", "rmdir")


def count_down(number, then, calls):
    """Let `then` happen instead of the number-th of these calls (1 is the first), in whatever
    thread.

    Of a write, half of the bytes come before it. Making a folder that is there already does not
    count. Everything that a cache's files hold goes through `digests.HashingFile`. Returns what
    puts all back."""
    numbers = itertools.count(1)  # next() is atomic
    before = {name: getattr(os, name) for name in calls if name != "write"}

    def wrapped(name, real):
        def call(*arguments, **keywords):
            counts = name != "mkdir" or not os.path.isdir(arguments[0])
            if counts and next(numbers) == number:
                then()
            return real(*arguments, **keywords)

        return call

    class Counted(io.FileIO):
        def write(self, data):
            if next(numbers) == number:
                super().write(data[: len(data) // 2])
                then()
            return super().write(data)

    for name, real in before.items():
        setattr(os, name, wrapped(name, real))
    if "write" in calls:
        digests.open = lambda path, mode, buffering: Counted(path, mode)

    def put_back():
        for name, real in before.items():
            setattr(os, name, real)
        vars(digests).pop("open", None)

    return put_back


def killed_at(number, root, build, calls=EVERY):
    """Build in a forked process that is killed at its number-th call of these; True if it got to
    its end before."""

    def work():
        count_down(number, lambda: os.kill(os.getpid(), signal.SIGKILL), calls)
        build.ensure(root)

    status = ended(forked(work))
    assert status in (0, -signal.SIGKILL)
    return status == 0


def forked(work):
    """Run `work` in a child process; its process id."""
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    finally:
        os._exit(1)


def ended(child):
    """Wait for a child; its exit code, or the signal that ended it as a negative number."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


# ------------------------------------------------------------------ as a script


def signed(build, signs, outcome):
    """The build, which says that it began, and waits for `go` in the middle of its work."""

    def work(builder):
        outcome.append("built")
        values, splits = build.encoded()
        builder.write_shard("train", 0, pa.table({"x": from_numpy(values[splits == 0])}))
        (signs / f"building-{os.getpid()}").touch()
        until((signs / "go").exists)
        build(builder)

    return work


def main():
    root, *rest = sys.argv[1:]
    build = Build(rest[0] if rest else "parquet", int(rest[1]) if rest[1:] else 6000)
    outcome = []

    def work(builder):
        if "ONE_THREAD" in os.environ:
            builder._syncer = None
        if rest[2:]:
            return signed(build, Path(rest[2]), outcome)(builder)
        outcome.append("built")
        return build(builder)

    try:
        build.ensure(root, build=work)
    except DistcoreError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(*outcome or ["hit"], file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
