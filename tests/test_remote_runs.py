"""The same config with its cache on a disk and in a bucket: the same batches and the same
weights, with every format."""

import hashlib

import pytest

import distcore
from distcore_core.contracts import SPLITS
from distcore_data.cache import open_cache
from distcore_testing import data
from distcore_testing.buckets import BUCKET, Fault, s3_server

pytestmark = pytest.mark.system

FORMATS = ("parquet", "hdf5", "tfrecord")
ROWS = 1_500


@pytest.fixture(scope="module")
def bucket():
    with s3_server() as (proxy, client), pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield proxy, client


def found(folder, **backend):
    """(digest of every batch, digest of the weights) of a run with this backend section."""
    inputs = [*data.config("")["input_features"], {"name": "words", "type": "text"}]
    config = data.config("", input_features=inputs, backend={"type": "local", **backend})
    cache = distcore.preprocess(config, dataset=data.table(ROWS))
    batches = hashlib.sha256()
    with open_cache(cache) as reader:
        for split in SPLITS:
            for batch in reader.iter(split, 100):
                for column in batch.columns:
                    batches.update(repr(column.to_pylist()).encode())
            batches.update(reader.row_numbers(split).tobytes())
    outcome = distcore.train(config, dataset=data.table(ROWS), output_directory=folder)
    return batches.hexdigest(), hashlib.sha256(
        (outcome.model / "weights.safetensors").read_bytes()
    ).hexdigest()


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """From a disk, in Parquet, by the local processor."""
    folder = tmp_path_factory.mktemp("here")
    return found(folder, cache_dir=str(folder / "cache"))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("processor", ["local", "dask"])
def test_a_bucket_gives_the_batches_and_weights_of_a_disk(
    bucket, expected, tmp_path, format, processor
):
    """Through a store that stumbles: a put and a get of each kind fails once, and a body breaks
    off."""
    proxy, client = bucket
    proxy.expect(
        *(Fault(kind, method, "/train/") for kind in ("503", "lost") for method in ("PUT", "GET"))
    )
    proxy.faults.append(Fault("reset", "GET", "/train/"))
    place = f"s3://{BUCKET}/{format}-{processor}"
    given = {
        "cache_dir": place,
        "cache_credentials": proxy.options(),
        "processor": {"type": processor},
    }
    assert found(tmp_path, cache_format=format, **given) == expected
    assert all(fault.times == 0 for fault in proxy.faults)
    assert not client.list_multipart_uploads(Bucket=BUCKET).get("Uploads")


@pytest.mark.parametrize("format", FORMATS[1:])
def test_the_formats_give_the_same_on_a_disk(expected, tmp_path, format):
    assert found(tmp_path, cache_dir=str(tmp_path / "cache"), cache_format=format) == expected


def test_in_the_memory_of_one_process(expected, tmp_path):
    assert found(tmp_path, cache_dir="memory://caches") == expected


def test_two_ranks_read_the_shards_of_their_lanes(bucket, tmp_path):
    """Each a process of its own, which the job brings the credentials."""
    proxy, _ = bucket
    section = {"trainer": {"type": "data_parallel", "num_workers": 2}}
    here = found(tmp_path / "a", cache_dir=str(tmp_path / "cache"), **section)
    there = {"cache_dir": f"s3://{BUCKET}/two", "cache_credentials": proxy.options()}
    assert found(tmp_path / "b", **there, **section) == here
