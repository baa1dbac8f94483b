"""A bucket that tests share, emptied for each."""

import pytest

from distcore.stores import retries
from distcore.testing.buckets import BUCKET, s3_server


@pytest.fixture(scope="session")
def s3_process():
    with s3_server() as found:
        yield found


@pytest.fixture
def s3(s3_process, monkeypatch):
    """(proxy, client) of an empty bucket; attempts follow one another at once."""
    proxy, client = s3_process
    proxy.expect()
    proxy.pause = None
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        for each in page.get("Contents", ()):
            client.delete_object(Bucket=BUCKET, Key=each["Key"])
    monkeypatch.setattr(retries, "FIRST_WAIT", 0.01)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return proxy, client
