"""JSON from outside is bounded and refused in words; of a sealed document no bit changes unseen."""

import json
import math
import os
import random
import time
import tracemalloc

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore_core.errors import UserError
from distcore_data import json_text, seals
from distcore_data.arrow_list import ArrowList
from distcore_data.json_text import MAPPINGS_AT_ONCE, in_line, indented
from distcore_data.seals import (
    MOST_CONTAINERS,
    MOST_DEPTH,
    append,
    parse_json,
    read_bounded,
    read_sealed,
    refuse_link,
    sealed,
    unsealed,
)
from distcore_data.sources import plaintext

DOCUMENT = {
    "name": "Ærø",
    "odd": "caf\udce9.csv",
    "numbers": [1, -2.5, 1e-300, 0],
    "inner": {"b": None, "a": True},
}


@pytest.mark.parametrize("line", [False, True])
def test_what_was_sealed_comes_back_and_is_plain_json(line):
    content = sealed(DOCUMENT, line=line)
    assert unsealed(content) == DOCUMENT
    assert list(unsealed(content)) == list(DOCUMENT)
    assert next(iter(json.loads(content))) == "digest"
    assert (content.count(b"\n") == 1) == line


@pytest.mark.parametrize("line", [False, True])
def test_no_bit_of_a_sealed_document_changes_unseen(line):
    content = sealed(DOCUMENT, line=line)
    for bit in range(8 * len(content)):
        other = bytearray(content)
        other[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"^it"):
            unsealed(bytes(other))
    for end in range(len(content)):
        with pytest.raises(ValueError, match=r"^it"):
            unsealed(content[:end])


def test_equal_documents_have_equal_bytes_if_keys_are_sorted():
    other = dict(reversed(DOCUMENT.items()))
    assert sealed(other, sort_keys=True) == sealed(DOCUMENT, sort_keys=True)
    assert sealed(other) != sealed(DOCUMENT)


@pytest.mark.parametrize("document", [{}, {"a": float("nan")}, {"a": "x" * 1000}])
def test_what_could_not_be_read_back_is_not_sealed(document):
    with pytest.raises(ValueError, match=r"nothing to seal|not JSON compliant|are read back"):
        sealed(document, most_bytes=1000)


REFUSED = {
    "deep lists": ("[" * 100_000 + "]" * 100_000, "nested deeper"),
    "deep mappings": ('{"a":' * 5000 + "1" + "}" * 5000, "nested deeper"),
    "a little too deep": ("[" * (MOST_DEPTH + 2) + "]" * (MOST_DEPTH + 2), "nested deeper"),
    "many": ("[" + "[]," * (MOST_CONTAINERS + 1) + "[]]", "lists and mappings"),
    "a long integer": ("1" * 4000, "4000 digits"),
    "a longer integer": ("1" * 1_000_000, "1000000 digits"),
    "a large number": ("1e999", "too large"),
    "not a number": ("[NaN]", "NaN"),
    "infinity": ("[-Infinity]", "-Infinity"),
    "a key twice": ('{"a": 1, "b": 2, "a": 3}', "'a' twice"),
    "nothing": ("", "no JSON"),
    "two values": ("1 2", "line 1, column 3"),
    "no UTF-8": (b'"\xff"', "byte 1 is not UTF-8"),
    "large": ('"' + "x" * (65 << 20) + '"', "are read"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_outside_json_is_refused_in_words(name):
    content, said = REFUSED[name]
    with pytest.raises(ValueError, match=said):
        parse_json(content)


@pytest.mark.usefixtures("in_a_minute")
def test_a_key_twice_among_many_is_found_at_once():
    text = "{" + ",".join(f'"{key}": 0' for key in range(200_000)) + ', "199999": 1}'
    with pytest.raises(ValueError, match="'199999' twice"):
        parse_json(text)


def test_what_is_within_the_bounds_is_read():
    text = json.dumps({"a": ["[" * (MOST_CONTAINERS + 1), 2**64, 1e308]})
    assert parse_json(text) == json.loads(text)
    assert parse_json("[" * (MOST_DEPTH + 1) + "]" * (MOST_DEPTH + 1))
    assert parse_json(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}
    assert parse_json("[NaN]", finite=False) != [0]
    assert parse_json("3") == 3


def test_a_short_document_is_not_searched_for_its_depth(monkeypatch):
    looked = []
    monkeypatch.setattr(seals, "_check_depth", looked.append)
    for count in (MOST_DEPTH, MOST_DEPTH + 1):
        assert parse_json("[" * count + "]" * count)
    assert len(looked) == 1
    assert parse_json(json.dumps("[" * (MOST_DEPTH + 1)))  # a text has no depth
    assert len(looked) == 1


@pytest.mark.parametrize("end", [b"", b"\\"])
def test_strings_that_do_not_end_are_looked_at_once(end, monkeypatch):
    """44 s where each escaped quote began another search to the end; a megabyte took hours."""
    begun = time.process_time()
    quotes = b'"' + b'\\"' * 500_000 + end
    with pytest.raises(ValueError, match="lists and mappings"):
        parse_json(b"[" * (MOST_CONTAINERS + 1) + quotes)
    monkeypatch.setattr(plaintext, "compiled", None)
    assert not plaintext.is_scattered(quotes)
    assert plaintext.deepest(b"[[]" + quotes) == 2
    assert time.process_time() - begun < 10


def test_names_of_json_are_told_from_other_strings(monkeypatch):
    monkeypatch.setattr(plaintext, "compiled", None)
    monkeypatch.setattr(plaintext, "MOST_PLACES", 8)
    few = b'{"a": ", \\": [", "b" :"a:", "c":[":", "d"]}\n{"a": 1}\n'  # 3 names, 3 lines
    assert plaintext.is_scattered(few)
    assert not plaintext.is_scattered(few.replace(b'"c"', b'"a"'))


def test_mutated_json_gives_a_value_or_a_sentence():
    source, content, said = random.Random(1), json.dumps(DOCUMENT).encode(), set()
    for _ in range(3000):
        other = bytearray(content)
        for _ in range(source.randint(1, 4)):
            other[source.randrange(len(other))] = source.choice(b'{}[]",:0e9-nN\\u\xff')
        try:
            parse_json(bytes(other))
        except ValueError as error:
            said.add(str(error))
    assert said
    assert all(each.startswith(("it ", "byte ")) for each in said)


def test_an_empty_hole_of_ten_gigabytes_takes_no_memory(tmp_path):
    path = tmp_path / "large.json"
    path.touch()
    with path.open("r+b") as file:
        file.truncate(10 << 30)
    tracemalloc.start()
    with pytest.raises(ValueError, match="are read"):
        read_bounded(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_a_large_document_is_sealed_in_little_more_memory_than_it_has_bytes():
    document = {"labels": [f"label {number}" for number in range(200_000)]}
    tracemalloc.start()
    size = len(sealed(document))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size > 3 << 20
    assert peak < 1.6 * size + (1 << 20)


def test_a_damaged_file_is_named_with_what_to_do(tmp_path):
    path = tmp_path / "description.json"
    path.write_bytes(sealed(DOCUMENT).replace(b"-2.5", b"-2.6"))
    with pytest.raises(
        UserError, match=r"description\.json is damaged, .*own digest\)\. Do that\."
    ):
        read_sealed(path, "Do that.")
    path.write_bytes(b'{"a": 1}')
    with pytest.raises(UserError, match=r"description\.json is damaged"):
        read_sealed(path, "Do that.")
    with pytest.raises(FileNotFoundError):
        read_sealed(tmp_path / "missing", "Do that.")


def some_json(dice, depth=0):
    """Any JSON, with keys and texts that need escapes."""
    texts = ["", "a", 'say "no"', "line\nline", "\\", "Ærø", "\u2028", "\x00", "{[", "caf\udce9"]
    texts += ["\x7f", "\xa0", "a, b", "𝄞", "},\n  {"]
    plain = [None, True, False, 0, -7, 10**30, 0.1, -1e-300, 1e22, *texts]
    kind = dice.randrange(10) if depth < 6 else 5
    size = dice.choice([0, 1, 2, 5])
    if kind == 0:
        return {dice.choice(texts): some_json(dice, depth + 1) for _ in range(size)}
    if kind == 1:
        return [some_json(dice, depth + 1) for _ in range(size)]
    if kind == 2:
        return tuple(dice.choice(plain) for _ in range(size))
    if kind == 6:  # of one type, as a vocabulary
        some = dice.sample(texts, 3)
        return [dice.choice(some) for _ in range(size)]
    if kind == 7:
        return [dice.choice([0, 1, -7, 10**30]) for _ in range(size)]
    if kind > 7:  # mappings of plain values, as the metadata of many numbers
        some = [
            {dice.choice(texts): dice.choice(plain) for _ in range(dice.choice([0, 1, 3]))}
            for _ in range(size)
        ]
        return (
            some
            if kind == 8
            else {f"{dice.choice(texts)}{at}": each for at, each in enumerate(some)}
        )
    return dice.choice(plain) if kind > 3 else [dice.choice(plain) for _ in range(size)]


@pytest.mark.parametrize("sort_keys", [False, True])
def test_what_is_sealed_is_spelt_as_json_spells_it_with_an_indent(sort_keys):
    dice = random.Random(8)
    for _ in range(500):
        document = {"first": some_json(dice), "second": some_json(dice), "3": some_json(dice)}
        expected = json.dumps(document, indent=1, sort_keys=sort_keys, ensure_ascii=False)
        seal, _, rest = sealed(document, sort_keys=sort_keys).partition(b",")
        assert seal.startswith(b'{\n "digest": "')
        assert rest == expected[1:].encode("utf-8", "backslashreplace") + b"\n"


def test_more_mappings_than_are_encoded_at_once():
    some = [{"name": f"x{at}", "width": 1} for at in range(2 * MAPPINGS_AT_ONCE + 1)]
    document = {"columns": some, "metadata": {each["name"]: each for each in some}}
    assert "".join(indented(document, False)) == json.dumps(document, indent=1)


@given(st.lists(st.text()) | st.lists(st.integers(-(2**63), 2**63 - 1)), st.integers(1, 5))
@settings(deadline=None)
def test_what_arrow_holds_is_written_as_the_list_that_it_is(values, size):
    kind = pa.int64() if values and isinstance(values[0], int) else pa.utf8()
    packed = ArrowList(pa.array(["before", *values][1:], kind))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "OF_ARROW_AT_ONCE", size)
        for document in ({"a": packed, "b": [packed]}, packed):
            plain = {"a": values, "b": [values]} if document is not packed else values
            assert "".join(indented(document, True)) == json.dumps(
                plain, indent=1, ensure_ascii=False
            )
            assert in_line(document, True) == json.dumps(plain, ensure_ascii=False)


@pytest.mark.parametrize("value", [math.nan, [math.inf], {1, 2}, [b"x"], [[object()]]])
def test_what_is_no_json_is_not_sealed(value):
    with pytest.raises((TypeError, ValueError)):
        sealed({"value": value})


@pytest.mark.parametrize("number", ["1" * 41, "-" + "1" * 40, "9" * 5000])
def test_numbers_of_too_many_digits_are_refused(number):
    with pytest.raises(ValueError, match=f"a number of {len(number)} digits"):
        parse_json(f'{{"a": [1, {number}], "b": "{"2" * 50}"}}')
    assert parse_json(f'{{"a": {"1" * 40}, "b": "{"2" * 50}"}}')["a"] == int("1" * 40)


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "description.json")
    with pytest.raises(UserError, match=r"it is a pipe or a device.*Train again"):
        read_sealed(tmp_path / "description.json", "Train again.")


@pytest.mark.parametrize(
    ("there", "found"),
    [(None, b"new\n"), (b"", b"new\n"), (b"a\n", b"a\nnew\n"), (b"tor", b"tor\nnew\n")],
)
def test_lines_begin_anew_behind_one_that_was_cut_short(tmp_path, there, found):
    """The first of them was lost with it."""
    if there is not None:
        (tmp_path / "lines").write_bytes(there)
    append(tmp_path / "lines", b"new\n")
    assert (tmp_path / "lines").read_bytes() == found


def test_lines_are_added_behind_a_link_that_a_user_named_and_refused_in_a_runs_folder(tmp_path):
    (tmp_path / "disk").write_bytes(b"mine\n")
    for there in ("disk", "gone"):
        (tmp_path / there[0]).symlink_to(tmp_path / there)
        with pytest.raises(OSError, match="it is a link"):
            refuse_link(tmp_path / there[0])
    refuse_link(tmp_path / "disk")
    append(tmp_path / "d", b"line\n")
    assert (tmp_path / "disk").read_bytes() == b"mine\nline\n"
