"""What the tests of sources share, as fixtures that are functions: read a dataset whole, and its
digest."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from distcore_data.sources.registry import open_source


def read_whole(dataset, raw, target=1 << 24, **keywords):
    """Every declared column as Python values, in row order; each partition goes through pickle
    first."""
    source = open_source(dataset, raw, **keywords)
    try:
        batches = [
            pickle.loads(pickle.dumps(part)).read()  # noqa: S301
            for part in source.partitions(target)
        ]
    finally:
        source.close()
    for batch in batches:
        assert batch.schema.names == list(raw)
        for column in batch.columns:
            if pa.types.is_dictionary(column.type):
                used = set(column.indices.drop_null().to_pylist())
                assert used == set(range(len(column.dictionary))), (
                    "a dictionary value that no row has"
                )
    return {
        name: [value for batch in batches for value in batch.column(name).to_pylist()]
        for name in raw
    }


def digest_of(dataset, raw, **keywords):
    source = open_source(dataset, raw, **keywords)
    try:
        return source.digest()
    finally:
        source.close()


@pytest.fixture(scope="session")
def read():
    return read_whole


@pytest.fixture(scope="session")
def digest():
    return digest_of
