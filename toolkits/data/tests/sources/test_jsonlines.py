"""The compiled reader of JSON lines gives what Arrow's gives, to the bit, and the same errors."""

import itertools
import json
import random

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distcore_core.errors import DataError
from distcore_data.sources import jsonlines, plaintext
from distcore_data.sources.datafile import DataFile
from distcore_data.sources.jsonlines import JsonPartition, column_types
from distcore_data.sources.options import DelimitedOptions
from distcore_data.sources.registry import open_source, sample

compiled = pytest.mark.skipif(
    plaintext.compiled is None, reason="distcore was installed without a C compiler"
)
NUMBERS = ["0", "7", "-1", "-0", "12.50", "-0.0", "1e5", "1E-5", "0.1234567890123456789", "9" * 15]
NUMBERS += [
    "9" * 17,
    "9" * 30,
    "1e999",
    "01",
    "1.",
    ".5",
    "+1",
    "5.e3",
    "NaN",
    "-",
    "1e400",
    "-7e-9",
    "0.5e3",
    "1.5E+3",
    "00.5",
    "-0.25",
    "123456.789",
    "0." + "3" * 29,
    "0." + "3" * 30,
]
TEXTS = [
    '"a"',
    '""',
    '"NA"',
    '"é ☃"',
    '"a\\n"',
    '"\\u00e9"',
    '"12"',
    '"2020-01-01"',
    '"' + "x" * 40,
]
WORDS = ["null", "true", "false", "nul", "[1]", '{"a": 1}', "{}", "", "1 2"]
KEYS = ["x", "c", "other", "é", ""]
ALIKE = ["x", "xx", "eightabc", "eightabcd", "eightabce", 'x"', "x\\", "x\t"]
"""Keys that begin alike; a reader of plain text meets none of the last three."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("lines")


def outcome(path, raw, compile_, target=1 << 24):
    """Types and rows as they are read with or without the compiled reader, or the error."""
    before = plaintext.compiled
    plaintext.compiled = before if compile_ else None
    try:
        file = DataFile.at(path, "data.jsonl")
        types = column_types(file, 0, raw)
        source = open_source(str(path), raw, format="jsonl")
        rows = [
            {name: list(map(repr, batch.column(name).to_pylist())) for name in raw}
            for batch in (part.read() for part in source.partitions(target))
        ]
        source.close()
        return list(types.items()), rows
    except DataError as error:
        return str(error)
    finally:
        plaintext.compiled = before


def same(folder, text, raw, target=1 << 24):
    path = folder / "data.jsonl"
    path.write_bytes(text)
    assert outcome(path, raw, True, target) == outcome(path, raw, False, target)


usual = st.sampled_from(["1", "2.5", "null", '"a"', '"b"'])
odd = st.sampled_from([*NUMBERS, *TEXTS, '"broken', *WORDS])
blank = st.sampled_from(["", " ", "  ", "\t", " \r"])


@st.composite
def objects(draw, values):
    pairs = draw(st.lists(st.tuples(st.sampled_from(KEYS), values), max_size=4))
    space = draw(blank)
    inside = f"{space},{space}".join(f'"{key}"{space}:{space}{value}' for key, value in pairs)
    return f"{{{space}{inside}{space}}}"


columns = st.sampled_from([{"x": "number"}, {"x": "category"}, {"c": "category", "x": "string"}])


@compiled
@settings(max_examples=600, deadline=None)
@given(
    lines=st.lists(st.one_of(objects(usual), objects(odd), blank), min_size=1, max_size=5),
    end=st.sampled_from(["\n", "\r\n", "\n\n"]),
    raw=columns,
)
@example(lines=['{"x": 1}{"x": 2}'], end="\n", raw={"x": "number"})
@example(lines=['{"x": 1, "x": 2}'], end="\n", raw={"x": "number"})
@example(lines=['{"x": 1,}'], end="\n", raw={"x": "number"})
@example(lines=['{"x": 1', "}"], end="\n", raw={"x": "number"})
@example(lines=['{"x": 1} x'], end="\n", raw={"x": "number"})
def test_any_lines(folder, lines, end, raw):
    same(folder, end.join(lines).encode(), raw)


@compiled
@settings(max_examples=200, deadline=None)
@given(number=st.sampled_from(NUMBERS), before=st.sampled_from(["1", "1.5", "null", '"a"']))
def test_any_number_in_any_column(folder, number, before):
    for raw, behind in itertools.product(("number", "category"), ("", f', "y": "{"long" * 10}"')):
        same(folder, f'{{"x": {before}}}\n{{"x": {number}{behind}}}\n'.encode(), {"x": raw})


@compiled
@settings(max_examples=300, deadline=None)
@given(
    rows=st.lists(
        st.dictionaries(st.sampled_from(ALIKE), st.integers(0, 9)), min_size=1, max_size=5
    ),
    wanted=st.sets(st.sampled_from(ALIKE), min_size=1),
    escaped=st.booleans(),
)
@example(rows=[{"x": 1, 'x"': 2}], wanted={'x"'}, escaped=False)
@example(rows=[{"x": 1}, {"xx": 1, "x": 2}], wanted={"x", "xx"}, escaped=True)
def test_keys_that_begin_alike(folder, rows, wanted, escaped):
    lines = [
        json.dumps(row)
        if escaped
        else "{" + ", ".join(f'"{key}": {value}' for key, value in row.items()) + "}"
        for row in rows
    ]
    same(folder, "\n".join(lines).encode(), dict.fromkeys(wanted, "number"))


@compiled
@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40), st.booleans())
def test_any_bytes(folder, inside, quoted):
    value = b'"' + inside + b'"' if quoted else inside
    same(folder, b'{"x": 1, "c": ' + value + b'}\n{"x": 2}\n', {"x": "number"})
    same(folder, b'{"x": 1, "c": ' + value + b'}\n{"x": 2}\n', {"c": "category"})
    same(folder, b'{"x": 1, "' + inside + b'": 3}\n', {"x": "number"})


@compiled
def test_types_that_differ_between_ranges(folder, monkeypatch):
    monkeypatch.setattr(jsonlines, "TYPING_BYTES", 100)
    one, two = '{"x": 1, "c": "a"}\n' * 20, '{"c": "b", "x": 2.5, "new": true}\n' * 20
    same(folder, (one + two).encode(), {"x": "number", "c": "category"}, 100)
    same(folder, (two + one).encode(), {"x": "category", "new": "category"}, 100)
    three = '{"x": "text", "c": "a"}\n' * 20
    same(folder, (one + three + "{broken\n").encode(), {"c": "category"}, 100)
    same(folder, (one + "{broken\n" + three).encode(), {"c": "category"}, 100)


@compiled
def test_many_rows_of_many_keys_in_any_order(folder, monkeypatch):
    dice = random.Random(3)
    names = [f"k{place}" for place in range(40)]
    lines = []
    for row in range(3000):
        dice.shuffle(names)
        values = {
            name: dice.choice([dice.gauss(0, 1e6), None, f"v{row % 700}", row])
            if name in ("k1", "k2")
            else dice.gauss(0, 1) * 10.0 ** dice.randrange(-30, 30)
            for name in names[: dice.randrange(30, 41)]
        }
        values |= {name: f"{name} {dice.randrange(900)}" for name in ("k1", "k2") if name in values}
        lines.append(json.dumps(values))
    raw = {name: "category" if name in ("k1", "k2") else "number" for name in names}
    same(folder, "\n".join(lines).encode(), raw, 1 << 18)


@compiled
def test_usual_lines_are_taken_and_others_left(folder):
    raw = (("x", "number"), ("c", "category"), ("n", "category"))
    types = {"x": pa.float64(), "c": pa.string(), "n": pa.int64()}

    def taken(line, raw=raw):
        return plaintext.read_json(pa.py_buffer(line), types, raw) is not None

    assert taken(b'{"x": 1.5, "c": "\xc3\xa9", "n": -7, "other": false}\n\n {"c": null}\r\n')
    assert taken(b"{}\n")
    assert not taken(b"\n")
    for line in (b'{"c": "\\n"}', b'{"c": "\xff"}', b'{"n": 1.5}', b'{"x": "1"}', b'{"y": [1]}'):
        assert not taken(line), line
    assert not taken(b'{"x": 1.5}', (("x", "string"),))
    assert plaintext.json_types(pa.py_buffer(b'{"x": 1, "c": "a"}\n{"x": 1.5, "b": null}\n')) == {
        "x": pa.float64(),
        "c": pa.string(),
        "b": pa.null(),
    }
    for line in (b'{"x": 1.5e3, "y": "0123456789012345678"}', b'{"x": 1}\n{"xx": 1}'):
        assert plaintext.json_types(pa.py_buffer(line)) is not None, line
    for line in (b'{"c": "\xff"}', b'{"x": 1}\n{"x": "1"}', b'{"x": 1}\n{"x": true}', b"[1]"):
        assert plaintext.json_types(pa.py_buffer(line)) is None


@compiled
def test_a_partition_is_read_by_it(folder, monkeypatch):
    path = folder / "data.jsonl"
    path.write_text('{"x": 1, "c": "NA"}\n{"x": 2.5, "c": "a"}\n')
    monkeypatch.setattr(jsonlines, "parse", None)
    types = (("x", pa.float64()), ("c", pa.string()))
    raw = (("x", "number"), ("c", "category"))
    file = DataFile.at(path, "data.jsonl")
    batch = JsonPartition(file, 0, path.stat().st_size, types, raw, DelimitedOptions()).read()
    assert batch.to_pydict() == {"x": [1.0, 2.5], "c": [None, "a"]}


@pytest.mark.parametrize("target", [12, 1 << 24])
@pytest.mark.parametrize("text", ["null\n", "\n\t null\n%s", "%s%snull\n%s", "%s null \r\n%s"])
def test_a_line_of_null_is_refused_wherever_a_range_begins(folder, text, target, monkeypatch):
    """Arrow's reader ends the process with a signal where it comes first."""
    monkeypatch.setattr(jsonlines, "TYPING_BYTES", target)
    path = folder / "data.jsonl"
    path.write_text(text.replace("%s", '{"x": 1}\n'))
    number = path.read_text().partition("null")[0].count("\n") + 1
    expected = (
        f"data.jsonl, line {number}: not a JSON object (it is not an object). Give one object a "
        "line."
    )
    assert outcome(path, {"x": "number"}, True, target).endswith(expected)
    assert outcome(path, {"x": "number"}, False, target).endswith(expected)


@compiled
def test_many_keys_in_another_order_are_left_to_arrow(folder):
    """Looking for each of them among all would take longer."""
    names = [f"k{place}" for place in range(2000)]
    raw = tuple((name, "number") for name in names)
    types = dict.fromkeys(names, pa.int64())
    for order, taken in ((names, True), (names[::-1], False)):
        text = (json.dumps(dict.fromkeys(order, 1)) + "\n") * 3
        found = plaintext.read_json(pa.py_buffer(text.encode()), types, raw)
        assert (found is not None) is taken
        same(folder, text.encode(), {"k7": "number", "k1999": "category"})


@compiled
def test_names_that_do_not_fit_are_refused():
    text = b'{"a": 1}\n'

    def objects(text, names, kinds, room):
        values, starts = bytearray(8 * room), bytes(8)
        return plaintext.compiled.objects(
            text, names, kinds, plaintext.powers(), room, values, starts
        )

    with pytest.raises(IndexError):
        objects(text, [], b"\1", 2)
    with pytest.raises(TypeError):
        objects(text, ["a"], b"\1", 2)
    with pytest.raises(ValueError, match="not wanted"):
        objects(text, [b"a"], b"\0", 2)

    # Room for fewer rows than there are: the file was written to meanwhile.
    assert objects(text * 2, [b"a"], b"\1", 1) is None
    assert objects(b'{"a"": 1}', [b'a"'], b"\1", 1) is None


# ------------------------------------------------------------------ keys that vary from row to row


@pytest.fixture(params=["compiled", "Python"])
def few_places(request, monkeypatch):
    """Tables of more than 200 places are scattered ones, and Arrow is to find no types of them."""
    monkeypatch.setattr(plaintext, "MOST_PLACES", 200)
    if request.param == "Python":
        monkeypatch.setattr(plaintext, "compiled", None)
    parse = jsonlines.parse

    def with_types(file, start, stop, schema, text):
        assert schema is not None or stop - start < 1000
        return parse(file, start, stop, schema, text)

    monkeypatch.setattr(jsonlines, "parse", with_types)


@pytest.mark.parametrize("other", ["1", '{"a": [{"x": "\\n"}]}'])
def test_keys_that_vary_make_no_table_of_all_of_them(tmp_path, few_places, other):
    path = tmp_path / "varied.jsonl"
    rows = [f'{{"a": "v{row}", "n": {row}, "k{row}": {other}, "e": "\\n"}}' for row in range(60)]
    path.write_text("\n".join([*rows, '{"n": 0.5}', ""]))
    wanted = {"a": "category", "n": "number", "e": "string"}
    parts = open_source(path, wanted).partitions(1 << 20)
    table = pa.Table.from_batches([each.read() for each in parts])
    assert table["a"].to_pylist() == [*(f"v{row}" for row in range(60)), None]
    assert table["n"].to_pylist() == [*map(float, range(60)), 0.5]
    assert table["e"].to_pylist() == [*["\n"] * 60, None]
    assert sample(path, 100).column("a").to_pylist()[0] == "v0"


def test_errors_where_keys_vary(tmp_path, few_places):
    path = tmp_path / "varied.jsonl"
    rows = [f'{{"a": "\\n", "k{row}": 1}}' for row in range(60)]
    path.write_text("\n".join([*rows, '{"a": 1}']))
    with pytest.raises(DataError, match=r"the columns 'a' one holds .* between lines 1 and 61"):
        open_source(path, {"a": "category"})
    path.write_text("\n".join([*rows, '{"a": ', *rows]))
    with pytest.raises(DataError, match="line 61: not a JSON object"):
        open_source(path, {"a": "category"})


JSON = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('ab":{}[],\\é'), max_size=6),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(st.text(st.sampled_from('ab":{}\\é'), max_size=4), inside, max_size=3)
    ),
    max_leaves=8,
)


@compiled
@given(
    st.lists(st.dictionaries(st.text(st.sampled_from('ab":{}\\é'), max_size=9), JSON, max_size=9)),
    st.integers(0, 12),
    st.booleans(),
)
@settings(max_examples=100)
def test_names_are_those_of_the_outermost_objects(rows, most, ascii_only):
    text = "\n".join(json.dumps(row, ensure_ascii=ascii_only) for row in rows).encode()
    names = {name for row in rows for name in row}
    assert plaintext.compiled.names(text, most) == min(len(names), most + 1)
    for end in range(len(text)):
        assert plaintext.compiled.names(text[:end], most) <= most + 1
