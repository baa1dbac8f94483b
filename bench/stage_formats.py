"""Cache formats: one shard written and read back, ours against the plain library's own way.

    python bench/stage_formats.py VARIANT FOLDER ROWS

A shard of 10 float32 and 7 int32 columns (codes as skewed as those of these benchmarks) goes to a
file in the page cache and comes back whole as columns, several times; rows a second are of the
fastest. Ours also checks every checksum it has. Peers do what a user of the library would:
pyarrow's `write_table` and `read_table`, a dataset a column with h5py, an `Example` a row with
protobuf and google-crc32c, and with TensorFlow in an environment of its own
(`make bench-tensorflow`; `TFRecordWriter`, and `parse_example` on batches).
"""

from __future__ import annotations

import gzip
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from measure import emit
from results import Row, at_least, row
from setting import ONE_THREAD, Bench

TITLE = "a shard of encoded columns"
REPEATS = 7
CARDINALITIES = (10, 50, 100, 500, 1000, 5000, 2)

Write, Read = Callable[[Path, pa.Table], None], Callable[[Path, pa.Table], Any]


def shard(rows: int) -> pa.Table:
    dice = np.random.default_rng(0)
    columns = {f"num_{i}": dice.normal(size=rows).astype(np.float32) for i in range(10)}
    for i, count in enumerate(CARDINALITIES):
        columns[f"cat_{i}"] = (count * dice.random(rows) ** 2).astype(np.int32)
    return pa.table(columns)


# ------------------------------------------------------------------ what is run


def distcore_format(name: str, **options: Any) -> tuple[Write, Read]:
    from distcore_core.contracts import CACHE_FORMAT
    from distcore_core.registry.manager import Plugins

    made = Plugins().make(CACHE_FORMAT, name, options)

    def write(path: Path, table: pa.Table) -> None:
        with open(path, "wb", buffering=0) as file:
            made.write(file, table)

    def read(path: Path, table: pa.Table) -> pa.RecordBatch:
        reader = made.open(open(path, "rb"))  # noqa: SIM115 - closed by the reader
        found = reader.read()
        reader.close()
        return found

    return write, read


def pyarrow_parquet(**options: Any) -> tuple[Write, Read]:
    import pyarrow.parquet as pq

    return lambda path, table: pq.write_table(
        table, path, **options
    ), lambda path, _: pq.read_table(path)


def h5py_datasets(**options: Any) -> tuple[Write, Read]:
    import h5py

    def write(path: Path, table: pa.Table) -> None:
        with h5py.File(path, "w") as file:
            for name, column in zip(table.column_names, table.columns, strict=True):
                file.create_dataset(name, data=column.chunk(0).to_numpy(), **options)

    def read(path: Path, table: pa.Table) -> dict[str, np.ndarray]:
        with h5py.File(path) as file:
            return {name: file[name][:] for name in table.column_names}

    return write, read


def protobuf_examples(packed: bool = False) -> tuple[Write, Read]:
    import google_crc32c

    from tf_example import example_class

    Example = example_class()

    def masked(data: bytes) -> int:
        crc = google_crc32c.value(data)
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

    def write(path: Path, table: pa.Table) -> None:
        with gzip.open(path, "wb", 1) if packed else open(path, "wb", 1 << 20) as file:
            for data in serialized(table, Example):
                length = struct.pack("<Q", len(data))
                file.write(
                    length
                    + struct.pack("<I", masked(length))
                    + data
                    + struct.pack("<I", masked(data))
                )

    def read(path: Path, table: pa.Table) -> dict[str, np.ndarray]:
        content = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
        rows: list[list[Any]] = []
        at = 0
        while at < len(content):
            length, crc = struct.unpack_from("<QI", content, at)
            data = content[at + 12 : at + 12 + length]
            if (
                crc != masked(content[at : at + 8])
                or masked(data) != struct.unpack_from("<I", content, at + 12 + length)[0]
            ):
                raise ValueError("crc")
            features = Example.FromString(data).features.feature
            rows.append(
                [
                    (features[n].float_list if n[0] == "n" else features[n].int64_list).value[0]
                    for n in names
                ]
            )
            at += 16 + length
        return dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))

    names = [*(f"num_{i}" for i in range(10)), *(f"cat_{i}" for i in range(len(CARDINALITIES)))]
    return write, read


def tensorflow_records(packed: bool = False) -> tuple[Write, Read]:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    kind = "GZIP" if packed else ""
    options = tf.io.TFRecordOptions(compression_type=kind, compression_level=1 if packed else None)

    def write(path: Path, table: pa.Table) -> None:
        with tf.io.TFRecordWriter(str(path), options) as file:
            for data in serialized(table, tf.train.Example):
                file.write(data)

    def read(path: Path, table: pa.Table) -> list[Any]:
        spec = {
            n: tf.io.FixedLenFeature([], tf.float32 if n[0] == "n" else tf.int64)
            for n in table.column_names
        }
        batches = tf.data.TFRecordDataset(str(path), compression_type=kind).batch(1024)
        return [tf.io.parse_example(batch, spec) for batch in batches]

    return write, read


def serialized(table: pa.Table, Example: Any) -> Iterator[bytes]:
    columns = [(name, name[0] == "n", table[name].to_pylist()) for name in table.column_names]
    for index in range(table.num_rows):
        example = Example()
        features = example.features.feature
        for name, is_float, values in columns:
            (features[name].float_list if is_float else features[name].int64_list).value.append(
                values[index]
            )
        yield example.SerializeToString()


VARIANTS: dict[str, Callable[[], tuple[Write, Read]]] = {
    "parquet": lambda: distcore_format("parquet"),
    "parquet zstd": lambda: distcore_format("parquet", compression="zstd"),
    "pyarrow": lambda: pyarrow_parquet(),
    "pyarrow zstd": lambda: pyarrow_parquet(compression="zstd"),
    "hdf5": lambda: distcore_format("hdf5"),
    "hdf5 gzip": lambda: distcore_format("hdf5", compression="gzip"),
    "h5py": lambda: h5py_datasets(),
    "h5py gzip": lambda: h5py_datasets(compression=1, shuffle=True),
    "tfrecord": lambda: distcore_format("tfrecord"),
    "tfrecord gzip": lambda: distcore_format("tfrecord", compression="gzip"),
    "protobuf": lambda: protobuf_examples(),
    "protobuf gzip": lambda: protobuf_examples(packed=True),
    "tensorflow": lambda: tensorflow_records(),
    "tensorflow gzip": lambda: tensorflow_records(packed=True),
}

SLOW = ("protobuf", "tensorflow")
"""Peers that make an object a row: once, of fewer rows."""


def main() -> None:
    variant, folder, rows = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    slow = variant.startswith(SLOW)
    table = shard(rows // 8 if slow else rows)
    write, read = VARIANTS[variant]()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / variant.replace(" ", "-")
    writes, reads = [], []
    for _ in range(2 if slow else REPEATS):
        path.unlink(missing_ok=True)
        writes.append(seconds(write, path, table))
        reads.append(seconds(read, path, table))
    size = path.stat().st_size
    path.unlink()
    emit(
        write=table.num_rows / min(writes),
        read=table.num_rows / min(reads),
        bytes=size / table.num_rows,
    )
    # On a busy machine pyarrow's threads may still be starting now, and an orderly exit once ended
    # with SIGABRT.
    os._exit(0)


def seconds(work: Callable[[Path, pa.Table], Any], path: Path, table: pa.Table) -> float:
    started = time.perf_counter()
    found = work(path, table)
    took = time.perf_counter() - started
    del found
    return took


# ------------------------------------------------------------------ what is compared


def measure(bench: Bench) -> list[Row]:
    """Each format beside its library, uncompressed or as it comes, and compressed."""
    names = [name for name in VARIANTS if bench.tensorflow or not name.startswith("tensorflow")]
    rows, folder = bench.pick(262_144, 65_536), bench.data / "formats"
    pythons = {name: bench.tensorflow for name in names if name.startswith("tensorflow")}
    commands = {
        name: bench.script(
            "stage_formats.py", name, folder, rows, python=pythons.get(name) or sys.executable
        )
        for name in names
    }
    found = bench.compare(commands, (3, 2), "read", ONE_THREAD)
    pairs = [("parquet", "pyarrow"), ("hdf5", "h5py"), ("tfrecord", "protobuf")]
    if bench.tensorflow:
        pairs.append(("tfrecord", "tensorflow"))
    lines = []
    for ours, peer in pairs:
        for more in ("", " zstd" if ours == "parquet" else " gzip"):
            mine, theirs = ours + more, peer + more
            lines += [
                row(found, f"{mine}, write", mine, theirs, "write", "rows/s", at_least(0.8)),
                row(found, f"{mine}, read", mine, theirs, "read", "rows/s", at_least(0.8)),
                row(found, f"{mine}, size", mine, theirs, "bytes", "bytes a row"),
            ]
    return lines


if __name__ == "__main__":
    main()
