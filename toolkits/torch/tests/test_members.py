"""The toolkit's own optimizers and schedules hold what every one of others must hold."""

from typing import ClassVar

import pytest

from distcore_testing import OptimizerSuite, ScheduleSuite
from distcore_torch import Callback
from distcore_torch.roles import CALLBACK, OPTIMIZER


@pytest.mark.parametrize("member", ["sgd", "adam", "adamw", "rmsprop", "adagrad", "lbfgs"])
class TestOptimizers(OptimizerSuite):
    @pytest.fixture(autouse=True)
    def _named(self, member):
        self.name = member
        self.searches = member == "lbfgs"
        self.learning_rate = 0.5 if member in ("adagrad", "lbfgs") else 0.05


class TestMomentum(OptimizerSuite):
    name = "sgd"
    options: ClassVar = {"momentum": 0.9, "nesterov": True}


@pytest.mark.parametrize("member", ["linear", "exponential", "cosine"])
class TestSchedules(ScheduleSuite):
    @pytest.fixture(autouse=True)
    def _named(self, member):
        self.name = member


class Half:
    """A member whose author did not inherit, and left a method out."""

    after_step = param_groups = state = step = state_dict = None


@pytest.mark.parametrize(
    ("role", "lacks"),
    [
        (CALLBACK, ["around_evaluation", "around_gradients", "load_state"]),
        (OPTIMIZER, ["load_state_dict"]),
    ],
)
def test_what_a_member_lacks_is_known_before_it_is_called(role, lacks):
    """A callback without `load_state` ended the run that goes on, and no other."""
    assert role.lacks(Half()) == lacks
    assert not CALLBACK.lacks(Callback())
