"""How far a column's values in one split lie from those of the training split."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcore.workflow.summary import drifts


@pytest.mark.parametrize(
    ("train", "test", "expected"),
    [
        ([3.0, 1.0, 2.0, 2.0], [2.0, 1.0, 2.0, 3.0], 0.0),
        ([1.0, 2.0], [4.0, 3.0, 5.0], 1.0),
        ([4.0, 1.0, 3.0, 2.0], [9.0, 1.0, 2.0, 0.0], 0.25),
        ([0, 0, 1], [1, 1, 1], 2 / 3),
        ([-1, 2], [2, 0], 0.0),  # an unknown code counts as the first
        ([], [1.0], 1.0),
        ([1.0, 2.0], [], 1.0),
        ([], [], 0.0),
    ],
)
def test_numbers_by_kolmogorov_and_smirnov_and_codes_by_their_shares(train, test, expected):
    kind = np.int32 if any(isinstance(each, int) for each in test) else np.float32
    halves = [np.array(train[:1], kind), np.array(train[1:], kind)]
    found = drifts({"train": halves, "test": [np.array(test, kind)], "validation": halves})
    assert found == {"test": pytest.approx(expected), "validation": 0.0}


NUMBERS = st.lists(st.integers(-5, 5).map(float) | st.floats(-9, 9, width=32), min_size=1)


@given(NUMBERS, NUMBERS)
def test_at_no_value_of_either_do_the_shares_lie_further_apart(train, test):
    one, other = np.array(train, np.float32), np.array(test, np.float32)
    apart = [abs((one <= each).mean() - (other <= each).mean()) for each in (*one, *other)]
    found = drifts({"train": [one.copy()], "test": [other.copy()]})
    assert found == {"test": pytest.approx(max(apart), abs=1e-12)}


def test_there_is_none_without_training_rows():
    assert drifts({"test": [np.ones(3, np.float32)]}) == {}
    assert drifts({}) == {}
