"""Reads mutated datasets, for a parent that sees a crash: python -m tests.hostile.mutated KIND SEED
FIRST COUNT FOLDER.

The folder's `at` holds the number of the mutation under way; `raw` gets a line for each error that
is not one of ours. Printed in the end: how many ended how, seconds of the slowest, and how much
memory it took at most.
"""

import gzip
import io
import json
import os
import random
import resource
import sys
import time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet

from distcore_core.errors import DistcoreError
from distcore_data.sources.registry import column_names, open_source

RAW = {
    "x": "number",
    "n": "number",
    "city": "category",
    "word": "string",
    "when": "category",
    "flag": "category",
}
MEMORY = 8 << 30
ROWS = 200

PARQUET = {
    "parquet": {},
    "parquet-plain": {"use_dictionary": False, "compression": "none"},
    "parquet-zstd": {"compression": "zstd", "data_page_version": "2.0"},
    "parquet-gzip": {"compression": "gzip", "write_page_index": True},
    "parquet-lz4": {"compression": "lz4", "row_group_size": 50},
    "parquet-delta": {
        "use_dictionary": False,
        "column_encoding": {
            "x": "BYTE_STREAM_SPLIT",
            "n": "DELTA_BINARY_PACKED",
            "city": "DELTA_BYTE_ARRAY",
            "word": "DELTA_LENGTH_BYTE_ARRAY",
        },
    },
}
FEATHER = {
    "feather": {"compression": "uncompressed"},
    "feather-lz4": {"compression": "lz4", "chunksize": 50},
    "feather-zstd": {"compression": "zstd"},
}
FORMAT = {
    **dict.fromkeys(("csv", "tsv", "csv.gz", "csv.zst"), "csv"),
    **dict.fromkeys(("json", "jsonl"), "json"),
    **dict.fromkeys(("arrow", *FEATHER), "feather"),
    **dict.fromkeys(PARQUET, "parquet"),
}
"""What each is a way of writing."""

KINDS = tuple(FORMAT)

EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFE, 0x10000000)


def table(simple):
    """A little of everything that a column may be; simple: what text and the oldest formats
    hold."""
    draw = random.Random(7)
    words = ["", "NA", "Ünïcode", "a,b", 'quo"te', "plain", "x" * 40, "𝔘"]
    columns = {
        "x": pa.array(
            [draw.choice([None, draw.gauss(0, 1), 1e300, -0.0]) for _ in range(ROWS)], pa.float64()
        ),
        "n": pa.array([draw.randrange(-1000, 1000) for _ in range(ROWS)], pa.int64()),
        "city": pa.array(
            [draw.choice(["Rome", "Oslo", "Lima", None]) for _ in range(ROWS)], pa.utf8()
        ),
        "word": pa.array(
            [draw.choice(words) + str(draw.randrange(50)) for _ in range(ROWS)], pa.utf8()
        ),
        "when": pa.array([draw.randrange(10**9) for _ in range(ROWS)], pa.timestamp("s")),
        "flag": pa.array([draw.choice([True, False, None]) for _ in range(ROWS)], pa.bool_()),
    }
    if not simple:
        columns["city"] = columns["city"].dictionary_encode()
        columns["price"] = pa.array(
            [Decimal(draw.randrange(10**6)) / 100 for _ in range(ROWS)], pa.decimal128(12, 2)
        )
        columns["list"] = pa.array(
            [[draw.randrange(9)] * draw.randrange(4) for _ in range(ROWS)], pa.list_(pa.int32())
        )
        columns["big"] = columns["word"].cast(pa.large_utf8())
    return pa.table(columns)


def base(kind):
    """The file that is mutated."""
    sink = io.BytesIO()
    if kind in PARQUET:
        pa.parquet.write_table(table(kind == "parquet-delta"), sink, **PARQUET[kind])
    elif kind in FEATHER:
        pa.feather.write_feather(table(False), sink, **FEATHER[kind])
    elif kind == "arrow":
        whole = table(False)
        with pa.ipc.new_file(sink, whole.schema) as writer:
            writer.write_table(whole, max_chunksize=70)
    elif kind in ("json", "jsonl"):
        rows = [
            {name: str(value) if name == "when" else value for name, value in row.items()}
            for row in table(True).to_pylist()
        ]
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        sink.write(("[" + ",\n".join(lines) + "]" if kind == "json" else "\n".join(lines)).encode())
    else:
        pa.csv.write_csv(
            table(True), sink, pa.csv.WriteOptions(delimiter="\t" if kind == "tsv" else ",")
        )
    content = sink.getvalue()
    if kind.endswith(".gz"):
        return gzip.compress(content, mtime=0)
    return pa.compress(content, "zstd", asbytes=True) if kind.endswith(".zst") else content


def mutated(content, draw):
    """The bytes with one to four mutations."""
    found = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        at, how = draw.randrange(len(found)), draw.random()
        if draw.random() < 0.3:
            at = max(
                0, len(found) - 1 - draw.randrange(min(len(found), 4096))
            )  # where most formats keep their metadata
        if how < 0.35:
            found[at] ^= 1 << draw.randrange(8)
        elif how < 0.5:
            found[at] = draw.randrange(256)
        elif how < 0.75:
            width = draw.choice((2, 4, 4, 8))
            value = draw.choice((*EXTREMES, draw.getrandbits(32), len(found)))
            value = (value if width != 8 or value < 0x80000000 else value | 0xFFFFFFFF << 32) % (
                1 << 8 * width
            )
            found[at : at + width] = value.to_bytes(width, "little")
        elif how < 0.83:
            del found[at:]
        elif how < 0.92:
            start = draw.randrange(len(found))
            found[at:at] = found[start : start + draw.randrange(1, 200)]
        else:
            del found[at : at + draw.randrange(1, 200)]
        if not found:
            found = bytearray(b"\0")
    return bytes(found)


def read(path):
    """Everything that a run would read of the dataset."""
    column_names(path)
    source = open_source(path, RAW)
    try:
        source.digest()
        for part in source.partitions(8 << 10):
            part.read().validate(full=True)
        source.check_unchanged()
    finally:
        source.close()


def main():
    kind, seed, first, count, folder = (
        sys.argv[1],
        sys.argv[2],
        int(sys.argv[3]),
        int(sys.argv[4]),
        Path(sys.argv[5]),
    )
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    content, path = base(kind), folder / f"data.{kind.partition('-')[0]}"
    path.write_bytes(content)
    os.utime(path, (0, 0))
    read(path)
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ends, slowest, at = (
        {"read": 0, "refused": 0, "raw": 0},
        0.0,
        os.open(folder / "at", os.O_WRONLY | os.O_CREAT),
    )
    for number in range(first, first + count):
        os.pwrite(at, f"{number:12}".encode(), 0)
        path.write_bytes(mutated(content, random.Random(f"{seed} {kind} {number}")))
        began = time.thread_time()
        try:
            read(path)
            ends["read"] += 1
        except DistcoreError:
            ends["refused"] += 1
        except Exception as error:
            ends["raw"] += 1
            with open(folder / "raw", "a") as file:
                file.write(f"{kind} {number}: {type(error).__name__}: {error}\n"[:500] + "\n")
        slowest = max(slowest, time.thread_time() - began)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start
    print(json.dumps({**ends, "slowest": slowest, "grown": grown << 10}))


if __name__ == "__main__":
    main()
