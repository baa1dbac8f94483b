"""Tokenizers: what Ludwig's give, in every script, and counts that do not depend on any order."""

import re
import sys
import unicodedata

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore_data.encoding.texts import Vocabulary
from distcore_tabular.tokenizers import TOKENIZERS, codes_of, count, merge, most_common, tokenize


def _words_and_marks(text):
    """Ludwig's space_punct, character by character."""
    tokens, word = [], ""
    for character in text:
        if character.isalnum() or character == "_":
            word += character
            continue
        tokens += [word] if word else []
        word = ""
        tokens += [] if character.isspace() else [character]
    return tokens + ([word] if word else [])


REFERENCE = {
    "space": lambda text: [token for token in text.strip().split(" ") if token],
    "space_punct": _words_and_marks,
    "characters": list,
    "comma": lambda text: [token for token in re.split(r"\s*,\s*", text.strip()) if token],
    "underscore": lambda text: [token for token in re.split(r"\s*_\s*", text.strip()) if token],
    "untokenized": lambda text: [text],
    "stripped": lambda text: [text.strip()],
}


def lists(tokens):
    values = tokens.words.take(pa.array(tokens.places)).to_pylist()
    return [
        values[start:stop]
        for start, stop in zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True)
    ]


def counts_of(values):
    return count(tokenize(pa.array(values, pa.string()), TOKENIZERS["untokenized"]))


def test_each_tokenizer_has_a_reference():
    assert sorted(REFERENCE) == sorted(TOKENIZERS)


def test_words_without_marks_are_not_looked_at_one_by_one(monkeypatch):
    texts = ["a1 B_2  a1", "", " zz", "_"]
    for name in ("replace_substring_regex", "split_pattern_regex"):
        monkeypatch.delattr(f"pyarrow.compute.{name}")
    found = tokenize(pa.array(["not these", *texts]).slice(1), TOKENIZERS["space_punct"])
    assert lists(found) == [_words_and_marks(text) for text in texts]
    for mark in ("a b,", "é", "\t", "½"):
        with pytest.raises(AttributeError):
            tokenize(pa.array([mark]), TOKENIZERS["space_punct"])


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(
        st.text(st.sampled_from("aB1_,. \t\n'-éß語١½\u00a0\u2003\u200b😀"), max_size=12), max_size=6
    )
)
def test_tokens_are_what_python_gives(name, texts):
    assert lists(tokenize(pa.array(texts, pa.string()), TOKENIZERS[name])) == [
        REFERENCE[name](text) for text in texts
    ]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_missing_and_empty_texts_and_no_texts(name):
    tokens = tokenize(pa.array([None, "", "a"], pa.string()), TOKENIZERS[name])
    empty = [""] if name in ("untokenized", "stripped") else []
    assert lists(tokens) == [[], empty, ["a"]]
    assert lists(tokenize(pa.array([], pa.string()), TOKENIZERS[name])) == []


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_slice_of_a_column_is_tokenized_by_itself(name):
    texts = ["zero, 0", "one_ 1", "två, 2", "three 3"]
    tokens = tokenize(pa.array(texts, pa.string())[1:3], TOKENIZERS[name])
    assert lists(tokens) == [REFERENCE[name](text) for text in texts[1:3]]


def test_character_classes_are_pythons():
    """For every character of Unicode 3.2; of newer ones RE2 and this Python may know different
    sets."""
    points = [chr(point) for point in range(1, sys.maxunicode + 1) if not 0xD800 <= point <= 0xDFFF]
    points = [point for point in points if unicodedata.ucd_3_2_0.category(point) != "Cn"]
    got = lists(
        tokenize(
            pa.array([f"a{point}b" for point in points], pa.string()), TOKENIZERS["space_punct"]
        )
    )
    assert [
        p for p, tokens in zip(points, got, strict=True) if tokens != _words_and_marks(f"a{p}b")
    ] == []


def test_every_space_of_python_is_trimmed():
    spaces = [chr(point) for point in range(sys.maxunicode + 1) if chr(point).isspace()]
    tokens = tokenize(
        pa.array([f"{space}a{space}" for space in spaces], pa.string()), TOKENIZERS["space"]
    )
    assert lists(tokens) == [["a"]] * len(spaces)


def test_lower_case():
    tokens = tokenize(
        pa.array(["Ärger IM Büro", None], pa.string()), TOKENIZERS["space"], lowercase=True
    )
    assert lists(tokens) == [["ärger", "im", "büro"], []]


tokens_lists = st.lists(
    st.lists(st.sampled_from(["a", "b", "ä", "zz", "", "😀"]), max_size=5), min_size=1, max_size=5
)


@settings(max_examples=60, deadline=None)
@given(parts=tokens_lists, order=st.randoms())
def test_counts_merge_to_the_same_bits_in_any_order(parts, order):
    whole = counts_of([token for part in parts for token in part])
    counted = [counts_of(part) for part in parts]
    order.shuffle(counted)
    while len(counted) > 1:
        counted.append(merge(counted.pop(0), counted.pop(0)))
    assert counted[0].tokens.equals(whole.tokens)
    assert counted[0].counts.tobytes() == whole.counts.tobytes()


def test_most_common_first_then_by_value():
    counted = counts_of(["b", "a", "c", "c", "é", "z"])
    assert most_common(counted, None) == ["c", "a", "b", "z", "é"]
    assert most_common(counted, 2) == ["c", "a"]


def test_codes_are_places_in_the_vocabulary():
    tokens = tokenize(pa.array(["b x", None, "a b"]), TOKENIZERS["space"])
    assert codes_of(tokens, Vocabulary(pa.array(["?", "a", "b"])), 0).tolist() == [2, 0, 1, 2]
    none = tokenize(pa.array([], pa.string()), TOKENIZERS["space"])
    assert codes_of(none, Vocabulary(pa.array(["?"])), 0).tolist() == []
