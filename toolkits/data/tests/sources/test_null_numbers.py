"""A null spelling that is a number, such as -999, is missing in columns of numbers of every
format, where their text is that spelling."""

import math

import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore_data.sources.options import NULL_VALUES, DelimitedOptions
from distcore_data.sources.values import typed

COLUMNS = {
    "whole": pa.array([1, -999, None, 99], pa.int16()),
    "large": pa.array([2**53, 2**53 + 1, -999, 0], pa.int64()),
    "float": pa.array([1.5, -999.0, 99.0, math.nan]),
    "short": pa.array([0.1, -999.0, 99.0, None], pa.float32()),
    "truth": pa.array([True, False, None, True]),
    "decimal": pa.array(["1.50", "-999.00", "99.00", None]).cast(pa.decimal128(7, 2)),
    "coded": pa.array([-999, 1, -999, None], pa.int32()).dictionary_encode(),
}
FORMATS = ("csv", "parquet", "feather", "jsonl", "frame")


def written(folder, name, values, kind):
    table = pa.table({name: values, "row": range(len(values))})
    path = folder / f"{name}.{kind}"
    if kind == "csv":
        table.to_pandas(types_mapper=pd.ArrowDtype).to_csv(path, index=False)
    elif kind == "parquet":
        pq.write_table(table, path)
    elif kind == "feather":
        feather.write_feather(table, path)
    elif kind == "jsonl":
        table.to_pandas(types_mapper=pd.ArrowDtype).to_json(path, orient="records", lines=True)
    else:
        return table
    return path


@pytest.mark.parametrize(
    ("name", "spellings", "expected"),
    [
        ("whole", ["-999"], [1, None, None, 99]),
        ("whole", ["-999.0", "99"], [1, -999, None, None]),
        ("large", ["9007199254740993", "0"], [2.0**53, None, -999, None]),
        ("float", ["-999.0"], [1.5, None, 99, None]),
        ("float", ["-999", "99.0"], [1.5, -999, None, None]),
        ("short", ["0.1", "99.0"], [None, -999, None, None]),
        ("truth", ["False"], [1, None, None, 1]),
        ("decimal", ["-999.00", "99"], [1.5, None, 99, None]),
        ("coded", ["-999"], [None, 1, None, None]),
    ],
)
def test_a_number_that_is_a_null_spelling_is_missing(read, tmp_path, name, spellings, expected):
    options = DelimitedOptions(null_values=(*NULL_VALUES, *spellings))
    kinds = [kind for kind in FORMATS if name in ("whole", "large", "float") or kind != "jsonl"]
    for kind in kinds:
        dataset = written(tmp_path, name, COLUMNS[name], kind)
        assert read(dataset, {name: "number"}, options=options) == {name: expected}, kind
        categories = read(dataset, {name: "category"}, options=options)[name]
        assert [each is None for each in categories] == [each is None for each in expected], kind


def test_digests_tell_such_spellings_apart_and_no_others():
    """Caches from before have such numbers as values."""
    assert DelimitedOptions().spellings == (NULL_VALUES,)
    assert DelimitedOptions(null_values=("", "red")).spellings == (("", "red"),)
    assert DelimitedOptions(null_values=("", "7")).spellings != (("", "7"),)


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([None, 0.0, -0.0, 0.1, 1.0, 1e16, 1e22, -5.0, 1e-7]), min_size=1),
    st.sets(st.sampled_from(["0.0", "-0.0", "0.1", "1", "1e+16", "1e22", "-5.0", "1e-07", "x"])),
    st.sampled_from([pa.float64(), pa.float32(), pa.float16()]),
)
def test_any_floats(values, spellings, type_):
    if pa.types.is_float16(type_):
        values = [None if each is None or abs(each) > 6e4 else each for each in values]
    array = pa.array(values, pa.float64()).cast(type_)
    options = DelimitedOptions(null_values=tuple(spellings))
    found = typed(array, "number", "x", options, str).to_pylist()
    plain = typed(array, "number", "x", DelimitedOptions(), str).to_pylist()
    texts = typed(array, "string", "x", options, str).to_pylist()
    assert found == [
        None if text is None else number for number, text in zip(plain, texts, strict=True)
    ]
