"""The Parquet files: what is in them, that other tools read them, and that equal tables give
equal bytes."""

import io
import subprocess
import sys

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distcore_core.contracts import CACHE_FORMAT
from distcore_core.errors import CacheError, ConfigError
from distcore_core.registry.manager import Plugins
from distcore_parquet.format import ParquetFormat
from distcore_parquet.options import ParquetOptions

COMPRESSIONS = ["lz4", "snappy", "zstd", "none"]


def table(rows=3000, seed=0):
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 5, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    tokens = pa.array(random.integers(0, 1000, offsets[-1]).astype(np.int32))
    return pa.table(
        {
            "x": random.normal(size=rows).astype(np.float32),
            "code": random.integers(0, 50, rows).astype(np.int32),
            "tokens": pa.ListArray.from_arrays(pa.array(offsets), tokens),
            "vector": pa.FixedSizeListArray.from_arrays(
                pa.array(random.normal(size=rows * 4).astype(np.float32)), 4
            ),
            "split": random.integers(-1, 3, rows).astype(np.int8),
        }
    )


def written(values, **options):
    target = io.BytesIO()
    ParquetFormat(ParquetOptions(**options)).write(target, values)
    return target.getvalue()


def opened(content):
    return ParquetFormat().open(io.BytesIO(content))


# ------------------------------------------------------------------ other tools


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_pandas_polars_and_duckdb_read_the_files(tmp_path, compression):
    """Whatever the compression; a ragged column, a vector and int8 too."""
    path, values = tmp_path / "00000.parquet", table()
    path.write_bytes(written(values, compression=compression))
    expected = values.to_pydict()

    frame = pd.read_parquet(path)
    assert {name: [list(x) if np.ndim(x) else x for x in frame[name]] for name in frame} == expected
    assert pl.read_parquet(path).to_dict(as_series=False) == expected
    rows = duckdb.sql(f"from '{path}'").fetchall()
    assert [
        [list(x) if isinstance(x, tuple) else x for x in column]
        for column in zip(*rows, strict=True)
    ] == list(expected.values())


# ------------------------------------------------------------------ the files


def test_codes_are_split_by_byte_and_compressed_and_floats_are_not():
    column = pq.ParquetFile(io.BytesIO(written(table()))).metadata.row_group(0).column
    assert [column(n).path_in_schema for n in range(5)] == [
        "x",
        "code",
        "tokens.list.element",
        "vector.list.element",
        "split",
    ]
    assert [column(n).compression for n in range(5)] == [
        "UNCOMPRESSED",
        "LZ4",
        "LZ4",
        "UNCOMPRESSED",
        "LZ4",
    ]
    assert ["BYTE_STREAM_SPLIT" in column(n).encodings for n in range(5)] == [
        False,
        True,
        True,
        False,
        True,
    ]
    assert not any(column(n).has_dictionary_page or column(n).is_stats_set for n in range(5))


def test_row_groups_are_cut_as_asked():
    metadata = pq.ParquetFile(io.BytesIO(written(table(), row_group_rows=1024))).metadata
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [
        1024,
        1024,
        952,
    ]


def test_columns_are_required():
    """No definition levels are written for columns that have no missing values."""
    schema = pq.ParquetFile(io.BytesIO(written(table()))).schema_arrow
    assert not any(field.nullable for field in schema)


def test_pages_have_checksums_for_other_readers():
    """Ours has the cache's hash of the whole file before it, and would only do the same work
    twice."""
    content = written(table().select(["x", "code"]), compression="none")
    position = content.index(table()["x"].combine_chunks().to_numpy().tobytes()[:64])
    for offset in (0, 17, 63):
        damaged = bytearray(content)
        damaged[position + offset] ^= 4
        with pytest.raises(OSError, match="CRC"):
            pq.ParquetFile(io.BytesIO(damaged), page_checksum_verification=True).read()


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


# ------------------------------------------------------------------ equal bytes


def test_bytes_do_not_depend_on_threads_or_on_the_process(tmp_path):
    code = (
        "import sys, pyarrow as pa; pa.set_cpu_count(int(sys.argv[1])); sys.path.insert(0, "
        "sys.argv[2]); import hashlib, test_format as t; "
        "print(hashlib.sha256(t.written(t.table(200_000))).hexdigest())"
    )
    folder = str(__import__("pathlib").Path(__file__).parent)
    digests = {
        subprocess.check_output([sys.executable, "-c", code, threads, folder])
        for threads in ("1", "4")
    }
    assert len(digests) == 1


# ------------------------------------------------------------------ reading


def test_small_reads_in_order_decode_each_row_group_once(monkeypatch):
    shard = opened(written(table(), row_group_rows=1024))
    decoded = []
    real = shard._decode
    monkeypatch.setattr(
        shard, "_decode", lambda groups, names: decoded.extend(groups) or real(groups, names)
    )
    for start in range(0, 3000, 100):
        shard.read(start, start + 100, ["code"])
    assert decoded == [0, 1, 2]


# ------------------------------------------------------------------ options


def test_arrows_threads_read_files_of_its_own_alone(tmp_path, monkeypatch):
    """They may give back what was Python's once the program comes to its end, which aborts it."""
    path, threads = tmp_path / "00000.parquet", []
    path.write_bytes(written(table()))
    read = pq.ParquetFile.read_row_groups

    def seen(self, *arguments, use_threads=True, **more):
        threads.append(use_threads)
        return read(self, *arguments, use_threads=use_threads, **more)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", seen)
    expected = opened(path.read_bytes()).read()
    file = path.open("rb")
    shard = ParquetFormat().open(file)
    file.close()  # Arrow has it open by itself
    assert shard.read().equals(expected)
    assert threads == [False, True]
    shard.close()
    with pytest.raises(ValueError, match="closed"):
        shard.read()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"compresion": "lz4"}, "did you mean 'compression'"),
        ({"compression": "rar"}, "rar"),
        ({"row_group_rows": 0}, "1024"),
    ],
)
def test_wrong_options_are_told(options, words):
    with pytest.raises(ConfigError, match=words):
        Plugins().make(CACHE_FORMAT, "parquet", options)
