"""Feature number: exact statistics, Ludwig's normalisations, row-wise encoding, and the way
back."""

from __future__ import annotations

import json
import math
import sys
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distcore_core.errors import DataError
from distcore_tabular.number import NumberFeature, edges
from distcore_tabular.options import NumberInputOptions, NumberOutputOptions
from distcore_testing.features import FeatureSuite

numbers = st.floats(-1e12, 1e12).filter(lambda x: x == 0.0 or abs(x) > 1e-130)
"""Of columns of smaller ones no double holds the standard deviation."""
columns = st.lists(st.none() | numbers, min_size=1, max_size=60).filter(
    lambda each: any(x is not None for x in each)
)


def feature(role: str = "input", clip: Any = None, **preprocessing: Any) -> NumberFeature:
    if role == "input":
        return NumberFeature(
            "x", role, NumberInputOptions.model_validate({"preprocessing": preprocessing})
        )
    options = NumberOutputOptions.model_validate({"preprocessing": preprocessing, "clip": clip})
    return NumberFeature("x", role, options)


def fitted(made: NumberFeature, values: list[float | None]) -> dict[str, Any]:
    return made.finish(made.partial(pa.array(values, pa.float64())))


def encoded(
    made: NumberFeature, values: list[float | None], metadata: dict[str, Any]
) -> list[float]:
    return made.encode(pa.array(values, pa.float64()), metadata).to_pylist()


class TestNumberIsAFeature(FeatureSuite):
    name = "number"
    roles = ("input", "output")

    def values(self) -> pa.Array:
        random = np.random.default_rng(0)
        return pa.array(random.normal(3.0, 2.0, 400), mask=random.random(400) < 0.1)


class TestQuantilesAreAFeature(TestNumberIsAFeature):
    roles = ("input",)
    options: ClassVar[dict[str, Any]] = {"encoder": {"type": "ple", "num_bins": 7}}


class TestQuartilesAreAFeature(TestNumberIsAFeature):
    options: ClassVar[dict[str, Any]] = {
        "preprocessing": {"normalization": "iq", "missing_value_strategy": "fill_with_mode"}
    }


@given(
    columns,
    st.lists(st.integers(0, 60), max_size=4),
    st.randoms(),
    st.sampled_from(["zscore", "minmax", "iq", None]),
)
@settings(max_examples=80, deadline=None)
def test_metadata_is_the_same_for_any_partition_and_order(
    values, cuts, random, normalization
) -> None:
    made = feature(
        normalization=normalization, missing_value_strategy="fill_with_mode", quantiles=5
    )
    array = pa.array(values, pa.float64())
    edges = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    parts = [made.partial(array[a:b]) for a, b in pairwise(edges)]
    random.shuffle(parts)

    def outcome(state: Any) -> str:
        try:
            return json.dumps(made.finish(state))
        except DataError as error:
            return str(error)

    assert outcome(reduce(made.merge, parts)) == outcome(made.partial(array))


@given(
    columns,
    st.integers(0, 60),
    st.integers(0, 60),
    st.sampled_from(["zscore", "minmax", "log1p", None]),
)
@settings(max_examples=80, deadline=None)
def test_slicing_commutes_with_encoding(values, start, stop, normalization) -> None:
    if normalization == "log1p":
        values = [None if value is None else abs(value) for value in values]
    made = feature(normalization=normalization)
    metadata = fitted(made, values)
    array = pa.array(values, pa.float64())
    assert made.encode(array[start:stop], metadata).equals(made.encode(array, metadata)[start:stop])


@given(st.lists(numbers, min_size=1, max_size=40), st.sampled_from(["zscore", "minmax", None]))
@settings(max_examples=80, deadline=None)
def test_decoding_gives_the_value_back_within_float32(values, normalization) -> None:
    made = feature("output", normalization=normalization)
    metadata = fitted(made, values)
    codes = np.asarray(made.encode(pa.array(values, pa.float64()), metadata))
    back = np.asarray(made.decode(codes, metadata))
    # A float32 step of the code, in units of the value; and the doubles' own rounding.
    steps = np.spacing(np.abs(codes)).astype(np.float64) * metadata["scale"]
    room = steps + 4e-16 * (np.abs(values) + abs(metadata["shift"]))
    assert (np.abs(back - values) <= room).all()


@pytest.mark.parametrize(
    ("strategy", "fill"),
    [("fill_with_const", 0.0), ("fill_with_mean", 4.0), ("fill_with_mode", 2.0)],
)
def test_statistics_are_of_the_filled_column_as_in_ludwig(strategy: str, fill: float) -> None:
    values = [2.0, None, 2.0, 8.0, None]
    metadata = fitted(feature(missing_value_strategy=strategy), values)
    filled = np.array([fill if value is None else value for value in values])
    assert metadata["fill"] == fill
    assert metadata["mean"] == pytest.approx(filled.mean(), rel=1e-15)
    assert metadata["std"] == pytest.approx(filled.std(ddof=1), rel=1e-15)
    assert (metadata["min"], metadata["max"]) == (filled.min(), filled.max())
    codes = encoded(feature(), values, metadata)
    assert codes == pytest.approx((filled - filled.mean()) / filled.std(ddof=1), rel=1e-6)


@pytest.mark.parametrize("strategy", ["drop_row", "bfill", "ffill"])
def test_missing_values_that_others_handle_are_not_in_the_statistics(strategy: str) -> None:
    metadata = fitted(feature(missing_value_strategy=strategy), [1.0, None, 3.0])
    assert (metadata["mean"], metadata["count"], metadata["missing"]) == (2.0, 2, 1)


def quartile(values: list[float], number: int) -> float:
    """The exact one, rounded once: numpy rounds two steps, and between neighbouring doubles
    that is another double."""
    whole, rest = divmod(number * (len(values) - 1), 4)
    low, high = (Fraction(sorted(values)[at]) for at in (whole, min(whole + 1, len(values) - 1)))
    return float(low + (high - low) * Fraction(rest, 4))


@given(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=50))
@example([0.0, 0.0, 5e-324])  # numpy's third quartile is 5e-324
@settings(max_examples=60, deadline=None)
def test_quartiles_are_numpys(values) -> None:
    q1, q2, q3 = np.percentile(values, [25, 50, 75])
    made = feature(normalization="iq")
    if quartile(values, 1) == quartile(values, 3):
        with pytest.raises(DataError, match="interquartile range is 0"):
            fitted(made, values)
        return
    metadata = fitted(made, values)
    assert [metadata["q1"], metadata["q2"], metadata["q3"]] == pytest.approx(
        [q1, q2, q3], rel=1e-12, abs=1e-9
    )
    assert (metadata["shift"], metadata["scale"]) == (
        metadata["q2"],
        metadata["q3"] - metadata["q1"],
    )


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=50), st.integers(1, 70))
@settings(max_examples=60, deadline=None)
def test_quantiles_are_numpys_each_once(values, parts) -> None:
    found = fitted(feature(quantiles=parts), values)["quantiles"]
    expected = np.quantile(np.array(values), np.linspace(0, 1, parts + 1))
    assert found == sorted(set(found))
    assert (found[0], found[-1]) == (min(values), max(values))
    for value in expected:
        assert np.abs(np.array(found) - value).min() <= 1e-9
    for value in found:
        assert np.abs(expected - value).min() <= 1e-9


def test_quantiles_of_many_values_hardly_move_and_do_not_depend_on_parts() -> None:
    values = np.random.default_rng(7).normal(5.0, 2.0, 40_000)
    array = pa.array(values, mask=np.arange(len(values)) % 9 == 0)
    made = feature(quantiles=32, missing_value_strategy="fill_with_mean")
    whole = made.finish(made.partial(array))
    parts = [made.partial(array[start : start + 7001]) for start in range(0, len(array), 7001)]
    assert made.finish(reduce(made.merge, reversed(parts))) == whole
    present = array.drop_null().to_numpy()
    filled = np.append(present, np.full(array.null_count, present.mean()))
    exact = np.unique(np.quantile(filled, np.linspace(0, 1, 33)).round(9))
    assert (whole["quantiles"][0], whole["quantiles"][-1]) == (present.min(), present.max())
    assert all(np.abs(exact - each).min() < 0.01 for each in whole["quantiles"])


def test_quantiles_are_of_the_column_as_it_is_filled() -> None:
    values = [None, None, None, 1.0, 2.0]
    assert fitted(feature(quantiles=2), values)["quantiles"] == [0.0, 2.0]
    assert fitted(feature(quantiles=2, missing_value_strategy="drop_row"), values)["quantiles"] == [
        1.0,
        1.5,
        2.0,
    ]
    assert "quantiles" not in fitted(feature(), values)


@pytest.mark.parametrize("normalization", ["zscore", "minmax", "iq", "log1p", None])
@pytest.mark.parametrize("outlier", [None, "fill_with_mean"])
def test_edges_are_the_codes_of_the_quantiles(normalization, outlier) -> None:
    values = [*np.linspace(0.0, 5.0, 41), 90.0]
    made = feature(normalization=normalization, outlier_strategy=outlier, quantiles=4)
    metadata = fitted(made, values)
    found = edges(metadata)
    assert found.dtype == np.float32
    assert (np.diff(found) > 0).all()
    inside = metadata["quantiles"][:-1]  # the last is an outlier
    assert found[:-1].tolist() == encoded(made, inside, metadata)
    if outlier is None:
        assert found[-1:].tolist() == encoded(made, [90.0], metadata)


def test_quantiles_that_float32_cannot_tell_apart_are_one_edge() -> None:
    metadata = fitted(feature(quantiles=64, normalization=None), [1e9, 1e9 + 1, 1e9 + 2, 2e9])
    assert edges(metadata).tolist() == np.unique(np.array(metadata["quantiles"], "f4")).tolist()
    assert len(edges(metadata)) < len(metadata["quantiles"])


def test_minmax_and_log1p_and_none() -> None:
    values = [0.0, 1.0, 3.0]
    for normalization, expected in [
        ("minmax", [0.0, 1 / 3, 1.0]),
        ("log1p", np.log1p(values)),
        (None, values),
    ]:
        made = feature(normalization=normalization)
        metadata = fitted(made, values)
        assert encoded(made, values, metadata) == pytest.approx(expected, rel=1e-6)
        assert made.decode(np.array(expected, np.float32), metadata).to_pylist() == pytest.approx(
            values, rel=1e-6
        )


@pytest.mark.parametrize("normalization", ["zscore", "minmax"])
def test_a_constant_column_is_encoded_as_zero(normalization: str) -> None:
    made = feature(normalization=normalization)
    assert encoded(made, [7.0, 7.0], fitted(made, [7.0, 7.0])) == [0.0, 0.0]
    assert encoded(made, [7.0], fitted(made, [7.0])) == [0.0]


def test_a_large_offset_does_not_lose_the_spread() -> None:
    """Ludwig casts to float32 first, where these three values are one."""
    made = feature()
    codes = encoded(made, [1e9, 1e9 + 1, 1e9 + 2], fitted(made, [1e9, 1e9 + 1, 1e9 + 2]))
    assert codes == [-1.0, 0.0, 1.0]


def test_nan_is_missing() -> None:
    made = feature(missing_value_strategy="fill_with_mean")
    metadata = fitted(made, [1.0, float("nan"), None, 3.0])
    assert (metadata["mean"], metadata["missing"], metadata["count"]) == (2.0, 2, 2)
    assert encoded(made, [float("nan"), None], metadata) == [0.0, 0.0]


def test_an_outlier_becomes_what_the_strategy_says() -> None:
    values = [0.0, 1.0, 2.0, 1.0, 100.0]
    made = feature(
        outlier_strategy="fill_with_const",
        outlier_threshold=1.5,
        fill_value=5.0,
        normalization=None,
    )
    metadata = fitted(made, values)  # mean 20.8, standard deviation 44.28
    assert encoded(made, [1.0, 87.0, 87.5, -45.5, -46.0, None], metadata) == [
        *(1.0, 87.0, 5.0),
        *(-45.5, 5.0, 5.0),
    ]


def test_an_infinity_is_refused_when_fitting_and_when_encoding() -> None:
    made = feature()
    with pytest.raises(DataError, match="'x' holds an infinite value"):
        fitted(made, [1.0, math.inf])
    with pytest.raises(DataError, match="out of range"):
        encoded(made, [math.inf], fitted(made, [1.0, 2.0]))


def test_a_value_under_a_null_is_never_looked_at() -> None:
    data, valid = np.array([1.0, math.inf, 3.0]), np.array([0b101], np.uint8)
    array = pa.Array.from_buffers(pa.float64(), 3, [pa.py_buffer(valid), pa.py_buffer(data)])
    made = feature(missing_value_strategy="fill_with_mean")
    metadata = made.finish(made.partial(array))
    assert (metadata["min"], metadata["max"], metadata["mean"]) == (1.0, 3.0, 2.0)
    assert made.encode(array, metadata)[1].as_py() == 0.0


@pytest.mark.parametrize("cuts", [[], [2], [1, 4]])
def test_the_units_of_a_target_under_log1p_are_those_of_its_filled_codes(cuts) -> None:
    """A block may be without values."""
    values = pa.array([None, None, 0.0, 7.0, None, 1.0], pa.float64())
    strategy = {"missing_value_strategy": "fill_with_const", "fill_value": 0.5}
    made = feature("output", normalization="log1p", **strategy)
    parts = [values[start:stop] for start, stop in pairwise([0, *cuts, len(values)])]
    metadata = made.finish(reduce(made.merge, map(made.partial, parts)))
    codes = np.log1p([0.5, 0.5, 0.0, 7.0, 0.5, 1.0])
    assert metadata["standard"] == pytest.approx({"mean": codes.mean(), "std": codes.std(ddof=1)})


def test_log1p_says_which_value_is_too_small() -> None:
    made = feature(normalization="log1p")
    with pytest.raises(DataError, match=r"smallest value is -1\.0"):
        fitted(made, [-1.0, 2.0])
    with pytest.raises(DataError, match=r"-3\.0 cannot be encoded"):
        encoded(made, [2.0, -3.0], fitted(made, [0.0, 2.0]))


@pytest.mark.parametrize("strategy", ["missing_value_strategy", "outlier_strategy"])
def test_log1p_refuses_what_is_to_be_filled_with_though_nothing_is_yet(strategy) -> None:
    """A missing value of a prediction was said to be out of range, or another number that nobody
    gave."""
    options = {"missing_value_strategy": "drop_row", strategy: "fill_with_const"}
    made = feature(normalization="log1p", fill_value=-999, **options)
    with pytest.raises(DataError, match=r"fill_value is -999(\.0)?, and log1p is defined above -1"):
        fitted(made, [1.0, 2.0])
    kept = {"missing_value_strategy": "drop_row", "fill_value": -999}
    assert fitted(feature(normalization="log1p", **kept), [1.0, 2.0])["fill"] == 1.5


def test_log1p_is_not_blamed_where_nobody_asked_for_it() -> None:
    for made in (feature(normalization="minmax"), feature(normalization="zscore")):
        with pytest.raises(DataError, match=r"-1e\+300 cannot be encoded; it is out of range"):
            encoded(made, [0.5, -1e300], fitted(made, [0.0, 2.0]))


@pytest.mark.parametrize(
    "options",
    [
        {"normalization": "zscore"},
        {"normalization": "minmax", "outlier_strategy": "fill_with_mean"},
    ],
)
def test_a_standard_deviation_that_no_double_holds(options: dict[str, str]) -> None:
    """It was taken for 0: every value was an outlier and became the mean, or the first of them was
    said to be out of range, whatever it was."""
    said = r"no double holds the standard deviation of its values, which lie from 0\.5 to 1e\+200"
    with pytest.raises(DataError, match=said):
        fitted(feature(**options), [0.5, 0.7, 1e200])
    assert fitted(feature(normalization="minmax"), [0.5, 0.7, 1e200])["std"] == 0.0


@pytest.mark.parametrize(
    "made", [feature(normalization="zscore"), feature("output", normalization="minmax")]
)
def test_a_standard_deviation_below_what_a_double_holds(made: NumberFeature) -> None:
    """It was 0, as if all values were one, and each was encoded as that."""
    with pytest.raises(DataError, match=r"which lie from 1e-200 to 3e-200\. Scale the column"):
        fitted(made, [1e-200, 3e-200, 2e-200])
    assert fitted(feature(normalization="minmax"), [1e-200, 3e-200])["std"] == 0.0
    assert fitted(made, [1e-200, 1e-200])["std"] == 0.0


def test_a_column_without_values_is_refused() -> None:
    with pytest.raises(DataError, match="'x' has no value in any row"):
        fitted(feature(), [None, None])


def test_a_spread_beyond_doubles_is_refused() -> None:
    with pytest.raises(DataError, match="more than a double can hold"):
        fitted(feature(normalization="minmax"), [-sys.float_info.max, sys.float_info.max])


def test_clip_is_in_original_units() -> None:
    import torch

    made = feature("output", clip=[0.0, 10.0], normalization="zscore")
    metadata = fitted(made, [5.0, 15.0])
    network = made.network()
    output = network.output(torch.tensor([-9.0, 0.0, 9.0]), metadata)
    predictions = network.predictions(output.numpy(), metadata)
    assert predictions.schema.names == ["x_predictions"]
    assert predictions["x_predictions"].to_pylist() == pytest.approx([0.0, 10.0, 10.0], abs=1e-5)


@pytest.mark.parametrize("low", [-5.0, -1.0])
def test_a_clip_from_below_what_log1p_is_defined_for_bounds_nothing_there(low: float) -> None:
    """It was NaN, and so was every prediction."""
    import torch

    made = feature("output", clip=[low, 10.0], normalization="log1p")
    metadata = fitted(made, [5.0, 15.0])
    free = feature("output", normalization="log1p").network()
    logits = torch.tensor([-30.0, 0.0, 9.0])
    found = made.network().output(logits, metadata)
    assert found[:2].equal(free.output(logits, metadata)[:2])
    assert found[2].item() == pytest.approx(np.log1p(10.0))


@given(st.floats(-1e3, 1e3), st.floats(0.01, 1e3), st.floats(-5.0, 5.0))
@example(0.0, 100.0, 3.3)
@settings(max_examples=60, deadline=None)
def test_no_prediction_lies_outside_of_clip(low, width, away) -> None:
    """The codes of the bounds are rounded: a price clipped at 0 came out below it."""
    import torch

    made = feature("output", clip=[low, low + width], normalization="zscore")
    metadata = fitted(made, [low + away, low + away + 1.7, low + away + 2.9])
    network = made.network()
    output = network.output(torch.tensor([-1e9, 1e9]), metadata)
    below, above = network.predictions(output.numpy(), metadata)["x_predictions"].to_pylist()
    assert low <= below < above <= low + width
    truths = made.encode(pa.array([low - 9.0, low + width + 9.0]), metadata)
    decoded = network.predictions(truths.to_numpy(), metadata)["x_predictions"]
    assert decoded == made.decode(truths.to_numpy(), metadata)
