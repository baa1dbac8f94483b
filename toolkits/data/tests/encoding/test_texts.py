"""Distinct texts, tokens and vocabularies: what Arrow's kernels give, with compiled code and
without, and buffers that lie are refused."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcore_data.encoding import texts
from distcore_data.encoding.texts import Vocabulary, dictionary_encode, split, split_lists, tally

TEXTS = st.one_of(
    st.text(max_size=20),
    st.text("ab", max_size=12),
    st.sampled_from(["", "a", "a\0", "ab", "ä", "𝄞", "x" * 7, "x" * 8, "x" * 9, "x" * 16]),
    st.integers(120, 140).map(lambda size: "z" * size),
)
STRINGS = st.sampled_from([pa.utf8(), pa.large_utf8()])
OTHERS = [pa.utf8(), pa.large_utf8(), pa.string_view(), pa.dictionary(pa.int32(), pa.utf8())]

needs_compiler = pytest.mark.skipif(texts.compiled is None, reason="built without a C compiler")


@pytest.fixture(params=["compiled", "arrow"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With the compiled part, and as if there were none."""
    if request.param == "arrow":
        monkeypatch.setattr(texts, "compiled", None)
    elif texts.compiled is None:
        pytest.skip("built without a C compiler")
    else:
        monkeypatch.setattr(texts, "FEW", 0)
    return


def positions(values: pa.Array, labels: pa.Array, unknown: int) -> list[int]:
    return pc.index_in(values, value_set=labels).fill_null(unknown).to_pylist()


def assert_encoded(values: pa.Array) -> None:
    found, expected = dictionary_encode(values), values.dictionary_encode()
    found.validate(full=True)
    assert found.type == expected.type
    assert found.equals(expected)
    assert found.dictionary.equals(expected.dictionary)
    assert found.null_count == values.null_count


@given(st.lists(st.none() | TEXTS, max_size=80), STRINGS, st.integers(0, 9), st.integers(0, 90))
def test_dictionaries_are_those_of_arrow(words, kind, start, size) -> None:
    assert_encoded(pa.array(words, kind).slice(min(start, len(words)), size))


@pytest.mark.parametrize("kind", OTHERS, ids=str)
def test_dictionaries_of_every_kind_of_text(kind: pa.DataType, way) -> None:
    words = pa.array(["b", None, "a", "b", "", None, "a longer text", ""])
    assert_encoded(words.cast(kind))
    assert_encoded(words.cast(kind).slice(3))
    assert_encoded(pa.nulls(3, kind))
    assert_encoded(pa.nulls(0, kind))


def test_more_texts_than_hashes_of_32_bits_tell_apart() -> None:
    """400,000 texts: some twenty pairs of them share all 32 bits by which a slot is looked at."""
    dice = np.random.default_rng(0)
    numbers = dice.permutation(400_000)
    values = pa.array(np.concatenate([numbers, numbers[::-1]]).astype(str))
    assert_encoded(values)
    found = Vocabulary(dictionary_encode(values).dictionary).positions(values.slice(400_000), -1)
    assert found.tolist() == list(reversed(range(400_000)))


def test_few_distinct_texts_first_and_then_many() -> None:
    many = np.arange(150_000).astype(str)
    assert_encoded(pa.array(np.concatenate([np.repeat(["a", "b"], 100_000), many, many])))


def test_texts_of_megabytes_that_differ_at_their_ends() -> None:
    long = pa.array(["a" * 3_000_000 + end for end in "bcb"])
    assert dictionary_encode(long).indices.to_pylist() == [0, 1, 0]


@given(st.lists(TEXTS, unique=True, min_size=1), st.lists(st.none() | TEXTS), STRINGS)
def test_positions_are_those_of_arrow(words, labels, kind) -> None:
    array = pa.array([*words[::2], *labels], kind)
    array = array.slice(min(3, len(array)))
    known = pa.array(["front", *words], pa.utf8()).slice(1)
    found = Vocabulary(known).positions(array, -1)
    assert found.dtype == np.int32
    assert found.tolist() == positions(array, known.cast(kind), -1)


def test_positions_in_either_way(way) -> None:
    vocabulary = Vocabulary(pa.array(["b", "", "a"]))
    values = pa.array(["a", None, "x", "", "b"])
    assert vocabulary.positions(values, 7).tolist() == [2, 7, 7, 1, 0]
    assert vocabulary.positions(values.slice(0, 0), 7).tolist() == []
    assert copy.copy(vocabulary).positions(values, 7).tolist() == [2, 7, 7, 1, 0]
    assert Vocabulary(pa.array([], pa.utf8())).positions(values, 7).tolist() == [7] * 5


def test_of_a_label_that_is_there_twice_the_first_counts(way) -> None:
    vocabulary = Vocabulary(pa.array(["b", "a", "b", "c"]))
    assert vocabulary.positions(pa.array(["c", "b"]), -1).tolist() == [3, 0]


@given(st.lists(st.text("ab ,ä", max_size=30), max_size=60), st.integers(0, 9))
def test_tokens_are_those_of_arrow(words, start) -> None:
    array = pa.array(words, pa.large_utf8()).slice(min(start, len(words)))
    for separator in " ,":
        found = split(array, separator)
        expected = split_lists(pc.split_pattern(array, separator))
        found.words.validate(full=True)
        assert found.words.equals(expected.words)
        assert found.places.dtype == np.int32
        assert found.places.tolist() == expected.places.tolist()
        assert found.offsets.dtype == np.int64
        assert found.offsets.tolist() == expected.offsets.tolist()


def test_tokens_in_either_way(way) -> None:
    found = split(pa.array(["a b  a", "", " ", "c a"], pa.large_utf8()), " ")
    assert found.words.to_pylist() == ["a", "b", "c"]
    assert found.places.tolist() == [0, 1, 0, 2, 0]
    assert found.lengths.tolist() == [3, 0, 0, 2]


def test_codes_are_counted(way) -> None:
    codes = np.array([2, 0, 2, 1, 2], np.int32)
    assert tally(codes, 4).tolist() == [1, 1, 3, 0]
    assert tally(codes[::2], 4).tolist() == [0, 0, 3, 0]
    assert tally(codes[:0], 2).tolist() == [0, 0]
    assert tally(codes, 3).dtype == np.int64


# ------------------------------------------------------------------ buffers that lie


@needs_compiler
@pytest.mark.parametrize("code", [-1, 3, 2**31 - 1, -(2**31)])
def test_codes_beyond_the_counts_are_refused(code: int) -> None:
    with pytest.raises(ValueError, match="none of those that are counted"):
        tally(np.array([0, code], np.int32), 3)


LIES = {
    "negative": [-1, 2, 4],
    "falling": [0, 4, 2],
    "beyond": [0, 2, 5],
    "far beyond": [0, 2, 2**31 - 1],
}


@needs_compiler
@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("wide", [False, True])
def test_offsets_outside_of_the_bytes_are_refused(lie: str, wide: bool) -> None:
    offsets = np.array(LIES[lie], np.int64 if wide else np.int32)
    data, codes = b"abcd", np.empty(2, np.int32)
    known = Vocabulary(pa.array(["ab"]))._table
    with pytest.raises(ValueError, match="outside of their bytes"):
        texts.compiled.encoded(offsets, wide, data, None, 0, 2, codes)
    with pytest.raises(ValueError, match="outside of their bytes"):
        texts.compiled.split(offsets, wide, data, 0, 2, ord("b"))
    with pytest.raises(ValueError, match="outside of their bytes"):
        texts.compiled.vocabulary(offsets, wide, data, 0, 2)
    with pytest.raises(ValueError, match="outside of their bytes"):
        texts.compiled.find(known, offsets, wide, data, None, 0, 2, 0, codes)


@needs_compiler
def test_buffers_that_are_too_short_are_refused() -> None:
    offsets, data, codes = np.array([0, 1, 2], np.int32), b"ab", np.empty(2, np.int32)
    for first, count in ((0, 3), (2, 1), (3, 0), (-1, 1), (0, -1), (1, 2**62), (2**62, 2**62)):
        with pytest.raises(ValueError, match="too short"):
            texts.compiled.encoded(offsets, False, data, None, first, count, np.empty(9, np.int32))
        with pytest.raises(ValueError, match="too short"):
            texts.compiled.split(offsets, False, data, first, count, 32)
    with pytest.raises(ValueError, match="too short"):
        texts.compiled.encoded(offsets, True, data, None, 0, 2, codes)
    with pytest.raises(ValueError, match="too short"):
        texts.compiled.encoded(np.zeros(20, np.int32), False, data, b"\xff", 0, 9, np.empty(9))
    with pytest.raises(ValueError, match="target is too short"):
        texts.compiled.encoded(offsets, False, data, None, 0, 2, codes[:1])
    known = Vocabulary(pa.array(["ab"]))._table
    with pytest.raises(ValueError, match="target is too short"):
        texts.compiled.find(known, offsets, False, data, None, 0, 2, 0, codes[:1])
    with pytest.raises(ValueError, match="PyCapsule"):
        texts.compiled.find(object(), offsets, False, data, None, 0, 2, 0, codes)
    with pytest.raises(BufferError):
        texts.compiled.encoded(offsets, False, data, None, 0, 2, bytes(8))


@needs_compiler
def test_a_vocabulary_keeps_the_memory_of_its_labels() -> None:
    vocabulary = Vocabulary(pa.array(np.arange(50_000).astype(str)))._table
    junk = [pa.array(np.arange(size, size + 50_000).astype(str)) for size in (7, 8, 9)]
    codes, (_, offsets, data) = np.empty(50_000, np.int32), junk[0].buffers()
    texts.compiled.find(vocabulary, offsets, False, data, None, 0, 50_000, -1, codes)
    assert codes.tolist() == [*range(7, 50_000), *[-1] * 7]


@needs_compiler
def test_a_second_import_leaves_the_tables_of_the_first() -> None:
    """It drew another seed, by which each text of an older vocabulary was unknown."""
    labels = pa.array([f"word {number}" for number in range(100)])
    vocabulary = Vocabulary(labels)
    spec = importlib.util.find_spec("distcore_data.encoding._texts")
    assert spec is not None
    importlib.util.module_from_spec(spec)
    assert vocabulary.positions(labels, -1).tolist() == list(range(100))
