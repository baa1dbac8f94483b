"""Files that mean harm, vouched for by a manifest: refused by name, with nothing followed or run
and little memory."""

import io
import json
import random
import tracemalloc
import zlib

import h5py
import numpy as np
import pyarrow as pa
import pytest

from distcore_core.contracts import PluginRef
from distcore_core.errors import CacheError
from distcore_data.cache import open_cache
from distcore_hdf5 import index
from distcore_hdf5.format import Hdf5Format
from distcore_hdf5.options import Hdf5Options
from distcore_testing.made_caches import cache_holding

SECRET = -41.0
MEMORY = 48 << 20


def good(rows=2000, **options):
    target = io.BytesIO()
    Hdf5Format(Hdf5Options(**options)).write(
        target, pa.table({"x": np.arange(rows, dtype=np.float32)})
    )
    return target.getvalue()


def read(tmp_path, content, rows=2000):
    """What the cache's reader makes of the file, and of no more memory than MEMORY."""
    cache = cache_holding(tmp_path, PluginRef(kind="caches", name="hdf5"), content, rows)
    tracemalloc.start()
    try:
        with open_cache(cache) as reader:
            return reader.read("train", 0, rows)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < MEMORY


# ------------------------------------------------------------------ HDF5's own ways out of a file


def soft(file, folder):
    file["y"] = np.zeros(2000, np.float32)
    file["x"] = h5py.SoftLink("/y")


def outside(file, folder):
    file["x"] = h5py.ExternalLink(str(folder / "secret.h5"), "/x")


def virtual(file, folder):
    layout = h5py.VirtualLayout((2000,), np.float32)
    layout[:] = h5py.VirtualSource(str(folder / "secret.h5"), "x", (2000,))
    file.create_virtual_dataset("x", layout)


def external_storage(file, folder):
    file.create_dataset(
        "x", (2000,), np.float32, external=[(str(folder / "raw"), 0, h5py.h5f.UNLIMITED)]
    )


def unknown_filter(file, folder):
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_chunk((2000,))
    made.set_filter(32001, h5py.h5z.FLAG_OPTIONAL, ())
    space = h5py.h5s.create_simple((2000,))
    h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F32LE, space, made)


def objects(file, folder):
    file.create_dataset(
        "x", data=np.array(["cos\nsystem"] * 2000, object), dtype=h5py.string_dtype()
    )


def huge(file, folder):
    file.create_dataset("x", (2000, 1 << 40), np.float32, chunks=(1, 1 << 20))


WAYS = [soft, outside, virtual, external_storage, unknown_filter, objects, huge]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("from_ours", [False, True])
def test_ways_out_of_a_file_are_not_followed(tmp_path, way, from_ours):
    """A file that is not ours is refused; one of ours, changed afterwards, never gives more than
    its own bytes hold."""
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["x"] = np.full(2000, SECRET, np.float32)
    np.full(2000, SECRET, np.float32).tofile(tmp_path / "raw")
    path = tmp_path / "hostile.h5"
    if from_ours:
        path.write_bytes(good())
    with h5py.File(path, "a") as file:
        if from_ours:
            del file["x"]
        way(file, tmp_path)
    if not from_ours:
        with pytest.raises(CacheError, match=r"00000\.h5.*does not begin as"):
            read(tmp_path / "cache", path.read_bytes())
        return
    try:
        found = read(tmp_path / "cache", path.read_bytes())
    except CacheError:
        return
    assert SECRET not in found["x"].to_pylist()


# ------------------------------------------------------------------ an index that lies


def lying(content, change):
    """The file with its index changed, and the index's own crc made right again."""
    _, length, _ = index.HEAD.unpack(content[: index.HEAD.size])
    document = json.loads(content[index.HEAD.size : index.HEAD.size + length])
    text = change(document)
    text = (json.dumps(document) if text is None else text).encode()
    head = index.HEAD.pack(index.MAGIC, len(text), zlib.crc32(text)) + text
    return head + content[len(head) :]


def set_to(place, value):
    """A change of one number or name: place is a path in the JSON."""

    def change(document):
        *way, last = place
        for each in way:
            document = document[each]
        document[last] = value

    return change


X = ("columns", 0, "values")
LIES = {
    "shape": set_to((*X, "shape"), [1 << 40]),
    "width": set_to((*X, "shape"), [2000, 1 << 40]),
    "many dimensions": set_to((*X, "shape"), [2000, 1, 1]),
    "no dimension": set_to((*X, "shape"), []),
    "negative shape": set_to((*X, "shape"), [-2000]),
    "float shape": set_to((*X, "shape"), [2000.0]),
    "bool shape": set_to((*X, "shape"), [True]),
    "text shape": set_to((*X, "shape"), "2000"),
    "offset": set_to((*X, "offset"), 1 << 62),
    "negative offset": set_to((*X, "offset"), -1),
    "dtype": set_to((*X, "dtype"), "object"),
    "size": set_to(("bytes",), 1),
    "no columns": set_to(("columns",), []),
    "name": set_to(("columns", 0, "name"), ["x"]),
    "ragged": set_to(("columns", 0, "offsets"), {"shape": [2001], "dtype": "int32", "offset": 512}),
    "a chunk beyond the file": lambda d: d["columns"][0].update(
        values={"shape": [2000], "dtype": "float32", "chunk_rows": 2000, "chunks": [512, 1 << 40]}
    ),
    "chunk rows": lambda d: d["columns"][0].update(
        values={"shape": [2000], "dtype": "float32", "chunk_rows": 1 << 50, "chunks": [512, 9]}
    ),
    "no chunk rows": lambda d: d["columns"][0].update(
        values={"shape": [2000], "dtype": "float32", "chunk_rows": 0, "chunks": [512, 9]}
    ),
    "half a chunk": lambda d: d["columns"][0].update(
        values={"shape": [2000], "dtype": "float32", "chunk_rows": 2000, "chunks": [512, 9, 512]}
    ),
    "no deflate": lambda d: d["columns"][0].update(
        values={"shape": [2000], "dtype": "float32", "chunk_rows": 2000, "chunks": [512, 99]}
    ),
    "nesting": lambda d: "[" * 20_000,
    "digits": lambda d: '{"bytes":' + "9" * 10_000 + "}",
    "a list": lambda d: "[]",
    "no JSON": lambda d: "distcore",
}


@pytest.mark.parametrize("lie", LIES)
def test_an_index_that_lies_is_refused_by_the_name_of_the_file(tmp_path, lie):
    with pytest.raises(CacheError, match=r"00000\.h5"):
        read(tmp_path, lying(good(), LIES[lie]))


def test_an_index_of_more_bytes_than_the_file_is_refused(tmp_path):
    for length in (1 << 63, (1 << 64) - 1, 10 << 30):
        head = index.HEAD.pack(index.MAGIC, length, 0)
        with pytest.raises(CacheError, match=r"00000\.h5.*index is damaged"):
            read(tmp_path / str(length), head + good()[len(head) :])


def test_a_chunk_that_inflates_to_more_than_it_says_is_refused(tmp_path):
    """Zeros, 128 MB of them: no more is inflated than the column may hold."""
    bomb = zlib.compress(bytes(128 << 20), 1)
    content = good(compression="gzip")
    chunk = {
        "shape": [2000],
        "dtype": "float32",
        "chunk_rows": 2000,
        "chunks": [len(content), len(bomb)],
    }

    def change(document):
        document["columns"][0]["values"] = chunk
        document["bytes"] = len(content) + len(bomb)

    with pytest.raises(CacheError, match=r"00000\.h5.*does not inflate to 8000 bytes"):
        read(tmp_path, lying(content + bomb, change))


def test_a_bomb_that_tells_its_size_is_refused(tmp_path):
    """Ten gigabytes of zeros in ten megabytes, which deflate can do."""
    bomb = zlib.compress(bytes(5 << 20), 9)
    start, rows = 1 << 17, 2000
    chunks = [each for n in range(rows) for each in (start + n * len(bomb), len(bomb))]
    column = {
        "shape": [rows, (5 << 20) // 4],
        "dtype": "float32",
        "chunk_rows": 1,
        "chunks": chunks,
    }
    content = good().ljust(start, b"\0") + bomb * rows
    document = {"bytes": len(content), "columns": [{"name": "x", "values": column}]}
    with pytest.raises(CacheError, match="cannot come from a file of"):
        read(tmp_path, lying(content, lambda _: json.dumps(document)))


def test_offsets_that_leave_their_values_are_refused(tmp_path):
    """Arrow would read whatever lies behind them in memory."""
    target = io.BytesIO()
    Hdf5Format().write(target, pa.table({"x": pa.array([[1], [2, 3]], pa.list_(pa.int32()))}))
    content = target.getvalue()
    at = content.index(np.array([0, 1, 3], np.int32).tobytes())
    for offsets in ([0, 1, 9], [0, 2**31 - 1, 3], [-5, 1, 3], [2, 1, 3], [0, 1, -1]):
        damaged = content[:at] + np.array(offsets, np.int32).tobytes() + content[at + 12 :]
        with pytest.raises(CacheError, match=r"00000\.h5.*offsets"):
            read(tmp_path / str(offsets), damaged, rows=2)


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_no_flipped_bit_crashes_the_reader(compression):
    """The HDF5 library did crash on such files. Without the cache's hash before it, most flips
    show all the same."""
    content, dice = good(compression=compression), random.Random(1)
    for _ in range(2000):
        damaged = bytearray(content)
        for _ in range(dice.choice([1, 1, 2, 8])):
            place = dice.randrange(len(content))
            damaged[place] ^= 1 << dice.randrange(8)
        try:
            Hdf5Format().open(io.BytesIO(bytes(damaged))).read().validate(full=True)
        except (ValueError, zlib.error):
            pass
