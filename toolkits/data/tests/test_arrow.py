"""Numpy and Arrow share memory, and pandas stays away."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcore_data.arrow import (
    TYPES,
    from_numpy,
    null,
    one_array,
    plain,
    scalar,
    strings,
    to_numpy,
    truths,
    validity,
    with_nulls,
)


@pytest.mark.parametrize("dtype", TYPES.values(), ids=str)
def test_there_and_back_on_the_same_memory(dtype):
    values = np.arange(10).astype(dtype)
    array = from_numpy(values)
    assert array.equals(pa.array(values))
    assert np.shares_memory(to_numpy(array), values)
    assert np.array_equal(to_numpy(array.slice(3, 4)), values[3:7])
    assert to_numpy(array.slice(10)).dtype == dtype


def test_strided_values_are_copied():
    assert from_numpy(np.arange(10, dtype=np.int32)[::-2]).to_pylist() == [9, 7, 5, 3, 1]


@pytest.mark.parametrize("values", [np.zeros((2, 2)), np.array(["a"]), np.array([True])])
def test_what_is_no_vector_of_numbers_is_refused(values):
    with pytest.raises(TypeError, match="vector of a number type"):
        from_numpy(values)


@pytest.mark.parametrize("array", [pa.array([1, None]), pa.array(["a"]), pa.array([True])])
def test_arrays_with_nulls_or_of_other_types_are_refused(array):
    with pytest.raises(TypeError, match="without nulls"):
        to_numpy(array)


@given(st.lists(st.text(max_size=5), max_size=20))
def test_strings(values):
    array = strings(values)
    array.validate(full=True)
    assert array.equals(pa.array(values, pa.utf8()))


def test_numbers_with_nulls():
    values, valid = np.arange(9), np.arange(9) % 3 > 0
    found = with_nulls(values, valid)
    found.validate(full=True)
    assert found.equals(pa.array(values, mask=~valid))
    assert found.buffers()[1].address == values.ctypes.data
    assert with_nulls(np.zeros(0), np.zeros(0, bool)).equals(pa.array([], pa.float64()))


def test_pandas_is_not_imported():
    code = (
        "import sys, numpy as np; from distcore_data.arrow import *; "
        "to_numpy(from_numpy(np.arange(3))); assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 100])
def test_truths(count):
    values = np.random.default_rng(count).random(count) < 0.5
    assert truths(values).equals(pa.array(values, pa.bool_()))


@pytest.mark.parametrize("value", [3, -(1 << 62), 2.5, "", "é"])
def test_scalars_are_arrows(value):
    assert scalar(value).equals(pa.scalar(value))
    assert null(scalar(value).type).equals(pa.scalar(None, scalar(value).type))


@pytest.mark.parametrize("start", [0, 3, 8, 11])
def test_numbers_and_validity_of_a_slice(start):
    values = pa.array([None if each % 5 == 4 else each for each in range(40)])[start:]
    again = pa.Array.from_buffers(
        pa.int64(), len(values), [validity(values), pa.py_buffer(plain(values).copy())]
    )
    assert again.equals(values)
    assert validity(values.drop_null()) is None
    assert plain(values[:0]).tolist() == []


def test_the_pieces_of_a_column_as_one_array():
    whole = pa.array([1.5, None])
    assert one_array(whole) is whole
    assert one_array(pa.chunked_array([whole])).buffers()[1].address == whole.buffers()[1].address
    assert one_array(pa.chunked_array([], pa.float64())).equals(pa.array([], pa.float64()))
    pieces = [pa.array(each).dictionary_encode() for each in (["a", None], ["b", "a"])]
    assert one_array(pa.chunked_array(pieces)).to_pylist() == ["a", None, "b", "a"]
