"""The toolkit's own optimizers and schedules hold what every one of others must hold."""

from typing import ClassVar

import pytest

from distcore_testing import OptimizerSuite, ScheduleSuite


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
