"""The cache: keyed by content, read back exactly, identical for any order of writing, and damage
is never read."""

import os
import pickle
import random
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache as once
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore_core.contracts import SPLITS, Column, PluginRef
from distcore_core.errors import CacheError, PluginError
from distcore_core.registry.manager import Plugins
from distcore_data.cache import SHARD_ROWS, Cache, cache_key, ensure_cache, open_cache, verify
from distcore_data.cache import files as cache_files
from distcore_data.cache import reader as cache_reader
from distcore_data.cache.builder import CacheBuilder
from distcore_data.locks import locked_if_free
from distcore_data.seals import sealed, unsealed

KEY = "0123abcd" * 5
FORMAT = PluginRef(kind="caches", name="parquet", options={})
COLUMNS = [
    Column(name="x", dtype="float32"),
    Column(name="code", dtype="int32"),
    Column(name="tokens", dtype="int32", width=None),
    Column(name="v", dtype="float32", width=2),
]
ROWS = SHARD_ROWS + 3000


@once
def encoded():
    """Encoded rows of every kind of column, and the split of each: some dropped, no test rows in
    the second shard."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=ROWS).astype(np.float32)
    x[:3] = [np.nan, -0.0, np.inf]
    lengths = generator.integers(0, 2, ROWS)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    tokens = pa.ListArray.from_arrays(
        offsets, generator.integers(0, 99, offsets[-1]).astype(np.int32)
    )
    vector = pa.FixedSizeListArray.from_arrays(
        generator.normal(size=2 * ROWS).astype(np.float32), 2
    )
    table = pa.table(
        {"x": x, "code": np.arange(ROWS, dtype=np.int32), "tokens": tokens, "v": vector}
    )
    splits = generator.choice(np.array([0, 1, 2, -1], np.int8), ROWS, p=[0.1, 0.05, 0.05, 0.8])
    splits[SHARD_ROWS:][splits[SHARD_ROWS:] == 2] = 0
    return table, splits


def pieces():
    """(split, shard, rows) of everything there is to write."""
    table, splits = encoded()
    for index in range(2):
        part = slice(index * SHARD_ROWS, (index + 1) * SHARD_ROWS)
        for code, split in enumerate(SPLITS):
            yield (
                split,
                index,
                table.take(pa.array(np.flatnonzero(splits[part] == code) + part.start)),
            )
        yield "rows", index, splits[part]


def write(builder, piece):
    split, index, rows = piece
    return (
        builder.write_split_map(index, rows)
        if split == "rows"
        else builder.write_shard(split, index, rows)
    )


def finish(builder):
    counts = {split: int((encoded()[1] == code).sum()) for code, split in enumerate(SPLITS)}
    builder.finish(COLUMNS, {"x": {"mean": 0.1}}, {"digest": "d", "rows": ROWS}, counts)


def build(builder):
    (builder.scratch / "spill").write_bytes(b"1" * 1000)
    for piece in pieces():
        write(builder, piece)
    finish(builder)


def refuse(builder):
    raise AssertionError("built where a hit was due")


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return ensure_cache(tmp_path_factory.mktemp("cache"), KEY, FORMAT, build)


@pytest.fixture
def copy(cache, tmp_path):
    """A cache of its own to damage, in a process that has verified nothing."""
    cache_files._verified.clear()
    shutil.copytree(cache.directory, tmp_path / "copy")
    return Cache(directory=str(tmp_path / "copy"), key=KEY)


# ------------------------------------------------------------------ key


def key_arguments():
    return {
        "source_digest": "d",
        "raw": {"age": "number", "city": "category"},
        "features": [{"name": "age", "type": "number"}, {"name": "city", "type": "category"}],
        "preprocessing": {"split": {"type": "random"}, "seed": 42},
        "format": PluginRef(kind="caches", name="parquet", options={"compression": "lz4"}),
    }


def test_the_key_is_the_same_on_every_machine():
    """A change here makes every user's cache a miss: raise CACHE_VERSION knowingly, then put the
    new key here."""
    assert cache_key(**key_arguments()) == "180bc298123775690b9ff7f0bb2237d655a57a49"


def test_the_key_does_not_depend_on_the_order_of_mappings():
    arguments = key_arguments()
    arguments["raw"] = dict(reversed(arguments["raw"].items()))
    assert cache_key(**arguments) == cache_key(**key_arguments())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("source_digest", "e"),
        ("raw", {"age": "string", "city": "category"}),
        ("features", list(reversed(key_arguments()["features"]))),
        ("preprocessing", {"split": {"type": "random"}, "seed": 43}),
        ("format", PluginRef(kind="caches", name="hdf5", options={"compression": "lz4"})),
        ("format", PluginRef(kind="caches", name="parquet", options={"compression": "none"})),
    ],
)
def test_the_key_changes_with_anything_the_bytes_depend_on(name, value):
    assert cache_key(**{**key_arguments(), name: value}) != cache_key(**key_arguments())


def test_a_key_that_is_no_name_is_refused(tmp_path):
    for key in ("../x", "", "a/b", ".", "a\n", "a" * 39, "A" * 40, "_" * 40, "a" * 40 + "\n"):
        with pytest.raises(ValueError, match="no cache key"):
            ensure_cache(tmp_path, key, FORMAT, refuse)


# ------------------------------------------------------------------ build and hit


def test_a_second_call_hits_and_touches_nothing(cache):
    before = content(cache.directory)
    assert ensure_cache(cache.directory, KEY, FORMAT, refuse) == cache
    assert content(cache.directory) == before


def test_a_hit_removes_the_lock_of_a_build_that_was_killed_after_it_had_committed(cache):
    lock = Path(cache.directory, f"{KEY}.lock")
    lock.touch()
    with locked_if_free(lock) as free:
        assert free
        ensure_cache(cache.directory, KEY, FORMAT, refuse)
        assert lock.exists()
    lock.touch()
    ensure_cache(cache.directory, KEY, FORMAT, refuse)
    assert not lock.exists()


def test_only_the_cache_is_left(cache):
    """No lock, no scratch, no temporary; and no file for the empty test split of the second
    shard."""
    assert os.listdir(cache.directory) == [KEY]
    names = {
        "train/00000",
        "train/00001",
        "validation/00000",
        "validation/00001",
        "test/00000",
        "rows/00000",
    }
    assert set(content(cache.folder)) == {f"{name}.parquet" for name in names | {"rows/00001"}} | {
        "manifest.json"
    }


def test_the_cache_travels_to_other_processes(cache):
    again = pickle.loads(pickle.dumps(cache))  # noqa: S301 - what a worker is sent
    assert again == cache
    assert open_cache(again).rows("train") == open_cache(cache).rows("train")


def test_any_order_threads_and_processes_give_the_same_bytes(cache, tmp_path):
    def threads(builder):
        todo = list(pieces())
        random.Random(1).shuffle(todo)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda piece: write(builder, piece), todo))
        finish(builder)

    def elsewhere(builder):
        """A pickled copy writes; its entries are recorded, and a task that ran twice does no
        harm."""
        for piece in pieces():
            copy = pickle.loads(pickle.dumps(builder))  # noqa: S301 - what a worker is sent
            for _ in range(2):
                entry = write(copy, piece)
            builder.record([entry])
        finish(builder)

    for number, other in enumerate((threads, elsewhere)):
        made = ensure_cache(tmp_path / str(number), KEY, FORMAT, other)
        assert content(made.folder) == content(cache.folder)


def test_a_writer_thread_that_fails_stops_the_build_and_leaves_nothing(tmp_path):
    def broken(builder):
        with ThreadPoolExecutor(2) as pool:
            list(
                pool.map(
                    lambda piece: write(builder, piece),
                    [*pieces(), ("train", 2, pa.table({"x": [None, 1.0]}))],
                )
            )

    with pytest.raises(CacheError, match="'x' has 1 missing"):
        ensure_cache(tmp_path / "new" / "deep", KEY, FORMAT, broken)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError, FileNotFoundError])
def test_whatever_stops_a_build_passes_through_and_nothing_stays(tmp_path, error):
    (tmp_path / "other").write_bytes(b"1")

    def stopped(builder):
        write(builder, next(pieces()))
        raise error("stop")

    with pytest.raises(error):
        ensure_cache(tmp_path, KEY, FORMAT, stopped)
    assert content(tmp_path) == {"other": b"1"}


@pytest.mark.parametrize("skip", [0, 3, 4, 7])
def test_a_build_that_lost_a_piece_is_refused(tmp_path, skip):
    def lossy(builder):
        for number, piece in enumerate(pieces()):
            if number != skip:
                write(builder, piece)
        finish(builder)

    with pytest.raises(CacheError, match="Report this"):
        ensure_cache(tmp_path, KEY, FORMAT, lossy)
    assert list(tmp_path.iterdir()) == []


def test_a_split_map_of_shards_that_were_cut_elsewhere_is_refused(tmp_path):
    """The rows are as many as they should be, and their numbers would be others."""

    def short(builder):
        for index, rows in enumerate((10, 5)):
            builder.write_split_map(index, np.full(rows, -1))
        builder.finish([], {}, {"digest": "d", "rows": 15})

    with pytest.raises(CacheError, match="split map has gaps"):
        ensure_cache(tmp_path, KEY, FORMAT, short)


def test_a_row_in_another_shard_than_its_own_is_refused(tmp_path):
    """Each split has as many rows as it should, and they would be read as others."""

    def shifted(builder):
        for index, (rows, mapped, written) in enumerate([(SHARD_ROWS, 1, 2), (3, 2, 1)]):
            splits = np.full(rows, -1)
            splits[:mapped] = 0
            builder.write_split_map(index, splits)
            builder.write_shard("train", index, pa.table({"x": np.zeros(written, np.float32)}))
        source = {"digest": "d", "rows": SHARD_ROWS + 3}
        builder.finish([Column(name="x", dtype="float32")], {}, source, {"train": 3})

    with pytest.raises(CacheError, match="Shard 0 of train should have 1 rows, but 2 were"):
        ensure_cache(tmp_path, KEY, FORMAT, shifted)


def test_a_copy_of_a_builder_makes_no_format_that_the_config_blocks(tmp_path):
    builder = CacheBuilder(tmp_path, KEY, FORMAT, Plugins(["parquet"]))
    copy = pickle.loads(pickle.dumps(builder))  # noqa: S301 - what a worker is sent
    with pytest.raises(PluginError, match="block"):
        copy.write_shard("train", 0, pa.table({"x": np.zeros(1, np.float32)}))
    builder.close()


def test_a_worker_that_is_killed_while_it_writes_a_shard_again_leaves_the_one_that_was_whole(
    tmp_path,
):
    """Dask gives up a worker that is silent, and it may wake."""

    class Killed:
        suffix = ".parquet"

        def write(self, target, table):
            target.write(b"half")
            os._exit(9)

    def killed(builder):
        for piece in pieces():
            write(builder, piece)
            copy = pickle.loads(pickle.dumps(builder))  # noqa: S301 - what a worker is sent
            copy.maker = Killed()
            child = os.fork()
            if child == 0:
                write(copy, piece)
                os._exit(9)  # there were no rows
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        finish(builder)

    made = ensure_cache(tmp_path / "again", KEY, FORMAT, killed)
    verify(made)
    once_written = ensure_cache(tmp_path / "once", KEY, FORMAT, build)
    assert content(made.folder) == content(once_written.folder)


def test_a_build_that_does_not_finish_is_refused(tmp_path):
    with pytest.raises(CacheError, match="not finished"):
        ensure_cache(tmp_path, KEY, FORMAT, lambda builder: None)
    assert list(tmp_path.iterdir()) == []


def test_metadata_that_is_no_json_is_refused(tmp_path):
    for bad in ({"x": float("nan")}, {"x": {1, 2}}):
        with pytest.raises(CacheError, match="not plain JSON"):
            ensure_cache(
                tmp_path,
                KEY,
                FORMAT,
                lambda b, bad=bad: b.finish([], {"f": bad}, {"digest": "d", "rows": 0}),
            )


def test_an_empty_source_makes_an_empty_cache(tmp_path):
    made = ensure_cache(
        tmp_path, KEY, FORMAT, lambda b: b.finish(COLUMNS, {}, {"digest": "d", "rows": 0})
    )
    reader = open_cache(made)
    assert [reader.rows(split) for split in SPLITS] == [0, 0, 0]
    assert reader.read("test", 0, 0).schema.names == ["x", "code", "tokens", "v"]
    assert list(reader.iter("train", 10)) == []
    assert reader.row_numbers("train").dtype == np.int64


# ------------------------------------------------------------------ reading


def test_row_numbers_and_rows(cache):
    reader, splits = open_cache(cache), encoded()[1]
    for code, split in enumerate(SPLITS):
        assert np.array_equal(reader.row_numbers(split), np.flatnonzero(splits == code))
        assert reader.rows(split) == (splits == code).sum()


def test_columns_and_metadata(cache):
    reader = open_cache(cache)
    assert list(reader.columns.values()) == COLUMNS
    assert reader.metadata == {"x": {"mean": 0.1}}
    assert reader.manifest["source"] == {"digest": "d", "rows": ROWS}


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_range_of_any_columns(cache, data):
    """Ranges within and across shards and row groups give what was written, bit for bit."""
    split = data.draw(st.sampled_from(SPLITS))
    names = data.draw(st.permutations(["x", "code", "tokens", "v"]))[: data.draw(st.integers(1, 4))]
    reader = reader_of(cache)
    start = data.draw(st.integers(0, reader.rows(split)))
    stop = data.draw(
        st.integers(
            start, min(reader.rows(split), start + data.draw(st.sampled_from([1, 300, 10**6])))
        )
    )
    expected = encoded()[0].select(names).take(pa.array(reader.row_numbers(split)[start:stop]))
    found = reader.read(split, start, stop, names)
    assert found.schema.names == names
    for name in names:
        assert same(found.column(name), expected.column(name).combine_chunks())


@once
def reader_of(cache):
    return open_cache(cache)


def same(left, right):
    """Equal bits of floats too (NaN, -0.0)."""
    if pa.types.is_float32(left.type):
        return np.array_equal(left.to_numpy().view(np.int32), right.to_numpy().view(np.int32))
    if pa.types.is_fixed_size_list(left.type):
        return same(left.flatten(), right.flatten())
    return left.to_pylist() == right.to_pylist()


@pytest.mark.parametrize("batch_rows", [999, 65_536, 10**6])
def test_iter_gives_every_row_once_in_order(cache, batch_rows, monkeypatch):
    monkeypatch.setattr(cache_reader, "PIECE_ROWS", 5000)  # of which the split has several
    reader = open_cache(cache)
    batches = list(reader.iter("train", batch_rows, ["code"]))
    assert all(batch.num_rows == batch_rows for batch in batches[:-1])
    codes = np.concatenate([batch.column(0).to_numpy() for batch in batches])
    assert np.array_equal(codes, reader.row_numbers("train"))


def test_threads_may_share_a_reader_that_opens_and_closes_shards(cache, monkeypatch):
    monkeypatch.setattr(cache_reader, "OPEN_SHARDS", 1)
    reader = open_cache(cache)
    numbers = {split: reader.row_numbers(split) for split in SPLITS}

    def look(seed):
        generator = random.Random(seed)
        for _ in range(20):
            split = generator.choice(SPLITS)
            start = generator.randrange(reader.rows(split) - 10)
            assert reader.read(split, start, start + 10, ["code"]).column(0).to_pylist() == list(
                numbers[split][start : start + 10]
            )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(look, range(4)))
    reader.close()
    assert reader.read("train", 0, 1).num_rows == 1


def test_what_is_not_there_is_refused_in_words(cache):
    reader = open_cache(cache)
    with pytest.raises(CacheError, match="no column 'y'; it has x, code"):
        reader.read("train", 0, 1, ["y"])
    with pytest.raises(IndexError):
        reader.read("test", 0, reader.rows("test") + 1)


LIGHT = """
import sys
import numpy as np
from distcore_data.cache import Cache, ensure_cache, open_cache
from distcore_core.contracts import PluginRef

reader = open_cache(Cache(directory=sys.argv[1], key=sys.argv[2]))
reader.read("train", 0, 0)
reader.row_numbers("test")
some = reader.read("train", 3, 500)

def build(builder):
    builder.write_shard("train", 0, some)
    builder.write_split_map(0, np.zeros(497, np.int8))
    builder.finish(reader.columns.values(), {}, {"digest": "", "rows": 497})

ensure_cache(sys.argv[3], "a" * 40, PluginRef(kind="caches", name="parquet"), build)
assert not {"torch", "pandas"} & set(sys.modules), sorted(sys.modules)
"""


def test_reading_and_writing_need_neither_torch_nor_pandas(cache, tmp_path):
    """Memory and start-up: preprocessing and the data half stay light."""
    subprocess.run([sys.executable, "-c", LIGHT, cache.directory, KEY, str(tmp_path)], check=True)


# ------------------------------------------------------------------ damage


def read_everything(cache):
    reader = open_cache(cache)
    for split in SPLITS:
        reader.row_numbers(split)
        reader.read(split, 0, reader.rows(split))


FILES = ["train/00000", "train/00001", "validation/00000", "test/00000", "rows/00000", "rows/00001"]


@pytest.mark.parametrize("name", [*(f"{name}.parquet" for name in FILES), "manifest.json"])
@pytest.mark.parametrize(
    "cut", ["nothing", "a third", "all but the last byte", "one byte more", "gone"]
)
def test_a_cut_file_is_never_read_and_is_built_again(copy, cache, caplog, name, cut):
    path = copy.folder / name
    whole = path.read_bytes()
    if cut == "gone":
        path.unlink()
    else:
        new = {"nothing": b"", "a third": whole[: len(whole) // 3], "one byte more": whole + b"\0"}
        path.write_bytes(new.get(cut, whole[:-1]))
    for look in (read_everything, verify):
        with pytest.raises(CacheError) as caught:
            look(copy)
        assert str(path) in str(caught.value) or str(copy.folder) in str(caught.value)
        assert "is rebuilt" in str(caught.value)
    ensure_cache(copy.directory, KEY, FORMAT, build_from(cache))
    assert "built again now" in caplog.text
    assert os.listdir(copy.directory) == [KEY]
    assert content(copy.folder) == content(cache.folder)


def build_from(cache):
    """A quick build of the same cache, from the files that are there."""

    def again(builder):
        reader = reader_of(cache)
        for split, index, rows in pieces_again(cache):
            write(builder, (split, index, rows))
        builder.finish(COLUMNS, reader.metadata, reader.manifest["source"])

    return again


@once
def pieces_again(cache):
    return tuple(pieces())


@pytest.mark.system
def test_two_hundred_flipped_bits_are_never_read(copy):
    generator = random.Random(7)
    files = sorted(path for path in copy.folder.rglob("*") if path.is_file())
    for number in range(200):
        path = generator.choice(files)
        whole = bytearray(path.read_bytes())
        bit = generator.randrange(8 * len(whole))
        whole[bit // 8] ^= 1 << bit % 8
        keep = path.with_suffix(".keep")
        path.rename(keep)
        path.write_bytes(whole)
        with pytest.raises(CacheError):
            read_part(copy, path)
        if number % 20 == 0:
            with pytest.raises(CacheError):
                verify(copy)
        keep.replace(path)
    read_everything(copy)


def read_part(cache, path):
    """Read the part of the cache that the damaged file belongs to."""
    reader, part = open_cache(cache), path.parent.name
    if part in SPLITS:
        reader.read(part, 0, reader.rows(part), ["code"])
    else:
        reader.row_numbers("train")
    reader.close()


def test_a_shard_is_hashed_once_a_process(copy, monkeypatch):
    hashed = []
    real = cache_files.fast_digest
    monkeypatch.setattr(
        cache_files, "fast_digest", lambda file: hashed.append(file.name) or real(file)
    )
    for _ in range(2):
        reader = open_cache(copy)
        reader.read("train", 0, 5)
        reader.read("train", 5, 10)
        reader.close()
    assert len(hashed) == 1


def test_a_shard_that_changed_with_its_time_set_back_is_hashed_again(copy):
    """As a copy with `cp -p` or rsync does."""
    read_everything(copy)
    path = copy.folder / "train" / "00000.parquet"
    whole, before = bytearray(path.read_bytes()), path.stat()
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(CacheError, match="xxh3 should be"):
        open_cache(copy).read("train", 0, 1)


@pytest.mark.parametrize("where", ["open", "read"])
def test_a_format_that_fails_on_a_whole_shard_is_no_damage(copy, monkeypatch, where):
    reader = open_cache(copy)
    if where == "read":
        reader.read("train", 0, 5)
    fault = KeyError("tokens")

    def fails(*_):
        raise fault

    shards = {type(each.reader) for each in reader._open.values()} or {type(reader._format)}
    monkeypatch.setattr(shards.pop(), where, fails)
    path = copy.folder / "train" / "00000.parquet"
    with pytest.raises(CacheError) as caught:
        reader.read("train", 0, 5)
    said = str(caught.value)
    assert f"The cache format 'parquet' failed to read {path}, which is as it was written" in said
    assert "KeyError: 'tokens'" in said
    assert "If you changed the format, give it another DATA_VERSION" in said
    assert "Run again" not in said
    assert caught.value.__cause__ is fault
    assert not (copy.folder / cache_files.DAMAGED).exists()
    if where == "read":  # bytes that changed while the shard was open are damage
        path.write_bytes(path.read_bytes()[:-1] + b"\0")
        with pytest.raises(CacheError, match=r"xxh3 should be .*Run again with the data"):
            reader.read("train", 0, 5)
    reader.close()


def test_damage_that_keeps_the_size_is_a_hit_but_not_read(copy, cache):
    """Hits look at sizes only (a large cache would take long to hash); the bytes are hashed
    before they are used."""
    path = copy.folder / "train" / "00000.parquet"
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)
    ensure_cache(copy.directory, KEY, FORMAT, refuse)
    with pytest.raises(CacheError, match=r"xxh3 should be [0-9a-f]{16}, but is") as caught:
        open_cache(copy).read("train", 0, 1)
    assert str(caught.value).endswith(
        f"what is damaged is made again. Or delete the folder {copy.folder}."
    )
    shutil.rmtree(copy.folder)
    ensure_cache(copy.directory, KEY, FORMAT, build_from(cache))
    assert content(copy.folder) == content(cache.folder)


def test_a_rebuild_that_fails_leaves_the_damaged_cache_as_it_was(copy):
    (copy.folder / "train" / "00000.parquet").write_bytes(b"cut")
    before = content(copy.directory)

    def fail(builder):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_cache(copy.directory, KEY, FORMAT, fail)
    assert content(copy.directory) == before


def test_a_reader_that_is_open_keeps_its_cache_while_it_is_replaced(copy, cache):
    reader = open_cache(copy)
    expected = reader.read("train", 0, 100)
    (copy.folder / "test" / "00000.parquet").unlink()
    ensure_cache(copy.directory, KEY, FORMAT, build_from(cache))
    assert reader.read("train", 0, 100).equals(expected) or np.isnan(
        expected.column("x")[0].as_py()
    )


# ------------------------------------------------------------------ hostile manifests


def signed(cache, change):
    """Change the manifest and sign it again, as someone who knows how would."""
    path = cache.folder / "manifest.json"
    document = unsealed(path.read_bytes())
    change(document)
    path.write_bytes(sealed(document))


@pytest.mark.parametrize(
    "name",
    [
        "../secret.parquet",
        "train/../../secret.parquet",
        "/etc/passwd",
        "train//etc/passwd",
        "train/00000.parquet\0",
        "train/00000.parquet\n",
        "train/00000",
        "validation/00000.parquet",
        "train/00001.parquet",
        "~/00000.parquet",
        "train/٠٠٠٠٠.parquet",
        "",
        7,
        None,
    ],
)
def test_file_names_that_lead_elsewhere_are_refused(copy, name):
    signed(copy, lambda document: document["splits"]["train"]["shards"][0].update(file=name))
    with pytest.raises(CacheError, match=r"manifest\.json is damaged"):
        open_cache(copy)


@pytest.mark.parametrize("what", ["file", "folder", "manifest", "pipe", "directory"])
def test_links_and_other_things_in_place_of_files_are_refused(copy, tmp_path, what):
    victim = {"folder": "train", "manifest": "manifest.json"}.get(what, "train/00000.parquet")
    path, away = copy.folder / victim, tmp_path / "away"
    path.rename(away)
    if what == "pipe":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    else:
        path.symlink_to(away)
    for look in (read_everything, verify):
        with pytest.raises(CacheError, match="cannot be read"):
            look(copy)


def shard(**changes):
    return lambda document: document["splits"]["train"]["shards"][0].update(changes)


@pytest.mark.parametrize(
    "change",
    [
        shard(rows=-1),
        shard(rows=10**12),
        shard(bytes=True),
        shard(bytes="9"),
        shard(bytes=-1),
        shard(sha256="zz"),
        shard(index=1.5),
        shard(xxh3="zz"),
        shard(more=1),
        lambda document: document.update(version=1),
        lambda document: document.update(key="other"),
        lambda document: document.update(shard_rows=5),
        lambda document: document.update(splits=[]),
        lambda document: document.update(columns=[{"name": "x"}]),
        lambda document: document["splits"]["train"].update(rows=1),
        lambda document: document["splits"]["train"]["shards"].reverse(),
        lambda document: document.pop("split_map"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(copy, change):
    signed(copy, change)
    with pytest.raises(CacheError, match=r"manifest\.json"):
        open_cache(copy)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\x80\x04]q\x00.",
        b'{"digest": "x", "digest": "y"}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_a_manifest_that_is_no_manifest_is_refused(copy, text):
    (copy.folder / "manifest.json").write_bytes(text)
    with pytest.raises(CacheError, match=r"manifest\.json is damaged"):
        open_cache(copy)


def test_a_column_that_is_not_what_the_manifest_says_is_refused(copy):
    signed(copy, lambda document: document["columns"][0].update(dtype="int32"))
    with pytest.raises(CacheError, match=r"'x' of the cache is float"):
        open_cache(copy).read("train", 0, 1)


def test_waiting_threads_of_one_process_build_once(tmp_path):
    """The lock also holds between threads."""
    built, start = [], threading.Barrier(3)

    def slow(builder):
        built.append(1)
        builder.finish(COLUMNS, {}, {"digest": "d", "rows": 0})

    def run(_):
        start.wait()
        return ensure_cache(tmp_path, KEY, FORMAT, slow)

    with ThreadPoolExecutor(3) as pool:
        assert len(set(pool.map(run, range(3)))) == 1
    assert len(built) == 1
