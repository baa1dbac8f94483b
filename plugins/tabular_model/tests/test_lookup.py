"""Vocabularies by hashes: what `index_in` of Arrow finds, also if hashes meet."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore_tabular import lookup
from distcore_tabular.lookup import LONGEST, Vocabulary, hashes_of

TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["", "a", "a\0", "ab", "ä", "𝄞", "x" * 8, "x" * 9, "x" * 16, "y" * LONGEST]),
    st.integers(LONGEST - 2, LONGEST + 20).map(lambda size: "z" * size),
)


def expected(labels: pa.Array, vocabulary: pa.Array, unknown: int) -> list[int]:
    return pc.index_in(labels, value_set=vocabulary).fill_null(unknown).to_pylist()


@given(st.lists(TEXTS, unique=True, min_size=1), st.lists(st.none() | TEXTS), st.integers(0, 5))
@settings(deadline=None)
def test_positions_are_those_of_arrow(words, labels, start) -> None:
    large, lookup.LARGE = lookup.LARGE, 1
    try:
        vocabulary = Vocabulary(words)
    finally:
        lookup.LARGE = large
    array = pa.array([*words[::2], *labels], pa.utf8())
    array = array.slice(min(start, len(array)))
    assert vocabulary._table is not None
    found = vocabulary.positions(array, -1)
    assert found.dtype == np.int32
    assert found.tolist() == expected(array, pa.array(words, pa.utf8()), -1)
    # A slice of a larger array is a vocabulary too.
    sliced = Vocabulary(pa.array(["front", *words], pa.utf8()).slice(1))
    assert sliced.positions(array, -1).tolist() == found.tolist()


def test_a_large_vocabulary_with_labels_that_are_not_in_it() -> None:
    dice = np.random.default_rng(0)
    words = pa.array([f"word {number}" for number in dice.permutation(20_000)])
    labels = pa.array([f"word {number}" for number in dice.integers(0, 40_000, 5000)])
    vocabulary = Vocabulary(words)
    assert vocabulary._table is not None
    assert vocabulary.positions(labels, 0).tolist() == expected(labels, words, 0)


@pytest.mark.parametrize("kept", [0, 1])
def test_hashes_that_meet_cost_time_and_no_results(monkeypatch, kept: int) -> None:
    words = [f"w{number}" for number in range(5000)]
    labels = pa.array(["w17", "other", "w4999", None])

    def few(array: pa.Array) -> np.ndarray:
        """All alike, or those of labels like that of the first word."""
        if kept and len(array) == len(words):
            return np.arange(len(array), dtype=np.uint64)
        return np.zeros(len(array), np.uint64)

    monkeypatch.setattr(lookup, "hashes_of", few)
    vocabulary = Vocabulary(words)
    assert (vocabulary._table is not None) == bool(kept)
    found = vocabulary.positions(pa.array(["w0", "no", None]) if kept else labels, -1)
    assert found.tolist() == ([0, -1, -1] if kept else [17, -1, 4999, -1])


def test_texts_of_megabytes_are_hashed_by_their_ends() -> None:
    long = ["a" * 3_000_000 + end for end in "bc"]
    first, second = hashes_of(pa.array(long))
    assert first != second
