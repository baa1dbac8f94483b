"""Exact sums: the integers that fractions.Fraction gives, for any partition and any order of
merging."""

import math
import pickle
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore_data.encoding.exactsum import CHUNK, ROW, ExactSum, Moments

FINITE = st.floats(allow_nan=False, allow_infinity=False)
LISTS = st.lists(
    st.one_of(
        FINITE,
        st.floats(-1e3, 1e3),
        st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 1.7976931348623157e308]),
    )
)


def fractions_of(values):
    """Sum and sum of squares by rational arithmetic."""
    exact = [Fraction(value) for value in values]
    return sum(exact, Fraction(0)), sum((value * value for value in exact), Fraction(0))


def as_fractions(state):
    return Fraction(state.total, 1 << 1074), Fraction(state.squares, 1 << 2148)


@given(LISTS)
def test_sum_and_squares_are_those_of_rational_arithmetic(values):
    array = np.array(values, np.float64)
    assert as_fractions(Moments.of(array)) == fractions_of(values)
    assert Fraction(ExactSum.of(array).total, 1 << 1074) == fractions_of(values)[0]


@given(LISTS, st.lists(st.integers(0, 50), max_size=5), st.randoms())
def test_any_partition_and_merge_order_gives_the_same_state(values, cuts, random):
    array = np.array(values, np.float64)
    parts = [
        Moments.of(part) for part in np.split(array, sorted(min(cut, len(array)) for cut in cuts))
    ]
    random.shuffle(parts)
    assert reduce(Moments.merge, parts) == Moments.of(array)
    sums = (
        [ExactSum.of(part) for part in np.split(array, 2)]
        if len(array) % 2 == 0
        else [ExactSum.of(array)]
    )
    assert reduce(ExactSum.merge, reversed(sums)) == ExactSum.of(array)


@pytest.mark.parametrize("count", [ROW - 1, ROW + 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3])
@pytest.mark.parametrize(
    "kind", ["normal", "lognormal", "integers", "wide", "zeros", "tiny", "huge"]
)
def test_large_arrays_of_each_shape_are_exact(kind, count):
    rng = np.random.default_rng(count)
    values = {
        "normal": lambda: rng.standard_normal(count) * 30 + 50,
        "lognormal": lambda: np.exp(4 * rng.standard_normal(count)),
        "integers": lambda: rng.integers(-(2**53), 2**53, count).astype(np.float64),
        "wide": lambda: 10.0 ** rng.uniform(-320, 300, count) * rng.choice([-1, 1], count),
        "zeros": lambda: np.where(rng.random(count) < 0.99, 0.0, rng.standard_normal(count)),
        "tiny": lambda: rng.standard_normal(count) * 1e-310,
        "huge": lambda: rng.uniform(-1.0, 1.0, count) * 1.7e308,
    }[kind]()
    state = Moments.of(values)
    # Integers, because thousands of Fractions are slow: every double is a whole number of 2**-1074.
    wholes = [
        numerator * ((1 << 1074) // denominator)
        for numerator, denominator in map(float.as_integer_ratio, values.tolist())
    ]
    assert state.total == sum(wholes)
    assert state.squares == sum(whole * whole for whole in wholes)
    order = rng.permutation(count)
    assert Moments.of(values[order]) == state


@given(st.lists(FINITE, min_size=1, max_size=30))
def test_sum_and_mean_are_correctly_rounded(values):
    state = Moments.of(np.array(values))
    exact, squares = fractions_of(values)
    assert state.mean() == float(exact / len(values))
    try:
        assert state.sum() == float(exact)
    except OverflowError:
        assert math.isinf(state.sum())
    try:
        assert state.variance() == float(squares / len(values) - (exact / len(values)) ** 2)
    except OverflowError:
        assert math.isinf(state.variance())


@settings(max_examples=30)
@given(st.floats(-1e300, 1e300), st.integers(1, 20_000))
def test_a_constant_column_has_no_variance(value, count):
    """What x*x rounded before summing gets wrong: 0.1 would have a standard deviation of 1e-9."""
    state = Moments.of(np.full(count, value))
    assert state.variance() == 0.0
    assert state.mean() == value


def test_far_from_zero_the_variance_does_not_cancel():
    values = 1.7e9 + np.array([0.0, 0.5, 1.0, 1.5] * 5000)
    assert Moments.of(values).variance() == 0.3125


def test_variance_with_ddof_and_of_too_few_values():
    state = Moments.of(np.array([1.0, 2.0, 4.0]))
    assert state.variance(1) == 7 / 3
    assert state.std() == math.sqrt(14 / 9)
    assert math.isnan(Moments().mean())
    assert math.isnan(Moments().variance())
    assert math.isnan(Moments.of(np.array([1.0])).variance(1))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 7, CHUNK + 1])
def test_nan_and_infinity_are_refused(bad, place):
    values = np.zeros(CHUNK + 2)
    values[place] = bad
    with pytest.raises(ValueError, match="NaN or infinity"):
        Moments.of(values)
    with pytest.raises(ValueError, match="NaN or infinity"):
        ExactSum.of(values)


def test_states_pickle_and_start_at_nothing():
    state = Moments.of(np.array([1.5, -2.25]))
    assert pickle.loads(pickle.dumps(state)) == state  # noqa: S301
    assert Moments() + state == state
    assert ExactSum() + ExactSum.of(np.array([-0.0])) == ExactSum()
    assert ExactSum.of(np.array([0.1] * 10)).value() == 1.0


def test_other_real_types_and_strides_are_taken():
    assert Moments.of(np.arange(10, dtype=np.int32)[::2]) == Moments(5, 20 << 1074, 120 << 2148)
    assert ExactSum.of(np.array([0.5, 0.25], np.float32)).value() == 0.75
