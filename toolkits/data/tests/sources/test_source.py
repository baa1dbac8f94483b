"""The door: one table reads the same from every format, wherever it lies."""

from __future__ import annotations

import bz2
import datetime as dt
import decimal
import errno
import gzip
import json
import lzma
import os
import pickle
import random
import re
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from subprocess import run

import duckdb
import fsspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from distcore_core.contracts import Partition, Source
from distcore_core.errors import DataError
from distcore_data.sources import (
    digests,
    head,
    jsonlines,
    parquet_columns,
    parquet_groups,
    registry,
)
from distcore_data.sources.feather import FeatherPartition, kept_batches
from distcore_data.sources.kept import Kept, new_token
from distcore_data.sources.memory import as_table
from distcore_data.sources.parquet_files import parquet_files, would_be_read
from distcore_data.sources.parquet_groups import kept_cursors
from distcore_data.sources.registry import column_names, open_source, rows_about, sample

RAW = {
    "whole": "number",
    "real": "number",
    "yes": "number",
    "money": "number",
    "half": "number",
    "code": "category",
    "share": "category",
    "flag": "category",
    "half_as_text": "category",
    "city": "category",
    "note": "string",
    "day": "string",
    "when": "category",
    "at": "string",
    "levels": "category",
}


def frame(rows=40):
    """Every type that has a text of its own, with values missing here and there."""
    random = np.random.default_rng(3)
    maybe = [None if row % 7 == 3 else row for row in range(rows)]
    halves = (random.normal(size=rows) * 10.0 ** random.integers(-8, 9, rows)).astype("float32")
    return pd.DataFrame(
        {
            "whole": np.arange(rows) + (1 << 60),
            "real": [None if row is None else row / 7 * 10.0 ** (row - 20) for row in maybe],
            "yes": random.random(rows) > 0.5,
            "money": [decimal.Decimal(row) / 8 for row in range(rows)],
            "half": halves,
            "code": random.integers(-3, 3, rows),
            "share": random.integers(0, 5, rows) / 2,
            "flag": random.random(rows) > 0.5,
            "half_as_text": halves,
            "city": pd.Series(
                ["Rome", "a,b", 'q"q', "two\nlines", None] * (rows // 5), dtype=object
            ),
            "note": pd.Series(["é 😀", None, " x ", "NA ", "1"] * (rows // 5), dtype=object),
            "day": [
                None if row is None else dt.date(2024, 1, 1) + dt.timedelta(row) for row in maybe
            ],
            "when": pd.to_datetime("2024-01-05")
            + pd.to_timedelta(np.arange(rows) * 86_400_250, unit="ms"),
            "at": pd.to_datetime("2024-03-30T20:00Z").tz_convert("Europe/Rome")
            + pd.to_timedelta(np.arange(rows), "h"),
            "levels": pd.Categorical(
                ["b", "a", None, "b", "c"] * (rows // 5), ["z", "c", "b", "a"]
            ),
            "unused": [object()] * rows,
        }
    )


@cache
def arrow_table():
    return pa.Table.from_pandas(frame().drop(columns="unused"))


def read(dataset, raw=RAW, target=1 << 24, **keywords):
    source = open_source(dataset, raw, **keywords)
    assert isinstance(source, Source)
    try:
        parts = source.partitions(target)
        assert all(isinstance(part, Partition) for part in parts)
        batches = [pickle.loads(pickle.dumps(part)).read() for part in parts]  # noqa: S301
    finally:
        source.close()
    return pa.Table.from_batches(batches).unify_dictionaries()


def same(left, right):
    """Equal to the bit, floats too."""
    assert left.schema == right.schema
    for name in left.column_names:
        a, b = (table[name].combine_chunks() for table in (left, right))
        if pa.types.is_dictionary(a.type):
            a, b = a.cast(pa.utf8()), b.cast(pa.utf8())
        assert a.to_pylist() == b.to_pylist(), name
        if pa.types.is_floating(a.type):
            assert a.fill_null(0).to_numpy().tobytes() == b.fill_null(0).to_numpy().tobytes(), name


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The frame as csv, parquet and feather."""
    folder = tmp_path_factory.mktemp("files")
    data = frame().drop(columns="unused")
    data.to_csv(folder / "data.csv", index=False)
    data.to_parquet(folder / "data.parquet", index=False, row_group_size=16)
    feather.write_feather(pa.Table.from_pandas(data), folder / "data.feather", chunksize=9)
    return folder


@pytest.mark.parametrize("target", [1, 300, 1 << 24])
@pytest.mark.parametrize("kind", ["parquet", "feather", "pandas", "arrow", "polars"])
def test_one_table_from_every_format(files, kind, target):
    """A value is the number or text that pandas writes to csv, whatever the format and the cut."""
    expected = read(files / "data.csv")
    dataset = {
        "pandas": frame,
        "arrow": arrow_table,
        "polars": lambda: pl.from_arrow(arrow_table()),
    }.get(kind, lambda: files / f"data.{kind}")()
    same(read(dataset, target=target), expected)


def test_the_csv_reads_the_same_in_any_cut(files):
    same(read(files / "data.csv", target=200), read(files / "data.csv"))


def test_other_frames():
    data = {"a": [1, None, 3], "b": ["x", None, ""]}
    expected = read(pa.table(data), {"a": "number", "b": "category"})
    assert expected["a"].to_pylist() == [1.0, None, 3.0]
    assert expected["b"].to_pylist() == ["x", None, None]
    table = pa.table(data)
    arrays = {"a": np.array([1, np.nan, 3]), "b": data["b"]}
    for dataset in (data, duckdb.from_arrow(table), table.to_batches()[0], arrays):
        same(read(dataset, {"a": "number", "b": "category"}), expected)
        assert column_names(dataset) == ["a", "b"]
    assert column_names(pd.DataFrame(data, index=["x", "y", "z"])) == ["a", "b"]


def test_frames_whose_columns_are_called_by_numbers():
    rows = [[1, "x", object()], [None, "y", object()]]
    raw = {"1": "category", "0": "number"}
    for dataset in (pd.DataFrame(rows), {0: [1, None], 1: ["x", "y"], 2: [object()]}):
        assert column_names(dataset) == ["0", "1", "2"]
        assert read(dataset, raw).to_pydict() == {"1": ["x", "y"], "0": [1.0, None]}
    two = pd.DataFrame([[1, "x"]], columns=pd.MultiIndex.from_tuples([("a", "b"), ("a", "c")]))
    assert read(two, {"('a', 'c')": "string"}).to_pydict() == {"('a', 'c')": ["x"]}


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    # Before April 1935 St. John's was 3:30:52 behind, which pytz, and so pandas, rounds to minutes.
    days=st.lists(
        st.none() | st.datetimes(dt.datetime(1936, 1, 1), dt.datetime(2037, 1, 1)),
        min_size=1,
        max_size=8,
    ),
    coarse=st.sampled_from(["D", "s", "ms", "us"]),
    zone=st.sampled_from([None, "UTC", "America/St_Johns"]),
    numbers=st.lists(st.floats(width=32, allow_infinity=False), min_size=8, max_size=8),
)
@example(
    [dt.datetime(2000, 1, 1, 0, 0, 0, 1000), dt.datetime(1960, 1, 1), None], "us", "UTC", [0.0] * 8
)
def test_texts_are_those_that_pandas_writes(tmp_path, days, coarse, zone, numbers):
    when = pd.Series(pd.to_datetime(pd.Series(days, dtype="datetime64[us]"))).dt.floor(coarse)
    when = when.dt.tz_localize(zone, ambiguous="NaT", nonexistent="NaT") if zone else when
    data = pd.DataFrame(
        {"when": when, "x": np.array(numbers[: len(days)], "float32"), "y": numbers[: len(days)]}
    )
    data.to_csv(tmp_path / "data.csv", index=False)
    raw = {"when": "category", "x": "category", "y": "string"}
    same(read(data, raw, 1), read(tmp_path / "data.csv", raw))
    raw = {"x": "number", "y": "number"}
    same(read(data, raw, 1), read(tmp_path / "data.csv", raw))


def test_rows_of_missing_values_alone(tmp_path):
    """Of a tab between two such values nothing is left if blanks are taken away."""
    for name, delimiter in (("rows.csv", ","), ("rows.tsv", "\t")):
        (tmp_path / name).write_text(f"a{delimiter}b\n{delimiter}\n")
        assert read(tmp_path / name, {"a": "number", "b": "string"}).to_pylist() == [
            {"a": None, "b": None}
        ]


# ------------------------------------------------------------------ JSON


def test_json_lines_and_documents(tmp_path):
    records = [
        {"a": row, "b": f"v{row % 3}", "c": row / 2, "d": row % 2 == 0, "e": "2024-01-05", "f": [1]}
        for row in range(50)
    ]
    records[7].update(a=None, b=None)
    del records[8]["c"]
    (tmp_path / "lines.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n")
    (tmp_path / "lines.json").write_text("\n\n".join(map(json.dumps, records)))
    (tmp_path / "records.json").write_text(json.dumps(records, indent=1))
    names = ["a", "b", "c", "d", "e"]
    columns = {name: [each.get(name) for each in records] for name in names}
    (tmp_path / "columns.json").write_text(json.dumps(columns))
    rows = {
        name: {str(row): value for row, value in enumerate(values)}
        for name, values in columns.items()
    }
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    raw = {"a": "number", "b": "category", "c": "category", "d": "string", "e": "string"}
    expected = read(tmp_path / "lines.jsonl", raw)
    assert expected.slice(6, 3).to_pylist() == [
        {"a": 6.0, "b": "v0", "c": "3.0", "d": "True", "e": "2024-01-05"},
        {"a": None, "b": None, "c": "3.5", "d": "False", "e": "2024-01-05"},
        {"a": 8.0, "b": "v2", "c": None, "d": "True", "e": "2024-01-05"},
    ]
    same(read(tmp_path / "lines.jsonl", raw, 100), expected)
    for name in ("lines", "records", "columns", "rows"):
        same(read(tmp_path / f"{name}.json", raw, 100), expected)
        assert sample(tmp_path / f"{name}.json", 3).column("a").to_pylist() == [0, 1, 2]


def test_a_document_of_one_long_line(tmp_path):
    """As pandas writes one; its first line was looked at in part, and taken for JSON lines."""
    rows = pd.DataFrame({"a": np.arange(60_000), "b": ["x", "y"] * 30_000})
    rows.to_json(tmp_path / "rows.json")
    assert (tmp_path / "rows.json").stat().st_size > 1 << 20
    raw = {"a": "number", "b": "string"}
    same(read(tmp_path / "rows.json", raw), read(rows, raw))


def test_rows_of_a_document_are_found_by_their_names(tmp_path):
    (tmp_path / "rows.json").write_text('{"a": {"x": 1, "y": 2}, "b": {"y": "of 2", "x": "of 1"}}')
    found = read(tmp_path / "rows.json", {"a": "number", "b": "string"})
    assert found.to_pydict() == {"a": [1.0, 2.0], "b": ["of 1", "of 2"]}


def test_columns_of_json_that_nobody_declared_may_be_anything(tmp_path, monkeypatch):
    odd = [1, "a", [1], {"a": 1}, None, True, 2**70, {"b": [{}]}]
    records = [{"n": row / 2, "s": f"v{row % 3}", "odd": odd[row % 8]} for row in range(40)]
    records[3]["n"], records[5]["s"] = None, None
    raw = {"n": "number", "s": "category"}
    numbers = [None if each["n"] is None else float(each["n"]) for each in records]
    expected = read({"n": numbers, "s": [each["s"] for each in records]}, raw)
    lines = "\n\n".join(map(json.dumps, records))
    (tmp_path / "rows.jsonl").write_text(lines)
    (tmp_path / "records.json").write_text(json.dumps(records))
    (tmp_path / "columns.json").write_text(
        json.dumps({name: [each[name] for each in records] for name in records[0]})
    )
    for size in (1 << 24, 100):
        monkeypatch.setattr(jsonlines, "TYPING_BYTES", size)
        for name in ("rows.jsonl", "records.json", "columns.json"):
            same(read(tmp_path / name, raw, 200), expected)
        for damage in ("{broken\n", '{"n": "text"}\n', "1\n", '{"n": 1, "n": 2}\n'):
            (tmp_path / "bad.jsonl").write_text(f"{lines}\n{damage}{lines}")
            with pytest.raises(DataError, match=r"bad\.jsonl"):
                read(tmp_path / "bad.jsonl", raw, 200)
        with pytest.raises(DataError, match=r"'odd'|/odd"):
            read(tmp_path / "rows.jsonl", {"odd": "category"})
        with pytest.raises(DataError, match="no column 'm'; it has 'n', 's', 'odd'"):
            read(tmp_path / "rows.jsonl", {"m": "category"})


def test_json_types_are_the_columns_not_the_partitions(tmp_path):
    """The first lines hold whole numbers only; the column is one of floats all the same."""
    (tmp_path / "data.jsonl").write_text('{"a": 1}\n' * 20 + '{"a": 2.5}\n')
    texts = read(tmp_path / "data.jsonl", {"a": "category"}, 20)["a"].to_pylist()
    assert texts == ["1.0"] * 20 + ["2.5"]


# ------------------------------------------------------------------ parquet


def test_rows_that_another_thread_took_meanwhile_are_read_again(tmp_path, monkeypatch):
    pq.write_table(pa.table({"a": range(20_000)}), tmp_path / "data.parquet")
    parts = open_source(tmp_path / "data.parquet", {"a": "number"}).partitions(8000)
    cursor = parquet_groups._Cursor(parts[3], ("a",))
    taken = cursor.take(parts[3].start, parts[3].stop)
    # Of each of these some rows are gone: all, the first, the last.
    edges = [(parts[3].start, parts[3].stop), (parts[3].stop - 1, parts[4].stop)]
    edges.append((parts[2].start, parts[3].start + 1))
    assert [cursor.take(*each) for each in edges] == [None] * 3
    assert cursor.take(parts[2].start, parts[2].stop).num_rows == len(parts[2].read())
    monkeypatch.setattr(parquet_groups, "_cursor", lambda part, names: cursor)
    assert parts[3].read()["a"].to_pylist() == [float(each) for each in taken["a"].to_pylist()]


@pytest.mark.parametrize("fault", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()])
def test_a_slice_whose_read_failed_is_read_anew(tmp_path, monkeypatch, fault):
    pq.write_table(pa.table({"a": range(20_000)}), tmp_path / "data.parquet")
    source = open_source(tmp_path / "data.parquet", {"a": "number"})
    parts = source.partitions(8000)
    parts[0].read()
    cursor = parquet_groups._cursor(parts[1], ("a",))

    def broken():
        raise fault
        yield

    monkeypatch.setattr(cursor, "_batches", broken())
    with pytest.raises((DataError, KeyboardInterrupt)):
        parts[1].read()
    for part in parts[1:]:
        assert part.read()["a"][0].as_py() == part.start
    source.close()


def test_two_passes_over_one_parquet_file_at_once_read_it_once_each(tmp_path, monkeypatch):
    path, begun = tmp_path / "data.parquet", []
    pq.write_table(pa.table({"a": range(40_000)}), path)
    sources = [open_source(path, {"a": "number"}) for _ in range(2)]
    each = [source.partitions(8000) for source in sources]
    begin = parquet_groups._Cursor.__init__
    monkeypatch.setattr(
        parquet_groups._Cursor,
        "__init__",
        lambda self, *given: begun.append(1) or begin(self, *given),
    )
    for part, same in zip(*each, strict=True):
        assert part == same
        assert pickle.loads(pickle.dumps(part)).read().equals(same.read())  # noqa: S301
    assert len(begun) == 2
    assert len(each[0]) > 8
    for source in sources:
        source.close()
    assert not {parts[0].source for parts in each} & {key[0] for key in kept_cursors._found}


def test_a_feather_pass_that_ends_early_leaves_nothing_for_the_next(tmp_path, monkeypatch):
    path, read = tmp_path / "data.feather", []
    feather.write_feather(pa.table({"a": range(40_000)}), path, chunksize=40_000)
    whole = FeatherPartition.whole
    monkeypatch.setattr(
        FeatherPartition, "whole", lambda self: read.append(self.start) or whole(self)
    )
    for _ in range(3):
        with closing(open_source(path, {"a": "number"})) as source:
            parts = source.partitions(8000)
            parts[0].read()
        assert parts[0].source not in {key[0] for key in kept_batches._found}
        assert len(parts) > 8
        del read[:]
        source = open_source(path, {"a": "number"})
        rows = [value for part in source.partitions(8000) for value in part.read()["a"].to_pylist()]
        assert rows == list(range(40_000))
        assert len(read) == 1
        assert not kept_batches._found


def test_little_is_kept_of_open_sources_and_less_where_none_is_closed():
    kept = Kept()
    *_, before, last = own = [new_token() for _ in range(5)]
    for source in own:
        for key in range(6):
            assert kept.get(source, key, lambda: key, lambda each: True) == key  # noqa: B023
    assert [*kept._found] == [(source, key) for source in (before, last) for key in (2, 3, 4, 5)]
    assert kept.get(last, 5, lambda: "new", lambda each: each != 5) == "new"
    kept.drop(last, 5)
    assert kept.get(last, 5, lambda: "new", lambda each: True) == "new"
    kept.drop(before)
    assert {source for source, _ in kept._found} == {last}
    kept.drop("never there")
    for key in range(3):
        kept.get("of another process", key, lambda: "", lambda each: True)
    assert [*kept._found] == [(last, 5), *(("of another process", key) for key in range(3))]


def test_a_cursor_whose_waiting_rows_are_taken_meanwhile_still_says_what_it_covers():
    looks = [[], [(3, None)]]

    class Cursor:
        _position = 9
        _ready = property(lambda self: looks.pop())

    assert parquet_groups._Cursor.covers(Cursor(), 3)
    assert not parquet_groups._Cursor.covers(Cursor(), 3)


def test_a_process_forked_while_a_slice_is_read_waits_for_nobody(tmp_path):
    path = tmp_path / "data.feather"
    feather.write_feather(pa.table({"a": range(40_000)}), path, chunksize=40_000)
    source = open_source(path, {"a": "number"})
    part = source.partitions(8000)[0]
    part.read()
    (whole,) = [each for key, each in kept_batches._found.items() if key[0] == part.source]
    with whole.lock, kept_batches._lock, parquet_columns._chunks_lock:  # of threads of the parent
        child = os.fork()
        if not child:
            code = 1
            try:
                signal.alarm(60)
                found = part.read()["a"].to_pylist() == list(range(part.stop))
                code = 0 if found and not parquet_columns._chunks_lock.locked() else 1
            finally:
                os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    source.close()


def test_parquet_folders_and_patterns(tmp_path):
    (tmp_path / "data" / "sub").mkdir(parents=True)
    for index, name in enumerate(["10.parquet", "2.parquet", "sub/1.parquet"]):
        pq.write_table(
            pa.table({"a": [index * 10 + row for row in range(5)]}), tmp_path / "data" / name
        )
    (tmp_path / "data" / "_SUCCESS").write_text("")
    (tmp_path / "data" / "_old.parquet").write_text("")
    for hidden in ("_temporary/0", ".old"):  # as Spark leaves them
        (tmp_path / "data" / hidden).mkdir(parents=True)
        pq.write_table(pa.table({"a": [99]}), tmp_path / "data" / hidden / "part.parquet")
    expected = [0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24]
    assert read(tmp_path / "data", {"a": "number"}, 16)["a"].to_pylist() == expected
    assert (
        read(str(tmp_path / "data" / "[0-9]*.parquet"), {"a": "number"})["a"].to_pylist()
        == expected[:10]
    )
    assert column_names(tmp_path / "data") == ["a"]
    before = open_source(tmp_path / "data", {"a": "number"}).digest()
    moved = tmp_path / "moved [1]"  # no pattern: there is such a folder
    (tmp_path / "data").rename(moved)
    assert open_source(moved, {"a": "number"}).digest() == before
    (moved / "2.parquet").rename(moved / "0.parquet")
    assert open_source(moved, {"a": "number"}).digest() != before


def test_times_of_96_bits_are_of_any_year(tmp_path):
    """As Spark writes them; there are 2**64 nanoseconds from 1677 to 2262."""
    days = [dt.datetime(9999, 12, 31), dt.datetime(2024, 1, 5, 1, 2, 3, 4), dt.datetime(1, 1, 1)]
    table = pa.table({"a": days * 5_000})
    pq.write_table(table, tmp_path / "data.parquet", use_deprecated_int96_timestamps=True)
    assert pq.read_metadata(tmp_path / "data.parquet").schema.column(0).physical_type == "INT96"
    for raw in ("time", "category"):
        same(read(tmp_path / "data.parquet", {"a": raw}), read(table, {"a": raw}))
    assert sample(tmp_path / "data.parquet", 3)["a"].to_pylist() == days


def test_times_have_one_format_behind_a_file_that_misses_all(tmp_path):
    midnight, later = dt.datetime(2024, 1, 5), dt.datetime(2024, 1, 6, 10)
    for number, values in enumerate((pa.nulls(1), pa.array([midnight]), pa.array([later]))):
        pq.write_table(pa.table({"a": values}), tmp_path / f"{number}.parquet")
    found = read(tmp_path, {"a": "category"}, target=1)["a"].to_pylist()
    assert found == [None, "2024-01-05 00:00:00", "2024-01-06 10:00:00"]


def small_files(folder):
    """Forty files of a few rows, one of them empty: the type of a number, the way a text is stored
    and the order of columns change on the way."""
    folder.mkdir()
    dice, rows = random.Random(4), 0
    for number in range(40):
        size = 0 if number == 7 else dice.randrange(1, 30)
        values = list(range(rows, rows + size))
        table = pa.table(
            {
                "a": pa.array(values, pa.int32() if number % 13 < 6 else pa.float64()),
                "b": [None if value % 11 == 3 else f"v{value % 17}" for value in values],
                "c": [f"text {value}" for value in values],
            },
            schema=None
            if size
            else pa.schema([("a", pa.int32()), ("b", pa.string()), ("c", pa.string())]),
        )
        if number % 9 > 5:
            table = table.select(["c", "b", "a"])
        plain = {"use_dictionary": False, "column_encoding": {"b": "DELTA_BYTE_ARRAY"}}
        options = plain if number % 17 > 11 else {}
        pq.write_table(table, folder / f"{number:02d}.parquet", row_group_size=9, **options)
        rows += size
    return rows


@pytest.mark.parametrize("target", [64, 1000, 4000, 1 << 20])
def test_small_row_groups_are_joined_and_read_as_each_by_itself(tmp_path, target):
    raw = {"a": "number", "b": "category", "c": "string"}
    rows = small_files(tmp_path / "data")
    parts = open_source(tmp_path / "data", raw).partitions(target)
    copies = [pickle.loads(pickle.dumps(part)) for part in parts]  # noqa: S301 - our own
    found = pa.Table.from_batches([each.read() for each in copies])
    assert found["a"].to_pylist() == list(range(rows))
    texts = found["b"].cast(pa.string()).to_pylist()
    assert texts == [None if row % 11 == 3 else f"v{row % 17}" for row in range(rows)]
    assert found["c"].to_pylist() == [f"text {row}" for row in range(rows)]
    each = open_source(tmp_path / "data", raw).partitions(1)
    assert len(each) == rows  # slices of one row
    if target == 1 << 20:
        assert len(parts) < 20  # one for each change of layout, and not one for each file


@pytest.mark.parametrize("target", [1 << 12, 1 << 15, 1 << 20])
def test_tiles_of_parquet_hold_every_column_of_every_row_once(tmp_path, target):
    rows, names = 2000, [f"x{number}" for number in range(40)]
    columns = {
        name: [float(row * number) for row in range(rows)] for number, name in enumerate(names)
    }
    texts = {
        "t": [f"text {row}" for row in range(rows)],
        "c": [f"v{row % 7}" for row in range(rows)],
    }
    pq.write_table(pa.table({**columns, **texts}), tmp_path / "data.parquet", row_group_size=900)
    raw = {"t": "string", **dict.fromkeys(names, "number"), "c": "category"}
    source = open_source(tmp_path / "data.parquet", raw)
    tiles = [
        [pickle.loads(pickle.dumps(part)).read() for part in each]  # noqa: S301 - our own
        for each in source.tiles(target)
    ]
    wanted = pa.Table.from_batches([part.read() for part in source.partitions(1 << 30)])
    for each in tiles:
        assert [name for tile in each for name in tile.schema.names] == list(raw)
        assert len({tile.num_rows for tile in each}) == 1
    for name in raw:
        found = [
            v for each in tiles for t in each if name in t.schema.names for v in t[name].to_pylist()
        ]
        assert found == wanted[name].to_pylist()
    widest = max(tile.nbytes for each in tiles for tile in each)
    assert widest <= max(target, 900 * 32)  # a column by itself may be larger
    # One piece for each row group: columns are cut, rows are not.
    assert len(tiles) == (3 if target < 1 << 20 else 1)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize(("columns", "times"), [(2, 1), (40, 2), (300, 3)])
def test_tiles_of_whole_rows_are_larger_if_there_are_many_columns(
    tmp_path, monkeypatch, suffix, columns, times
):
    """So much larger that each has its share, within a bound; never other rows."""
    monkeypatch.setattr("distcore_data.sources.tiles.COLUMN_BYTES", 200)
    target, names = 4000, [f"x{number}" for number in range(columns)]
    rows = [{name: row * 1000 + place for place, name in enumerate(names)} for row in range(300)]
    text = [json.dumps(row) for row in rows]
    if suffix == "csv":
        text = [",".join(names), *(",".join(map(str, row.values())) for row in rows)]
    path = tmp_path / f"data.{suffix}"
    path.write_text("\n".join(text) + "\n")
    source = open_source(path, dict.fromkeys(names, "number"))
    tiles = source.tiles(target)
    assert all(len(each) == 1 for each in tiles)
    read = pa.Table.from_batches([each[0].read() for each in tiles])
    assert read.to_pylist() == rows
    assert len(tiles) == len(source.partitions(times * target))


def test_columns_too_large_to_be_decoded_whole_are_cut_into_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("distcore_data.sources.parquet.MOST_COLUMN_BYTES", 8 * 1000)
    pq.write_table(pa.table({"a": range(3000), "b": range(3000)}), tmp_path / "data.parquet")
    raw = {"a": "number", "b": "number"}
    tiles = open_source(tmp_path / "data.parquet", raw).tiles(16 * 1000)
    assert [[part.read().num_rows for part in each] for each in tiles] == [[1000]] * 3


def test_a_column_of_fewer_rows_than_its_row_group_is_damage(tmp_path):
    """Read beside others Arrow finds it out; read alone it does not."""
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"a": range(3000), "b": range(3000)}), path)
    source = open_source(path, {"a": "number", "b": "number"})
    (((first, second),),) = (source.tiles(30_000),)
    assert (first.raw, second.raw) == ((("a", "number"),), (("b", "number"),))
    with pytest.raises(DataError, match=r"it has 3000 rows, and should have 2999\)"):
        replace(first, rows=2999, stop=2999).read()


def test_texts_whose_dictionary_the_writer_gave_up_are_not_read_into_one(tmp_path):
    """Arrow takes ten times as long for that as for decoding them plainly."""
    texts = [f"text {row * 7 % 100_003}" for row in range(150_000)]
    few = [f"few {row % 1000}" for row in range(150_000)]
    pq.write_table(pa.table({"many": texts, "few": few}), tmp_path / "data.parquet")
    source = open_source(tmp_path / "data.parquet", {"many": "category", "few": "category"})
    for target in (1 << 30, 1 << 18):
        parts = source.partitions(target)
        assert {part.dictionaries for part in parts} == {("few",)}
        found = pa.Table.from_batches([part.read() for part in parts])
        assert found["many"].cast(pa.string()).to_pylist() == texts
        assert found["few"].cast(pa.string()).to_pylist() == few


def test_what_is_wrong_in_a_joined_file_is_told_of_that_file(tmp_path):
    (tmp_path / "data").mkdir()
    for number in range(6):
        texts = [str(row) for row in range(5)]
        if number == 3:
            texts[2] = "three"
        pq.write_table(pa.table({"a": texts}), tmp_path / "data" / f"{number}.parquet")
    (part,) = open_source(tmp_path / "data", {"a": "number"}).partitions(1 << 20)
    with pytest.raises(DataError, match=r"3\.parquet\), row 17, column 'a': 'three' is not"):
        part.read()
    damaged = tmp_path / "data" / "4.parquet"
    (part,) = open_source(tmp_path / "data", {"a": "category"}).partitions(1 << 20)
    damaged.write_bytes(damaged.read_bytes() + b" ")
    with pytest.raises(DataError, match=r"4\.parquet\): the file changed while it was being read"):
        part.read()


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("order", ["forward", "backward", "twice"])
def test_slices_of_one_row_group_in_any_order(tmp_path, threads, order):
    """Slices share one pass over the row group, whatever the order in which threads ask for
    them."""
    rows = 20_000
    table = pa.table({"a": np.arange(rows), "b": [f"v{row % 901}" for row in range(rows)]})
    pq.write_table(table, tmp_path / "data.parquet")
    parts = open_source(tmp_path / "data.parquet", {"a": "number", "b": "category"}).partitions(
        8000
    )
    assert len(parts) > 20
    wanted = {"forward": parts, "backward": parts[::-1], "twice": [*parts, *parts]}[order]
    with ThreadPoolExecutor(threads) as pool:
        batches = dict(zip(wanted, pool.map(lambda part: part.read(), wanted), strict=True))
    assert [value for part in parts for value in batches[part].column("a").to_pylist()] == list(
        range(rows)
    )
    assert [value for part in parts for value in batches[part].column("b").to_pylist()] == table[
        "b"
    ].to_pylist()


# ------------------------------------------------------------------ digests and places


@settings(max_examples=12, deadline=None)
@given(
    cuts=st.lists(st.integers(1, 39), max_size=4, unique=True).map(sorted),
    width=st.sampled_from([1, 3, 1 << 16]),
)
def test_digest_of_a_frame_is_of_its_values(monkeypatch_slice, cuts, width):
    """Chunks, offsets, dictionaries and the library it comes from do not matter; one value does."""
    monkeypatch_slice(width)
    table = arrow_table()
    edges = [0, *cuts, table.num_rows]
    pieces = pa.concat_tables([table.slice(a, b - a) for a, b in pairwise(edges)])
    expected = open_source(table, RAW).digest()
    assert open_source(pieces, RAW).digest() == expected
    assert open_source(pl.from_arrow(table), RAW).digest() == expected
    changed = table.to_pandas()
    changed.loc[17, "city"] = "Romex"
    assert open_source(changed, RAW).digest() != expected


@pytest.fixture(scope="module")
def monkeypatch_slice():
    patch = pytest.MonkeyPatch()
    yield lambda rows: patch.setattr(digests, "SLICE_ROWS", rows)
    patch.undo()


def test_digest_tells_missing_from_zero_and_shifted_texts():
    def of(values, raw="category"):
        return open_source({"a": values}, {"a": raw}).digest()

    assert len({of(["ab", "c"]), of(["a", "bc"]), of(["abc", ""]), of(["abc", None])}) == 4
    assert of([0.0, 1.0], "number") != of([None, 1.0], "number")
    assert of([float("nan"), 1.0], "number") == of([None, 1.0], "number")
    for missing in (float("nan"), None):  # an Arrow table may have both
        table = pa.table({"a": pa.array([missing, 1.0], from_pandas=False)})
        assert open_source(table, {"a": "number"}).digest() == of([None, 1.0], "number")
    days = pa.array([18_000, 1], pa.int32())
    tables = [pa.table({"a": each}) for each in (days, days.cast(pa.date32()))]
    assert len({open_source(each, {"a": "category"}).digest() for each in tables}) == 2
    assert digests.combined([1, 23]) != digests.combined([12, 3])


def test_remote_datasets(files, tmp_path):
    """csv, packed csv, parquet and a folder of it, by URL; what was fetched is removed."""
    import gzip

    store = fsspec.filesystem("memory")
    store.pipe("/box/data.csv", (files / "data.csv").read_bytes())
    store.pipe("/box/data.csv.gz", gzip.compress((files / "data.csv").read_bytes()))
    store.pipe("/box/folder/part/0.parquet", (files / "data.parquet").read_bytes())
    expected = read(files / "data.csv")
    for name in (
        "data.csv",
        "data.csv.gz",
        "folder",
        "folder/part/*.parquet",
        "folder/part/0.parquet",
    ):
        same(read(f"memory://box/{name}", target=300, scratch=tmp_path / "scratch"), expected)
        assert list((tmp_path / "scratch").iterdir()) == []
    same(read(f"file://{files}/data.csv"), expected)
    assert sample("memory://box/data.csv", 3).num_rows == 3


def test_sample_infers_types(files):
    table = sample(files / "data.csv", 5)
    assert table.num_rows == 5
    assert table.column_names == column_names(files / "data.csv") == list(RAW)
    assert table.schema.field("flag").type == pa.bool_()
    assert table.schema.field("share").type == pa.float64()
    assert (
        sample(files / "data.parquet", 5).num_rows
        == sample(files / "data.feather", 5).num_rows
        == 5
    )
    assert sample({"a": [1, 2, 3]}, 2).num_rows == 2


def test_sample_goes_on_behind_what_is_short_or_empty(tmp_path):
    """Of files and record batches; up to one whose columns are others."""
    parts = [
        pa.table({"a": pa.array([], pa.null()), "b": pa.array([], pa.utf8())}),
        pa.table({"a": [1], "b": ["x"]}),
        pa.table({"b": ["y", "z"], "a": [2.5, None]}),
        pa.table({"a": ["a text"], "b": ["x"]}),
    ]
    (tmp_path / "folder").mkdir()
    for number, part in enumerate(parts):
        pq.write_table(part, tmp_path / "folder" / f"{number}.parquet")
    expected = {"a": [1.0, 2.5, None], "b": ["x", "y", "z"]}
    assert sample(tmp_path / "folder", 3).to_pydict() == expected
    assert sample(tmp_path / "folder", 9).to_pydict() == expected
    assert sample(tmp_path / "folder", 1).to_pydict() == {"a": [1], "b": ["x"]}
    pq.write_table(pa.table({"c": [1]}), tmp_path / "folder" / "2.parquet")
    assert sample(tmp_path / "folder", 9).to_pydict() == {"a": [1], "b": ["x"]}
    rows = pa.table({"a": range(9)})
    with pa.ipc.new_file(tmp_path / "data.feather", rows.schema) as file:
        file.write_batch(pa.record_batch([pa.array([], pa.int64())], ["a"]))
        file.write_table(rows, 2)
    assert sample(tmp_path / "data.feather", 5) == rows.slice(0, 5)
    assert sample(tmp_path / "data.feather", 99) == rows
    for name in ("data.feather", "data.parquet"):
        (feather.write_feather if "feather" in name else pq.write_table)(parts[0], tmp_path / name)
        assert sample(tmp_path / name, 9) == parts[0]


def test_of_thousands_of_columns_of_parquet_a_spread_sample_has_fewer_rows(tmp_path, monkeypatch):
    table = pa.table({f"x{number}": range(500) for number in range(4)})
    pq.write_table(table, tmp_path / "rows.parquet")
    monkeypatch.setattr(head, "MOST_VALUES", 400)
    monkeypatch.setattr(head, "LEAST_ROWS", 10)
    assert sample(tmp_path / "rows.parquet", 300, spread=True).num_rows == 100
    assert sample(tmp_path / "rows.parquet", 50, spread=True).num_rows == 50
    assert sample(tmp_path / "rows.parquet", 300).num_rows == 300
    monkeypatch.setattr(head, "LEAST_ROWS", 200)
    assert sample(tmp_path / "rows.parquet", 300, spread=True).num_rows == 200


def test_a_spread_sample_has_rows_of_all_places(tmp_path, monkeypatch):
    """Of a table that is sorted the first rows are not like the others."""
    monkeypatch.setattr(registry, "HEAD_BYTES", 16_000)
    rows = pa.table(
        {"n": range(4000), "late": [None] * 3000 + [0.5] * 1000, "t": ['one\n"two", and\n3'] * 4000}
    )
    pacsv.write_csv(rows, tmp_path / "rows.csv")
    lines = "".join(json.dumps(each) + "\n" for each in rows.to_pylist())
    (tmp_path / "rows.jsonl").write_text(lines)
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=50)
    (tmp_path / "few").mkdir()
    for number in range(3):
        pq.write_table(rows.slice(number * 1300, 1300), tmp_path / "few" / f"{number}.parquet")
    (tmp_path / "many").mkdir()
    for number in range(40):
        file = tmp_path / "many" / f"{number:02}.parquet"
        pq.write_table(rows.slice(number * 100, 100), file)
    for name in ("rows.csv", "rows.jsonl", "rows.parquet", "few", "many"):
        first, found = sample(tmp_path / name, 320), sample(tmp_path / name, 320, spread=True)
        assert first["late"].null_count == len(first), name
        numbers = found["n"].to_pylist()
        assert 25 < len(set(numbers)) == len(numbers) <= 320, name
        assert min(numbers) == 0, name
        assert max(numbers) >= 2600, name
        same(found.select(["n", "t"]), rows.take(numbers).select(["n", "t"]))
    assert {*found["late"].to_pylist()} == {None, 0.5}
    damaged = re.sub(r"\n(2\d\d\d),", r"\n\1,,", (tmp_path / "rows.csv").read_text())
    (tmp_path / "rows.csv").write_text(damaged)
    numbers = sample(tmp_path / "rows.csv", 320, spread=True)["n"].to_pylist()
    assert {each // 1000 for each in numbers} == {0, 1, 3}
    lines = lines.replace('"late": null', '"late": "x"')
    (tmp_path / "rows.jsonl").write_text(lines)
    assert sample(tmp_path / "rows.jsonl", 320, spread=True)["late"].type == head.SEVERAL
    (tmp_path / "rows.jsonl").write_text(lines[:150_000] + "{broken\n" * 10_000)
    assert sample(tmp_path / "rows.jsonl", 320, spread=True)["late"].to_pylist()[0] == "x"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("pack", [gzip.compress, bytes])
def test_sample_of_a_packed_file_reads_whole_rows_of_its_head(
    tmp_path, monkeypatch, pack, encoding
):
    """A row of wide packed text that the end of the head cut in two was refused as damaged."""
    monkeypatch.setattr("distcore_data.sources.registry.HEAD_BYTES", 1 << 12)
    (tmp_path / "data.csv").write_bytes(pack(("a,b\n" + "1,21\n" * 900_001).encode(encoding)))
    found = sample(tmp_path / "data.csv", 1 << 30)
    assert 400 < found.num_rows < 1000
    assert found["b"].unique().to_pylist() == [21]


@pytest.mark.parametrize("name", ["data.jsonl.gz", "data.json.gz"])
def test_packed_lines_of_json_are_not_unpacked_to_be_looked_at(tmp_path, monkeypatch, name):
    monkeypatch.setattr("distcore_data.sources.registry.HEAD_BYTES", 1 << 12)
    lines = b"".join(b'{"a": %d}\n' % row for row in range(100_000, 200_000))
    (tmp_path / name).write_bytes(gzip.compress(lines))
    whole = gzip.compress(b'[{"a": 1}]')
    with monkeypatch.context() as patch:
        patch.delattr("distcore_data.sources.head.unpacked")
        found = sample(tmp_path / name, 1 << 30)["a"].to_pylist()
    assert found == list(range(100_000, 100_000 + len(found)))
    assert 200 < len(found) < 1000
    (tmp_path / "data.json.gz").write_bytes(whole)
    assert sample(tmp_path / "data.json.gz", 9).to_pydict() == {"a": [1]}


def _streams(pack):
    """Packs each 20,000 bytes by themselves, as parallel packers do."""
    return lambda text: b"".join(pack(text[at : at + 20_000]) for at in range(0, len(text), 20_000))


def _words_of_lines(count):
    """Rows of which each second has a text of two lines."""
    return [{"n": row, "t": "two\nlines" if row % 2 else "one"} for row in range(count)]


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("data.csv", None),
        ("data.csv.gz", gzip.compress),
        ("data.csv.bz2", bz2.compress),
        ("data.csv.xz", lzma.compress),
        ("data.csv.bz2", _streams(bz2.compress)),
        ("data.csv.xz", _streams(lzma.compress)),
        ("data.jsonl", None),
        ("data.jsonl.gz", gzip.compress),
        ("data.json", None),
        ("data.parquet", None),
        ("data.feather", None),
    ],
)
@pytest.mark.parametrize("rows", [7, 20_000])
def test_about_how_many_rows_there_are_is_seen_without_reading_them(
    tmp_path, monkeypatch, name, pack, rows
):
    """A row may have several lines, and a packed file as many bytes as it has."""
    monkeypatch.setattr("distcore_data.sources.registry.HEAD_BYTES", 1 << 15)
    monkeypatch.setattr("distcore_data.sources.head.FILE_BYTES", 1 << 15)
    table, path = pa.Table.from_pylist(_words_of_lines(rows)), tmp_path / name
    if ".csv" in name:
        table.to_pandas().to_csv(path, index=False, compression=None)
    elif ".json" in name:
        table.to_pandas().to_json(path, orient="records", lines="l" in name, compression=None)
    elif name == "data.parquet":
        pq.write_table(table, path)
    else:
        feather.write_feather(table, path)
    if pack is not None:
        path.write_bytes(pack(path.read_bytes()))
    found = rows_about(path, "n")
    if rows == 20_000 and (".csv" in name or "jsonl" in name):
        assert 0.8 * rows < found < 1.25 * rows
    else:
        assert found == rows


def test_what_cannot_be_counted_at_a_look(tmp_path):
    assert rows_about("memory://nowhere/data.csv", "a") is None
    assert rows_about(tmp_path / "none.csv", "a") is None
    pq.write_table(pa.table({"a": [1]}), tmp_path / "data.parquet")
    assert rows_about(tmp_path / "data.parquet", "b") is None
    assert rows_about(tmp_path / "data.parquet", "a") == 1


def test_the_module_is_light(tmp_path):
    """Reading csv imports no torch, no fsspec and no pandas (pyarrow itself imports pandas in
    some calls)."""
    (tmp_path / "data.csv").write_text("a,b\n1,x\n")
    code = (
        "import sys, distcore_data.sources.registry; assert 'pyarrow' not in sys.modules;source = "
        f"distcore_data.sources.registry.open_source({str(tmp_path / 'data.csv')!r}, {{'a': "
        "'number', 'b': 'category'});source.digest(); source.partitions(1)[0].read();heavy = "
        "{'pandas', 'torch', 'fsspec', 'pyarrow.parquet'} & set(sys.modules); assert not heavy, "
        "heavy"
    )
    done = run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("raw", ["number", "category", "string", "time"])
def test_no_column_of_a_file_imports_pandas(tmp_path, raw):
    """Which Arrow does at many a call: 0.26 s and 52 MB."""
    count = pa.array([*range(40), None] * 20)
    columns = {
        "truth": count.cast(pa.bool_()),
        "single": count.cast(pa.float32()),
        "double": count.cast(pa.float64()),
        "odd": pa.compute.multiply(count.cast(pa.float64()), 1e-7),
        "half": count.cast(pa.float32()).cast(pa.float16()),
        "decimal": count.cast(pa.decimal128(25, 2)),
        "text": count.cast(pa.utf8()),
        "large": count.cast(pa.large_utf8()),
        "codes": count.cast(pa.utf8()).dictionary_encode(),
        "nothing": pa.nulls(len(count)),
    }
    if raw != "number":
        columns |= {
            "day": count.cast(pa.int32()).view(pa.date32()),
            "clock": count.view(pa.time64("us")),
            "time": count.view(pa.timestamp("us")),
            "zoned": count.view(pa.timestamp("us", "Asia/Tokyo")),
            "fine": count.view(pa.timestamp("ns", "Asia/Tokyo")),
        }
    pq.write_table(pa.table(columns), tmp_path / "data.parquet")
    feather.write_feather(pa.table(columns), tmp_path / "data.feather")
    (tmp_path / "data.jsonl").write_text('{"truth": true, "double": 0.25, "text": "7"}\n' * 90)
    (tmp_path / "data.csv").write_text("truth,double,text\n" + "True,0.5,1\nfalse,NA,2\n" * 99)
    tried = [
        *((name, column) for name in ("data.parquet", "data.feather") for column in columns),
        *(
            (name, each)
            for name in ("data.csv", "data.jsonl")
            for each in ("truth", "double", "text")
        ),
    ]
    program = f"""
import sys
from distcore_data.sources.registry import open_source
for name, column in {tried}:
    source = open_source({str(tmp_path)!r} + "/" + name, {{column: {raw!r}}})
    for part in source.partitions(1000):
        part.read()
    source.digest()
    assert "pandas" not in sys.modules, (name, column)
"""
    done = run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_numbers_in_another_order_of_bytes_are_refused_with_their_column():
    """They ended in a ValueError of pandas'; a column that nobody asks for may have them."""
    frame = pd.DataFrame({"x": [1.5, 2.5], "y": [1, 2]}).astype({"x": "f8", "y": "i4"})
    turned = frame.astype({"x": np.dtype("f8").newbyteorder()})
    with pytest.raises(DataError, match=r"column 'x': .* order of bytes .* astype\('float64'\)"):
        open_source(turned, {"x": "number"})
    assert as_table(turned, ["y"]).equals(as_table(frame, ["y"]))


def test_an_array_that_is_written_to_meanwhile_is_told():
    """Arrow shares numpy's memory: a cache of the new values stood under the key of the old."""
    values = np.arange(100.0)
    with closing(open_source(pa.table({"a": pa.array(values)}), {"a": "number"})) as source:
        source.check_unchanged()
        digest = source.digest()
        source.check_unchanged()
        values[7] = 8.5
        assert source.digest() == digest
        with pytest.raises(DataError, match="in memory: the values changed while they were"):
            source.check_unchanged()


@pytest.mark.parametrize("name", ["b.parquet", "x/b.parquet", "x/y/b.parquet", ".x/b.parquet"])
@pytest.mark.parametrize(
    "dataset", [".", "*", "*.parquet", "**", "**/*.parquet", "x/*", "?/**/b.*", "x", "b.parquet"]
)
def test_which_files_a_folder_or_pattern_would_have(tmp_path, monkeypatch, name, dataset):
    """The same as it has once they are there."""
    (folder := tmp_path / "data[1]").mkdir()
    monkeypatch.chdir(folder)
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    told = would_be_read(path, Path(dataset))
    path.write_bytes(b"")
    try:
        found = parquet_files(Path(dataset), dataset)
    except DataError:
        found = []
    assert told == (path in found and dataset != name)


def test_a_pattern_that_is_no_possible_name_is_told_as_one():
    assert not would_be_read(Path("b.parquet"), Path("x" * 5000))
    with pytest.raises(DataError, match="no file fits this pattern"):
        open_source("x" * 5000 + "*.parquet", {"a": "number"})


@pytest.mark.parametrize("raw", ["category", "string"])
def test_dictionaries_that_do_not_fit_into_one_are_read_each_by_itself(tmp_path, raw):
    """pandas' categories have codes of 8 bits: a folder of such files, with other values in each,
    ended in Arrow's words. So did a dictionary that holds a null."""
    for name, first in (("a", 0), ("b", 100)):
        codes = pa.array([*range(100), None], pa.int8())
        texts = pa.array([f"city {first + at}" for at in range(100)])
        column = pa.DictionaryArray.from_arrays(codes, texts)
        pq.write_table(pa.table({"c": column}), tmp_path / f"{name}.parquet")
    with closing(open_source(tmp_path, {"c": raw})) as source:
        parts = [each.read()["c"] for each in source.partitions(1 << 20)]
    assert len({value for part in parts for value in part.to_pylist()} - {None}) == 200
    assert sum(part.null_count for part in parts) == 2
    numbers = pa.DictionaryArray.from_arrays([0, 1], pa.array([0.5, None]))
    table = pa.table({"c": pa.chunked_array([numbers] * 2)})
    with closing(open_source(table, {"c": "number"})) as source:
        assert source.partitions(1 << 20)[0].read()["c"].to_pylist() == [0.5, None] * 2
    with_null = pa.DictionaryArray.from_arrays([0, 1], pa.array(["a", None]))
    for column in (pa.chunked_array([with_null] * 2), pa.chunked_array([[None], [None]])):
        table = pa.table({"c": column.dictionary_encode() if column.type == pa.null() else column})
        with closing(open_source(table, {"c": raw})) as source:
            (part,) = [each.read()["c"] for each in source.partitions(1 << 20)]
        assert set(part.to_pylist()) <= {"a", None}
