"""Frames in memory whose offsets, codes or texts are unsound: Arrow would read wherever they
point."""

import numpy as np
import pyarrow as pa
import pytest

from distcore_core.errors import DataError
from distcore_data.sources.registry import open_source


def texts(offsets, content):
    buffers = [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.utf8(), len(offsets) - 1, buffers)


def codes(indices, words):
    return pa.DictionaryArray.from_arrays(
        pa.array(indices, pa.int32()), pa.array(words), safe=False
    )


DAMAGED = {
    "offsets": texts([0, 1 << 30, 2], b"ab"),
    "decreasing": texts([0, 2, 1], b"ab"),
    "utf8": texts([0, 1, 2], b"a\xff"),
    "codes": codes([0, 1 << 20], ["a", "b"]),
}


class Capsule:
    """Anything with Arrow's PyCapsule interface."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("given", [pa.Table, Capsule])
def test_a_damaged_column_is_named(name, given):
    table = pa.table({"fine": [1, 2], "bad": DAMAGED[name]})
    frame = Capsule(table) if given is Capsule else table
    with pytest.raises(DataError, match=r"column 'bad'.*damaged"):
        open_source(frame, {"bad": "category", "fine": "number"})
    assert open_source(frame, {"fine": "number"}).rows() == 2
