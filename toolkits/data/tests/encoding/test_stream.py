"""Rows of many columns are encoded several partitions at a time, to what each gives by itself."""

import threading

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from distcore_core.errors import DataError
from distcore_core.registry.manager import Plugins
from distcore_data.encoding import stream
from distcore_data.features import Features
from distcore_data.sources.parquet_groups import ParquetPartition
from distcore_data.sources.registry import open_source

WIDE = 2 * stream.COLUMNS_ALONE
ROWS = 500
SLICE = 1 << 16
"""Bytes of a partition: some thirty rows."""


def feature(name, type_, strategy=None):
    options = {"preprocessing": {"missing_value_strategy": strategy}} if strategy else {}
    return {"name": name, "type": type_, "column": name, "role": "input", "options": options}


SPEC = [
    *(feature(f"x{number}", "number") for number in range(WIDE)),
    feature("strict", "number", "drop_row"),
    feature("colour", "category"),
    feature("words", "text"),
    feature("tags", "set"),
]


@pytest.fixture(scope="module")
def table():
    """One row in nine lacks the value that it must have, but for the first and rows 200 to 400."""
    rng = np.random.default_rng(0)
    found = {f"x{number}": rng.normal(size=ROWS) for number in range(WIDE)}
    lacks = (rng.random(ROWS) < 1 / 9) & ((np.arange(ROWS) < 200) | (np.arange(ROWS) > 400))
    lacks[0] = False
    found["strict"] = pa.array(np.arange(ROWS, dtype=float), mask=lacks)
    found["colour"] = pa.array([f"c{row // 20}" for row in range(ROWS)])
    found["words"] = pa.array([f"word{row} and w{row % 7}" for row in range(ROWS)])
    found["tags"] = pa.array([f"t{row % 5} t{row % 3}" for row in range(ROWS)])
    return pa.table(found)


@pytest.fixture(scope="module")
def features(table):
    made = Features._make(SPEC, Plugins())
    (whole,) = open_source(table, made.raw()).partitions(1 << 40)
    rows = whole.read()
    states = {each.name: each.partial(rows.column(each.name)) for each in made}
    return made.fitted({each.name: each.finish(states[each.name]) for each in made})


def parquet(table, folder):
    pq.write_table(table, folder / "rows.parquet", row_group_size=300)
    return folder / "rows.parquet"


def csv(table, folder):
    pyarrow.csv.write_csv(table, folder / "rows.csv")
    return folder / "rows.csv"


def pieces(path, features):
    source = open_source(str(path), features.raw())
    found = stream.encode_stream(source, features, ("input",), SLICE)
    return list(found.pieces()), found


@pytest.mark.parametrize("write", [parquet, csv])
def test_partitions_together_give_what_each_gives_alone(
    write, table, features, tmp_path, monkeypatch, caplog
):
    path = write(table, tmp_path)
    together, found = pieces(path, features)
    monkeypatch.setattr(stream, "MOST_TOGETHER", 1)
    alone, _ = pieces(path, features)
    assert len(together) == len(alone) > 8
    for ours, theirs in zip(together, alone, strict=True):
        assert ours[:2] == theirs[:2]
        assert (ours.kept is None) == (theirs.kept is None)
        assert ours.kept is None or ours.kept.tolist() == theirs.kept.tolist()
        assert ours.batch.equals(theirs.batch)
    assert any(piece.kept is None for piece in together)
    left_out = np.flatnonzero(table["strict"].is_null())
    assert found.dropped.tolist() == left_out.tolist()
    assert f"{len(left_out)} of {ROWS} rows were left out" in caplog.text
    assert f"the first is row {left_out[0]} (counted from 0)" in caplog.text


def test_slices_of_a_row_group_are_read_in_one_go(table, features, tmp_path, monkeypatch):
    read = []
    original = ParquetPartition.read

    def noted(self):
        read.append(self.size)
        return original(self)

    monkeypatch.setattr(ParquetPartition, "read", noted)
    found, _ = pieces(parquet(table, tmp_path), features)
    assert len(found) > 12
    assert len(read) < 0.8 * len(found)
    assert sum(read) == ROWS
    assert [piece.first for piece in found] == np.cumsum([0, *(p.read for p in found)])[
        :-1
    ].tolist()


@pytest.mark.parametrize("write", [parquet, csv])
def test_the_row_of_a_bad_value_is_told(write, table, features, tmp_path):
    place = table.schema.get_field_index("x7")
    values = table["x7"].to_pylist()
    values[431] = float("inf")
    path = write(table.set_column(place, "x7", pa.array(values)), tmp_path)
    with pytest.raises(DataError, match=r"(row 431|line 433), column 'x7': inf is infinite"):
        pieces(path, features)


@pytest.mark.parametrize("write", [parquet, csv])
def test_a_column_of_which_the_model_knows_no_value_is_told(
    write, table, features, tmp_path, caplog
):
    """Such as `True` where it was trained on `true`: the model answers all the same."""
    place = table.schema.get_field_index("colour")
    names = table["colour"].to_pylist()

    def told(written):
        path = write(table.set_column(place, "colour", pa.array(written)), tmp_path)
        caplog.clear()
        _, found = pieces(path, features)
        return found.unknown, [each for each in caplog.messages if "trained" in each]

    assert told(names) == (set(), [])
    assert told([name.upper() for name in names[:-1]] + names[-1:]) == (set(), [])
    unknown, (said,) = told([name.upper() for name in names])
    assert unknown == {"colour"}
    rows = ROWS - table["strict"].null_count
    assert f"Column 'colour' has no value, in {rows} rows, that the model was trained on" in said
    assert "('c0', 'c1', 'c10', …)" in said


def test_values_of_a_few_rows_may_all_be_new(table, features, caplog):
    few = table.slice(0, stream.FEWEST_ROWS - 1)
    place = few.schema.get_field_index("colour")
    source = open_source(
        few.set_column(place, "colour", pa.array(["?!"] * len(few))), features.raw()
    )
    found = stream.encode_stream(source, features, ("input",))
    list(found.pieces())
    assert found.unknown == {"colour"}
    assert "trained" not in caplog.text


def test_a_feature_may_have_unknown_values_and_no_labels(table, features, caplog, monkeypatch):
    """One of a plugin's, which names no classes: it is told all the same."""
    (colour,) = (each for each in features.inputs if each.name == "colour")
    monkeypatch.setattr(colour, "labels", lambda metadata: None)
    stream.tell_unknown(stream.FEWEST_ROWS, {"colour"}, features)
    assert "that the model was trained on: all of them" in caplog.text


@pytest.mark.parametrize("write", [parquet, csv])
def test_columns_that_came_empty_are_told(write, table, features, tmp_path, caplog):
    """A join that found nothing: each row was filled as one that misses a value, in silence."""

    def told(names, rows):
        written = table
        for name in names:
            lacks = np.arange(ROWS) < rows
            values = pa.array(table[name].to_pylist(), table[name].type, mask=lacks)
            written = written.set_column(table.schema.get_field_index(name), name, values)
        caplog.clear()
        _, found = pieces(write(written, tmp_path), features)
        return found.unknown, [each for each in caplog.messages if "trained" in each]

    assert told(["x3", "words"], ROWS - 1) == (set(), [])
    unknown, (said,) = told(["x3", "words"], ROWS)
    assert unknown == {"x3", "words"}
    rows = ROWS - table["strict"].null_count
    assert said.startswith(f"No row of {rows} has a value in 'x3', 'words', and the model was")
    assert " and 2 more, and the model" in told([f"x{each}" for each in range(7)], ROWS)[1][0]


def test_a_source_without_partitions_gives_no_rows(table):
    """Also if missing values come from other rows."""
    features = Features._make([feature("x0", "number", "ffill")], Plugins())
    (whole,) = open_source(table, features.raw()).partitions(1 << 40)
    state = features.inputs[0].partial(whole.read().column("x0"))
    features = features.fitted({"x0": features.inputs[0].finish(state)})
    assert list(stream.EncodedStream([], features, ("input",)).pieces()) == []


def test_one_partition_starts_no_thread(table, features, monkeypatch):
    """A service answers a row at a time, and a thread for each took a quarter of its time."""
    monkeypatch.setattr(threading.Thread, "start", lambda *_: pytest.fail("a thread was started"))
    source = open_source(table.slice(0, 1), features.raw())
    (found,) = stream.encode_stream(source, features, ("input",)).pieces()
    assert found.read == 1
