"""Feature binary: what counts as true, and what happens to values that are neither."""

from __future__ import annotations

import json
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore_core.errors import DataError
from distcore_tabular.binary import BinaryFeature
from distcore_tabular.options import BinaryInputOptions, BinaryOutputOptions
from distcore_testing.features import FeatureSuite


def feature(role: str = "input", threshold: float = 0.5, **preprocessing: Any) -> BinaryFeature:
    if role == "input":
        return BinaryFeature(
            "b", role, BinaryInputOptions.model_validate({"preprocessing": preprocessing})
        )
    options = BinaryOutputOptions.model_validate(
        {"preprocessing": preprocessing, "threshold": threshold}
    )
    return BinaryFeature("b", role, options)


def column(values: list[str | None]) -> pa.Array:
    return pa.array(values, pa.utf8()).dictionary_encode()


def fitted(made: BinaryFeature, values: list[str | None]) -> dict[str, Any]:
    return made.finish(made.partial(column(values)))


class TestBinaryIsAFeature(FeatureSuite):
    name = "binary"
    roles = ("input", "output")

    def values(self) -> pa.Array:
        return column(["yes", "no", None, "no"] * 60)


@pytest.mark.parametrize(
    ("values", "true", "labels"),
    [
        (["0", "1"], "1", ["False", "True"]),
        (["0.0", "1.0"], "1.0", ["False", "True"]),
        (["0", "5"], "5", ["False", "True"]),
        (["-1", "1"], "1", ["False", "True"]),
        (["1", "2"], "2", ["False", "True"]),
        (["False", "True"], "True", ["False", "True"]),
        (["FALSE", "true"], "true", ["False", "True"]),
        (["no", "yes"], "yes", ["no", "yes"]),
        (["F", "T"], "T", ["F", "T"]),
        (["human", "bot"], "bot", ["human", "bot"]),
        (["yes", "maybe"], "yes", ["maybe", "yes"]),
        (["no", "maybe"], "maybe", ["no", "maybe"]),
    ],
)
@pytest.mark.parametrize("role", ["input", "output"])
def test_what_is_true(role: str, values: list[str], true: str, labels: list[str]) -> None:
    made = feature(role)
    metadata = fitted(made, values)
    assert metadata["bool2str"] == labels
    assert made.encode(column(values), metadata).to_pylist() == [
        float(value == true) for value in values
    ]


def test_spellings_of_one_number_or_word_are_one_value() -> None:
    made = feature("output")
    metadata = fitted(made, ["1", "1.0", "0", " 0 "])
    assert metadata["counts"] == [2, 2]
    metadata = fitted(made, ["Yes", "yes", "yes", "No"])
    assert (metadata["bool2str"], metadata["counts"]) == (["No", "yes"], [1, 3])


def test_fallback_true_label() -> None:
    assert fitted(feature(fallback_true_label="human"), ["human", "bot"])["bool2str"] == [
        "bot",
        "human",
    ]
    assert fitted(feature(fallback_true_label=1), ["1", "2"])["str2bool"] == {"1": 1, "2": 0}
    with pytest.raises(DataError, match="fallback_true_label is 'cat'"):
        fitted(feature(fallback_true_label="cat"), ["human", "bot"])


@pytest.mark.parametrize("fallback", ["3", "yes", "1.5", "True"])
@pytest.mark.parametrize("values", [["1", "2"], ["0", "7.5"], ["2.0", "1", "2"]])
@pytest.mark.parametrize("role", ["input", "output"])
def test_a_mistyped_true_number_is_refused(role: str, values: list[str], fallback: str) -> None:
    said = rf"'b' holds .*{values[0][0]}.*, and fallback_true_label is '{fallback}'. Set"
    with pytest.raises(DataError, match=said):
        fitted(feature(role, fallback_true_label=fallback), values)


@pytest.mark.parametrize("values", [["0", "1"], ["0.0", "1.0"], ["yes", "no"], ["True", "False"]])
def test_a_true_label_that_decides_nothing_is_let_be(values: list[str]) -> None:
    assert fitted(feature(fallback_true_label="cat"), values) == fitted(feature(), values)


def test_one_value_that_is_not_the_true_one_is_false() -> None:
    for values, fallback in ((["2", "2"], 1), (["bot"], "human")):
        assert set(fitted(feature(fallback_true_label=fallback), values)["str2bool"].values()) == {
            0
        }
    with pytest.raises(DataError, match="holds '2', and fallback_true_label is 'two'"):
        fitted(feature(fallback_true_label="two"), ["2"])


@pytest.mark.parametrize(
    ("preprocessing", "code"),
    [
        ({}, 0),
        ({"missing_value_strategy": "fill_with_true"}, 1),
        ({"missing_value_strategy": "fill_with_mode"}, 1),
        ({"missing_value_strategy": "fill_with_const", "fill_value": True}, 1),
        ({"missing_value_strategy": "fill_with_const", "fill_value": "no"}, 0),
    ],
)
def test_missing_values_become(preprocessing: dict[str, Any], code: int) -> None:
    made = feature(**preprocessing)
    metadata = fitted(made, ["yes", "yes", "no", None])
    assert made.encode(column([None, "no"]), metadata).to_pylist() == [code, 0]
    assert metadata["counts"] == [1 + (code == 0), 2 + (code == 1)]


@pytest.mark.parametrize(
    ("values", "fill_value", "code"),
    [
        (["7", "x"], 7, 0),  # was 7.0, which is neither
        (["7", "x"], 7.0, 0),
        (["7.0", "x"], 7, 0),  # worked while it was taken for 7.0
        (["7", "x"], "x", 1),
        (["7", "3"], 7, 1),
        (["7", "3"], 7.0, 1),
        (["0.5", "x"], 0.5, 0),
        (["0", "1"], 1, 1),
        (["false", "true"], True, 1),
    ],
)
def test_a_fill_value_is_one_of_the_labels(values: list[str], fill_value: Any, code: int) -> None:
    true = {"fallback_true_label": values[1]} if "x" in values else {"fallback_true_label": 7}
    made = feature(missing_value_strategy="fill_with_const", fill_value=fill_value, **true)
    metadata = fitted(made, [*values, None])
    assert made.encode(column([None]), metadata).to_pylist() == [code]


def test_a_fill_value_that_is_true_is_no_number() -> None:
    made = feature(
        missing_value_strategy="fill_with_const", fill_value=True, fallback_true_label="x"
    )
    with pytest.raises(DataError, match="fill_value is True, which is neither"):
        fitted(made, ["1", "x", None])


@pytest.mark.parametrize(
    ("preprocessing", "value", "counts"),
    [
        ({"missing_value_strategy": "fill_with_false"}, "yes", [2, 1]),
        ({"missing_value_strategy": "fill_with_true"}, "no", [1, 2]),
        ({"missing_value_strategy": "fill_with_const", "fill_value": "no"}, "yes", [2, 1]),
    ],
)
def test_of_an_output_missing_values_may_be_a_class(
    preprocessing: dict[str, Any], value: str, counts: list[int]
) -> None:
    """It was refused as one of one class."""
    made = feature("output", **preprocessing)
    metadata = fitted(made, [None, value, None])
    assert metadata["counts"] == counts
    codes = made.encode(column([None, value, None]), metadata).to_pylist()
    assert codes == [float(value == "no"), float(value == "yes"), float(value == "no")]


@pytest.mark.parametrize("strategy", ["fill_with_true", "fill_with_mode", "drop_row", "bfill"])
def test_an_output_has_one_class_if_missing_values_are_no_other(strategy: str) -> None:
    with pytest.raises(DataError, match="'b' has one class only, 'yes'"):
        fitted(feature("output", missing_value_strategy=strategy), ["yes", None])


def test_a_dropped_row_is_not_counted() -> None:
    assert fitted(feature("output"), ["yes", "no", None])["counts"] == [1, 1]


def test_a_word_says_nothing_among_labels_that_are_no_words() -> None:
    """`f` is female, and no false."""
    made = feature()
    metadata = fitted(made, ["M", "F"])
    with pytest.raises(DataError, match="'f' is neither of the two values"):
        made.encode(column(["f"]), metadata)


@pytest.mark.parametrize("role", ["input", "output"])
def test_a_value_never_seen_is_an_error(role) -> None:
    """Another spelling of an input (`Human`) was false in every row, in silence."""
    made = feature(role)
    metadata = fitted(made, ["human", "bot"])
    with pytest.raises(DataError, match="'b': 'cat' is neither of the two values"):
        made.encode(column(["human", "cat"]), metadata)
    rest = column(["human", "cat"])[:1]
    assert made.encode(rest, metadata).to_pylist() == [0]


def test_another_spelling_of_a_word_is_known() -> None:
    made = feature("output")
    metadata = fitted(made, ["1", "0"])
    assert made.encode(column(["1.0", "True", "no"]), metadata).to_pylist() == [1, 1, 0]


def test_too_many_values_one_class_or_none_are_refused() -> None:
    for values in (["0", "1", "2"], ["a", "b", "c"], [str(number) for number in range(2000)]):
        with pytest.raises(DataError, match="a binary feature takes two"):
            fitted(feature(), values)
    with pytest.raises(DataError, match="'b' has one class only, '1'"):
        fitted(feature("output"), ["1", "1", None])
    for values in ([None], [" ", None, "\t"]):
        with pytest.raises(DataError, match="no value in any row"):
            fitted(feature(), values)
    assert fitted(feature(), ["x"])["counts"] == [0, 1]


pairs = st.sampled_from([["0", "1"], ["no", "yes"], ["b", "a"], ["True", "False"]])


@given(pairs, st.data(), st.randoms())
@settings(max_examples=60, deadline=None)
def test_any_partition_and_slice(pair, data, random) -> None:
    values = data.draw(st.lists(st.none() | st.sampled_from(pair), min_size=1, max_size=30))
    if not any(values):
        return
    made = feature()
    array = column(values)
    cut = data.draw(st.integers(0, len(values)))
    parts = [made.partial(array[:cut]), made.partial(array[cut:])]
    random.shuffle(parts)
    metadata = made.finish(reduce(made.merge, parts))
    assert json.dumps(metadata) == json.dumps(fitted(made, values))
    codes = made.encode(array, metadata)
    assert codes.type == pa.float32()
    assert made.encode(array[cut:], metadata).equals(codes[cut:])
    if len(set(values) - {None}) == 2:
        truth = [value is not None and metadata["str2bool"][value] == 1 for value in values]
        back = made.decode(np.asarray(codes), metadata).to_pylist()
        assert back == (
            truth if pair[0] in "0True" else [pair[1] if each else pair[0] for each in truth]
        )


def test_predictions_are_named_as_in_ludwig() -> None:
    made = feature("output", threshold=0.25)
    metadata = fitted(made, ["no", "yes"])
    batch = made.network().predictions(np.array([0.25, 0.125], np.float32), metadata)
    assert batch.to_pydict() == {
        "b_predictions": ["yes", "no"],
        "b_probabilities_no": [0.75, 0.875],
        "b_probabilities_yes": [0.25, 0.125],
        "b_probability": [0.25, 0.875],
    }
    metadata = fitted(made, ["0", "1"])
    batch = made.network().predictions(np.array([0.25, 0.125], np.float32), metadata)
    assert batch.schema.names[1:3] == ["b_probabilities_False", "b_probabilities_True"]
    assert batch["b_predictions"].to_pylist() == [True, False]
