"""How often a share fits."""

import pytest

from distcore_data.shares import times


@pytest.mark.parametrize(
    ("has", "each", "expected"),
    [(1, 0.1, 10), (0.3, 0.1, 3), (4, 1.5, 2), (2, 3, 0), (8, 1, 8), (2, 0.3, 6)],
)
def test_floats_take_none_away(has, each, expected):
    assert times(has, each) == expected


@pytest.mark.parametrize(
    ("has", "each", "expected"),
    [(2, 0.4, 4), (2, 0.3, 6), (2, 0.6, 2), (1.5, 0.5, 3), (0.9, 0.4, 2), (4, 2, 2), (0, 0.5, 0)],
)
def test_a_part_of_a_gpu_lies_on_one(has, each, expected):
    assert times(has, each, whole=True) == expected
