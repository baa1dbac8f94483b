"""Frames in memory whose rows come once or are computed, and frames and columns of a user's own
classes."""

import datetime as dt
import pickle
from types import MappingProxyType

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from distcore_core.errors import DataError
from distcore_data.dataset import Data
from distcore_data.sources.memory import as_table, held
from distcore_data.sources.registry import open_source, sample

DAY, TIME = dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, 13, 30)


class Frame(pd.DataFrame):
    @property
    def _constructor(self):
        return Frame


class Column(pd.Series):
    pass


class Once:
    """A stream without names of columns, whose rows come once."""

    def __init__(self, table):
        self.reader = table.to_reader()

    def __arrow_c_stream__(self, requested_schema=None):
        return self.reader.__arrow_c_stream__(requested_schema)


class Computed:
    """Computes its rows when they are asked for, each time in another order."""

    def __init__(self, table):
        self.table, self.columns = table, table.column_names

    def __arrow_c_stream__(self, requested_schema=None):
        self.table = self.table.take(list(range(self.table.num_rows))[::-1])
        return self.table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("kind", [list, iter, lambda values: (each for each in values)])
def test_days_among_times_are_refused_however_they_come(kind):
    with pytest.raises(DataError, match=r"'when'.*a day and a time"):
        as_table({"when": kind([DAY, TIME])})
    assert as_table({"when": kind([TIME, TIME])}).num_rows == 2


@pytest.mark.parametrize("kind", [pd.DataFrame, Frame])
def test_days_among_times_are_refused_of_a_class_of_pandas_frames(kind):
    with pytest.raises(DataError, match=r"'when'.*a day and a time"):
        as_table(kind({"when": [DAY, TIME]}), ["when"])
    mixed = kind({1: [1.0, 2.0], "junk": ["a", 3]})
    assert as_table(mixed, ["1"]).to_pydict() == {"1": [1.0, 2.0]}


@pytest.mark.parametrize("kind", [pd.Series, Column])
def test_series_of_other_rows_are_not_paired_by_place(kind):
    here = kind([1, 2], index=[0, 1])
    with pytest.raises(DataError, match="Series with other indexes"):
        as_table({"a": here, "b": kind([1, 2], index=[1, 0])})
    assert as_table({"a": here, "b": here}).num_rows == 2


@pytest.mark.parametrize("kind", [Once, pa.Table.to_reader])
def test_a_stream_that_comes_once_is_opened(kind):
    table = pa.table({"x": [1.0, 2.0]})
    with Data(kind(table)).open({"x": "number"}) as source:
        assert source.rows() == 2
    assert sample(kind(table), 1).to_pydict() == {"x": [1.0]}


@pytest.mark.parametrize("kind", [Once, Computed, pa.Table.to_reader])
def test_what_is_held_has_its_rows_each_time(kind):
    table = pa.table({"x": [1.0, 2.0]})
    found = Data(kind(table)).held().dataset
    assert as_table(found).equals(as_table(pickle.loads(pickle.dumps(found))))  # noqa: S301
    assert as_table(found).num_rows == 2


def test_columns_that_come_once_are_held():
    values = {"a": 1, "b": 2}
    given = MappingProxyType({"x": iter([1, 2]), "y": values.values(), "z": {1, 2}})
    found = pickle.loads(pickle.dumps(held(given)))  # noqa: S301
    assert found == {"x": [1, 2], "y": [1, 2], "z": {1, 2}}


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table, dict])
def test_what_is_in_memory_stays_of_its_library(kind):
    data = Data(kind({"x": [1.0, 2.0]}))
    assert type(data.held().dataset) is type(data.dataset)
    assert data.held().dataset["x"] is not None
    assert data.held().hollow().names() == data.names()


@pytest.mark.parametrize("library", [pd, pl])
def test_frames_of_a_users_own_class_can_be_pickled(library):
    """No trial of a search in a script could be started."""
    own = type("Own", (library.DataFrame,), {})({"x": [1.0, 2.0]})
    if library is pd:
        own.attrs["made by"] = lambda: 1
    found = pickle.loads(pickle.dumps(held(own)))  # noqa: S301
    assert type(found) is library.DataFrame
    assert as_table(found).to_pydict() == {"x": [1.0, 2.0]}


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table, dict])
def test_what_is_hollow_costs_nothing_to_pickle(kind):
    """Each trial pickled all rows, also where all read one cache."""
    many = kind({"x": ["a text"] * 10_000})
    assert len(pickle.dumps(Data(many, format="frame").held().hollow())) < 2_000
    assert Data("a.csv").hollow() == Data("a.csv")


def test_pickled_frames_may_hold_more_than_arrow_can():
    frame = pd.DataFrame({"x": [1.0, 2.0], "junk": ["a", 3]})
    again = pickle.loads(pickle.dumps(Data(frame).held())).dataset  # noqa: S301
    assert open_source(again, {"x": "number"}).rows() == 2


def test_a_name_that_occurs_twice_is_told_by_a_sample():
    frame = pd.DataFrame([[1, 2]], columns=["x", "x"])
    with pytest.raises(DataError, match="'x' occurs more than once"):
        sample(frame, 1)
