"""The compiled reader gives what Arrow's reader gives, to the bit, or nothing."""

import dataclasses
import math
import random
import struct
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distcore_core.errors import DataError
from distcore_data.sources import plaintext
from distcore_data.sources.datafile import DataFile, State
from distcore_data.sources.delimited import BLOCK, DelimitedPartition
from distcore_data.sources.dialect import Dialect
from distcore_data.sources.registry import DelimitedOptions, open_source
from distcore_data.sources.values import TYPES

compiled = pytest.mark.skipif(
    plaintext.compiled is None, reason="distcore was installed without a C compiler"
)
EMPTY = DelimitedOptions(null_values=("",))
NOWHERE = DataFile("", "", State(0, 0, 0, 0), "")
RAW = (("x", "number"), ("c", "category"))
NAMES = ("skipped", "x", "c")


def read(text, raw=RAW, names=NAMES, delimiter=","):
    return plaintext.read(pa.py_buffer(text.encode()), delimiter, names, raw)


def by_arrow(text, raw=RAW, names=NAMES, delimiter=",", quote=""):
    """The columns as Arrow reads them, empty fields alone being null. Raises ArrowInvalid."""
    dialect = Dialect(delimiter, quote, names, 0, 0, b"\n")
    part = DelimitedPartition(NOWHERE, 0, len(text), BLOCK, dialect, raw, EMPTY)
    return part.parse(
        pa.py_buffer(text.encode()), {name: TYPES[kind] for name, kind in raw}, plain=True
    )


def numbers(texts):
    """Each text as a number, by itself in a column: its bits, or None if it is not plain."""
    found = [read(f"{text}\n", (("x", "number"),), ("x",)) for text in texts]
    return [None if batch is None else bits(batch.column("x")[0].as_py()) for batch in found]


def bits(value):
    return None if value is None else struct.pack("<d", value)


def same(batch, table):
    for name in batch.schema.names:
        left = batch.column(name)
        right = table.column(name).combine_chunks()
        if pa.types.is_dictionary(left.type):
            left.validate(full=True)
            used = set(left.indices.drop_null().to_pylist())
            assert used == set(range(len(left.dictionary)))
            assert left.to_pylist() == right.to_pylist()
        else:
            assert list(map(bits, left.to_pylist())) == list(map(bits, right.to_pylist()))


# ------------------------------------------------------------------ numbers


@compiled
@settings(max_examples=500, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
@example(-0.0)
@example(5e-324)
@example(2.2250738585072014e-308)
@example(1.7976931348623157e308)
@example(9007199254740993.0)
def test_what_python_prints_comes_back(value):
    texts = [repr(value), f"{value:.17e}", f"{value:.3f}", f"{value:E}"]
    for text, found in zip(texts, numbers(texts), strict=True):
        assert found in (bits(float(text)), None)
    if 1e-250 < abs(value) < 1e250:
        assert None not in numbers(texts[:1])


@compiled
@settings(max_examples=500, deadline=None)
@given(
    st.from_regex(r"-?[0-9]{0,22}(\.[0-9]{0,22})?([eE][+-]?[0-9]{1,3})?", fullmatch=True).filter(
        lambda text: text not in ("", "-", ".", "-.") and text.lstrip("-.")[:1] not in ("e", "E")
    )
)
@example("00000000000000000000001.5")
@example("0.00000000000000000000000012345678901234567")
@example("9999999999999999999")
@example("18446744073709551615")
def test_any_decimal_is_rounded_to_the_nearest_double(text):
    [found] = numbers([text])
    assert found in (bits(float(text)), None)
    try:
        table = by_arrow(f"{text}\n", (("x", "number"),), ("x",))
    except pa.ArrowInvalid:
        assert found is None
    else:
        assert found in (bits(table.column("x")[0].as_py()), None)


@compiled
def test_halves_go_to_the_even_double():
    """Decimals of at most 19 digits that lie exactly between two doubles, or next to such a
    place."""
    dice = random.Random(5)
    texts = []
    for _ in range(50_000):
        exponent = dice.randrange(1, 10)
        middle = (2 * dice.randrange(1 << 52, 1 << 53) + 1) << exponent >> 1
        scale = dice.randrange(0, 4)
        texts += [str(middle + each) for each in (-1, 0, 1)]
        texts.append(f"{middle * 5**scale}e-{scale}" if middle * 5**scale < 10**19 else str(middle))
        small = 2 * dice.randrange(1 << 52, 1 << 53) + 1
        texts.append(f"{small}.5" if len(str(small)) < 19 else str(small))
    assert_correct(texts)


def assert_correct(texts):
    """A column of these numbers, against Python's own reading."""
    batch = read("\n".join(texts), (("x", "number"),), ("x",))
    expected = np.array([float(text) for text in texts])
    assert np.array_equal(np.asarray(batch.column("x")).view(np.int64), expected.view(np.int64))


@compiled
def test_a_million_doubles_of_every_size():
    dice = np.random.default_rng(8)
    values = dice.integers(0, 1 << 63, 200_000, dtype=np.uint64).view(np.float64)
    values = values[np.isfinite(values) & (np.abs(values) > 1e-285) & (np.abs(values) < 1e285)]
    for spell in (repr, "{:.18e}".format, "{:.14e}".format, "{:.9g}".format):
        assert_correct([spell(float(value)) for value in values])


@compiled
@pytest.mark.parametrize(
    "text",
    [
        "+1",
        " 1",
        "1 ",
        "nan",
        "inf",
        "-inf",
        "1e",
        "1e+",
        "--1",
        "-",
        ".",
        "1.2.3",
        "0x10",
        "1_0",
        "1e400",
        "1e-400",
    ],
)
def test_what_is_not_plain_is_left_to_arrow(text):
    assert numbers([text]) == [None]


@compiled
def test_twenty_digits_are_left_to_arrow():
    assert (
        numbers(["12345678901234567890", "0.12345678901234567890", "1d5", "True", "1,2"])
        == [None] * 5
    )


def test_the_powers_are_the_top_bits_of_powers_of_five():
    words = struct.unpack("=1192Q", plaintext.powers())
    for index, power in enumerate(range(plaintext.LOWEST, plaintext.HIGHEST + 1)):
        top = words[2 * index] << 64 | words[2 * index + 1]
        assert top.bit_length() == 128
        exact = Fraction(5) ** power / Fraction(2) ** (math.floor(math.log2(5) * power) - 127)
        assert 0 <= exact - top < 1 if power >= 0 else 0 < top - exact <= 1


# ------------------------------------------------------------------ rows

FIELD = st.one_of(
    st.sampled_from(
        [
            "",
            "a",
            "longer than eight bytes",
            "c0_0001",
            "é",
            "中文",
            "NA",
            " x ",
            "\x00",
            "12345678",
        ]
    ),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**20), 10**20).map(str),
)


@compiled
@settings(max_examples=300, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            FIELD,
            st.floats(-1e9, 1e9, allow_subnormal=False).map(lambda value: repr(round(value, 9)))
            | st.just(""),
            FIELD,
        ),
        max_size=40,
    ),
    end=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    delimiter=st.sampled_from(sorted(plaintext.DELIMITERS)),
)
def test_regular_rows_are_read_as_by_arrow(rows, end, last, delimiter):
    text = end.join(delimiter.join(row) for row in rows) + (end if last else "")
    batch = read(text, delimiter=delimiter)
    assert batch is not None
    if rows:
        same(batch, by_arrow(text, delimiter=delimiter))


@compiled
@settings(max_examples=1000, deadline=None)
@given(st.text(st.sampled_from("01.-+eE,,,\n\n\r aé"), max_size=60))
@example("1,2,a\n\n\n3,4,b\n")
@example("1,2,a\r\n\r\n3,4,b")
@example("1,2,a\r3,4,b")
@example("1,2,a\n3,4\n")
@example("1,2,a\n3,4,5,6\n")
@example("\r")
def test_any_text_is_read_as_by_arrow_or_not_at_all(text):
    batch = read(text)
    if batch is not None and batch.num_rows:
        same(batch, by_arrow(text))


fields = st.text(alphabet="a\"',;\né\r ", max_size=5)
written = st.one_of(
    fields.map(lambda text: '"' + text.replace('"', '""') + '"'),
    st.sampled_from(["", "a", "ab", " a", "é"]),
    fields,
)


@compiled
@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.tuples(written, st.sampled_from(["1", "-2.5", "", '"1"']), written), max_size=4),
    st.sampled_from(["\n", "\r\n"]),
)
def test_any_quotes(rows, newline):
    text = newline.join(",".join(row) for row in rows) + newline
    batch = plaintext.read(pa.py_buffer(text.encode()), ",", NAMES, RAW, '"')
    if batch is not None and batch.num_rows:
        same(batch, by_arrow(text, quote='"'))


@compiled
def test_texts_in_quotes():
    text = '"x,y",1,"a""b"\n,2,a\n"",,"a"\n3,"a\r\nb\n"\n'.replace("3,", ",3,")
    batch = plaintext.read(pa.py_buffer(text.encode()), ",", NAMES, RAW, '"')
    assert batch.column("c").to_pylist() == ['a"b', "a", "a", "a\r\nb\n"]
    assert batch.column("x").to_pylist() == [1.0, 2.0, None, 3.0]
    same(batch, by_arrow(text, quote='"'))
    for other in ('"a,1,b\n', 'a"b,1,c\n', '"a"b,1,c\n', 'a,"1",c\n', 'a,1,"c\n'):
        assert plaintext.read(pa.py_buffer(other.encode()), ",", NAMES, RAW, '"') is None


@compiled
def test_many_and_long_texts(tmp_path):
    dice = random.Random(2)
    texts = ["v" * dice.randrange(0, 40) + str(dice.randrange(30_000)) for _ in range(60_000)]
    text = "".join(f"{each},{row / 7},{each[::-1]}\n" for row, each in enumerate(texts))
    raw = (("skipped", "category"), ("c", "category"), ("x", "number"))
    batch = read(text, raw)
    assert batch.schema.names == ["skipped", "c", "x"]
    same(batch, by_arrow(text, raw))


@compiled
def test_buffers_that_do_not_fit_are_refused():
    text, powers = b"1\n2\n3\n", plaintext.powers()

    def rows(kinds, room, values, *starts, powers=powers):
        places = struct.pack(f"={len(starts)}q", *starts)
        return plaintext.compiled.rows(text, 44, kinds, powers, room, values, places)

    for size, *starts in ((31, 0), (40, 16), (40, -8), (40, 48), (40, 4), (40,), (80, 0, 40)):
        with pytest.raises(ValueError, match="no room"):
            rows(b"\1", 4, bytearray(size), *starts)
    with pytest.raises(ValueError, match="powers"):
        rows(b"\1", 4, bytearray(32), 0, powers=powers[:-16])
    with pytest.raises(TypeError, match="read-write"):
        rows(b"\1", 4, bytes(32), 0)
    # Room for fewer rows than there are: the file was written to meanwhile.
    assert rows(b"\1", 2, bytearray(16), 0) is None
    values = bytearray(40)
    assert rows(b"\1", 4, values, 8) == (3, [(0, None)])
    assert struct.unpack("<5d", values) == (0, 1, 2, 3, 0)


@compiled
def test_a_column_without_gaps_has_no_validity_and_others_have_a_bit_a_row():
    text = "".join(
        f"{row if row % 3 else ''},{row},{'c' if row % 5 else ''}\n" for row in range(99)
    )
    raw = (("a", "number"), ("b", "number"), ("c", "category"))
    batch = read(text, raw, ("a", "b", "c"))
    same(batch, by_arrow(text, raw, ("a", "b", "c")))
    assert [column.null_count for column in batch.columns] == [33, 0, 20]
    assert [column.buffers()[0] is None for column in batch.columns] == [False, True, False]


# ------------------------------------------------------------------ as part of a source


@pytest.fixture
def reads(monkeypatch):
    """What the compiled reader was given, and whether it took it."""
    seen = []
    real = plaintext.read

    def spy(text, *arguments):
        batch = real(text, *arguments)
        seen.append(batch is not None)
        return batch

    monkeypatch.setattr(plaintext, "read", spy)
    return seen


def partition(tmp_path, text, raw=None):
    (tmp_path / "data.csv").write_bytes(text)
    [part] = open_source(
        str(tmp_path / "data.csv"), raw or {"x": "number", "c": "category"}
    ).partitions(1 << 30)
    return part


HEAD = b"x,c\n" + b"".join(b"%d.5,value %d\n" % (row, row % 9) for row in range(10_000))


@compiled
@pytest.mark.parametrize(
    ("row", "taken"),
    [
        (b"1,a", True),
        (b",", True),
        (b"1,NA", True),
        (b"nan,a", False),
        (b"True,a", False),
        (b" 1,a", False),
        (b'1,"a"', True),
        (b'1,"a,b\n""c"""', True),
        (b'1,"NA"', True),
        (b'1,""', True),
        (b'1,""""', True),
        (b'"1",a', False),
        (b'1,"a" ', False),
        (b'1,a"b', False),
    ],
)
def test_a_source_gives_the_same_with_and_without(tmp_path, reads, monkeypatch, row, taken):
    part = partition(tmp_path, HEAD + row + b"\n")
    found = part.read()
    assert reads == [taken]
    assert found.equals(dataclasses.replace(part, plain=False).read())
    monkeypatch.setattr(plaintext, "compiled", None)
    assert found.equals(part.read())


@pytest.mark.parametrize("quote", list("5-.e|'"))
def test_any_quote_means_the_same_with_and_without(tmp_path, monkeypatch, quote):
    """Also one that could begin a number."""
    rows = ["55,b", "1,d", "-5,a", ".5,e", "2,'a,b'", "2,5a5", "2,|a,b|", "7,-a-"]
    for row in rows:
        (tmp_path / "data.csv").write_text(f"x,c\n1,a\n{row}\n3,c\n")

        def outcome():
            options = DelimitedOptions(delimiter=",", quote=quote)
            try:
                [part] = open_source(
                    str(tmp_path / "data.csv"), dict(RAW), options=options
                ).partitions(1 << 30)
                return part.read().to_pydict()
            except DataError as error:
                return str(error)

        found = outcome()
        with monkeypatch.context() as without:
            without.setattr(plaintext, "compiled", None)
            assert outcome() == found


@compiled
def test_texts_are_left_to_arrow(tmp_path, reads):
    partition(tmp_path, HEAD, {"x": "number", "c": "string"}).read()
    assert not reads
