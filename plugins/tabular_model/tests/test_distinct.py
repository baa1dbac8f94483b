"""Distinct values with their counts, all of them or rounded."""

import math
from fractions import Fraction
from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcore_tabular.distinct import ALL, ENOUGH, Distinct

VALUES = st.lists(st.one_of(st.floats(1, 2), st.floats(-1e300, 1e300), st.just(-0.0)), max_size=60)


def listed(found):
    return found.values.tolist(), found.counts.tolist(), found.dropped


@given(
    VALUES, st.lists(st.integers(0, 60), max_size=4), st.randoms(), st.sampled_from([4, 16, ALL])
)
def test_the_same_for_any_parts_and_order(values, cuts, random, most):
    array = np.array(values, np.float64)
    bounds = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    parts = [Distinct.of(array[start:stop], most) for start, stop in pairwise(bounds)]
    random.shuffle(parts)
    whole = Distinct.of(array, most)
    assert listed(reduce(Distinct.merge, parts)) == listed(whole)
    assert whole.counts.sum() == len(values)
    assert (np.diff(whole.values) > 0).all()
    if most == ALL:
        assert set(whole.values.tolist()) == set(values)


def test_no_more_are_kept_than_enough_and_quantiles_hardly_move():
    random = np.random.default_rng(2)
    for values in (random.normal(size=300_000), 1.7e9 + 3e7 * random.random(300_000)):
        parts = [Distinct.of(each, ENOUGH) for each in np.array_split(values, 7)]
        found = reduce(Distinct.merge, parts)
        assert ENOUGH / 4 < len(found.values) <= ENOUGH
        quantiles = found.quantiles(64)
        exact = np.quantile(values, np.linspace(0, 1, 65))
        assert np.abs(np.array(quantiles) - exact).max() < 0.01 * values.std()


@given(
    st.lists(st.integers(-3, 3) | st.floats(-1e9, 1e9), min_size=1, max_size=40),
    st.integers(1, 70),
)
def test_quantiles_lie_where_fractions_say(values, parts):
    """To the bit: what is learned goes by them."""
    ordered = sorted(float(each) + 0.0 for each in values)
    expected = []
    for part in range(parts + 1):
        place = Fraction(part * (len(ordered) - 1), parts)
        low, high = (ordered[min(math.floor(place) + more, len(ordered) - 1)] for more in (0, 1))
        expected.append(low + (high - low) * float(place % 1))
    assert Distinct.of(np.array(values, float)).quantiles(parts) == expected


def test_all_quantiles_are_looked_up_at_once(monkeypatch):
    looks, real = [], np.searchsorted
    monkeypatch.setattr(np, "searchsorted", lambda *a, **k: looks.append(1) or real(*a, **k))
    Distinct.of(np.arange(100.0)).quantiles(32)
    assert len(looks) == 1  # a column has 33 edges, and a table may have thousands of columns


def test_few_values_are_kept_as_they_are():
    values = np.random.default_rng(3).normal(size=ENOUGH)
    found = Distinct.of(values, ENOUGH)
    assert found.dropped == 0
    assert found.quantiles(10) == pytest.approx(np.quantile(values, np.linspace(0, 1, 11)).tolist())


def test_the_mode_is_the_smallest_of_equally_frequent_values():
    assert Distinct.of(np.array([3.0, 1.0, 2.0, 3.0, 1.0])).mode() == 1.0
    assert Distinct.of(np.array([3.0, 1.0])).with_value(3.0, 2).mode() == 3.0


@pytest.mark.parametrize(
    ("times", "width"), [(1, 1), (127, 1), (128, 2), (1 << 15, 4), (1 << 31, 8)]
)
def test_counts_take_no_more_bytes_than_they_need(times, width):
    """Of 5,000 columns of numbers that are there once, eight bytes of counts for each were half."""
    once = Distinct.of(np.arange(5.0), 100)
    assert once.counts.itemsize == 1
    more = once.with_value(3.0, times - 1) if times > 1 else once
    assert more.counts.itemsize == width
    assert more.merge(once).counts.tolist() == [2, 2, 2, times + 1, 2]
