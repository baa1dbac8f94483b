"""A dataset that changes while it is read: an error that names it, and nothing that was read of
it counts."""

import gzip
import os
import pickle
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

import distcore
from distcore_core.errors import DataError, DistcoreError
from distcore_core.progress import Progress
from distcore_core.registry.manager import Plugins, environment_plugins
from distcore_data.encoding.stream import EncodedStream
from distcore_data.sources.registry import format_name, open_source, sample

ROWS = 40_000
CONFIG = {
    "input_features": [{"name": "age", "type": "number"}, {"name": "city", "type": "category"}],
    "output_features": [{"name": "bought", "type": "binary"}],
    "trainer": {"epochs": 1, "batch_size": 1024},
}
FORMATS = ("csv", "csv.gz", "jsonl", "feather", "parquet", "folder")
STAGES = ("digest", "read", "encode")


def table_of(version):
    """Rows whose files have the same size in every version."""
    ages = [20 + (number * 37 + version * 11) % 50 for number in range(ROWS)]
    cities = [("Rome", "Oslo", "Lima")[(number + version) % 3] for number in range(ROWS)]
    return pa.table(
        {"age": ages, "city": cities, "bought": [("no", "si")[age > 40] for age in ages]}
    )


def content(version, kind):
    """The bytes of a file of the version: as many in each."""
    table = table_of(version)
    if kind.startswith("csv"):
        rows = zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True)
        text = (
            "age,city,bought\n" + "".join(f"{age},{city},{bought}\n" for age, city, bought in rows)
        ).encode()
        return gzip.compress(text, 0, mtime=0) if kind == "csv.gz" else text
    if kind == "jsonl":
        return "".join(
            f'{{"age": {a["age"]}, "city": "{a["city"]}", "bought": "{a["bought"]}"}}\n'
            for a in table.to_pylist()
        ).encode()
    sink = pa.BufferOutputStream()
    if kind == "feather":
        pa.feather.write_feather(table, sink, compression="uncompressed", chunksize=5000)
    else:
        pa.parquet.write_table(
            table, sink, row_group_size=5000, use_dictionary=False, compression="none"
        )
    return sink.getvalue().to_pybytes()


class Dataset:
    """A dataset of one format in a folder, which can be changed. named: the file that an error
    is to name."""

    def __init__(self, folder, kind):
        self.folder, self.kind = folder, kind
        folder.mkdir()
        self.versions = [content(version, kind) for version in (0, 1)]
        self.path = folder / "parts" if kind == "folder" else folder / f"data.{kind}"
        self.file = self.path / "a.parquet" if kind == "folder" else self.path
        self.file.parent.mkdir(exist_ok=True)
        if kind == "folder":
            (self.path / "b.parquet").write_bytes(self.versions[0])
        self.put(0)

    def put(self, version):
        """As if it had lain there for a while: the clock of the files' times, which counts
        milliseconds, has moved on."""
        self.file.write_bytes(self.versions[version])
        written, clock = os.stat(self.file).st_ctime_ns, self.folder / "clock"
        clock.touch()
        while clock.stat().st_ctime_ns <= written:
            clock.touch()

    def in_place(self):
        with open(self.file, "rb+") as file:
            file.write(self.versions[1])

    def times_kept(self):
        before = os.stat(self.file)
        self.in_place()
        os.utime(self.file, ns=(before.st_atime_ns, before.st_mtime_ns))

    def replaced(self):
        other = self.folder / "other"
        other.write_bytes(self.versions[1])
        os.replace(other, self.file)

    def cut(self):
        os.truncate(self.file, len(self.versions[0]) // 3)

    def grown(self):
        with open(self.file, "ab") as file:
            file.write(self.versions[1])

    def unlinked(self):
        self.file.unlink()


CHANGES = ("in_place", "times_kept", "replaced", "cut", "grown", "unlinked")


def caches(folder):
    """{key: the manifest} of what was committed."""
    return {path.parent.name: path.read_bytes() for path in folder.glob("*/manifest.json")}


def preprocess(data, cache):
    backend = {"type": "local", "cache_dir": str(cache)}
    return distcore.preprocess({**CONFIG, "backend": backend}, dataset=str(data.path), view="none")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    data = Dataset(folder / "data", "csv")
    config = {**CONFIG, "backend": {"type": "local", "cache_dir": str(folder / "cache")}}
    return distcore.train(
        config, str(data.path), output_directory=folder / "results", view="none"
    ).model


def ended(work, data, any_error=False):
    """How the work ended: "told" by an error that names the dataset, or "whole"."""
    try:
        work()
    except DistcoreError as error:
        told = error
    else:
        return "whole"
    assert isinstance(told, DataError), told
    if (not any_error and "while it was being read" not in str(told)) or data.path.name not in str(
        told
    ):
        raise AssertionError(str(told)) from told
    return "told"


def wanted(data, tmp_path):
    """The caches of the dataset before and after each change, as undisturbed runs make them."""
    found = {}
    for change in (lambda: None, *(getattr(data, each) for each in CHANGES)):
        data.put(0)
        change()
        with suppress(DataError):
            preprocess(data, tmp_path / "right")
        found |= caches(tmp_path / "right")
    return found


@pytest.mark.parametrize("kind", FORMATS)
def test_a_dataset_that_changes_before_a_stage(tmp_path, monkeypatch, sweep, kind):
    data = Dataset(tmp_path / "data", kind)
    right, begin, told, tried = wanted(data, tmp_path), Progress.begin, 0, 0
    changes = CHANGES if sweep.times(0, 1) else CHANGES[:5:2] if kind != "csv" else CHANGES
    for change in changes:
        for stage in STAGES:
            data.put(0)

            def begun(self, name, *more, stage=stage, change=change, **options):
                begin(self, name, *more, **options)
                if name == stage:
                    getattr(data, change)()

            monkeypatch.setattr(Progress, "begin", begun)
            cache = tmp_path / f"{change}-{stage}"
            outcome = ended(lambda cache=cache: preprocess(data, cache), data)
            monkeypatch.setattr(Progress, "begin", begin)
            assert outcome == "told", (change, stage)
            assert not caches(cache), (change, stage)
            data.put(0)
            preprocess(data, cache)
            assert caches(cache).items() <= right.items()
            tried, told = tried + 1, told + 1
    sweep.tried(
        f"a {kind} dataset changed, replaced, cut or removed before a stage of `preprocess`",
        tried,
        f"{told} named the file and left no cache",
    )


@pytest.mark.parametrize("read", [open_source, lambda path, _: sample(path, 3)])
@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_that_is_removed_between_being_found_and_opened(tmp_path, monkeypatch, kind, read):
    data, made = Dataset(tmp_path / "data", kind), Plugins.make

    def make(self, *arguments):
        found = made(self, *arguments)
        data.unlinked()
        return found

    monkeypatch.setattr(Plugins, "make", make)
    if kind == "folder":  # its files are listed by who reads it
        (data.path / "b.parquet").unlink()
    with pytest.raises(
        DataError, match=rf"{data.path.name}.*(was removed|no such file|with no Parquet files)"
    ):
        read(data.path, {"age": "number"})


def test_a_file_without_an_ending_that_is_removed_once_it_was_found(tmp_path, monkeypatch):
    path, is_file = tmp_path / "data", Path.is_file
    path.write_text("age,bought\n1,yes\n")

    def seen(self):
        found = is_file(self)
        path.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Path, "is_file", seen)
    with pytest.raises(DataError, match=r"/data: the file was removed"):
        format_name(path, None, environment_plugins())


@pytest.mark.parametrize("kind", FORMATS)
def test_a_dataset_that_changes_at_any_moment(tmp_path, sweep, kind):
    """A cache that is committed is that of an undisturbed run, whenever the change came."""
    data = Dataset(tmp_path / "data", kind)
    right, outcomes = wanted(data, tmp_path), []
    times = sweep.times(3, 60)
    for number in range(times):
        data.put(0)
        change = sweep.random.choice(CHANGES)
        timer = threading.Timer(sweep.random.uniform(0, 0.15), getattr(data, change))
        cache = tmp_path / f"cache-{number}"
        timer.start()
        outcomes.append(ended(lambda cache=cache: preprocess(data, cache), data, any_error=True))
        timer.join()
        assert caches(cache).items() <= right.items(), change
        assert len(caches(cache)) == (outcomes[-1] == "whole")
    sweep.tried(
        f"a {kind} dataset changed at a random moment of `preprocess`",
        times,
        f"{outcomes.count('told')} named the file and left no cache, {outcomes.count('whole')} "
        "made an undisturbed run's",
    )


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_dataset_that_changes_under_a_model(tmp_path, monkeypatch, sweep, model, command):
    tried, encode = 0, EncodedStream._encode
    for kind in FORMATS:
        data = Dataset(tmp_path / f"{kind}-data", kind)
        for change in CHANGES if sweep.times(0, 1) else ("in_place", "unlinked"):
            data.put(0)
            done = []

            def encoded(self, *arguments, done=done, change=change, data=data):
                found = encode(self, *arguments)
                if not done:
                    done.append(True)
                    getattr(data, change)()
                return found

            monkeypatch.setattr(EncodedStream, "_encode", encoded)
            output = tmp_path / f"{kind}-{change}"
            work = getattr(distcore, command)
            assert (
                ended(
                    lambda: work(model, str(data.path), output_directory=output, view="none"),  # noqa: B023
                    data,
                )
                == "told"
            )
            assert not [path for path in output.rglob("*") if path.is_file()]
            tried += 1
    sweep.tried(
        f"a dataset changed in the middle of `{command}`",
        tried,
        "each named the file and wrote nothing",
    )


READ = """
import pickle, sys
part = pickle.load(open(sys.argv[1], "rb"))
try:
    part.read()
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("kind", [each for each in FORMATS if each != "csv.gz"])
def test_a_task_in_another_process_finds_another_file(tmp_path, sweep, kind):
    """What the tasks of Dask, Modin, Ray and Horovod read; of compressed text that is the copy
    that was unpacked."""
    data = Dataset(tmp_path / "data", kind)
    changes = CHANGES if sweep.times(0, 1) else ("replaced",)
    for change in changes:
        data.put(0)
        source = open_source(data.path, {"age": "number", "city": "category"})
        part = tmp_path / "part"
        part.write_bytes(pickle.dumps(source.partitions(1 << 16)[0]))
        getattr(data, change)()
        done = subprocess.run(
            [sys.executable, "-c", READ, part], capture_output=True, text=True, check=True
        )
        unseen = (
            "FileNotFoundError" if change == "unlinked" else "DataError"
        )  # for the driver to look at
        assert done.stdout.startswith(unseen), done.stdout + done.stderr
        assert data.file.name in done.stdout
        with pytest.raises(DataError, match="while it was being read"):
            source.check_unchanged()
    sweep.tried(
        f"a partition of a changed {kind} file read in another process",
        len(changes),
        "each named the file",
    )


def test_a_repair_keeps_the_cache_of_the_data_that_are_gone(tmp_path, monkeypatch, sweep):
    """A damaged file of a cache is made again from data that change meanwhile: all other files
    stay."""
    data = Dataset(tmp_path / "data", "csv")
    cache = preprocess(data, tmp_path / "cache")
    right = caches(tmp_path / "cache")
    shard = next(Path(cache.folder).glob("train/*"))
    shard.write_bytes(shard.read_bytes()[:-1])
    begin = Progress.begin

    def begun(self, name, *more, **options):
        begin(self, name, *more, **options)
        if name == "read":
            data.in_place()

    monkeypatch.setattr(Progress, "begin", begun)
    assert ended(lambda: preprocess(data, tmp_path / "cache"), data) == "told"
    assert caches(tmp_path / "cache") == right
    monkeypatch.undo()
    data.put(0)
    preprocess(data, tmp_path / "cache")
    assert caches(tmp_path / "cache") == right
    sweep.tried(
        "a dataset changed while a cache was repaired", 1, "named the file; the cache stayed"
    )
