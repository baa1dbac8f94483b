"""The fast way of reading, which expects no null spelling but the empty text, gives what the
full one gives."""

import dataclasses

import pytest

from distcore_core.errors import DataError
from distcore_data.sources.options import NULL_VALUES
from distcore_data.sources.registry import DelimitedOptions, open_source

RAW = {"x": "number", "c": "category"}
ROWS = "".join(f"{row}.5,value {row % 9}\n" for row in range(20_000))


def partition(tmp_path, text, raw=RAW, **options):
    (tmp_path / "data.csv").write_text("x,c\n" + text)
    [found] = open_source(
        str(tmp_path / "data.csv"), raw, options=DelimitedOptions(**options)
    ).partitions(1 << 30)
    return found


def slowly(part):
    return dataclasses.replace(part, plain=False).read()


@pytest.mark.parametrize(
    "row", ["NA,a", "nan,a", "NaN,NaN", "1,NULL", ",", "1,None", '"","NA"', "n/a,n/a"]
)
def test_a_spelling_behind_the_lines_that_were_looked_at_is_missing_all_the_same(tmp_path, row):
    part = partition(tmp_path, ROWS + row + "\n")
    assert part.plain
    found = part.read()
    assert found.equals(slowly(part))
    assert found.column("x").null_count + found.column("c").null_count >= 1


def test_a_file_whose_first_lines_hold_a_spelling_is_read_the_full_way_at_once(tmp_path):
    part = partition(tmp_path, "1,NA\n" + ROWS)
    assert not part.plain
    assert part.read().column("c").null_count == 1


def test_a_text_that_only_holds_a_spelling_is_a_value(tmp_path):
    part = partition(tmp_path, ROWS + "1,NA NA\n1,nano\n")
    assert part.plain
    assert part.read().column("c").to_pylist()[-2:] == ["NA NA", "nano"]


@pytest.mark.parametrize(
    ("raw", "nulls"),
    [
        ({"x": "number", "c": "string"}, NULL_VALUES),
        (RAW, ("", "NA", "-999")),
        (RAW, ("", "inf", "NA")),
        (RAW, ("NA", "null", "none")),
    ],
)
def test_where_it_could_not_be_told_the_full_way_is_taken(tmp_path, raw, nulls):
    part = partition(tmp_path, ROWS, raw, null_values=nulls)
    assert not part.plain


def test_bytes_that_are_no_utf8_are_found_in_the_distinct_values(tmp_path):
    (tmp_path / "data.csv").write_bytes(b"x,c\n" + ROWS.encode() + b"1,caf\xe9\n")
    [part] = open_source(str(tmp_path / "data.csv"), RAW).partitions(1 << 30)
    assert part.plain
    with pytest.raises(DataError, match=r"line 20002.*UTF-8"):
        part.read()
