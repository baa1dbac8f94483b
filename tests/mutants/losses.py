"""Losses of numbers with a fault each: the squared error."""

from __future__ import annotations

import torch
from tests.mutants.harness import Mutants

from distcore_core.hooks import hookimpl
from distcore_testing import LossSuite

DISTCORE_API = (1, 0)
MUTANTS = Mutants("tabular.losses", LossSuite, prefix="number.")


@MUTANTS.sound
class Squares:
    """Of each row."""

    def __call__(self, logits, target, metadata):
        return (logits - target).square()


@MUTANTS.fault("test_it_is_a_number_of_each_row_with_a_gradient", quick=True)
class Mean(Squares):
    """One number for the whole batch."""

    def __call__(self, logits, target, metadata):
        return super().__call__(logits, target, metadata).mean()


@MUTANTS.fault("test_it_is_a_number_of_each_row_with_a_gradient")
class Shared(Squares):
    """A row's loss is divided by the largest of its batch."""

    def __call__(self, logits, target, metadata):
        found = super().__call__(logits, target, metadata)
        return found / found.max().detach()


@MUTANTS.fault("test_it_is_a_number_of_each_row_with_a_gradient")
class Rooted(Squares):
    """The root of the squared error, whose gradient is cut."""

    def __call__(self, logits, target, metadata):
        return super().__call__(logits, target, metadata).detach().sqrt() + 0 * logits


@MUTANTS.fault("test_large_logits_and_equal_ones_have_finite_losses")
class Exponential(Squares):
    """Overflows for logits that are large."""

    def __call__(self, logits, target, metadata):
        return (logits - target).exp() + (target - logits).exp() - 2


@MUTANTS.fault("test_descending_it_ends_at_the_values")
class Shifted(Squares):
    """Is least at one standard deviation beside the target."""

    def __call__(self, logits, target, metadata):
        return (logits - target - 1).square()


@MUTANTS.fault("test_it_is_a_number_of_each_row_with_a_gradient")
class Annealed(Squares):
    """Counts its calls, and weighs by them."""

    calls = 0

    def __call__(self, logits, target, metadata):
        self.calls += 1
        return super().__call__(logits, target, metadata) / self.calls


@MUTANTS.fault("test_it_is_a_number_of_each_row_with_a_gradient")
class Seeding(Squares):
    """Sets torch's seed, which dropout draws by."""

    def __call__(self, logits, target, metadata):
        torch.manual_seed(1)
        return super().__call__(logits, target, metadata)


@hookimpl
def distcore_make_member(kind, name):
    made = MUTANTS.named(name)
    return made and made()
