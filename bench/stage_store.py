"""A cache in a bucket: read with files fetched ahead, against a plain parallel download of the same
bytes.

    python bench/stage_store.py VARIANT ENDPOINT

The bucket is moto's S3 server in a process of its own on this machine, so the network is the
loopback and the server is
Python: only ratios mean anything. The cache's training split (shards of 262,144 rows, 10 float32
and 7 int32 columns) is read whole. Ours fetches every object into a file and hashes it; in the last
row both decode it into Arrow columns too, ours in the one thread that reads, the peer in all of
its. The peers download the same objects: boto3 with as many threads as ours makes requests, into
memory (whence the work of writing a file, which ours does, is spared) and by `download_file` into
files, and s3fs into files.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from measure import emit
from results import Row, at_least, row
from setting import ONE_THREAD, Bench
from stage_formats import shard

TITLE = "a cache in a bucket"
REPEATS = 7
BUCKET, KEY, PLACE = "bucket", "0" * 40, "s3://bucket/caches"


def options(endpoint: str) -> dict[str, Any]:
    return {
        "key": "bench",
        "secret": "bench",
        "endpoint_url": endpoint,
        "client_kwargs": {"region_name": "us-east-1"},
    }


def cache_at(endpoint: str) -> Any:
    from distcore_data.cache import Cache, Credentials

    return Cache(directory=PLACE, key=KEY, credentials=Credentials(options(endpoint)))


# ------------------------------------------------------------------ what is run


def decoded(endpoint: str) -> Callable[[], int]:
    """Rows as Arrow columns, as a loader reads them."""
    from distcore_data.cache import open_cache

    def read() -> int:
        with open_cache(cache_at(endpoint)) as reader:
            for _ in reader.iter("train", 65_536):
                continue
            return sum(each["bytes"] for each in reader.manifest["splits"]["train"]["shards"])

    return read


def fetched(endpoint: str) -> Callable[[], int]:
    """Files that were hashed, and no more."""
    from distcore_data.cache.files import CacheFiles
    from distcore_data.cache.opening import files_of

    def read() -> int:
        files = CacheFiles(cache_at(endpoint).store(), f"{KEY}/")
        manifest = files.manifest(KEY)
        files, entries = files_of(files, manifest), manifest.splits["train"]
        files.expect(entries)
        for entry in entries:
            files.open(entry).close()
        files.close()
        return sum(entry.bytes for entry in entries)

    return read


def objects(endpoint: str) -> list[str]:
    """Names in the store of what the others read."""
    found = cache_at(endpoint).store().list(f"{KEY}/")
    return sorted(f"caches/{name}" for name in found if "/train/" in name)


def boto3_client(endpoint: str) -> Any:
    import boto3
    from botocore.config import Config

    settings = {
        "aws_access_key_id": "bench",
        "aws_secret_access_key": "bench",
        "region_name": "us-east-1",
    }
    return boto3.client(
        "s3", endpoint_url=endpoint, config=Config(max_pool_connections=100), **settings
    )


def by_boto3(endpoint: str, then: Callable[[bytes], Any] = len) -> Callable[[], int]:
    from distcore_data.stores.bucket import REQUESTS

    client, names = boto3_client(endpoint), objects(endpoint)

    def get(name: str) -> int:
        content = client.get_object(Bucket=BUCKET, Key=name)["Body"].read()
        then(content)
        return len(content)

    def read() -> int:
        with ThreadPoolExecutor(REQUESTS) as pool:
            return sum(pool.map(get, names))

    return read


def by_boto3_files(endpoint: str) -> Callable[[], int]:
    """As `download_file` does it: ranges of 8 MiB, by threads of its own."""
    client, names = boto3_client(endpoint), objects(endpoint)

    def read() -> int:
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(names)) as pool:
            targets = [str(Path(folder, str(number))) for number in range(len(names))]
            list(
                pool.map(
                    lambda name, target: client.download_file(BUCKET, name, target), names, targets
                )
            )
            return sum(Path(each).stat().st_size for each in targets)

    return read


def by_s3fs(endpoint: str) -> Callable[[], int]:
    import s3fs

    files = s3fs.S3FileSystem(**options(endpoint), use_listings_cache=False)
    names = [f"{BUCKET}/{name}" for name in objects(endpoint)]

    def read() -> int:
        with tempfile.TemporaryDirectory() as folder:
            targets = [str(Path(folder, str(number))) for number in range(len(names))]
            files.get(names, targets)
            return sum(Path(each).stat().st_size for each in targets)

    return read


def by_boto3_decoded(endpoint: str) -> Callable[[], int]:
    """Each object is decoded by the thread that fetched it."""
    return by_boto3(endpoint, lambda content: pq.read_table(pa.BufferReader(content)))


VARIANTS = {
    "distcore": decoded,
    "boto3 and pyarrow": by_boto3_decoded,
    "distcore, files": fetched,
    "boto3 into memory": by_boto3,
    "boto3 into files": by_boto3_files,
    "s3fs": by_s3fs,
}


def main() -> None:
    read = VARIANTS[sys.argv[1]](sys.argv[2])
    read()  # connections are made, and libraries imported, once a run
    rates = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        count = read()
        rates.append(count / (time.perf_counter() - started))
    emit(speed=max(rates) / 1e6)


# ------------------------------------------------------------------ what is compared


@contextmanager
def server() -> Iterator[str]:
    """moto's S3 in a process of its own, with an empty bucket: its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        endpoint = f"http://127.0.0.1:{port}"
        for _ in range(100):
            try:
                boto3_client(endpoint).create_bucket(Bucket=BUCKET)
                break
            except Exception:  # noqa: BLE001 - it is starting; what else it may be, the next lines say
                time.sleep(0.2)
        yield endpoint
    finally:
        process.terminate()
        process.wait()


def build(endpoint: str, shards: int) -> None:
    from distcore_core.contracts import Column, PluginRef
    from distcore_data.cache import SHARD_ROWS, Credentials, ensure_cache

    table = shard(SHARD_ROWS)

    def fill(builder: Any) -> None:
        for index in range(shards):
            builder.write_split_map(index, np.zeros(SHARD_ROWS, np.int8))
            builder.write_shard("train", index, table)
        columns = [
            Column(name=name, dtype="float32" if name.startswith("num") else "int32")
            for name in table.column_names
        ]
        builder.finish(columns, {}, {"digest": "bench", "rows": shards * SHARD_ROWS})

    ensure_cache(
        PLACE,
        KEY,
        PluginRef(kind="caches", name="parquet", options={}),
        fill,
        credentials=Credentials(options(endpoint)),
    )


def measure(bench: Bench) -> list[Row]:
    """Ours, decoded and as files, beside both downloads."""
    with server() as endpoint:
        build(endpoint, bench.pick(12, 4))
        commands = {name: bench.script("stage_store.py", name, endpoint) for name in VARIANTS}
        found = bench.compare(commands, (5, 2), "speed", ONE_THREAD)
    files, least = "distcore, files", at_least(0.8)
    return [
        *(
            row(found, f"fetched and hashed, beside {peer}", files, peer, "speed", "MB/s", least)
            for peer in ("boto3 into memory", "boto3 into files", "s3fs")
        ),
        row(found, "fetched, hashed and decoded", "distcore", "boto3 and pyarrow", "speed", "MB/s"),
    ]


if __name__ == "__main__":
    main()
