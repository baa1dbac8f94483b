"""The compiled pass over numbers: the integers of exactsum.py, the bits of numpy, for any values,
nulls and slices."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distcore_data.encoding import numbers
from distcore_data.encoding.exactsum import Moments, moments_of_one

pytestmark = pytest.mark.skipif(numbers.compiled is None, reason="built without a C compiler")

DOUBLES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1e3, 1e3),
    st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 2.2e-308, 1.7976931348623157e308]),
)
COLUMNS = st.lists(st.one_of(DOUBLES, st.none()), max_size=40)


def present(values):
    return np.array([value for value in values if value is not None], np.float64)


@given(COLUMNS, st.integers(0, 20))
@example([-0.0], 0)
@example([-1.0, None, -0.0], 0)
def test_moments_and_extremes_are_those_of_exactsum(values, start):
    array = pa.array(values, pa.float64()).slice(min(start, len(values)))
    found, expected = numbers.described(array), present(values[start:])
    if found is None:
        assert not len(array)
        return
    assert found.moments == Moments.of(expected)
    extremes = (expected.min(), expected.max()) if len(expected) else (np.inf, -np.inf)
    assert (found.low, found.high) == extremes
    assert not np.signbit([found.low, found.high])[np.array([found.low, found.high]) == 0].any()


@pytest.mark.parametrize("spread", [1.0, 1e-300, 1e300, 1e15])
def test_many_values_of_a_few_exponents_and_of_all(spread):
    dice = np.random.default_rng(3)
    values = dice.standard_normal((1 << 20) + 77) * spread
    wide = np.ldexp(dice.standard_normal(5000), dice.integers(-1070, 1020, 5000))
    values[dice.permutation(len(values))[:5000]] = wide
    mask = dice.random(len(values)) < 0.05
    assert numbers.described(pa.array(values)).moments == Moments.of(values)
    assert numbers.described(pa.array(values, mask=mask)).moments == Moments.of(values[~mask])
    largest = np.full((1 << 20) + 3, -1.7976931348623157e308)
    assert numbers.described(pa.array(largest)).moments == Moments.of(largest)


@pytest.mark.parametrize("binades", [1, 30, 48, 52, 60, 110, 300])
@pytest.mark.parametrize("top", [-1000, -399, -30, 0, 60, 479, 900])
def test_runs_whose_values_differ_much_or_little_in_size(binades, top):
    dice = np.random.default_rng(binades)
    exponents = np.clip(top - dice.integers(0, binades, 70_000), -1074, 1023)
    values = np.ldexp(dice.uniform(-1, 1, 70_000), exponents)
    values[20_000:30_000] = np.round(values[20_000:30_000], 2)
    values[40_000:41_000] = dice.choice([0.0, -0.0], 1000)
    mask = dice.random(len(values)) < 0.1
    for start in (0, 1, 7, 50_003):
        found = numbers.described(pa.array(values, mask=mask)[start:])
        there = values[start:][~mask[start:]]
        assert found.moments == Moments.of(there)
        assert (found.low, found.high) == (there.min(), there.max())
        assert numbers.described(pa.array(values)[start:]).moments == Moments.of(values[start:])


@pytest.mark.parametrize("place", [0, 5, 2047, 2048, 9_999])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_bad_value_among_many_is_found_wherever_it_is(place, bad):
    values = np.random.default_rng(place).standard_normal(10_000)
    values[place] = bad
    assert numbers.described(pa.array(values, from_pandas=False)) is None
    hidden = numbers.described(pa.array(values, mask=np.arange(10_000) == place))
    assert hidden.moments == Moments.of(np.delete(values, place))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_left_to_numpy_and_leaves_nothing_behind(bad):
    assert numbers.described(pa.array([1.0, 2.0, bad, 4.0], from_pandas=False)) is None
    hidden = pa.array([1.0, 2.0, bad, 4.0], mask=np.array([False, False, True, False]))
    assert numbers.described(hidden).moments == Moments.of(np.array([1.0, 2.0, 4.0]))
    assert numbers.scaled(pa.array([1.0, bad], from_pandas=False), 0.0, 1.0, 0.0) is None


@given(COLUMNS, st.integers(0, 20), DOUBLES, DOUBLES.filter(lambda scale: scale != 0.0), DOUBLES)
def test_codes_are_those_of_numpy(values, start, shift, scale, fill):
    array = pa.array(values, pa.float64()).slice(min(start, len(values)))
    plain = np.array([fill if value is None else value for value in values[start:]], np.float64)
    with np.errstate(all="ignore"):
        expected = ((plain - shift) / scale).astype(np.float32)
        fill_code = np.divide(np.float64(fill) - shift, scale)
    found = numbers.scaled(array, shift, scale, float(fill_code))
    if found is None:
        assert not len(array) or not np.isfinite(expected).all()
    else:
        assert np.asarray(found).tobytes() == expected.tobytes()


@given(DOUBLES, st.integers(-5, 5))
def test_moments_of_one_value(value, times):
    once = Moments.of(np.array([value]))
    expected = Moments(times, times * once.total, times * once.squares)
    assert moments_of_one(value, times) == expected


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 4000])
def test_what_is_surely_finite(size):
    values = np.random.default_rng(size).standard_normal(size + 3) * 1e300
    values[1:][:size][::2] = -0.0
    assert numbers.surely_finite(pa.array(values)[1 : size + 1])
    for place in {1, size // 2 + 1, size} if size else ():
        for bad in (np.nan, np.inf, -np.inf):
            one = values.copy()
            one[place] = bad
            assert not numbers.surely_finite(pa.array(one, from_pandas=False)[1 : size + 1])
    outside = np.concatenate([[np.nan], values[1 : size + 1], [np.inf]])
    assert numbers.surely_finite(pa.array(outside, from_pandas=False)[1 : size + 1])
    assert not numbers.surely_finite(pa.array([1, 2]))  # no doubles


def test_what_is_no_double_is_left_to_others():
    for other in (pa.array([1, 2]), pa.array([1.0, 2.0], pa.float32())):
        assert numbers.described(other) is None
        assert numbers.scaled(other, 0.0, 1.0, 0.0) is None


def test_buffers_that_are_too_short_are_refused():
    with pytest.raises(ValueError, match="too short"):
        numbers.compiled.surely_finite(bytes(16), 1, 2)
    for arguments in [(bytes(16), None, 1, 2), (bytes(16), None, -1, 2), (bytes(160), b"1", 0, 9)]:
        with pytest.raises(ValueError, match="too short"):
            numbers.compiled.described(*arguments)
    with pytest.raises(ValueError, match="the target is too short"):
        numbers.compiled.scaled(bytes(16), None, 0, 2, 0.0, 1.0, 0.0, bytearray(4))
