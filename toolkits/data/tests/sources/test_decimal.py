"""Numbers with decimal commas are the numbers with points, to the bit, by every way of reading."""

import gzip
import json
import struct

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from distcore_core.errors import DataError
from distcore_data.preprocess_options import Delimited, Preprocessing
from distcore_data.sources.options import NULL_VALUES
from distcore_data.sources.registry import DelimitedOptions, open_source, sample
from distcore_data.sources.values import typed

COMMA = DelimitedOptions(decimal=",")
RAW = {"x": "number", "c": "category", "s": "string"}
NUMBERS = ["3.14", "-0.1", "1e-3", "2.5E+7", "7", ".5", "6.", "", "NA", "nan", " 1.25 ", "True"]
TEXTS = ["1,5", "3.14", "a", "", "b,c", "NA", "é", "v1.2", ",", ".", "1,5", "a"]
WRITTEN = {
    "plain": "x;c;s\n" + "".join(f"{x};{c};{c}\n" for x, c in zip(NUMBERS, TEXTS, strict=True)),
    "quoted": '"x";"c";"s"\n'
    + "".join(f'"{x}";"{c}";"{c}"\n' for x, c in zip(NUMBERS, TEXTS, strict=True)),
    "fast": "x;c;s\n" + "".join(f"{row}.{row % 97:02};{row % 9}.5;t\n" for row in range(5_000)),
    "late": "x;c;s\n" + "1.5;a;b\n" * 20_000 + "NA;a;b\nTrue;a;b\n",
}


def pair(folder, text, name="data.csv", make=str.encode):
    """The file with points, and the same with commas in its first column."""
    head, *rows = text.splitlines(keepends=True)
    fields = [row.split(";", 1) for row in rows]
    commas = "".join([head, *(f"{x.replace('.', ',')};{rest}" for x, rest in fields)])
    assert commas != text
    found = folder / name, folder / f"comma_{name}"
    for path, each in zip(found, (text, commas), strict=True):
        path.write_bytes(make(each))
    return found


def bits(found):
    """Values and the very bits of the numbers."""
    exact = [None if each is None else struct.pack("d", each) for each in found["x"]]
    return {**found, "x": exact}


@pytest.mark.parametrize("target", [1, 50, 1 << 24])
@pytest.mark.parametrize("raw", [RAW, {"x": "number", "c": "category"}, {"x": "number"}])
@pytest.mark.parametrize("kind", list(WRITTEN))
def test_the_same_bits_as_with_points(read, tmp_path, kind, raw, target):
    target = max(target, len(WRITTEN[kind]) // 20)
    points, commas = pair(tmp_path, WRITTEN[kind])
    assert bits(read(commas, raw, target, options=COMMA)) == bits(read(points, raw, target))


@pytest.mark.parametrize(
    ("name", "make", "encoding"),
    [
        ("data.csv", lambda text: text.encode("latin-1"), "latin-1"),
        ("data.csv", lambda text: text.encode("utf-16"), None),
        ("data.csv.gz", lambda text: gzip.compress(text.encode()), None),
        ("data.csv", lambda text: text.replace("\n", "\r\n").encode(), None),
        ("data.tsv", lambda text: text.replace(";", "\t").encode(), None),
    ],
)
def test_encoded_packed_and_otherwise_delimited(read, tmp_path, name, make, encoding):
    points, commas = pair(tmp_path, WRITTEN["plain"], name, make)
    found = read(commas, RAW, options=DelimitedOptions(encoding=encoding, decimal=","))
    assert bits(found) == bits(read(points, RAW, options=DelimitedOptions(encoding=encoding)))


@settings(deadline=None)
@given(
    st.from_regex(r"[+-]?[0-9]{0,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,2})?", fullmatch=True),
    st.sampled_from([1, 2_000]),
)
def test_any_number_as_text(text, rows):
    """As frames and JSON have them: one by one, and beside a text that is no number."""

    def number(text, options):
        values = pa.array([text, "True", *["1"] * rows])
        try:
            return typed(values, "number", "x", options, str)[0].as_py()
        except DataError:
            return "refused"

    assert number(text.replace(".", ","), COMMA) == number(text, DelimitedOptions())


def test_numbers_as_texts_in_every_format_and_typed_numbers_are_themselves(read, tmp_path):
    texts = ["3,14", "NA", "-0,5", "7"]
    table = pa.table({"x": texts, "typed": [0.5, None, 1.25, 3.0]})
    pq.write_table(table, tmp_path / "data.parquet")
    pa.feather.write_feather(table, str(tmp_path / "data.feather"))
    lines = "".join(f"{json.dumps(row)}\n" for row in table.to_pylist())
    (tmp_path / "data.jsonl").write_text(lines)
    (tmp_path / "data.json").write_text(json.dumps(table.to_pylist()))
    for each in ("parquet", "feather", "jsonl", "json"):
        path = tmp_path / f"data.{each}"
        assert read(path, dict.fromkeys(table.column_names, "number"), options=COMMA) == {
            "x": [3.14, None, -0.5, 7.0],
            "typed": [0.5, None, 1.25, 3.0],
        }
        with pytest.raises(DataError, match=r"'3,14' is not a number.*preprocessing.csv.decimal"):
            read(path, {"x": "number"})
    assert read(table.to_pandas(), {"x": "number"}, options=COMMA)["x"][0] == 3.14
    assert read(table, {"x": "category"}, options=COMMA)["x"] == ["3,14", None, "-0,5", "7"]


@pytest.mark.parametrize("value", ["3.14", "1.234,5", "1,234,5", "3,x", ",", "0,1.", "1.000"])
@pytest.mark.parametrize("text", ["x;c\n1;a\n{};b\n", 'x;c\n1,5;a\n"{}";b\n'])
def test_what_is_no_number_with_commas_is_told_by_its_line(read, tmp_path, value, text):
    path = tmp_path / "data.csv"
    path.write_text(text.format(value))
    with pytest.raises(DataError, match=f"data.csv, line 3, column 'x': '{value}' is not a number"):
        read(path, {"x": "number", "c": "category"}, options=COMMA)


@pytest.mark.parametrize(
    ("value", "decimal", "said"),
    [
        ("3,14", ".", "set preprocessing.csv.decimal: ','"),
        ("1.5", ",", "set preprocessing.csv.dec"),
    ],
)
def test_the_error_names_the_option(read, tmp_path, value, decimal, said):
    (tmp_path / "data.csv").write_text(f"x;c\n1;a\n{value};b\n")
    with pytest.raises(DataError) as error:
        read(tmp_path / "data.csv", {"x": "number"}, options=DelimitedOptions(decimal=decimal))
    assert f"line 3, column 'x': '{value}' is not a number" in str(error.value)
    assert said in str(error.value)


@pytest.mark.parametrize("value", ["1,234,5", "a,b", "1_0", "a"])
def test_the_error_names_it_only_where_it_helps(read, tmp_path, value):
    (tmp_path / "data.csv").write_text(f"x;c\n1;a\n{value};b\n")
    with pytest.raises(DataError, match="is not a number") as error:
        read(tmp_path / "data.csv", {"x": "number"})
    assert "decimal" not in str(error.value)


def test_infinity_is_told_as_such(read, tmp_path):
    (tmp_path / "data.csv").write_text("x;c\n1,5;a\n1,5e999;b\n")
    with pytest.raises(DataError, match=r"line 3, column 'x': .*infinite"):
        read(tmp_path / "data.csv", {"x": "number"}, options=COMMA)


def test_a_null_spelling_with_a_comma_is_missing(read, tmp_path):
    text = "x;c\n" + "1,5;a\n" * 30_000 + "-9,99;b\n2,5;c\n"
    (tmp_path / "data.csv").write_text(text)
    options = DelimitedOptions(null_values=("", "NA", "-9,99"), decimal=",")
    found = read(tmp_path / "data.csv", {"x": "number", "c": "category"}, options=options)
    assert found["x"][-3:] == [1.5, None, 2.5]


def test_the_sign_is_never_taken_for_the_delimiter(read, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("größe, m;höhe, m\n1,5;2,5\n3,5;4,5\n")
    raw = {"größe, m": "number", "höhe, m": "number"}
    assert read(path, raw, options=COMMA) == {"größe, m": [1.5, 3.5], "höhe, m": [2.5, 4.5]}
    path.write_text("x\n1,5\n'2,5'\n")
    assert read(path, {"x": "category"}, options=COMMA)["x"] == ["1,5", "'2,5'"]
    path.write_text("x\n'1,5'\n'2,5'\n")
    assert read(path, {"x": "number"}, options=COMMA)["x"] == [1.5, 2.5]


def test_a_file_that_only_commas_separate_is_refused(read, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text('x,y\n"1,5","2,5"\n')
    with pytest.raises(DataError, match=r"data.csv: ',' separates .* preprocessing.csv.decimal"):
        read(path, {"x": "number"}, options=COMMA)


@pytest.mark.parametrize("other", ["delimiter", "quote"])
def test_one_character_for_two_things_is_refused(other):
    with pytest.raises(ValidationError, match=f"{other} and decimal are both ','"):
        Delimited.model_validate({other: ",", "decimal": ","})


@pytest.mark.parametrize("value", ["", "x", ",,", "٫", None, 1])
def test_it_is_a_point_or_a_comma(value):
    with pytest.raises(ValidationError, match="decimal"):
        Delimited.model_validate({"decimal": value})


def test_digests_say_it_only_where_it_is_given(digest, tmp_path):
    """Without it, and with a point, they are those of before there was such an option."""
    frame = pd.DataFrame({"x": ["1", "2"], "c": ["a", "b"]})
    frame.to_csv(tmp_path / "data.csv", index=False, sep=";")
    frame.to_json(tmp_path / "data.jsonl", orient="records", lines=True)
    frame.to_json(tmp_path / "data.json", orient="records")
    before = {
        "data.csv": "d13ad387f2ce36aba418324caeb0b248",
        "data.jsonl": "fd329c5d83af6b3731326d30860847ec",
        "data.json": "2347e27ef6e102101280644057f2e384",
        "frame": "9ccacf75496926c9229aaba0474fe5b4",
    }
    for name, expected in before.items():
        data = frame if name == "frame" else tmp_path / name
        raw = {"x": "number", "c": "category"}
        assert digest(data, raw) == expected
        assert digest(data, raw, options=DelimitedOptions(decimal=".")) == expected
        assert digest(data, raw, options=COMMA) != expected


def test_the_section_says_it_only_where_it_is_given():
    dumped = Preprocessing().model_dump(mode="json")
    assert dumped["csv"] == dict.fromkeys(("delimiter", "quote", "encoding", "null_values"))
    assert Preprocessing.model_validate({"csv": {"decimal": "."}}).model_dump(mode="json") == dumped
    given = Preprocessing.model_validate({"csv": {"decimal": ","}})
    assert given.model_dump(mode="json")["csv"]["decimal"] == ","
    assert given.delimited() == COMMA
    assert given.delimited().null_values == NULL_VALUES


def test_a_sample_sees_numbers(tmp_path):
    (tmp_path / "data.csv").write_text("x;c\n1,5;a\n2;b,c\n")
    found = sample(tmp_path / "data.csv", 10, options=COMMA)
    assert found.to_pydict() == {"x": [1.5, 2.0], "c": ["a", "b,c"]}


def test_the_fast_reader_is_not_asked(tmp_path, monkeypatch):
    """It reads points only."""
    (tmp_path / "data.csv").write_text("x;c\n1,5;a\n")
    monkeypatch.setattr("distcore_data.sources.plaintext.read", None)
    [part] = open_source(tmp_path / "data.csv", {"x": "number"}, options=COMMA).partitions(1 << 20)
    assert part.read().column("x").to_pylist() == [1.5]
