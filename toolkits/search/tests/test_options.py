"""The `hyperopt` section's models."""

import pytest
from pydantic import ValidationError

from distcore_search.options import AsyncHyperband


def test_no_trial_is_stopped_before_its_grace_is_over():
    """Ray fails an assertion then; the executor local stopped trials at max_t all the same."""
    assert AsyncHyperband(type="asha", max_t=5, grace_period=5).grace_period == 5
    with pytest.raises(ValidationError, match=r"grace_period \(5\) should be at most max_t \(2\)"):
        AsyncHyperband(type="asha", max_t=2, grace_period=5)
    with pytest.raises(ValidationError, match=r"at most max_t \(100\)"):
        AsyncHyperband(type="asha", grace_period=101)
