"""Bad input of every kind: the error names the place, and nothing is left behind."""

from __future__ import annotations

import bz2
import datetime as dt
import errno
import gzip
import io
import json
import lzma
import os
import pickle
import random
import re
import shutil
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pyarrow.parquet as pq
import pytest
import zstandard

from distcore_core.errors import DataError
from distcore_data.sources import plaintext, unpacking
from distcore_data.sources.datafile import DataFile
from distcore_data.sources.fetch import Workplace, without_secrets
from distcore_data.sources.memory import as_table
from distcore_data.sources.registry import DelimitedOptions, column_names, open_source, sample

AB = {"a": "number", "b": "category"}
ROWS = "".join(f"{row},v\n" for row in range(100))


@pytest.fixture
def refused(read):
    """Read in small pieces, so that lines are counted across partitions; returns the error's
    text."""

    def refused(dataset, raw=AB, target=64, **keywords):
        with pytest.raises(DataError) as error:
            read(dataset, raw, target, **keywords)
        return str(error.value)

    return refused


@pytest.fixture
def put(tmp_path):
    def write(content, name="data.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_no_such_file(refused, put, tmp_path):
    put("a,b\n1,x\n", "training.csv")
    message = refused(tmp_path / "trainin.csv")
    assert "no such file" in message
    assert "training.csv" in message.split("Did you mean")[1]
    assert "no folder" in refused(tmp_path / "nowhere" / "x.csv")


@pytest.mark.parametrize("content", ["", "\n\n  \n", "\ufeff"])
def test_empty_file(refused, put, content):
    assert "data.csv: the file is empty" in refused(put(content))


def test_header_only(refused, put):
    assert "has a header and no rows" in refused(put("a,b\n"))
    assert "has a header and no rows" in refused(put("a,b\n\n\n"))
    assert "has a header and no rows" in refused(put("a,b"))


@pytest.mark.parametrize(
    ("row", "count"), [("7", "1 value "), ("7,v,w", "3 values "), ('"7\n",v,w,z', "4 values ")]
)
def test_ragged_row(refused, put, row, count):
    message = refused(put(f"a,b\n{ROWS}\n{row}\n{ROWS}"))
    assert "data.csv, line 103: " + count in message
    assert "2 columns" in message


def test_ragged_row_below_newlines_in_quotes(refused, put):
    assert "line 6: 1 value " in refused(put('a,b\n1,"x\ny\nz"\n\n2\n3,x\n'))


def test_wrong_encoding_in_the_head(refused, put):
    message = refused(put(b"a,b\n1,x\n2,caf\xe9\n"))
    assert "data.csv, line 3: byte 0xe9 at position 6 of the line is not UTF-8" in message
    assert "encoding" in message


def test_wrong_encoding_far_below_the_head(refused, put):
    good = "1,value\n" * 50_000
    message = refused(put(f"a,b\n{good}".encode() + b"2,caf\xe9\n3,x\n"), target=1 << 16)
    assert "line 50002: byte 0xe9 at position 6" in message


def test_wrong_encoding_given(refused, put):
    message = refused(put(b"a,b\n1,x\n2,caf\xe9\n"), options=DelimitedOptions(encoding="utf-8"))
    assert "not UTF-8" in message
    assert "line 3" in refused(
        put("a,b\n1,x\n2,é\n"), options=DelimitedOptions(encoding="iso2022_jp")
    )
    for name in ("utf-99", "base64", "rot13", "undefined", "a\0b"):
        message = refused(put("a,b\n1,x\n"), options=DelimitedOptions(encoding=name))
        assert f"no encoding is called {name!r}" in message


def test_duplicate_columns(refused, put):
    message = refused(put("a,b,a\n1,x,2\n"))
    assert "data.csv" in message
    assert "'a' more than once" in message


def test_missing_column_names_the_nearest(refused, put):
    message = refused(put("age,city\n1,x\n"), {"ages": "number", "city": "category"})
    assert "no column 'ages' (did you mean 'age'?)" in message


def test_text_in_a_number_column(refused, put):
    message = refused(put(f"a,b\n{ROWS}abc,x\n{ROWS}"))
    assert "data.csv, line 102, column 'a': 'abc' is not a number" in message
    assert "preprocessing.csv.null_values" in message


@pytest.mark.parametrize("value", ["inf", "-Infinity", "1e999"])
def test_infinity(refused, put, value):
    message = refused(put(f"a,b\n{ROWS}{value},x\ninf,y\n"))
    assert (
        f"line 102, column 'a': {value.lower()[:3]}" in message.lower()
        or "line 102, column 'a': inf" in message
    )
    assert "infinite" in message


def test_unclosed_quote(refused, put):
    message = refused(put(f'a,b\n{ROWS}1,"x\n2,y\n'))
    assert "line 102: a quote" in message
    assert "never closes" in message
    assert "line 103: a quote" in refused(put(f'a,b\n1,5" x\n{ROWS}1,"x\n2,y\n'))


def test_a_pickle_is_never_opened(refused, put):
    class Trap:
        def __reduce__(self):
            return (Path.write_text, (Path("trapped"), "!"))

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        message = refused(put(pickle.dumps([Trap()], protocol)))
        assert "pickle" in message or protocol < 2
    assert not Path("trapped").exists()
    assert "pickle" in refused(put(pickle.dumps({"a": [1]}, 4)), format="csv")


def test_binary_is_no_text(refused, put):
    assert "is NUL" in refused(put(b"a,b\n1,\x00\n"))
    assert "line 2" in refused(put(b"a,b\n1,\x00\n"))
    assert "Parquet" in refused(put(b"PAR1...."))
    assert "zip" in refused(put(b"PK\x03\x04...."))


def test_truncated_gz(refused, put):
    packed = gzip.compress(("a,b\n" + ROWS * 1000).encode())
    assert "cut short" in refused(put(packed[: len(packed) // 2], "data.csv.gz"))


def test_damaged_gz_leaves_no_scratch(refused, put, tmp_path):
    packed = gzip.compress(("a,b\n" + ROWS).encode())
    refused(put(packed[:-6], "data.csv.gz"), scratch=tmp_path / "scratch")
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("isal", [True, False])
def test_a_damaged_gz_is_told_with_and_without_isal(refused, read, put, monkeypatch, isal):
    if isal:
        pytest.importorskip("isal", reason="not made for this machine")
    else:
        monkeypatch.setitem(sys.modules, "isal", None)
    packed = gzip.compress(("a,b\n" + ROWS * 1000).encode(), mtime=0)
    assert len(read(put(packed, "data.csv.gz"), AB)["b"]) == 1000 * ROWS.count("\n")
    places = {10: "damaged or cut short", len(packed) // 2: "", len(packed) - 6: "CRC"}
    for place, what in places.items():
        damaged = bytearray(packed)
        damaged[place] ^= 6
        message = refused(put(bytes(damaged), "data.csv.gz"))
        assert "the gzip data are damaged or cut short" in message
        assert what in message


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstandard.compress])
def test_what_follows_a_stream_is_another_or_damage(refused, read, put, pack):
    """Parallel packers write many streams; Python's own readers of bzip2 and xz would end at a
    damaged one without a word, and the rows behind it would be missing."""
    first, second = pack(b"a,b\n1,x\n"), pack(b"2,y\n")
    assert read(put(first + second), AB)["b"] == ["x", "y"]
    damaged = bytes([second[0] ^ 1]) + second[1:]
    for rest in (damaged, second[: len(second) // 2], b"junk"):
        assert "damaged or cut short" in refused(put(first + rest))


class Greedy:
    eof, needs_input = False, True

    def decompress(self, packed, most):
        raise MemoryError


def test_a_stream_that_asks_for_more_memory_than_there_is_is_damaged(refused, put, monkeypatch):
    monkeypatch.setattr(lzma, "LZMADecompressor", Greedy)
    message = refused(put(lzma.compress(b"a,b\n1,x\n")))
    assert "are damaged" in message
    assert "can be read (or this machine lacks the memory that they ask for)" in message


def test_bzip2_without_memory_is_not_told_as_damage(read, put, monkeypatch):
    """No header of its makes it ask for much."""
    monkeypatch.setattr(bz2, "BZ2Decompressor", Greedy)
    with pytest.raises(MemoryError):
        read(put(bz2.compress(b"a,b\n1,x\n")), AB)


def test_a_machine_without_memory_is_not_told_as_damage(read, put, monkeypatch):
    def no_memory(*_):
        raise MemoryError

    monkeypatch.setattr("distcore_data.sources.unpacking.copy", no_memory)
    with pytest.raises(MemoryError):
        read(put(gzip.compress(b"a,b\n1,x\n")), AB)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_zero_bytes_behind_the_last_stream_are_no_damage(read, put, pack):
    assert read(put(pack(b"a,b\n1,x\n") + bytes(8)), AB)["b"] == ["x"]


def test_unknown_format(refused, put):
    path = put("a,b\n1,x\n")
    message = refused(path, format="cvs")
    assert "'cvs'" in message
    assert "Did you mean 'csv'?" in message
    assert "parquet" in message
    assert "no installed plugin reads it" in refused(path, format="excel")
    assert "Leave the format out" in refused(path, format="df")


def test_bad_options(refused, put):
    assert "preprocessing.csv.delimiter" in refused(
        put("a,b\n1,x\n"), options=DelimitedOptions(delimiter="ab")
    )


def test_truncated_parquet(refused, tmp_path):
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"a": [1.0] * 1000, "b": ["x"] * 1000}), path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert "data.parquet: not a whole Parquet file" in refused(path)
    path.write_bytes(b"")
    assert "not a whole Parquet file" in refused(path)


def test_damaged_parquet_pages(refused, tmp_path):
    path = tmp_path / "data.parquet"
    pq.write_table(
        pa.table({"a": [float(x) for x in range(5000)], "b": [str(x) for x in range(5000)]}), path
    )
    content = bytearray(path.read_bytes())
    content[4:400] = b"\xff" * 396
    path.write_bytes(content)
    assert "row group 0 is damaged" in refused(path, target=1 << 24)


def test_folder_without_parquet(refused, tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    assert "a folder with no Parquet files" in refused(tmp_path)
    assert "no file fits" in refused(str(tmp_path / "*.parquet"))
    assert "a folder is not read as csv, but as Parquet" in refused(tmp_path, format="csv")


def test_parquet_column_that_cannot_be_read_as_declared(refused, tmp_path):
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"a": [{"x": 1}], "b": [[1, 2]]}), path)
    assert "column 'a' has type struct" in refused(path, {"a": "number"})
    assert "column 'b' has type list" in refused(path, {"b": "category"})


def test_parquet_values_that_are_no_numbers(refused, tmp_path):
    path = tmp_path / "data.parquet"
    pq.write_table(
        pa.table({"a": ["1", "2", "x"] * 10, "c": [1.0, 2.0, float("inf")] * 10}),
        path,
        row_group_size=2,
    )
    assert "data.parquet, row 2, column 'a': 'x' is not a number" in refused(path, {"a": "number"})
    assert "data.parquet, row 2, column 'c': inf is infinite" in refused(path, {"c": "number"})


def test_parquet_files_that_disagree(read, refused, tmp_path):
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [1.5]}), tmp_path / "2.parquet")
    assert read(tmp_path, {"a": "number"}) == {"a": [1.0, 2.0, 1.5]}
    message = refused(tmp_path, {"a": "category"})
    assert "2.parquet" in message
    assert "double" in message
    # A file that misses every value says nothing of the others' type.
    pq.write_table(pa.table({"a": pa.nulls(2)}), tmp_path / "0.parquet")
    assert "has type double, and int64 in 1.parquet" in refused(tmp_path, {"a": "category"})


def test_parquet_files_of_a_folder_may_have_endings_in_capitals(read, tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [2]}), tmp_path / "2.PARQUET")
    for dataset in (tmp_path, f"local://{tmp_path}"):
        assert read(dataset, {"a": "number"}) == {"a": [1.0, 2.0]}


def test_bad_json_line(refused, put):
    lines = '{"a": 1, "b": "x"}\n' * 50
    message = refused(put(lines + '{"a": 1, "b": \n' + lines, "data.jsonl"))
    assert "data.jsonl, line 51: not a JSON object" in message
    assert "line 2: not a JSON object" in refused(
        put('{"a": 1}\n[1]\n', "data.jsonl"), {"a": "number"}
    )
    assert "line 52, column 'a': 'x' is not a number" in refused(
        put('{"a": "1"}\n' * 50 + '\n{"a": "x"}\n', "data.jsonl"), {"a": "number"}
    )
    message = refused(put('{"a": "1"}\n{"a": 2}\n', "data.jsonl"), {"a": "number"})
    assert "line 2: Column(/a) changed from string to number. Give a column values" in message
    assert "no column 'c'" in refused(put(lines, "data.jsonl"), {"c": "number"})
    assert "empty" in refused(put("\n", "data.jsonl"))
    assert "not a JSON document" in refused(put("[1, 2", "data.json"))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"a": 1, "a": 2}', "Column(/a) was specified twice. Correct the line."),
        ('{"a": 1e400}', "Number too big to be stored in double. Correct the line."),
        ('{"a": 1, "b": "\\ud800"}', "The surrogate pair in string is invalid. Correct the line."),
        ('\ufeff{"a": 1}', "not a JSON object (Unexpected UTF-8 BOM"),
        (
            '{"a": [1]}',
            "Column(/a) changed from number to array. Give a column values of one type.",
        ),
    ],
)
def test_a_bad_json_line_is_named_with_its_cause(refused, put, line, why):
    for kind in ("number", "category"):
        given = put('{"a": 1}\n\n{"a": 2}\n' + line + '\n{"a": 4}\n', "data.jsonl")
        assert f"data.jsonl, line 4: {why}" in refused(given, {"a": kind})


def test_several_objects_in_a_json_line_and_objects_of_several_lines(read, refused, put):
    rows = '{"a": "1"}{"a": "2"} {"a":\n"3"}\n{"a": "4"}'
    assert read(put(rows, "data.jsonl"), {"a": "number"}) == {"a": [1.0, 2.0, 3.0, 4.0]}
    message = refused(put(rows + '{"a": "x"}', "data.jsonl"), {"a": "number"})
    assert "line 3, column 'a': 'x' is not a number" in message
    odd = '{"a": -NaN}\n{"a": 1.5}\n{"a": Inf}\n'  # which Arrow reads
    assert "line 3, column 'a': inf is infinite" in refused(put(odd, "d.jsonl"), {"a": "number"})


def test_a_nan_beside_whole_numbers_makes_floats_in_every_way_to_write_them(read, put):
    raw, floats = {"a": "category"}, {"a": [None, "1.0"]}
    assert read(put('{"a": NaN}\n{"a": 1}\n', "data.jsonl"), raw) == floats
    assert read(put('[{"a": NaN}, {"a": 1}]', "data.json"), raw) == floats
    assert read(put('{"a": [NaN, 1]}', "data.json"), raw) == floats
    assert read({"a": [float("nan"), 1]}, raw) == floats
    assert read(pd.DataFrame({"a": [float("nan"), 1]}), raw) == floats
    assert read({"a": [None, 1]}, raw) == {"a": [None, "1"]}
    assert read(put('[{"a": NaN}, {"a": "x"}]', "data.json"), raw) == {"a": [None, "x"]}


def test_numbers_of_json_beyond_the_largest_float(read, refused, put):
    floats = {"a": ["1.5", "inf", "-inf"]}
    lines = put('{"a": 1.5}\n{"a": Infinity}\n{"a": -Infinity}\n', "data.jsonl")
    assert read(lines, {"a": "category"}) == floats
    document = put('[{"a": 1.5}, {"a": Infinity}, {"a": -Infinity}]', "data.json")
    assert read(document, {"a": "category"}) == floats
    many = put('{"a": 1.5}\n{"a": ' + "1" * 400 + "}\n", "data.jsonl")
    assert "line 2, column 'a': inf is read as a float" in refused(many, {"a": "category"})
    large = put('[{"a": 1.5}, {"a": 1e400}]', "data.json")
    assert "data.json: 1e400 is beyond the largest float" in refused(large, {"a": "category"})
    large.write_text(large.read_text(), "utf-16")
    assert "data.json: 1e400 is beyond the largest float" in refused(large, {"a": "category"})
    large.write_text(f'[{{"a": {"[" * 2000 + "]" * 2000}}}]', "utf-16")
    assert "data.json: its values are nested 2002 levels deep" in refused(large, {"a": "category"})
    large.write_bytes('[{"a": 1, "b": "\ud800"}]'.encode("utf-16", "surrogatepass"))
    assert read(large, {"a": "number"}) == {"a": [1.0]}  # as json.loads reads it
    assert read(put('[{"a": 1.5}, {"a": 1e100}]', "data.json"), {"a": "number"})["a"][1] == 1e100


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": {"0": 1, "1": 2}, "b": {"0": "x"}}', "column 'b': not every column has a row '1'"),
        ('{"a": {"0": 1}, "b": {"2": "x"}}', "column 'b': not every column has a row"),
        ('{"a": [1, 2], "b": ["x"]}', "its columns differ in length"),
        ('[{"a": 1, "b": "x"}, {"a": "y", "b": "x"}]', "column 'a': "),
        ('[{"a": 1, "a": 2, "b": "x"}]', "'a' occurs more than once in an object"),
        ('{"a": [1], "a": [2], "b": ["x"]}', "'a' occurs more than once in an object"),
    ],
)
def test_bad_json_document(refused, put, text, why):
    message = refused(put(text, "rows.json"))
    assert why in message
    assert "rows.json" in message.split(":")[0]


def test_a_type_of_many_words_is_cut_short(refused, tmp_path):
    path = tmp_path / "wide.parquet"
    wide = pa.array([{f"key {number}": 1 for number in range(500)}])
    pq.write_table(pa.table({"a": wide, "b": ["x"]}), path)
    message = refused(path)
    assert "column 'a' has type struct<key 0: int64" in message
    assert len(message) < 400


def test_bad_feather(refused, tmp_path):
    path = tmp_path / "data.feather"
    pyarrow.feather.write_feather(pa.table({"a": list(range(1000))}), path)
    path.write_bytes(path.read_bytes()[:-100])
    assert "data.feather: not a whole Arrow IPC" in refused(path)


def test_files_that_are_of_another_kind_are_told_as_that(refused, tmp_path):
    table = pa.table({"a": [1.0], "b": ["x"]})
    pa.feather.write_feather(table, tmp_path / "wrong.parquet")
    pq.write_table(table, tmp_path / "wrong.feather")
    with pa.ipc.new_stream(tmp_path / "stream.arrow", table.schema) as stream:
        stream.write_table(table)
    for name, found in (
        ("wrong.parquet", "an Arrow IPC (feather) file, not Parquet. Give its format as feather"),
        ("wrong.feather", "a Parquet file, not Arrow IPC (feather). Give its format as parquet"),
        ("stream.arrow", "an Arrow stream, not Arrow IPC (feather). Turn it into csv or parquet"),
    ):
        assert f"{name}: this is {found}" in refused(tmp_path / name)
    assert "this is an Arrow stream, not text" in refused(tmp_path / "stream.arrow", format="csv")


def test_a_pattern_of_text_files_is_told_as_such(refused, put):
    path = put("a,b\n1,x\n")
    for pattern in ("*.csv", "d*.jsonl", "*.csv.gz"):
        message = refused(path.parent / pattern)
        ending = pattern.split(".")[1]
        assert f"a pattern of files is not read as {ending}, but as Parquet" in message


def test_bad_frames(refused):
    assert "differ in length" in refused({"a": [1, 2], "b": ["x"]})
    for row in ({"a": 1, "b": "x"}, {"b": "xy"}, {"b": b"xy"}):  # a text was a row for each letter
        message = refused(row, {name: AB[name] for name in row})
        assert "is one value. Give every column as a list" in message
    for column in ({0: 1, 1: 2}, {1, 2}):  # of which the keys were read, or rows in any order
        message = refused({"a": column, "b": ["x", "y"]})
        assert f"column 'a': a {type(column).__name__} is no list of rows' values" in message
    assert "from_pylist" in refused([{"a": 1, "b": "x"}])
    assert "column 'a'" in refused({"a": [1, "x"], "b": ["x", "y"]})
    assert "row 1, column 'a': 'x' is not a number" in refused({"a": ["1", "x"], "b": ["x", "y"]})
    assert "no rows" in refused({"a": [], "b": []})
    assert "no column 'b'" in refused({"a": [1.0]})
    assert "type int cannot be read" in refused(5)
    assert "format is given as 'csv'" in refused({"a": [1]}, format="csv")
    twice = pa.table([[1], [2], ["x"]], names=["a", "a", "b"])
    assert "more than once" in refused(twice)


def test_series_of_other_rows_are_not_paired_by_place(read, refused):
    """pandas pairs them by index, so a user who sorted or sampled one of them got wrong rows."""
    numbers, texts = pd.Series([1.0, 2.0], index=[4, 7]), pd.Series(["x", "y"], index=[7, 4])
    message = refused({"a": numbers, "b": texts})
    assert "columns 'a' and 'b' are Series with other indexes" in message
    rows = read({"a": numbers, "b": texts.to_list(), "c": texts}, AB)  # which is not asked for
    assert rows == read({"a": numbers, "b": pd.Series(["x", "y"], index=[4, 7])}, AB)


def test_no_column_asked_for(refused, put):
    assert "no column" in refused(put("a\n1\n"), {})


@pytest.mark.parametrize("name", ["data.jsonl", "data.json", "columns.json"])
def test_looking_at_json_with_a_column_of_several_types(read, refused, put, name):
    rows = [{"a": 1, "m": 1, "l": [1]}, {"a": 2, "m": "x", "l": []}, {"a": None, "b": True}]
    columns = {key: [row.get(key) for row in rows] for key in ("a", "m", "l", "b")}
    lines = "\n".join(map(json.dumps, rows))
    texts = {
        "data.jsonl": lines,
        "data.json": json.dumps(rows),
        "columns.json": json.dumps(columns),
    }
    path = put(texts[name], name)
    found = sample(path, 2)
    assert found.column_names == column_names(path) == list(columns)
    assert pa.types.is_union(found.schema.field("m").type)
    assert found.column("a").to_pylist() == [1, 2]
    assert found.column("l").to_pylist() == [[1], []]
    assert read(path, {"a": "number", "b": "category"})["b"] == [None, None, "True"]
    assert "'m'" in refused(path, {"m": "category"}) or "(/m)" in refused(path, {"m": "category"})
    large = put(texts[name].replace('"x"', "2").replace("1,", "1e400,", 1), name)
    with pytest.raises(DataError, match=r"1e400 is beyond|Number too big"):
        sample(large, 2)


def test_looking_refuses_the_same(put, tmp_path):
    for look in (lambda data: sample(data, 10), column_names):
        with pytest.raises(DataError, match="no such file"):
            look(tmp_path / "x.csv")
        with pytest.raises(DataError, match="empty"):
            look(put(""))
        with pytest.raises(DataError, match="line 2"):
            look(put("a,b\n1\n"))


def test_urls(refused, tmp_path):
    assert "no such file" in refused("memory://nowhere/data.csv")
    message = refused("nosuchprotocol://me:secret@x/data.csv?token=hush")
    assert "nosuchprotocol://x/data.csv" in message
    assert "cannot be fetched" in message
    assert "secret" not in message
    message = refused("http://me:secret@127.0.0.1:9/data.csv?token=hush")
    assert "hush" not in message
    assert "secret" not in message


def test_lines_of_a_file_that_unpacks_to_very_much_are_counted_in_part(tmp_path):
    """`init` of 658 bytes took 11 s, and of a megabyte hours."""
    path = tmp_path / "rows.csv.bz2"
    path.write_bytes(bz2.compress(b"\n" * 150_000_000, 1))
    with closing(Workplace(tmp_path)) as place:
        lines, size = unpacking.lines_of_first(path, 1 << 20, place)
        assert size == path.stat().st_size
        assert unpacking.COUNTED <= lines < 2 * unpacking.COUNTED
        path.write_bytes(bz2.compress(b"1\n" * 1_000_000))  # 66 bytes, and what any file may hold
        assert unpacking.lines_of_first(path, 1 << 20, place)[0] == 1_000_000


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress])
def test_what_follows_a_stream_is_not_copied_for_each(tmp_path, monkeypatch, pack):
    """Of many small streams, all that followed was: with the square of their number."""
    path, copied = tmp_path / "packed", []
    real = unpacking.Streams._packed

    def counting(self):
        found = real(self)
        copied.append(len(found))
        return found

    monkeypatch.setattr(unpacking.Streams, "_packed", counting)
    rows = [b"%d\n" % number * (number % 9 * 400) for number in range(200)]
    streams = [pack(each) + b"\0" * (at % 3 * 3000) for at, each in enumerate(rows)]
    path.write_bytes(b"".join(streams))
    kind = unpacking.compression_of(path)
    with unpacking._unpacker(kind, path) as file:
        found = list(iter(lambda: file.read(1 << 22), b""))
    assert b"".join(found) == b"".join(rows)
    assert sum(copied) < 20_000 * len(rows)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me@corp:pa/ss@host/f.csv", "https://host/f.csv"),
        ("ftp://me:p@ss/word@host/f.csv", "ftp://host/f.csv"),
        ("ftp://me:p@ss:1/word@host/f.csv", "ftp://host/f.csv"),
        ("https://me:p?w@host/f.csv?mail=a@b", "https://host/f.csv"),
        ("https://me:pw@host:80/f.csv", "https://host:80/f.csv"),
        ("https://me:p/w?x@host/f.csv", "https://host/f.csv"),
        ("s3://me:a/b#c@bucket/x", "s3://bucket/x"),
        ("ftp://me:a b/c@host/f.csv", "ftp://host/f.csv"),
        ("postgresql://me::pw@host/db", "postgresql://host/db"),
        ("http://[2001:db8::1]:8080/a@b.csv", "http://[2001:db8::1]:8080/a@b.csv"),
        ("hdfs://h1:1,h2:2/a@b", "hdfs://h1:1,h2:2/a@b"),
        ("https://me@host:80/f@2.csv", "https://host:80/f@2.csv"),
        ("https://host/f.csv#access_token=abc", "https://host/f.csv"),
        ("https://host:80/f@2.csv", "https://host:80/f@2.csv"),
        ("s3://bucket/a#b@c.csv", "s3://bucket/a#b@c.csv"),
        ("s3://arn:aws:s3:eu:1:accesspoint/x@y", "s3://arn:aws:s3:eu:1:accesspoint/x@y"),
        ("zip://a@b.csv::https://me:p/w@host/f", "zip://b.csv::https://host/f"),
        ("data/a@b#c.csv", "data/a@b#c.csv"),
    ],
)
def test_a_url_is_shown_without_what_may_be_secret(url, shown):
    assert without_secrets(url) == shown


def test_a_permission_is_told(refused, put):
    import os

    path = put("a,b\n1,x\n")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user reads everything")
    assert "may not be read" in refused(path)


def test_open_source_is_what_refuses(put):
    """Mistakes that the head shows are told before any row is read."""
    with pytest.raises(DataError):
        open_source(put("a,b,a\n1,x,2\n"), AB)


def test_a_missing_value_may_have_blanks_around_it_where_a_number_may(tmp_path):
    text = "a,b\n 1 , x\n NA , NA \n\t,y\n-2,z\n"
    (tmp_path / "data.csv").write_text(text)
    tables = [
        {"a": [" 1 ", " NA ", "\t", "-2"], "b": [" x", " NA ", "y", "z"]},
        str(tmp_path / "data.csv"),
    ]
    for table in tables:
        dataset = table if isinstance(table, str) else pa.table(table)
        [part] = open_source(dataset, {"a": "number", "b": "category"}).partitions(1 << 30)
        found = part.read()
        assert found.column("a").to_pylist() == [1.0, None, None, -2.0]
        assert found.column("b").to_pylist() == [
            " x",
            " NA ",
            "y",
            "z",
        ]  # a text with blanks is another text


# ------------------------------------------------------------------ made to harm


def test_a_gzip_that_unpacks_to_much_more_than_rows_do(put, tmp_path, monkeypatch):
    monkeypatch.setattr("distcore_data.sources.unpacking.UNSUSPICIOUS", 1 << 20)
    path = put(gzip.compress(b"x,y\n" + b"0,0\n" * (16 << 20)), "bomb.csv.gz")
    with pytest.raises(
        DataError, match=r"bomb\.csv\.gz: it unpacks to more than 200 times its size"
    ):
        open_source(path, {"x": "number"}, scratch=tmp_path / "scratch")
    assert list((tmp_path / "scratch").iterdir()) == []


def test_unpacking_stops_before_the_disk_is_full(put, tmp_path, monkeypatch):
    total = shutil.disk_usage(tmp_path).total
    monkeypatch.setattr("distcore_data.sources.fetch.KEPT_FREE", total)
    monkeypatch.setattr(
        "shutil.disk_usage",
        lambda folder: type("Usage", (), {"total": total, "free": total // 20})(),
    )
    path = put(gzip.compress(b"x\n" + b"1\n" * 100), "data.csv.gz")
    with pytest.raises(
        DataError, match=r"data\.csv\.gz: there is no room for it in .* free\. Make room"
    ):
        open_source(path, {"x": "number"}, scratch=tmp_path / "scratch")
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_json_that_is_nested_so_deeply_that_a_parser_would_crash(put, suffix, opening, closing):
    value = '{"x": 1, "s": "[[[\\"[[", "y": ' + opening * 300_000 + "1" + closing * 300_000 + "}"
    path = put((f"[{value}]" if suffix == "json" else value + "\n").encode(), f"deep.{suffix}")
    with pytest.raises(DataError, match=r"deep\.jsonl?: its values are nested 30000\d levels deep"):
        open_source(path, {"x": "number"})


def test_depth_without_a_compiler_is_the_same(monkeypatch):
    texts = [
        b"",
        b"1",
        b'{"a": [1, {"b": "]]}[\\"[[[{"}]}',
        b']]]{"a":[',
        b'"[[[',
        b"[]" * 9,
        b'{"s": "\\\\"}[[',
    ]
    found = [plaintext.deepest(text) for text in texts]
    monkeypatch.setattr(plaintext, "compiled", None)
    assert [plaintext.deepest(text) for text in texts] == found == [0, 0, 3, 2, 0, 1, 2]


@pytest.mark.parametrize("read", [False, True])
def test_what_the_system_says_of_a_packed_file_is_no_damage(put, monkeypatch, read):
    """It was told as damaged data, and a file that could not be opened as one of another name that
    is not there."""

    class Failing(io.BytesIO):
        def read(self, *_):
            raise OSError(errno.EIO, "no answer")

    def unpacker(kind, path):
        if read:
            return Failing()
        raise OSError(errno.EMFILE, "too many", str(path))

    path = put(gzip.compress(ROWS.encode()), "data.csv.gz")
    monkeypatch.setattr(unpacking, "_unpacker", unpacker)
    place = Workplace(None)
    with pytest.raises(OSError, match="no answer" if read else "too many"):
        unpacking.unpacked(path, "data.csv.gz", place)
    place.close()


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "csv.zst", "jsonl", "feather", "parquet"])
def test_a_name_that_is_not_utf8(tmp_path, suffix):
    path = os.path.join(tmp_path, os.fsdecode(b"caf\xe9." + suffix.encode()))
    table = pa.table({"x": [1.0, 2.0]})
    sink = pa.BufferOutputStream()
    if suffix == "jsonl":
        sink.write(b'{"x": 1.0}\n{"x": 2.0}\n')
    elif suffix in ("feather", "parquet"):
        (pa.feather.write_feather if suffix == "feather" else pa.parquet.write_table)(table, sink)
    else:
        pa.csv.write_csv(table, sink)
    content = sink.getvalue().to_pybytes()
    packed = {
        "csv.gz": gzip.compress,
        "csv.zst": lambda text: pa.compress(text, "zstd", asbytes=True),
    }
    with open(path, "wb") as file:
        file.write(packed.get(suffix, bytes)(content))
    source = open_source(path, {"x": "number"})
    assert [part.read().column("x").to_pylist() for part in source.partitions(1 << 20)] == [
        [1.0, 2.0]
    ]
    source.close()


def test_whole_numbers_that_a_float_does_not_tell_apart(refused, read, put):
    """Arrow reads JSON's whole numbers beyond 64 bits, and those beside a fraction, as floats: two
    keys became one category without a word."""
    lines = '{"a": 1, "b": 9007199254740993}\n' * 50
    far = '{"a": 1, "b": 3}\n' * 50 + '{"a": 1, "b": 99999999999999999999999999991}\n'
    message = refused(put(far, "data.jsonl"))
    assert "data.jsonl, line 51, column 'b': 1e+29 is read as a float" in message
    assert "Write the column as strings" in message
    assert "line 1, column 'b'" in refused(put(lines + '{"a": 1, "b": 0.5}\n', "data.jsonl"))
    assert set(read(put(lines, "data.jsonl"), AB)["b"]) == {"9007199254740993"}
    assert read(put(far, "data.jsonl"), {"b": "number"})["b"][-1] == 1e29


@pytest.mark.parametrize("value", [2**63, 10**29])
def test_whole_numbers_beyond_64_bits(refused, put, value):
    text = f'[{{"a": 1, "b": {value}}}]'
    for dataset in (put(text, "data.json"), {"a": [1], "b": [value]}):
        assert "column 'b': it holds a whole number beyond 64 bits" in refused(dataset)


DAY, TIME = dt.date(2024, 1, 5), dt.datetime(2024, 1, 5, 10)
UTC, AHEAD = dt.UTC, dt.timezone(dt.timedelta(hours=5))


@pytest.mark.parametrize(
    "values",
    [
        [None, DAY, TIME],
        [TIME, TIME.replace(tzinfo=AHEAD)],
        [TIME.replace(tzinfo=UTC), TIME.replace(tzinfo=AHEAD)],
    ],
)
@pytest.mark.parametrize("raw", ["category", "time"])
def test_times_of_several_kinds(refused, values, raw):
    """Arrow took them all for what the first one is: 10 o'clock was left out, or became 5."""
    for dataset in ({"a": values}, pd.DataFrame({"a": pd.Series(values, dtype=object)})):
        assert "column 'a': '2024-01-05" in refused(dataset, {"a": raw})


def test_times_of_one_kind_with_values_that_are_missing(read):
    for values in ([None, DAY], [pd.NaT, TIME], [pd.NaT, TIME.replace(tzinfo=AHEAD), None]):
        written = pd.DataFrame({"a": pd.Series(values, dtype=object)})
        expected = [None if pd.isna(each) else str(each) for each in values]
        for dataset in ({"a": values}, written):
            assert read(dataset, {"a": "category"}) == {"a": expected}


def test_half_a_character(refused):
    """Python's texts can hold one, as of a file read with errors="surrogateescape"; Arrow's
    cannot."""
    columns = {"a": [1, 2], "b": ["fine", "caf\udce9"]}
    for dataset in (columns, pd.DataFrame(columns), pd.DataFrame(columns).astype("category")):
        message = refused(dataset)
        assert "column 'b': 'caf\\udce9' has half of a character in it" in message
        assert "read it with the encoding" in message


def test_what_is_no_file(refused, put, tmp_path):
    """A pipe is gone after the first of several reads, or never begins."""
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/null")):
        assert "a pipe or a device" in refused(path)
    assert "Give --dataset -" in refused(pipe)
    (tmp_path / "round.csv").symlink_to("round.csv")
    assert "it cannot be opened (Too many levels" in refused(tmp_path / "round.csv")
    (tmp_path / "far.csv").symlink_to("away.csv")
    assert "far.csv: it is a link to away.csv, which is not there" in refused(tmp_path / "far.csv")
    assert "it cannot be opened (File name too long)" in refused(tmp_path / ("x" * 300))


def test_a_disk_that_fails(refused):
    """The system answers a read of the first byte here as it does for a broken disk."""
    assert "/proc/self/mem: the system cannot read it (Input/output error)" in refused(
        "/proc/self/mem"
    )
    with pytest.raises(DataError, match="mem: the system cannot read it"):
        DataFile.at("/proc/self/mem", "mem").read(0, 8)


WIDE = ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]


@pytest.mark.parametrize("encoding", WIDE)
def test_texts_of_two_and_four_bytes_a_character(read, refused, put, encoding):
    rows = {"a": [1.0, 2.0], "b": ["é", "y"]}
    text = put("a,b\n1,é\n2,y\n".encode(encoding), "data.csv")
    assert read(text, AB, options=DelimitedOptions(encoding=encoding)) == rows
    if encoding in ("utf-16", "utf-32"):  # with a mark
        assert read(text, AB) == rows
    else:
        assert f"set preprocessing.csv.encoding to {encoding};" in refused(text)
    lines = put('{"a": 1, "b": "é"}\n{"a": 2, "b": "y"}\n'.encode(encoding), "data.jsonl")
    message = refused(lines)
    assert f"this is {encoding.upper()} text" in message
    assert f"iconv -f {encoding} -t utf-8" in message
    with pytest.raises(DataError, match="JSON lines are read in UTF-8"):
        sample(lines, 1)
    document = '[{"a": 1, "b": "é"}, {"a": 2, "b": "y"}]'.encode(encoding)
    assert read(put(document, "data.json"), AB) == rows


def test_text_that_is_not_latin_may_be_utf_16(refused, put):
    assert "set preprocessing.csv.encoding to utf-16-le or utf-16-be" in refused(
        put("год,b\n1,x\n".encode("utf-16-le"))
    )


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstandard.compress])
def test_what_is_in_a_packed_file_without_an_ending_of_its_own(read, refused, put, tmp_path, pack):
    rows = {"a": [1.0, 2.0], "b": ["x", "y"]}
    table = pa.table(rows)
    pyarrow.feather.write_feather(table, tmp_path / "feather")
    pq.write_table(table, tmp_path / "parquet")
    lines = b'{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n'
    document = b'[{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]'
    feather = (tmp_path / "feather").read_bytes()
    for content in (b"a,b\n1,x\n2,y\n", b"a\tb\n1\tx\n2\ty\n", lines, document, feather):
        path = put(pack(content), "data.gz")
        assert read(path, AB) == rows
        assert column_names(path) == ["a", "b"]
    if pack is not bz2.compress:
        packed = put(pack((tmp_path / "parquet").read_bytes()), "data.gz")
        assert "file, not Parquet. Unpack it first." in refused(packed)
        assert "file, not text. Unpack it first." in refused(put(pack(pack(lines)), "data.csv.gz"))
    cut = put(pack(lines)[:-9], "data.gz")
    assert "damaged or cut short: of what is packed, " in refused(cut)


def test_archives_are_named(refused, put):
    rows = tarfile.TarInfo("rows.csv")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(rows)
    for name in ("data.tar.gz", "data.tgz", "data.csv.gz", "data.jsonl.gz", "data.json.gz"):
        message = refused(put(packed.getvalue(), name))
        assert f"{name}: this is a tar archive, not " in message
    for name in ("data.jsonl", "data.json"):
        assert "a zip archive (or an Excel workbook), not JSON" in refused(put(b"PK\3\4\0", name))


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, zstandard.compress])
def test_how_much_of_a_damaged_file_can_be_read_is_told(refused, put, pack):
    draw = random.Random(1)
    text = "a,b\n" + "".join(f"{draw.random()},v\n" for _ in range(300_000))
    packed = pack(text.encode())
    half = packed[: len(packed) // 2]
    found = re.search(r"packed, (\d+) bytes \((\d+) lines\) can be read", refused(put(half)))
    size, lines = map(int, found.groups())
    assert abs(size - len(text) / 2) < 1 << 20
    assert abs(lines - text[:size].count("\n")) < 100
    assert size % (1 << 22)


@pytest.mark.parametrize(
    "values",
    [["caf\udce9"], [1 << 70], [dt.date(2020, 1, 1), dt.datetime(2020, 1, 2, 3)], [1, "a"]],
)
def test_a_frame_made_of_a_file_is_called_by_its_name(values):
    """As a plugin's `TableFormat` may make one: the frame is none that the user gave."""
    frame = pd.DataFrame({"b": pd.Series(values, dtype=object)})
    with pytest.raises(DataError, match=r"^rows\.odd[:,]"):
        as_table(frame, shown="rows.odd")


@pytest.mark.parametrize(
    "text", ["a,b\n1,x\n1e400,y\n", "a,b\n1e400,y\n", "a,b\n1, x\n-1e400,null\n"]
)
def test_an_infinite_number_is_told_as_it_is_written(refused, put, monkeypatch, text):
    """As `inf` or as its spelling, by how the file was cut into ranges."""
    written = "-1e400" if "-" in text else "1e400"
    assert f"{written} is infinite" in refused(put(text))
    monkeypatch.setattr(plaintext, "compiled", None)
    assert f"{written} is infinite" in refused(put(text))
