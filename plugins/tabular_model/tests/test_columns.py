"""Arrow columns as numpy with nulls apart, sliced or not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from distcore_data.arrow import plain
from distcore_tabular.columns import filled, null_mask


@given(
    st.lists(st.none() | st.integers(-5, 5), max_size=40), st.integers(0, 40), st.integers(0, 40)
)
def test_nulls_of_a_slice(values, start, stop) -> None:
    array = pa.array(values, pa.int32())[start:stop]
    wanted = values[start:stop]
    mask = null_mask(array)
    assert ([False] * len(wanted) if mask is None else mask.tolist()) == [
        value is None for value in wanted
    ]
    assert filled(array, 9).tolist() == [9 if value is None else value for value in wanted]
    assert filled(array, 9).dtype == np.int32


def test_plain_shares_memory() -> None:
    values = np.arange(5.0)
    assert np.shares_memory(plain(pa.array(values)[1:]), values)
