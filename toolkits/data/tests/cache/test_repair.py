"""Damaged files of a cache are made again, and only those: the same bytes in the same place,
whatever stops it."""

import errno
import os
import shutil
import signal
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from faulty_builds import EVERY, FORMATS, KEY, Build, count_down, ended, forked, listing

from distcore_core.contracts import SPLITS, Column
from distcore_core.errors import CacheError
from distcore_data.arrow import from_numpy
from distcore_data.cache import SHARD_ROWS, open_cache
from distcore_data.cache import files as cache_files
from distcore_data.cache import repair as repairs
from distcore_data.cache.listing import list_caches
from distcore_data.cache.repair import repair
from distcore_data.seals import sealed, unsealed

DAMAGE = {
    "flipped": lambda content: bytes([content[0] ^ 1]) + content[1:],
    "cut": lambda content: content[:-1],
    "empty": lambda content: b"",
    "longer": lambda content: content + b"\0",
    "gone": None,
}


@pytest.fixture(params=["folder", "bucket"])
def root(request):
    """Where nothing lies yet."""
    if request.param == "bucket":
        yield f"memory://{os.urandom(8).hex()}/caches"
        return
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    ) as folder:
        yield f"{folder}/caches"


def maker(build, made=None):
    """What prepares a cache of `build` again, from its source; `made` keeps the files that were
    asked for."""

    def make(builder, manifest, shards):
        if made is not None:
            made.append((sorted(builder.damaged), sorted(shards)))
        values, splits = build.encoded()
        for code, split in enumerate(SPLITS):
            builder.record(
                [builder.write_shard(split, 0, pa.table({"x": from_numpy(values[splits == code])}))]
            )
        builder.record([builder.write_split_map(0, splits)])

    return make


def names(cache):
    """The objects of the shards, by the manifest's names for them."""
    found = cache.store().list(f"{cache.key}/")
    return {
        "/".join(name.split("/")[-2:]): name
        for name in found
        if name.split("/")[-2] in (*SPLITS, "rows")
    }


def damage(cache, part, how):
    store = cache.store()
    (name,) = (name for short, name in names(cache).items() if short.startswith(part))
    if DAMAGE[how] is None:
        store.delete([name])
    else:
        store.write(name, DAMAGE[how](store.read(name)))
    return name


def contents(cache):
    store = cache.store()
    return {name: store.read(name) for name in store.list(f"{cache.key}/")}


def noticed(cache):
    """Read everything, as a run does, and see that damage is an error."""

    def read():
        with open_cache(cache) as reader:
            for split in SPLITS:
                reader.read(split, 0, reader.rows(split))
                reader.row_numbers(split)

    with pytest.raises(CacheError, match=r"damaged|missing"):
        read()


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("part", ["train", "rows"])
@pytest.mark.parametrize("name", FORMATS)
def test_only_what_is_damaged_is_made_again(root, caplog, name, part, how):
    build, made = Build(name, 3000), []
    cache = build.ensure(root)
    before = contents(cache)
    path = damage(cache, part, how)
    cache_files._verified.clear()
    noticed(cache)
    assert repair(cache, maker(build, made)) == 1
    (short,) = (short for short, each in names(cache).items() if each == path)
    assert made == [([short], [0])]
    assert "It is made again from the data." in caplog.text
    assert path in caplog.text
    assert contents(cache) == before
    build.assert_whole(cache)
    assert repair(cache, maker(build, made)) == 0
    assert len(made) == 1


@dataclass(frozen=True)
class TwoShards(Build):
    """A build with the rows of each split in two shards."""

    rows: int = SHARD_ROWS + 400

    def __call__(self, builder):
        self.write(builder, (0, 1))
        columns = [Column(name="x", dtype="int32")]
        builder.finish(columns, {}, {"digest": "d", "rows": self.rows})

    def write(self, builder, shards):
        values, splits = self.encoded()
        found = []
        for number in shards:
            part = slice(number * SHARD_ROWS, (number + 1) * SHARD_ROWS)
            for code, split in enumerate(SPLITS):
                rows = pa.table({"x": from_numpy(values[part][splits[part] == code])})
                found.append(builder.write_shard(split, number, rows))
            found.append(builder.write_split_map(number, splits[part]))
        builder.record(found)


@pytest.mark.parametrize("part", ["train/00001", "rows/00001"])
def test_the_shard_that_is_damaged_is_asked_for_by_its_number(root, part):
    build, asked = TwoShards(), []
    cache = build.ensure(root)
    before = contents(cache)
    damage(cache, part, "flipped")
    cache_files._verified.clear()
    noticed(cache)

    def make(builder, manifest, shards):
        asked.append(sorted(shards))
        build.write(builder, shards)

    assert repair(cache, make) == 1
    assert asked == [[1]]
    assert contents(cache) == before


def test_a_whole_cache_and_none_are_left_alone(root):
    build, made = Build(), []
    cache = build.ensure(root)
    before = contents(cache)
    assert repair(cache, maker(build, made)) == 0
    cache.store().delete([f"{KEY}/manifest.json"])
    assert repair(cache, maker(build, made)) == 0
    cache.store().write(f"{KEY}/manifest.json", before[f"{KEY}/manifest.json"][:-3])
    assert repair(cache, maker(build, made)) == 0
    assert not made


def test_other_files_keep_their_inodes(tmp_path):
    cache = Build().ensure(tmp_path)
    path = Path(cache.directory, damage(cache, "train", "flipped"))
    before = {each: each.stat() for each in cache.folder.rglob("*") if each.is_file()}
    assert repair(cache, maker(Build())) == 1
    for each, status in before.items():
        assert (each.stat().st_ino == status.st_ino) == (each != path)
        assert (each.stat().st_mtime_ns == status.st_mtime_ns) == (each != path)
    assert os.listdir(tmp_path) == [KEY]


def test_a_large_cache_is_looked_at_where_a_reader_found_damage(tmp_path, monkeypatch):
    """Its contents are not hashed before every run; the reader that met damage left word."""
    monkeypatch.setattr(repairs, "CHECKED_BYTES", 0)
    cache, made = Build().ensure(tmp_path), []
    before = contents(cache)
    damage(cache, "validation", "flipped")
    assert repair(cache, maker(Build(), made)) == 0
    noticed(cache)
    assert (cache.folder / cache_files.DAMAGED).exists()
    assert [entry.state for entry in list_caches(tmp_path)] == ["whole"]
    assert repair(cache, maker(Build(), made)) == 1
    assert [files for files, _ in made] == [["validation/00000.parquet"]]
    assert contents(cache) == before


@pytest.mark.parametrize(
    "noted",
    [None, b"", b"{}", b"[1, null]", b'["../../secret", "train/99999.parquet"]', b"\xff" * 9],
)
def test_what_is_noted_as_damaged_is_not_believed(tmp_path, monkeypatch, noted):
    monkeypatch.setattr(repairs, "CHECKED_BYTES", 0)
    cache, made = Build().ensure(tmp_path), []
    place = cache.folder / cache_files.DAMAGED
    if noted is None:
        place.symlink_to(tmp_path)
    else:
        place.write_bytes(noted)
    assert repair(cache, maker(Build(), made)) == 0
    assert not made


def test_bytes_that_come_out_otherwise_mean_a_new_cache(root, caplog):
    """The manifest asks for a file that this format's library does not make."""
    build = Build()
    cache = build.ensure(root)
    store = cache.store()
    document = unsealed(store.read(f"{KEY}/manifest.json"))
    document["splits"]["train"]["shards"][0]["sha256"] = "0" * 64
    document["splits"]["train"]["shards"][0]["xxh3"] = "0" * 16
    store.write(
        f"{KEY}/manifest.json",
        sealed({name: each for name, each in document.items() if name != "digest"}),
    )
    noticed(cache)
    assert repair(cache, maker(build)) == 0
    assert "made again with other bytes" in caplog.text
    assert "The cache is built again as a whole." in caplog.text
    assert f"{KEY}/manifest.json" not in store.list()
    build.assert_whole(build.ensure(root))

    damage(cache, "train", "flipped")
    noticed(cache)
    assert repair(cache, lambda builder, manifest, shards: None) == 0
    assert "The data now give no file train/00000" in caplog.text
    assert f"{KEY}/manifest.json" not in store.list()
    build.assert_whole(build.ensure(root))

    damage(cache, "train", "flipped")
    noticed(cache)
    more = pa.table({"x": pa.array([1], pa.int32())})
    assert repair(cache, lambda builder, *_: builder.write_shard("train", 1, more)) == 0
    assert "The data now give a file train/00001" in caplog.text
    assert f"{KEY}/manifest.json" not in store.list()


def test_a_disk_that_fails_behind_the_writer_stops_the_repair(tmp_path, monkeypatch):
    cache, force = Build().ensure(tmp_path), os.fsync
    damage(cache, "train", "flipped")
    before = contents(cache)

    def broken(handle):
        if "/train/" in os.readlink(f"/proc/self/fd/{handle}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        force(handle)

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(CacheError, match="Input/output error"):
        repair(cache, maker(Build()))
    assert contents(cache) == before
    assert os.listdir(tmp_path) == [KEY]


@pytest.mark.parametrize("target", ["train", "manifest.json"])
def test_nothing_is_written_through_a_link(tmp_path, target):
    cache, made = Build().ensure(tmp_path / "caches"), []
    (cache.folder / target).rename(tmp_path / "elsewhere")
    (cache.folder / target).symlink_to(tmp_path / "elsewhere")
    before = listing(tmp_path)
    assert repair(cache, maker(Build(), made)) == 0
    assert not made
    assert listing(tmp_path) == before


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("where", ["train", "train/00000"])
def test_what_lies_in_the_way_of_a_file_means_a_new_cache(tmp_path, name, where, caplog):
    """A folder in the place of a file, and a file in the place of a folder."""
    build = Build(name)
    cache = build.ensure(tmp_path)
    place = next(
        each
        for each in sorted(cache.folder.rglob("*"))
        if str(each.relative_to(cache.folder)).startswith(where)
    )
    if place.is_dir():
        shutil.rmtree(place)
        place.write_bytes(b"")
    else:
        place.unlink()
        place.mkdir()
    assert repair(cache, maker(build)) == 0
    assert "is in the way of" in caplog.text
    build.assert_whole(build.ensure(tmp_path))


def test_what_stops_a_repair_leaves_the_rest(tmp_path):
    cache = Build().ensure(tmp_path)
    damage(cache, "train", "flipped")
    before = contents(cache)

    def broken(builder, manifest, shards):
        maker(Build())(builder, manifest, shards)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        repair(cache, broken)
    assert contents(cache) == before
    assert os.listdir(tmp_path) == [KEY]


@pytest.mark.system
@pytest.mark.parametrize("name", FORMATS)
def test_killed_at_any_call_of_a_repair(tmp_path, name):
    """Enumerated: each file is damaged or right, and the next run goes on."""
    build, number, finished = Build(name, 3000), 0, False
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path
    ) as folder:
        cache = build.ensure(folder)
        before = contents(cache)
        while not finished:
            number += 1
            damage(cache, "train", "flipped")
            damage(cache, "rows", "gone")

            def work(number=number):
                count_down(number, lambda: os.kill(os.getpid(), signal.SIGKILL), EVERY)
                assert repair(cache, maker(build)) == 2

            status = ended(forked(work))
            assert status in (0, -signal.SIGKILL)
            finished = status == 0
            repair(cache, maker(build))
            assert contents(cache) == before
            build.assert_whole(cache)
            build.assert_recovers(cache, cache)
    assert number > 12


def test_several_runs_repair_once(root):
    build, made = Build(), []
    cache = build.ensure(root)
    damage(cache, "train", "flipped")
    damage(cache, "test", "cut")
    noticed(cache)
    threads = [threading.Thread(target=repair, args=(cache, maker(build, made))) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    build.assert_whole(cache)
    assert len(made) == 1
