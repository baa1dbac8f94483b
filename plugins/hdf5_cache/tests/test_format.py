"""The HDF5 files: that h5py reads them, that equal tables give equal bytes, and any range of
rows."""

import io
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pytest

from distcore_core.contracts import CACHE_FORMAT
from distcore_core.errors import CacheError, ConfigError
from distcore_core.registry.manager import Plugins
from distcore_data import columns, seals
from distcore_hdf5 import index
from distcore_hdf5.format import Hdf5Format, Hdf5Shard
from distcore_hdf5.options import Hdf5Options

COMPRESSIONS = ["none", "gzip"]


def table(rows=3000, seed=0):
    dice = np.random.default_rng(seed)
    lengths = dice.integers(0, 5, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    tokens = pa.array(dice.integers(0, 1000, offsets[-1]).astype(np.int32))
    return pa.table(
        {
            "x": dice.normal(size=rows).astype(np.float32),
            "code": dice.integers(0, 50, rows).astype(np.int32),
            "tokens": pa.ListArray.from_arrays(pa.array(offsets), tokens),
            "vector": pa.FixedSizeListArray.from_arrays(
                pa.array(dice.normal(size=rows * 4).astype(np.float32)), 4
            ),
            "split": dice.integers(-1, 3, rows).astype(np.int8),
        }
    )


def written(values, **options):
    target = io.BytesIO()
    Hdf5Format(Hdf5Options(**options)).write(target, values)
    return target.getvalue()


def opened(content):
    return Hdf5Format().open(io.BytesIO(content))


# ------------------------------------------------------------------ other tools


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_h5py_reads_the_files(compression):
    values = table()
    with h5py.File(io.BytesIO(written(values, compression=compression))) as file:
        assert list(file) == values.column_names
        for name in ("x", "code", "split"):
            assert file[name][:].tolist() == values[name].to_pylist()
        assert file["vector"][:].tolist() == values["vector"].to_pylist()
        found, offsets = file["tokens/values"][:], file["tokens/offsets"][:]
        assert [part.tolist() for part in np.split(found, offsets[1:-1])] == values[
            "tokens"
        ].to_pylist()
        assert (file["x"].compression, file["x"].shuffle) == (
            ("gzip", True) if compression == "gzip" else (None, False)
        )


def test_any_name_is_a_column():
    names = ["a/b", ".", "", "%", "%2E", "a.b", "é\0", "../x", "values", "tokens.values"]
    values = pa.table({name: np.array([number], np.int32) for number, name in enumerate(names)})
    content = written(values)
    assert opened(content).read().to_pydict() == values.to_pydict()
    with h5py.File(io.BytesIO(content)) as file:
        assert [dataset[0] for dataset in file.values()] == list(range(len(names)))


# ------------------------------------------------------------------ equal bytes


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_bytes_depend_neither_on_the_time_nor_on_the_process(compression):
    """HDF5 keeps times in whole seconds, unless it is told not to."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import hashlib, "
        "test_format as t; print(hashlib.sha256(t.written(t.table(20_000), "
        f"compression={compression!r})).hexdigest())"
    )
    digests = set()
    for _ in range(2):
        digests.add(subprocess.check_output([sys.executable, "-c", code]))
        time.sleep(1.1)
    assert len(digests) == 1


# ------------------------------------------------------------------ reading


CONTENTS = {"none": written(table()), "gzip": written(table(), compression="gzip", chunk_rows=1024)}


def test_small_reads_in_order_inflate_each_chunk_once(monkeypatch):
    inflated, real = [], index.zlib.decompressobj
    monkeypatch.setattr(
        "distcore_hdf5.format.zlib.decompressobj", lambda: inflated.append(1) or real()
    )
    shard = opened(CONTENTS["gzip"])
    for start in range(0, 3000, 100):
        shard.read(start, start + 100, ["code"])
    assert len(inflated) == 3


def test_reading_never_imports_hdf5(tmp_path):
    """So nothing in a file's structure can make it follow a link, load a filter or crash."""
    (tmp_path / "shard").write_bytes(CONTENTS["gzip"])
    code = (
        "import sys; sys.modules['h5py'] = None; from distcore_hdf5.format import Hdf5Format; "
        f"print(Hdf5Format().open(open({str(tmp_path / 'shard')!r}, 'rb')).read().num_rows)"
    )
    assert subprocess.check_output([sys.executable, "-c", code]).split() == [b"3000"]


def test_a_source_that_reads_less_than_asked_is_read_on():
    class Slow(io.BytesIO):
        def readinto(self, buffer):
            return super().readinto(memoryview(buffer)[:7])

    assert (
        Hdf5Shard(Slow(CONTENTS["none"])).read(0, 50).to_pydict()
        == table().slice(0, 50).to_pydict()
    )


# ------------------------------------------------------------------ refused when writing


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.0, None], pa.float32()),
        pa.array([[1], None], pa.list_(pa.int32())),
        pa.array([[1], [None]], pa.list_(pa.int32())),
        pa.array([[1.0], None], pa.list_(pa.float32(), 1)),
        pa.array([[1.0], [None]], pa.list_(pa.float32(), 1)),
    ],
)
def test_missing_values_are_refused_by_the_column_name(column):
    with pytest.raises(CacheError, match="'age' has 1 missing values"):
        written(pa.table({"age": column}))


@pytest.mark.parametrize("column", [pa.array([1.0]), pa.array(["a"]), pa.array([[b"x"]])])
def test_other_types_are_refused_by_the_column_name(column):
    with pytest.raises(CacheError, match="'age' is"):
        written(pa.table({"age": column}))


def test_what_would_look_like_a_bomb_is_not_compressed(monkeypatch):
    """The reader refuses more than 64 times the file's bytes beyond a floor, so the writer keeps
    below it."""
    zeros = pa.table({"x": np.zeros(300_000, np.float32)})
    packed = written(zeros, compression="gzip")
    assert len(packed) < 20_000
    monkeypatch.setattr(columns, "FLOOR_BYTES", 100_000)
    with pytest.raises(ValueError, match="cannot come from a file of"):
        opened(packed)
    content = written(zeros, compression="gzip")
    assert opened(content).read().num_rows == 300_000
    with h5py.File(io.BytesIO(content)) as file:
        assert file["x"].compression is None


def test_of_many_columns_in_small_chunks_every_file_that_is_written_can_be_read(monkeypatch):
    """4,100 columns in chunks of 1,024 rows were written, and refused by the reader."""
    monkeypatch.setattr(seals, "MOST_CONTAINERS", 40)
    values = pa.table({str(number): np.arange(40 * 1024, dtype=np.int32) for number in range(9)})
    content = written(values, compression="gzip", chunk_rows=1024)
    assert opened(content).read().to_pydict() == values.to_pydict()
    values = values.append_column("10", values["0"])
    with pytest.raises(CacheError, match=r"10 columns and their chunks are too many .* chunk_rows"):
        written(values, compression="gzip", chunk_rows=1024)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"compresion": "gzip"}, "did you mean 'compression'"),
        ({"compression": "rar"}, "rar"),
        ({"compression": "gzip", "chunk_rows": 0}, "1024"),
        ({"compression": "gzip", "compression_level": 10}, "9"),
        ({"chunk_rows": 4096}, "chunk_rows needs compression: gzip"),
    ],
)
def test_wrong_options_are_told(options, words):
    with pytest.raises(ConfigError, match=words):
        Plugins().make(CACHE_FORMAT, "hdf5", options)


def test_what_hdf5_leaves_as_it_was_is_written_without_compression(monkeypatch):
    """It does where packing fails, which it may; such a chunk could not be read, at each build."""
    real = h5py.Group.create_dataset

    def failing(self, name, *shape, **options):
        chunks, data = options.get("chunks"), options.get("data")
        if chunks is None or name != "code":
            return real(self, name, *shape, **options)
        given = {**options, "data": None, "shape": data.shape, "dtype": data.dtype}
        made = real(self, name, **given)
        for start in range(0, len(data), chunks[0]):
            chunk = np.zeros(chunks[0], data.dtype)
            part = data[start : start + chunks[0]]
            chunk[: len(part)] = part
            made.id.write_direct_chunk((start,), chunk.tobytes(), filter_mask=3)
        return made

    values = table()
    plain = written(values)
    monkeypatch.setattr(h5py.Group, "create_dataset", failing)
    assert written(values, compression="gzip", chunk_rows=1024) == plain
