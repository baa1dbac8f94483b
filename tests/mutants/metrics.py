"""Metrics of numbers with a fault each: the mean absolute error."""

from __future__ import annotations

import torch
import torchmetrics
from tests.mutants.harness import Mutants

from distcore_core.hooks import hookimpl
from distcore_testing import MetricSuite

DISTCORE_API = (1, 0)
MUTANTS = Mutants("tabular.metrics", MetricSuite, {"best": 0.0}, prefix="number.")
_KEPT: list[float] = []


@MUTANTS.sound
class Error(torchmetrics.Metric):
    """Sums of errors and rows."""

    full_state_update = False

    def __init__(self):
        super().__init__()
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("rows", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, output, target):
        self.total += (output.double() - target.double()).abs().sum()
        self.rows += len(target)

    def compute(self):
        return self.total / self.rows


@MUTANTS.fault("test_it_does_not_depend_on_batches_or_on_evaluations_before", quick=True)
class MeanOfMeans(Error):
    """Averages the batches' means."""

    def update(self, output, target):
        self.total += (output.double() - target.double()).abs().mean()
        self.rows += 1


@MUTANTS.fault("test_it_does_not_depend_on_batches_or_on_evaluations_before")
class Remembering(Error):
    """Keeps the rows of evaluations before."""

    def update(self, output, target):
        _KEPT.append(float((output - target).abs().mean()))

    def compute(self):
        return torch.tensor(sum(_KEPT) / len(_KEPT))


@MUTANTS.fault("test_it_is_as_new_after_a_reset")
class Hoarding(Error):
    """Keeps its sums when it is told to begin anew."""

    def reset(self):
        self._computed = None


@MUTANTS.fault("test_states_of_several_ranks_are_merged")
class Unshared(Error):
    """Counts its rows beside its states."""

    def __init__(self):
        super().__init__()
        self.seen = 0

    def update(self, output, target):
        super().update(output, target)
        self.seen += len(target)

    def compute(self):
        return self.total / max(1, self.seen)


@MUTANTS.fault("test_states_of_several_ranks_are_merged")
class Largest(Error):
    """Of the ranks' sums the largest counts."""

    def __init__(self):
        super().__init__()
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="max")


@MUTANTS.fault("test_a_right_output_is_best")
class Signed(Error):
    """Is lower for outputs that are too low."""

    def update(self, output, target):
        self.total += (output.double() - target.double() - 1).abs().sum()
        self.rows += len(target)


@MUTANTS.fault("test_it_changes_nothing_but_its_states", quick=True)
class Draining(Error):
    """Takes its sums out when it is asked."""

    def compute(self):
        found = super().compute()
        self.total *= 0
        return found


@MUTANTS.fault("test_it_changes_nothing_but_its_states")
class Drawing(Error):
    """Draws from the random numbers that training draws from."""

    def update(self, output, target):
        keep = torch.randperm(len(output))
        super().update(output[keep], target[keep])


@hookimpl
def distcore_make_member(kind, name):
    made = MUTANTS.named(name)
    return made and made()
