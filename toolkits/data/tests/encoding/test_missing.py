"""bfill, ffill and drop_row give over any cuts what they give over the whole column."""

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcore_data.encoding.missing import (
    Neighbours,
    dropped,
    ends,
    fill,
    neighbours,
    valid,
)

COLUMNS = st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", "c"])), max_size=40)
CUTS = st.lists(st.integers(0, 40), max_size=5)
TYPES = {
    "category": pa.dictionary(pa.int32(), pa.utf8()),
    "string": pa.utf8(),
    "number": pa.float64(),
}


def column(values, raw, pieces=2):
    """The values as a source would read them, in pieces with dictionaries of their own."""
    if raw == "number":
        values = [None if value is None else float(ord(value)) for value in values]
    parts = [
        values[start::1][: len(values) // pieces + 1]
        for start in range(0, len(values), len(values) // pieces + 1)
    ]
    arrays = [
        pa.array(part, pa.utf8()).dictionary_encode()
        if raw == "category"
        else pa.array(part, TYPES[raw])
        for part in parts
    ]
    return pa.chunked_array(arrays, TYPES[raw])


def by_hand(values, strategy):
    """Fill in the direction of the strategy, then in the other."""
    values = list(values)
    for direction in (strategy, "bfill" if strategy == "ffill" else "ffill"):
        places = range(len(values)) if direction == "ffill" else range(len(values) - 1, -1, -1)
        last = None
        for place in places:
            last = values[place] if values[place] is not None else last
            values[place] = last
    return values


@pytest.mark.parametrize("raw", TYPES)
@pytest.mark.parametrize("strategy", ["ffill", "bfill"])
@given(COLUMNS, CUTS)
def test_filling_does_not_depend_on_the_cuts(raw, strategy, values, cuts):
    expected = column(by_hand(values, strategy), raw).to_pylist()
    borders = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    shards = [column(values[low:high], raw) for low, high in itertools.pairwise(borders)]
    around = neighbours([ends(shard) for shard in shards])
    found = [fill(shard, strategy, each) for shard, each in zip(shards, around, strict=True)]
    assert [value for part in found for value in part.to_pylist()] == expected
    assert all(part.type == TYPES[raw] for part in found)


@given(COLUMNS, st.integers(0, 8), st.integers(0, 8))
def test_valid_reads_slices_of_bitmaps(values, start, stop):
    array = pa.array(values, pa.utf8()).slice(start, max(0, len(values) - start - stop))
    assert valid(pa.chunked_array([array, array], pa.utf8())).tolist() == 2 * [
        value is not None for value in array.to_pylist()
    ]


def test_rows_that_miss_a_value_in_any_of_the_columns_are_dropped():
    left, right = column(["a", None, "b", "c"], "category"), column(["a", "b", "c", None], "number")
    assert dropped([left, right]).tolist() == [False, True, False, True]
    assert dropped([column(["a", "b"], "string")]) is None
    assert dropped([]) is None


def test_a_column_without_any_value_stays_as_it_is():
    assert fill(column([None, None], "category"), "ffill", Neighbours()).to_pylist() == [None, None]
