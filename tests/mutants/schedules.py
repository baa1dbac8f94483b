"""Schedules of the learning rate with a fault each: down to nothing in a line."""

from __future__ import annotations

from tests.mutants.harness import Mutants

from distcore_core.hooks import hookimpl
from distcore_testing import ScheduleSuite

DISTCORE_API = (1, 0)
MUTANTS = Mutants("schedules", ScheduleSuite)


@MUTANTS.sound
class Line:
    """A line to 0."""

    def __init__(self, learning_rate, steps, steps_per_round):
        self.rate, self.steps = learning_rate, steps

    def __call__(self, step):
        return self.rate * max(0.0, 1 - step / self.steps)


@MUTANTS.fault("test_every_step_has_a_rate", quick=True)
class Below(Line):
    """Goes below nothing after its last step."""

    def __call__(self, step):
        return self.rate * (1 - step / self.steps)


@MUTANTS.fault("test_every_step_has_a_rate")
class Whole(Line):
    """Divides by steps less one, which may be none."""

    def __call__(self, step):
        return self.rate * max(0.0, 1 - step / (self.steps - 1))


@MUTANTS.fault("test_a_rate_is_a_function_of_the_step_alone")
class Stateful(Line):
    """Counts how often it was asked."""

    asked = -1

    def __call__(self, step):
        self.asked += 1
        return super().__call__(self.asked)


@MUTANTS.fault("test_it_schedules_something")
class Flat(Line):
    """Is the same in every step."""

    def __call__(self, step):
        return self.rate


@MUTANTS.fault("test_it_schedules_something")
class Own(Line):
    """Goes from a rate of its own, whatever is asked for."""

    def __call__(self, step):
        return 0.1 * max(0.0, 1 - step / self.steps)


@MUTANTS.fault("test_every_step_has_a_rate")
class Tabled(Line):
    """Has a table of as many rates as its author's runs had steps."""

    def __call__(self, step):
        return [super(Tabled, self).__call__(each) for each in range(100)][step]


@hookimpl
def distcore_make_member(kind, name, context):
    made = MUTANTS.named(name)
    return made and made(**context)
