"""A bucket that tests share, emptied for each."""

import pytest

from distcore_data.stores import retries
from distcore_testing.buckets import fresh, s3_server


@pytest.fixture(scope="session")
def s3_process():
    with s3_server() as found:
        yield found


@pytest.fixture
def s3(s3_process, monkeypatch):
    """(proxy, client) of an empty bucket; attempts follow one another at once."""
    proxy, client = s3_process
    fresh(proxy, client)
    monkeypatch.setattr(retries, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(retries, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return proxy, client
