"""Splits: the same rows whatever the shards, the right proportions, and an error that names what
cannot be split."""

import base64
import hashlib
import json
import math
import pickle
from contextlib import suppress
from datetime import datetime, timedelta
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore_core.errors import DataError, UserError
from distcore_data.encoding import datetime_split
from distcore_data.encoding.datetime_split import times_of
from distcore_data.encoding.hashing import chosen, key_of, row_hashes
from distcore_data.encoding.sampling import Sample, Sampling
from distcore_data.encoding.splits import GivenSplitter, fixed_value, ludwig_hash, make_splitter
from distcore_data.encoding.splitter import Rows, Splitter, coded
from distcore_data.encoding.stratified_split import GROUP, spread


def assigned(splitter: Splitter, values, cuts=(), kept=None):
    """The splits of all rows, the dataset cut into shards at these rows; values: the column, or
    how many rows."""
    count = values if isinstance(values, int) else len(values)
    numbers = np.arange(count, dtype=np.int64)
    if kept is not None:
        numbers = numbers[kept]
    shards = []
    for part in np.split(np.arange(len(numbers)), np.searchsorted(numbers, sorted(cuts))):
        columns = {}
        if not isinstance(values, int):
            # Every shard comes in two pieces with dictionaries of their own, as blocks do.
            own = [values[row] for row in numbers[part]]
            pieces = [
                pa.array(piece, pa.utf8()).dictionary_encode() for piece in (own[:3], own[3:])
            ]
            columns = {splitter.column: pa.chunked_array(pieces)}
        shards.append(Rows(numbers[part], columns))
    surveys = (
        [splitter.survey(shard) for shard in shards] if splitter.surveys else [None] * len(shards)
    )
    splitter = pickle.loads(pickle.dumps(splitter))  # noqa: S301
    parts = [
        splitter.assign(shard, carry)
        for shard, carry in zip(shards, splitter.carries(surveys), strict=True)
    ]
    found = np.concatenate(parts)
    assert found.dtype == np.int8
    return found


CUTS = st.lists(st.integers(0, 3000), max_size=4)


@given(st.integers(0, 2**63), CUTS)
def test_random_depends_on_seed_and_row_number_alone(seed, cuts):
    splitter = make_splitter({"type": "random"}, seed)
    assert np.array_equal(assigned(splitter, 3000, cuts), assigned(splitter, 5000)[:3000])


def test_random_has_the_proportions_and_another_seed_is_another_split():
    splits = assigned(
        make_splitter({"type": "random", "probabilities": [0.7, 0.1, 0.2]}, 1), 100_000
    )
    assert np.abs(np.bincount(splits) / 100_000 - [0.7, 0.1, 0.2]).max() < 0.005
    other = assigned(make_splitter({"type": "random"}, 2), 100_000)
    assert abs((splits == other).mean() - (0.49 + 0.01 + 0.04)) < 0.01


@pytest.mark.parametrize(
    "shares", [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, 0.5, 0], [0.9, 0, 0.1], [0, 0.5, 0.5]]
)
@pytest.mark.parametrize("kind", ["random", "stratify", "hash"])
def test_a_share_of_nothing_gets_nothing(kind, shares):
    values = [str(row % 997) for row in range(4000)]
    splits = assigned(
        make_splitter({"type": kind, "column": "c", "probabilities": shares}, 3), values
    )
    counts = np.bincount(splits, minlength=3)
    assert [count > 0 for count in counts] == [share > 0 for share in shares]


CLASSES = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=400)


@settings(max_examples=60)
@given(CLASSES, st.lists(st.integers(0, 400), max_size=4), st.integers(0, 99))
def test_stratify_gives_every_class_its_proportions_whatever_the_shards(values, cuts, seed):
    splitter = make_splitter(
        {"type": "stratify", "column": "c", "probabilities": [0.6, 0.2, 0.2]}, seed
    )
    splits = assigned(splitter, values)
    for each in set(values):
        rows = [split for split, value in zip(splits, values, strict=True) if value == each]
        exact = np.array([0.6, 0.2, 0.2]) * len(rows)
        off = np.abs(np.bincount(rows, minlength=3) - exact)
        assert off[0] <= 1
        assert off.max() <= 2
        if len(rows) == 1:
            assert rows == [0]
    assert np.array_equal(assigned(splitter, values, cuts), splits)


def test_stratify_over_groups_shards_and_dropped_rows():
    rng = np.random.default_rng(0)
    values = rng.choice(["x", "y", "rare"], 20_000, p=[0.6, 0.399, 0.001]).tolist()
    kept = rng.random(20_000) < 0.9
    splitter = make_splitter({"type": "stratify", "column": "c"}, 5)
    whole = assigned(splitter, values, kept=kept)
    for cuts in ([10], [GROUP, 2 * GROUP, 9_999], [1, 2, 3, 19_990], list(range(500, 20_000, 500))):
        assert np.array_equal(assigned(splitter, values, cuts, kept), whole)
    numbers = np.flatnonzero(kept)
    for each in ("x", "y", "rare"):
        rows = whole[[values[row] == each for row in numbers]]
        assert (
            np.abs(np.bincount(rows, minlength=3) - np.array([0.7, 0.1, 0.2]) * len(rows)).max()
            <= 2
        )
    # Not by position: the first tenth of a class is split like the rest.
    first = whole[:1500]
    assert abs((first == 0).mean() - 0.7) < 0.05


def test_more_classes_than_sixteen_bits_number_stay_apart():
    splitter = make_splitter({"type": "stratify", "column": "c"}, 0)
    names = [str(name) for name in range((1 << 16) + 9)]
    rows = Rows(np.arange(len(names)), {"c": pa.chunked_array([names]).dictionary_encode()})
    counts, ends = splitter.survey(rows)
    assert set(counts.values()) == {1}
    assert [ends[name].tolist() for name in names] == [[row] for row in range(len(names))]


def test_many_small_classes_together_have_the_proportions():
    values = [f"class {row % 3000}" for row in range(9000)]
    splits = assigned(make_splitter({"type": "stratify", "column": "c"}, 5), values)
    assert np.abs(np.bincount(splits) / 9000 - [0.7, 0.1, 0.2]).max() < 0.03


@given(
    st.lists(st.floats(0, 1), min_size=3, max_size=3).filter(lambda shares: sum(shares) > 0.01),
    st.floats(0, 1, exclude_max=True),
)
def test_every_beginning_of_the_spread_sequence_has_its_proportions(shares, dither):
    shares = np.array(shares) / sum(shares)
    splits = spread(np.arange(500), tuple(shares), dither)
    counts = np.cumsum([splits == code for code in range(3)], axis=1)
    exact = shares[:, None] * np.arange(1, 501)
    assert np.abs(counts[0] - exact[0]).max() <= 1 + 1e-6
    assert np.abs(counts - exact).max() <= 2 + 1e-6


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=300),
    st.lists(st.integers(0, 300), max_size=4),
)
def test_datetime_takes_the_earliest_rows_for_training_ties_by_row_number(days, cuts):
    start = datetime(2020, 1, 1)
    values = [str(start + timedelta(days=day)) for day in days]
    splitter = make_splitter(
        {"type": "datetime", "column": "c", "probabilities": [0.6, 0.2, 0.2]}, 0
    )
    splits = assigned(splitter, values, cuts)
    order = np.lexsort((np.arange(len(days)), days))
    train, known = int(0.6 * len(days) + 0.5), int(0.8 * len(days) + 0.5)
    expected = np.full(len(days), 2)
    expected[order[:train]] = 0
    expected[order[train:known]] = 1
    assert splits.tolist() == expected.tolist()


def read(values):
    return times_of(pa.array(values)).to_pylist()


def test_dates_of_many_spellings_are_read():
    texts = [
        "2024-02-29",
        "2024-02-29T12:00",
        "2024-02-29 12:00:00.5",
        "2024-02-29T13:00:00+01:00",
        "02/29/2024",
    ]
    days = np.datetime64("2024-02-29T00:00:00", "ns").astype(np.int64)
    noon = days + 12 * 3600 * 10**9
    assert read(texts) == [days, noon, noon + 5 * 10**8, noon, days]
    assert read(["1709164800", None, "soon", "2023-02-29"]) == [days, None, None, None]
    assert read([1709164800.0]) == [days]
    others = [
        "29 Feb 2024",
        "February 29, 2024",
        "Feb 29 2024",
        "2024/02/29 00:00",
        "02/29/2024 00:00",
        "2024-02-29 12:00 AM",
    ]
    assert read(others) == [days] * len(others)
    assert read(["29.02.2024", "13/02/2024x"]) == [None, None]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.builds(
            lambda when, mark, between, end: f"{when:%Y{mark}%m{mark}%d}{between}{end}",
            st.datetimes(datetime(1600, 1, 1), datetime(2300, 1, 1)),
            st.sampled_from("-/"),
            st.sampled_from(["", " 12:30:05", "T12:30:05", "t12:30:05", " 12:30", "T24:00:00"]),
            st.sampled_from(["", "", "", "Z", ".5", "+01:00", "x"]),
        )
        | st.none()
        | st.sampled_from(["2023-02-29", "", "soon", "12"]),
        max_size=9,
    ),
    st.booleans(),
)
def test_the_usual_forms_are_read_as_all_others_are(texts, as_codes):
    """At once, and to the same nanosecond."""
    values = pa.array(texts, pa.utf8())
    found = times_of(values.dictionary_encode() if as_codes else values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datetime_split, "_are_plain", lambda texts: np.zeros(len(texts), bool))
        assert found.equals(times_of(values))


@pytest.mark.parametrize(
    ("value", "said"), [("soon", "'soon' is no date"), (None, "the date is missing")]
)
def test_a_date_that_cannot_be_read_names_row_and_column(value, said):
    splitter = make_splitter({"type": "datetime", "column": "day"}, 0)
    with pytest.raises(DataError, match=rf"Row 5 .*Column 'day': {said}.*Write dates"):
        assigned(splitter, ["2024-01-01"] * 5 + [value] + ["2024-01-01"] * 5, cuts=[2])


@pytest.mark.parametrize("cuts", [[], [3], [2, 4]])
@pytest.mark.parametrize("number", ["2020", "20200101", "3.5", "-7"])
def test_a_small_number_among_dates_is_no_second_of_1970(number, cuts):
    splitter = make_splitter({"type": "datetime", "column": "day"}, 0)
    said = rf"Row 4 .*Column 'day': '{number}' is a number, and row 0 .* has the date '2019-05-01'"
    for rest in (["2021-01-01"], ["1970-02-03"], []):
        with pytest.raises(DataError, match=said):
            assigned(splitter, ["2019-05-01"] * 4 + [number, *rest], cuts)
    with pytest.raises(
        DataError, match=r"Row 0 .*is a number, and row 3 .* has the date '01/02/2020'"
    ):
        assigned(splitter, [number] * 3 + ["01/02/2020", "1700000000"], cuts)


@pytest.mark.parametrize(
    "values",
    [
        [str(year) for year in range(1500, 3000, 100)],
        [f"{year}0{month}15" for year in (1999, 2020) for month in range(1, 9)],
        [str(9 * 10**7 + 10**6 * step) for step in range(15)],
        ["1970-01-02", *(str(1_600_000_000 + step) for step in range(14))],
        ["1e-05", "2E-5", *(str(step / 15) for step in range(1, 13)), "1e+09"],
    ],
)
def test_numbers_alone_are_split_by_their_order(values):
    splitter = make_splitter({"type": "datetime", "column": "day"}, 0)
    days = [f"2020-01-{day:02}" for day in range(1, 1 + len(values))]
    assert assigned(splitter, values, [4]).tolist() == assigned(splitter, days).tolist()
    back = assigned(splitter, values[::-1], [4])
    assert back.tolist() == assigned(splitter, days[::-1]).tolist()


def test_a_column_of_doubles_has_no_dates():
    splitter = make_splitter({"type": "datetime", "column": "day"}, 0)
    rows = Rows(np.arange(3), {"day": pa.chunked_array([[2020.0, 1e-7, 1.5]])})
    [carry] = splitter.carries([splitter.survey(rows)])
    assert splitter.assign(rows, carry).tolist() == [2, 0, 0]


def test_fixed_reads_numbers_and_names():
    values = ["0", "1", "2", "train", "Validation", " test ", "1.0", "training", "val"]
    assert assigned(make_splitter({"type": "fixed", "column": "s"}, 0), values).tolist() == [
        0,
        1,
        2,
        0,
        1,
        2,
        1,
        0,
        1,
    ]
    assert [fixed_value(each) for each in (0.0, 2.0, 3.0, "x", None, True)] == [
        0,
        2,
        -1,
        -1,
        -1,
        -1,
    ]
    assert make_splitter({"type": "fixed"}, 0).needs == {"split": "category"}


@pytest.mark.parametrize(
    ("value", "said"), [("3", "'3' is no split"), (None, "the value is missing")]
)
def test_a_fixed_value_that_is_no_split_names_row_and_column(value, said):
    with pytest.raises(DataError, match=rf"Row 4 .*Column 's': {said}.*Write 0 or train"):
        assigned(
            make_splitter({"type": "fixed", "column": "s"}, 0), ["0"] * 4 + [value, "1"], cuts=[3]
        )


@given(
    st.none()
    | st.booleans()
    | st.floats()
    | st.text()
    | st.sampled_from(["True", "nan", "NaN", "Inf", " 7", "1_0", "-0", "1e5", "٣", "３", "ⅷ", "é"])
)
def test_hash_is_that_of_the_json_of_what_pandas_reads(value):
    """Written out as Ludwig does it."""
    read = value
    if value is None:
        read = math.nan
    elif isinstance(value, float):
        read = int(value) if value.is_integer() else value
    elif value in ("True", "False"):
        read = value == "True"
    elif isinstance(value, str) and value.isascii() and "_" not in value:
        for kind in (float, int):
            with suppress(ValueError):
                read = kind(value)
    told = hashlib.md5(json.dumps({"value": read}).encode(), usedforsecurity=False).digest()
    assert ludwig_hash(value) == crc32(base64.b64encode(told, altchars=b"__"))


def test_an_id_that_only_python_reads_as_a_number_is_hashed_as_the_text_that_it_is():
    ids = ["10013", "1001_3", "1_0013", "１００１３", "1001٣"]
    assert len({ludwig_hash(each) for each in ids}) == len(ids)


def test_a_block_may_have_values_that_no_row_has():
    """As when a shard has some of its rows."""
    labels = pa.array([f"id{each}" for each in range(100)])
    codes = pa.array([7, None, 93, 7, 12], pa.int32())
    column = pa.chunked_array([pa.DictionaryArray.from_arrays(codes, labels)])
    found, values = coded(column)
    assert sorted(filter(None, values)) == ["id12", "id7", "id93"]
    assert [values[code] for code in found] == ["id7", None, "id93", "id7", "id12"]


def test_ids_that_were_rounded_are_refused():
    """Of which several would have one hash."""
    splitter = make_splitter({"type": "hash", "column": "id"}, 0)

    def split(*ids: float) -> np.ndarray:
        column = pa.chunked_array([pa.array(ids, pa.float64())])
        return splitter.assign(Rows(np.arange(len(ids)), {"id": column}))

    assert len(split(1.0, 2.0**53 - 1)) == 2
    with pytest.raises(DataError, match=r"Row 1 .*9007199254740992 is read as a number"):
        split(1.0, 2.0**53)


def test_hash_is_ludwigs():
    """The values are what Ludwig 0.17's `HashSplitter.hash_column` computes for them."""
    assert [ludwig_hash(value) for value in ("user_1", "7", 7.0, "2.5", None)] == [
        878125451,
        396293720,
        396293720,
        4170166405,
        3914770530,
    ]
    values = [f"user_{row % 50}" for row in range(500)]
    splits = assigned(make_splitter({"type": "hash", "column": "id"}, 0), values, cuts=[100, 333])
    assert all(len({splits[row] for row in range(start, 500, 50)}) == 1 for start in range(50))
    assert np.array_equal(
        splits, assigned(make_splitter({"type": "hash", "column": "id"}, 9), values)
    )


def test_numbers_and_texts_are_coded_too():
    for values in (pa.array([1.0, None, 1.0, 2.0]), pa.array(["x", None, "x", "y"])):
        codes, distinct = coded(pa.chunked_array([values]))
        assert [distinct[code] for code in codes] == values.to_pylist()
    assert coded(pa.chunked_array([], pa.utf8()))[0].tolist() == []


def test_the_two_zeros_are_one_class():
    """Each had its rows counted by itself, and one count stood for both: all of the class
    trained."""
    zeros = pa.chunked_array([[0.0] * 999 + [-0.0], [-0.0], [0.0] * 999])
    assert len(set(coded(zeros)[0])) == len(set(coded(zeros.dictionary_encode())[0])) == 1
    splitter = make_splitter({"type": "stratify", "column": "c"}, 1)
    shards = [
        Rows(np.arange(first, first + 1000), {"c": zeros.slice(first, 1000)}) for first in (0, 1000)
    ]
    surveys = [splitter.survey(shard) for shard in shards]
    splits = [
        splitter.assign(shard, carry)
        for shard, carry in zip(shards, splitter.carries(surveys), strict=True)
    ]
    counts = np.bincount(np.concatenate(splits), minlength=3)
    assert np.abs(counts - [1400, 200, 400]).max() <= 2


def test_given_sets_are_told_apart_by_their_blocks():
    splitter = GivenSplitter(lambda: [0, 0, 2])
    splitter.place([3, 0, 2])
    assert assigned(splitter, 5, cuts=[1]).tolist() == [0, 0, 0, 2, 2]
    with pytest.raises(ValueError, match="3 splits are given for 2 blocks"):
        splitter.place([3, 2])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"type": "sorted"}, "No installed plugin offers splitter 'sorted'"),
        ({"type": "stratify"}, "column is missing"),
        ({"type": "random", "probabilities": [0.5, 0.5]}, "three numbers"),
        ({"type": "random", "probabilities": [0.5, 0.6, -0.1]}, "none negative"),
        ({"type": "random", "probabilities": [0.5, 0.6, 0.1]}, "sum to 1"),
    ],
)
def test_options_that_make_no_splitter_are_refused(options, said):
    with pytest.raises(UserError, match=said):
        make_splitter(options, 0)


def test_row_hashes_are_known_and_samples_have_their_proportion():
    """SplitMix64's published first outputs of seed 0 hold the function in place: changing it
    would move every split."""
    assert [hex(value) for value in row_hashes(0, np.arange(3)).tolist()] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]
    rows = np.arange(50_000)
    assert abs(chosen(key_of(1, "sample"), rows, 0.25).mean() - 0.25) < 0.01
    assert chosen(1, rows, 1.0).all()
    assert not chosen(1, rows, 0.0).any()
    assert key_of(1, "sample") != key_of(1, "split")


def test_a_sample_of_as_many_rows_as_there_are_is_all_of_them(caplog):
    for total in (9, 10):
        assert Sampling(size=10).of(total) is None
        assert f"10 is not below the {total} rows" in caplog.text
    caplog.clear()
    assert Sampling(3, size=10).of(40) == Sampling(3, ratio=0.25).of(7) == Sample(3, 0.25)
    assert not caplog.text
    takes_all = [Sampling(**each).takes_all for each in ({}, {"size": 10}, {"ratio": 0.5})]
    assert takes_all == [True, False, False]


def test_a_sample_of_no_row_is_refused_and_the_rows_of_any_other_are_counted():
    total = (1 << 20) + 1000
    few, none = Sample(2, 1e-6), Sample(3, 1e-6)
    assert list(few.picked(total)) == [2, 0]  # a million rows at a time
    half = Sample(3, 0.5)
    assert sum(half.picked(total)) == half.mask(np.arange(total)).sum()
    asked = Sampling(ratio=1e-6)
    for sample in (few, None):
        asked.refuse_none(sample, total, "d.csv")
    assert "takes 2 of the" in asked.hint(few, total)
    assert asked.hint(None, total) == ""
    with pytest.raises(UserError, match=r"none of the 1049576 rows of d\.csv"):
        asked.refuse_none(none, total, "d.csv")


def test_numbers_beyond_the_seconds_that_fit_are_no_times():
    """Milliseconds since 1970 were all the same time, so the split was by the order of the rows."""
    assert read([1_700_000_000, -3]) == [17 * 10**17, -3 * 10**9]
    assert read(["1700000000", "1.5", "-3"]) == [17 * 10**17, 15 * 10**8, -3 * 10**9]
    assert read([1_700_000_000_000, -1_600_000_000_000]) == [None] * 2
    assert read(["1700000000000", "-1600000000000", str(10**20)]) == [None] * 3
