"""Counts of strings and the gather from dictionary codes."""

from __future__ import annotations

import pickle
from collections import Counter
from functools import reduce
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore_tabular import vocabulary
from distcore_tabular.vocabulary import Counts, Labels, find, gather, one_spelling, ranked

words = st.lists(
    st.none() | st.sampled_from(["a", "b", "ä", " b ", "B", "𝄞", "\uffff", ""]), max_size=50
)


@given(words, st.lists(st.integers(0, 50), max_size=5), st.randoms(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_counts_are_the_same_for_any_partition_and_order(values, cuts, random, compact) -> None:
    array = pa.array(values, pa.utf8()).dictionary_encode()
    edges = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    parts = [Counts.of(array[a:b]) for a, b in pairwise(edges)]
    random.shuffle(parts)
    limit, vocabulary.COMPACT_AT = vocabulary.COMPACT_AT, 3 if compact else vocabulary.COMPACT_AT
    try:
        merged = reduce(Counts.merge, parts)
    finally:
        vocabulary.COMPACT_AT = limit
    labels, counts = merged.ranked()
    expected = Counter(value.strip() for value in values if value is not None)
    ranked = sorted(expected.items(), key=lambda item: (-item[1], item[0]))
    assert list(zip(labels.to_pylist(), counts.tolist(), strict=True)) == ranked
    assert merged.missing == values.count(None)


@given(
    st.dictionaries(
        st.one_of(
            st.text(max_size=12),
            st.sampled_from(["", "a", "a\0", "a\0b", "12345678", "12345678\0", "123456789"]),
            st.integers(0, 99).map(lambda number: f"https://example.org/{number}"),
            st.sampled_from(["ä" * 4, "ä" * 4 + "b", "𝄞𝄞", "\uffff\uffff\uffff", "𝄞𝄞\0"]),
        ),
        st.sampled_from([1, 2, 3, 255, 256, 65_537, 1 << 40]),
        max_size=40,
    ),
    st.integers(0, 3),
)
@settings(deadline=None)
def test_ranked_by_count_and_then_by_code_points(counts, start) -> None:
    labels = pa.array(["before"] * start + list(counts), pa.utf8()).slice(start)
    found, sizes = ranked(labels, np.fromiter(counts.values(), np.int64, len(counts)))
    expected = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    assert list(zip(found.to_pylist(), sizes.tolist(), strict=True)) == expected


def test_memory_is_bounded_by_the_distinct_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "COMPACT_AT", 8)
    array = pa.array(["a", "b", "c"]).dictionary_encode()
    counts = reduce(Counts.merge, [Counts.of(array)] * 100)
    assert sum(len(labels) for labels, _ in counts.pieces) <= 2 * 3 + 8 + 3
    assert counts.ranked()[1].tolist() == [100, 100, 100]


def test_lowercase_joins_spellings() -> None:
    labels, counts = Counts.of(pa.array(["Red", "red ", "BLUE"]), lowercase=True).ranked()
    assert (labels.to_pylist(), counts.tolist()) == (["red", "blue"], [2, 1])


def test_a_null_among_the_dictionarys_values_is_missing() -> None:
    array = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 1, None], pa.int32()), pa.array(["a", None])
    )
    counts = Counts.of(array)
    assert (counts.missing, counts.ranked()[0].to_pylist()) == (3, ["a"])


def test_gather_takes_the_last_entry_for_null() -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.int32()), pa.array(["a", "b"]))
    assert gather(array, np.array([10, 20, 30], np.int32)).to_pylist() == [20, 30, 10]


def test_labels_of_the_same_whole_number_are_found() -> None:
    found = find(
        pa.array(["2", "x", "1.0", "2.5"]), Labels(pa.array(["1", "2.0", "2.5"])), unknown=7
    )
    assert found.dtype == np.int32
    assert found.tolist() == [1, 7, 0, 2]


@pytest.mark.parametrize(
    ("label", "trained"),
    [
        ("true", "True"),
        ("TRUE", "false"),
        ("2024-01-05 00:00:00", "2024-01-05"),
        ("2024-01-05", "2024-01-05 00:00:00.000"),
        ("2024-01-05 10:00:30.500000", "2024-01-05 10:00:30.5"),
        ("2024-01-05 10:00:30", "2024-01-05 10:00:30.000"),
        ("1234567", "1.234567e+06"),
        ("1.234567e+06", "1234567"),
        ("007.0", "007"),
        ("-0.0", "0"),
        ("9007199254740993.0", "9007199254740993"),
    ],
)
def test_a_value_that_another_file_or_frame_spells_otherwise_is_found(label, trained) -> None:
    known = Labels(pa.array(["<UNK>", "a", trained, "8.25", "True" if label == "TRUE" else "b"]))
    place = 4 if label == "TRUE" else 2
    assert find(pa.array(["x", label, "a", None]), known, unknown=0).tolist() == [0, place, 1, 0]
    copied = pickle.loads(pickle.dumps(known))  # noqa: S301 - our own bytes
    assert find(pa.array([label]), copied, unknown=0).tolist() == [place]


@pytest.mark.parametrize(
    ("label", "trained"),
    [
        ("1.10", ["1.1", "1.9"]),  # versions
        ("1.1", ["1.10"]),
        ("2", ["2.00"]),
        ("007", ["7"]),
        ("7.0", ["007"]),
        ("1e5", ["100000"]),
        ("1e+06", ["1000000", "1000000.0"]),  # which of them is not said
        ("True", ["true", "TRUE"]),
        ("9007199254740993", ["9007199254740992"]),
        ("1e+400", ["2e+400"]),
        ("2024-01-05 00:00:01", ["2024-01-05"]),
        ("2024-01-05 10:00:30", ["2024-01-05 10:00:03"]),
        ("2024-01-05 00:00:00+01:00", ["2024-01-05"]),
        ("T", ["True"]),
        ("", ["0"]),
    ],
)
def test_what_may_be_another_value_is_not_found(label, trained) -> None:
    assert find(pa.array([label]), Labels(pa.array(["<UNK>", *trained])), 0).tolist() == [0]


def test_what_is_there_is_found_as_it_is_and_nothing_is_made_for_it() -> None:
    given = ["3", "3.0", "1.5", "1.50", "true", "True", "2024-01-05", "2024-01-05 00:00:00"]
    known = Labels(pa.array(given))
    found = find(pa.array([*given, None]), known, unknown=-1)
    assert found.tolist() == [*range(len(given)), -1]
    assert "_values" not in vars(known)


def test_of_a_cut_vocabulary_whole_numbers_alone_are_looked_for_once_more() -> None:
    known = Labels(pa.array(["<UNK>", "True", "2024-01-05", "1000000", "4", "5.0"]))
    asked = pa.array(["true", "2024-01-05 00:00:00", "1e+06", "4.0", "5", "x", None])
    assert find(asked, known, unknown=0, cut=True).tolist() == [0, 0, 0, 4, 5, 0, 0]
    assert find(asked, known, unknown=0).tolist() == [1, 2, 3, 4, 5, 0, 0]


def test_counts_of_one_value_are_those_of_its_shortest_spelling() -> None:
    values = ["3.0", "3.0", "3", "1.1", "1.10", "true", "True", "true", None, "2024-01-05", "1e+06"]
    both = one_spelling(Counts.of(pa.array([*values, "2024-01-05 00:00:00", "1000000"])))
    labels, counts = both.ranked()
    assert dict(zip(labels.to_pylist(), counts.tolist(), strict=True)) == {
        "3": 3,
        "True": 3,
        "2024-01-05": 2,
        "1e+06": 2,
        "1.1": 1,
        "1.10": 1,
    }
    assert both.missing == 1
    assert len(one_spelling(Counts()).ranked()[0]) == 0
