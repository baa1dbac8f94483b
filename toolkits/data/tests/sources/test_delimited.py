"""Delimited text: what is read, how it is cut, and that every cut gives the same rows."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import os
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from distcore_core.errors import DataError
from distcore_data.sources import plaintext, ranges, records
from distcore_data.sources.options import NULL_VALUES
from distcore_data.sources.registry import DelimitedOptions, open_source

AB = {"a": "number", "b": "category"}
SIZES = [1, 7, 1 << 24]


def write(folder, text, name="data.csv", encoding="utf-8"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return path


@pytest.mark.parametrize("target", SIZES)
def test_types_missing_values_and_order(read, tmp_path, target):
    path = write(tmp_path, "b,c,a\nx,1,1.5\nNA,2,\ny,3,nan\n,4,-2e3\nx,5,7\n")
    source = open_source(path, {"a": "number", "b": "category", "c": "string"})
    batch = source.partitions(target)[0].read()
    assert batch.schema.types == [pa.float64(), pa.dictionary(pa.int32(), pa.utf8()), pa.utf8()]
    assert read(path, {"a": "number", "b": "category", "c": "string"}, target) == {
        "a": [1.5, None, None, -2000.0, 7.0],
        "b": ["x", None, "y", None, "x"],
        "c": ["1", "2", "3", "4", "5"],
    }


@pytest.mark.parametrize("target", SIZES)
@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,x\n2,y",
        "a,b\r\n1,x\r\n2,y\r\n",
        "a,b\r1,x\r2,y\r",
        "a,b\n\n1,x\n\n\n2,y\n\n",
        '"a","b"\n"1","x"\n"2","y"\n',
        "\ufeffa,b\n1,x\n2,y\n",
        '\ufeff"a",b\n1,"x"\n2,y\n',
        "a;b\n1;x\n2;y\n",
        "a|b\n1|x\n2|y\n",
        "a\tb\n1\tx\n2\ty\n",
        'a,b,note\n1,x,hello; you; there\n2,y,"1,2,3"\n',
        'note;a;b\n"1,5";1;x\n"2,5";2;y\n',
        "'a','b'\n'1','x'\n'2','y'\n",
    ],
    ids=[
        "end",
        "CRLF",
        "CR",
        "blank",
        "quoted",
        "BOM",
        "BOM and quote",
        "semicolon",
        "pipe",
        "tab",
        "comma",
        "decimal",
        "apostrophe",
    ],
)
def test_spellings_of_one_table(read, tmp_path, text, target):
    assert read(write(tmp_path, text), AB, target) == {"a": [1.0, 2.0], "b": ["x", "y"]}


def test_apostrophes_are_no_quotes(read, tmp_path):
    path = write(tmp_path, "a,b\n1,'tis\n2,rock 'n' roll\n3,o'clock\n")
    assert read(path, AB)["b"] == ["'tis", "rock 'n' roll", "o'clock"]


@pytest.mark.parametrize(
    "text",
    ["b,a\n'em,1\nthem',2\n'em,3\nthem',4\n", "b,a\n'twas,1\nx,2\nthe boys',3\ny,4\n"],
    ids=["in each pair of rows", "first and last"],
)
def test_apostrophes_of_two_rows_hold_no_rows_between_them(read, tmp_path, text):
    rows = [line.split(",")[0] for line in text.splitlines()[1:]]
    assert read(write(tmp_path, text), AB) == {"a": [1.0, 2.0, 3.0, 4.0], "b": rows}


def test_header_with_spaces_is_kept_as_it_is(read, tmp_path):
    path = write(tmp_path, "a name, b\n1,x\n")
    assert read(path, {"a name": "number", " b": "string"}) == {"a name": [1.0], " b": ["x"]}


def test_one_column_of_prose(read, tmp_path):
    path = write(tmp_path, "text\nhello there\nwell, yes\nno\n")
    with pytest.raises(Exception, match="line 3"):
        read(path, {"text": "string"})
    quoted = write(tmp_path, 'text\nhello there\n"well, yes"\nno\n')
    assert read(quoted, {"text": "string"})["text"] == ["hello there", "well, yes", "no"]


def test_given_delimiter_and_quote_win(read, tmp_path):
    path = write(tmp_path, "a,b:c\n1,'2:3'\n", "x.csv")
    options = DelimitedOptions(delimiter=":", quote="'")
    assert read(path, {"a,b": "string"}, options=options) == {"a,b": ["1,'2"]}
    inches = write(tmp_path, 'a,b\n1,"5\n2,6"\n')
    assert read(inches, AB, 1, options=DelimitedOptions(quote=""))["b"] == ['"5', '6"']


def test_a_delimiter_is_no_quote(read, tmp_path):
    path = write(tmp_path, "a,b\n1,2\n,d\n")
    with pytest.raises(DataError, match="',' is both"):
        read(path, AB, options=DelimitedOptions(delimiter=",", quote=","))
    # Python's own csv refuses both as one from 3.13 on, also where they are only tried.
    path = write(tmp_path, "a;b\n1;,x;y,\n2;z\n")
    assert read(path, AB, options=DelimitedOptions(quote=","))["b"] == ["x;y", "z"]


@pytest.mark.parametrize("target", SIZES)
def test_a_mark_in_the_middle_belongs_to_its_text(read, tmp_path, monkeypatch, target):
    """As it is there after `cat a.csv b.csv`. Arrow drops one where a range begins."""
    path = write(tmp_path, "a,b\n1,\ufeffx\n2,x\n", "1.csv")
    assert read(path, AB, target)["b"] == ["\ufeffx", "x"]
    first = write(tmp_path, 'b,a\nx,1\n\ufeffx,2\n\ufeff"y",3\n', "2.csv")
    expected = ["x", "\ufeffx", '\ufeff"y"']
    assert read(first, AB, target)["b"] == expected
    number = write(tmp_path, "a,b\n1,x\n\ufeff2,x\n", "3.csv")
    with pytest.raises(DataError, match="line 3"):
        read(number, AB, target)
    monkeypatch.setattr(plaintext, "compiled", None)
    assert read(first, AB, target)["b"] == expected
    with pytest.raises(DataError, match="line 3"):
        read(number, AB, target)


def test_null_values_can_be_chosen(read, tmp_path):
    path = write(tmp_path, "a,b\n?,NA\n1,?\n")
    assert read(path, AB, options=DelimitedOptions(null_values=("?",))) == {
        "a": [None, 1.0],
        "b": ["NA", None],
    }


def test_null_values_are_those_of_pandas():
    parsers = pytest.importorskip("pandas._libs.parsers")
    assert set(NULL_VALUES) == parsers.STR_NA_VALUES


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstandard.compress])
@pytest.mark.parametrize("name", ["data.csv.gz", "data"])
def test_packed_text_and_scratch_is_cleaned(read, tmp_path, pack, name):
    path = write(tmp_path, pack(b"a,b\n1,x\n2,y\n"), name)
    scratch = tmp_path / "scratch"
    assert read(path, AB, scratch=scratch) == {"a": [1.0, 2.0], "b": ["x", "y"]}
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    "encoding", ["latin-1", "cp1252", "utf-16-le", "utf-16", "utf-8-sig", "ascii"]
)
def test_other_encodings(read, tmp_path, encoding):
    word = "cafe" if encoding == "ascii" else "café"
    path = write(tmp_path, f"a,b\n1,{word}\n", encoding=encoding)
    assert read(path, AB, options=DelimitedOptions(encoding=encoding))["b"] == [word]


def test_utf16_is_found_by_its_mark(read, tmp_path):
    assert read(write(tmp_path, "a,b\n1,né\n", encoding="utf-16"), AB)["b"] == ["né"]


def test_true_and_false_are_numbers_as_in_a_frame(read, tmp_path):
    assert read(write(tmp_path, "a,b\nTrue,x\nFalse,y\n,z\n"), AB)["a"] == [1.0, 0.0, None]


def test_a_line_longer_than_a_block(read, tmp_path):
    long = "x" * (5 << 20)
    path = write(tmp_path, f"a,b\n1,{long}\n2,y\n")
    assert [len(value) for value in read(path, AB, 1 << 16)["b"]] == [5 << 20, 1]


def test_quotes_inside_plain_fields_do_not_shift_the_cuts(read, tmp_path):
    """5" opens nothing; the rows behind it, with newlines in quotes, are still cut at their
    ends."""
    rows = [('5" pipe', "x"), ("two\nlines", 'q"q'), ('12"', "z"), ("a,b\n\nc", "w")] * 50
    text = "a,b\n" + "".join(
        (f"{left}," if "\n" not in left else f'"{left}",')
        + (right + "\n" if '"' not in right else '"q""q"\n')
        for left, right in rows
    )
    path = write(tmp_path, text)
    for target in (1, 50, 1000, 1 << 24):
        assert read(path, {"a": "string", "b": "string"}, target) == {
            "a": [left for left, _ in rows],
            "b": [right for _, right in rows],
        }


FIELD = st.text(st.sampled_from("ab\"',;\n\r\té中 😀"), max_size=8)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(st.tuples(FIELD, FIELD, st.none() | FINITE), min_size=1, max_size=30),
    target=st.integers(1, 200),
    stripe=st.sampled_from([1, 2, 3, 16, 64, 1 << 18]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_any_partition_size_gives_the_original_table(
    read, tmp_path, monkeypatch, rows, target, stripe, quoting, end
):
    """Whatever Python's csv module writes comes back, in order, however it is cut."""
    monkeypatch.setattr(ranges, "STRIPE", stripe)
    monkeypatch.setattr(ranges, "SEGMENT", 3)
    if (
        end == "\n"
    ):  # Python's writer leaves a lone \r unquoted then, and every reader ends the line there
        rows = [
            (left.replace("\r", ""), right.replace("\r", ""), number)
            for left, right, number in rows
        ]
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=quoting, lineterminator=end)
    writer.writerow(["left", "right", "n"])
    writer.writerows(
        (left, right, "" if number is None else repr(number)) for left, right, number in rows
    )
    path = write(tmp_path, text.getvalue())
    options = DelimitedOptions(delimiter=",", quote='"', null_values=("",))
    raw = {"n": "number", "left": "string", "right": "category"}
    expected = {
        "n": [number for *_, number in rows],
        "left": [left or None for left, _, _ in rows],
        "right": [right or None for _, right, _ in rows],
    }
    assert read(path, raw, options=options) == expected
    assert read(path, raw, target, options=options) == expected


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    text=st.text(st.sampled_from('ab",\n'), max_size=60),
    target=st.integers(1, 40),
    stripe=st.sampled_from([1, 3, 16]),
)
@example(text=',""a', target=1, stripe=1)
def test_any_text_is_cut_between_records(tmp_path, monkeypatch, text, target, stripe):
    """However odd the quotes: either the scan says it cannot tell, or each cut is where a walked
    record ends."""
    monkeypatch.setattr(ranges, "SEGMENT", 3)
    content = ("a,b\n" + text).encode()
    path = write(tmp_path, content)
    monkeypatch.setattr(ranges, "STRIPE", 1 << 18)
    whole = ranges.scan(path, 0, ",", '"')
    monkeypatch.setattr(ranges, "STRIPE", stripe)
    found = ranges.scan(path, 0, ",", '"')
    assert (found.regular, found.unclosed) == (whole.regular, whole.unclosed)
    ends = {match.end() for match in records._walk(content, 0, ",", '"')}
    if found.regular and found.unclosed is None:
        assert set(ranges.cuts(path, 4, target, b"\n", found, '"')[1:]) <= ends
    offsets, unclosed = records.walked_cuts(path, 4, target, ",", '"')
    assert set(offsets[1:]) <= ends
    if found.regular:
        assert (unclosed is None) == (found.unclosed is None)


def test_partitions_are_small_and_read_in_threads(tmp_path):
    path = write(tmp_path, "a,b\n" + "".join(f"{row},v{row % 7}\n" for row in range(50_000)))
    source = open_source(path, AB)
    parts = source.partitions(1 << 14)
    assert len(parts) > 20
    import pickle

    assert max(len(pickle.dumps(part)) for part in parts) < 2000
    with ThreadPoolExecutor(4) as pool:
        batches = list(pool.map(lambda part: part.read(), parts))
    assert [value for batch in batches for value in batch.column("a").to_pylist()] == list(
        range(50_000)
    )


def test_digest_is_of_the_content(digest, tmp_path):
    text = "a,b\n" + "1,x\n" * 1000
    path = write(tmp_path, text)
    before = digest(path, AB)
    path.touch()
    assert digest(path, AB) == before
    assert digest(write(tmp_path, text, "renamed.txt"), AB) == before
    assert digest(write(tmp_path, text[:-2] + "y\n", "other.csv"), AB) != before
    assert digest(path, AB, options=DelimitedOptions(null_values=("x",))) != before


def test_a_file_that_changes_under_us_is_noticed(tmp_path):
    path = write(tmp_path, "a,b\n1,x\n")
    part = open_source(path, AB).partitions(1000)[0]
    path.write_text("a,b\n1,x\n2,y\n")
    with pytest.raises(Exception, match="changed while"):
        part.read()


def test_a_long_text_in_quotes_is_gone_over_once(tmp_path, monkeypatch):
    """Each cut that was wanted inside of it went over what was left of it."""
    monkeypatch.setattr(ranges, "PIECE", 16)
    content = b'a,b\n"' + b"line\n" * 400 + b'",1\n'
    path = write(tmp_path, content)
    found = ranges.scan(path, 0, ",", '"')
    reads = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda *place: reads.append(place) or pread(*place))
    assert ranges.cuts(path, 4, 16, b"\n", found, '"') == [4, len(content)]
    assert len(reads) <= len(content) // 16 + 2
