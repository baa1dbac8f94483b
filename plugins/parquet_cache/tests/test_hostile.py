"""Files that mean harm, vouched for by a manifest: refused by name, with nothing run and little
memory."""

import io
import os
import pickle
import resource
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distcore_core.contracts import PluginRef
from distcore_core.errors import CacheError
from distcore_data import columns
from distcore_data.cache import open_cache
from distcore_parquet.format import ParquetFormat
from distcore_parquet.options import ParquetOptions
from distcore_testing.made_caches import cache_holding

MEMORY = 48 << 20
ROWS = 2000


def good(**options):
    target = io.BytesIO()
    ParquetFormat(ParquetOptions(**options)).write(
        target, pa.table({"x": np.arange(ROWS, dtype=np.float32)})
    )
    return target.getvalue()


def foreign(table, **options):
    """A file as pyarrow writes it by itself."""
    target = io.BytesIO()
    pq.write_table(table, target, **options)
    return target.getvalue()


def refused(folder, content, words, rows=ROWS):
    """By the name of the file, and in no more memory than MEMORY, of whatever allocator: in a
    process of its own."""
    cache = cache_holding(folder, PluginRef(kind="caches", name="parquet"), content, rows)
    report = folder / "report"
    child = os.fork()
    if child == 0:
        try:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            with (
                open_cache(cache) as reader,
                pytest.raises(CacheError, match=r"00000\.parquet.*" + words),
            ):
                reader.read("train", 0, rows)
            report.write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
        except BaseException as error:
            report.write_text(repr(error))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    said = report.read_text()
    assert said.isdigit(), said
    assert int(said) << 10 < MEMORY


# ------------------------------------------------------------------ Arrow extension types


class Runs:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return (os.makedirs, (self.mark, 0o777, True))


NAMES = ["arrow.py_extension_type", "ray.data.arrow_tensor", "ray.data.arrow_variable_shaped_tensor", "ray.data.arrow_pickled_object"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_extension_types_are_refused_before_anything_makes_them(tmp_path, name):
    """Whatever code is registered for them in this process."""

    class Registered(pa.ExtensionType):
        def __init__(self):
            super().__init__(pa.float32(), name)

        def __arrow_ext_serialize__(self):
            return pickle.dumps(Runs(tmp_path / "mark"))

        @classmethod
        def __arrow_ext_deserialize__(cls, storage, serialized):
            pickle.loads(serialized)  # noqa: S301
            return cls()

    with suppress(KeyError):  # Ray's own, if a test of this process imported them
        pa.unregister_extension_type(name)
    pa.register_extension_type(Registered())
    try:
        array = pa.ExtensionArray.from_storage(Registered(), pa.array(np.zeros(ROWS, np.float32)))
        content = foreign(pa.table({"x": array}), use_dictionary=False)
        assert not (tmp_path / "mark").exists()
        refused(tmp_path, content, "extension type")
        assert not (tmp_path / "mark").exists()
        pq.read_table(io.BytesIO(content))
        assert (tmp_path / "mark").exists(), "the file would run code, were it not refused"
    finally:
        pa.unregister_extension_type(name)


def test_a_schema_that_hides_is_refused(tmp_path):
    """The key of Arrow's schema, with a value that is not spelt as pyarrow spells it."""
    vector = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2 * ROWS, np.float32)), 2)
    target = io.BytesIO()
    ParquetFormat().write(target, pa.table({"x": vector}))
    content = target.getvalue()
    at = content.rindex(b"ARROW:schema") + len(b"ARROW:schema")
    for place, byte in ((at, 0x28), (at + 5, 0x0A), (at + 5, 0x3D)):
        hidden = bytearray(content)
        hidden[place] = byte
        refused(tmp_path / f"{place}-{byte}", bytes(hidden), "Arrow schema")


# ------------------------------------------------------------------ claims


def varint(number, length=0):
    """A number as Thrift's compact protocol has it; padded to `length` bytes, it reads the same."""
    rest, found = number << 1, bytearray()
    while True:
        found.append(rest & 127)
        rest >>= 7
        if not rest and len(found) >= length:
            return bytes(found)
        found[-1] |= 128


def test_a_small_file_that_claims_gigabytes_is_refused(tmp_path):
    """One row of 20 million tokens, run-length encoded, whose footer speaks of five."""
    many = 20_000_000
    tokens = pa.ListArray.from_arrays(
        pa.array([0, many], pa.int32()), pa.array(np.zeros(many, np.int32))
    )
    content = foreign(
        pa.table({"x": tokens}), data_page_size=1 << 30, write_batch_size=many, store_schema=False
    )
    assert len(content) < 1000
    refused(tmp_path / "dictionary", content, "stored as no cache's is", rows=1)
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    real = varint(many)
    lies = content[:footer] + content[footer:].replace(real, varint(5, len(real)))
    assert pq.read_metadata(io.BytesIO(lies)).row_group(0).column(0).num_values == 5
    refused(tmp_path / "lies", lies, "stored as no cache's is", rows=1)


@pytest.mark.parametrize("codec", ["zstd", "gzip", "lz4"])
def test_zeros_that_shrink_a_thousandfold_are_refused(tmp_path, codec):
    many = 70_000_000
    tokens = pa.ListArray.from_arrays(
        pa.array([0, many], pa.int32()), pa.array(np.zeros(many, np.int32))
    )
    plain = {"use_dictionary": False, "store_schema": False, "write_statistics": False}
    content = foreign(pa.table({"x": tokens}), compression=codec, **plain)
    assert len(content) < 2_500_000
    refused(tmp_path, content, r"claim \d+ bytes", rows=1)


@pytest.mark.parametrize("claim", [1 << 30, -5, 1 << 62])
def test_a_page_header_that_lies_is_refused(tmp_path, claim):
    """Of its number of values; it grows by some bytes, by which its page is said to be shorter."""
    content = good(compression="none")
    size, values = b"\x15" + varint(4 * ROWS), b"\x15" + varint(ROWS)
    at = content.index(values)
    lied = b"\x15" + (varint(claim) if claim > 0 else b"\x89\x00")
    grown = len(lied) - len(values)
    header = content[:at].replace(size + size, size + b"\x15" + varint(4 * ROWS - grown)) + lied
    changed = header + content[at + len(values) : 4 * ROWS] + content[4 * ROWS + grown :]
    assert len(changed) == len(content)
    refused(tmp_path, changed, "(stored as none of ours|claim)")


def test_any_bytes_in_place_of_a_page_header_are_refused_or_read(tmp_path):
    """Never a crash, and never more memory than the file may hold."""
    content, dice = good(compression="none"), np.random.default_rng(1)
    for _ in range(3000):
        changed = bytearray(content)
        for _ in range(dice.integers(1, 4)):
            changed[dice.integers(4, 40)] = dice.integers(256)
        try:
            found = ParquetFormat().open(io.BytesIO(bytes(changed))).read()
        except (ValueError, OSError):
            continue
        assert found.nbytes < MEMORY


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" * 3, b"PAR1\xff\xff\xff\x7fPAR1", pickle.dumps(Runs("x")) + b"PAR1"])  # fmt: skip
def test_what_is_no_parquet_is_refused(tmp_path, content):
    refused(tmp_path, content, "(does not end as|ends at)")


# ------------------------------------------------------------------ ours


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_shard_that_shrinks_too_well_is_stored_without_compressing(monkeypatch, compression):
    """So that no shard of ours is beyond the bound."""
    monkeypatch.setattr(columns, "FLOOR_BYTES", 1 << 16)
    table = pa.table({"code": np.zeros(200_000, np.int32)})
    target = io.BytesIO()
    ParquetFormat(ParquetOptions(compression=compression)).write(target, table)
    assert len(target.getvalue()) > table.nbytes
    assert ParquetFormat().open(io.BytesIO(target.getvalue())).read().equals(table.to_batches()[0].cast(table.schema.set(0, pa.field("code", pa.int32(), nullable=False))))  # fmt: skip
