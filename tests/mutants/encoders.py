"""Encoders of numbers with a fault each: sines of the value."""

from __future__ import annotations

import random

import torch
from tests.mutants.harness import Mutants

from distcore_core.hooks import hookimpl
from distcore_testing import EncoderSuite

DISTCORE_API = (1, 0)
MUTANTS = Mutants("tabular.encoders", EncoderSuite, prefix="number.")


@MUTANTS.sound
class Sines(torch.nn.Module):
    """Of the value, with trained phases."""

    output_size = 4

    def __init__(self):
        super().__init__()
        self.phases = torch.nn.Parameter(torch.randn(4))

    def forward(self, values):
        return torch.sin(values.reshape(-1, 1) * torch.arange(1, 5) + self.phases)


@MUTANTS.fault("test_it_reads_the_column_row_by_row", quick=True)
class Centred(Sines):
    """A row is read beside the mean of its batch."""

    def forward(self, values):
        return super().forward(values - values.mean())


@MUTANTS.fault("test_it_reads_the_column_row_by_row")
class Wide(Sines):
    """Says another width than it has."""

    output_size = 5


@MUTANTS.fault("test_it_reads_the_column_row_by_row")
class Blind(Sines):
    """Gives every row the same."""

    def forward(self, values):
        return super().forward(values * 0)


@MUTANTS.fault("test_it_reads_the_column_row_by_row")
class Squeezed(Sines):
    """A batch of one row loses its first dimension."""

    def forward(self, values):
        return super().forward(values).squeeze(0)


@MUTANTS.fault("test_its_weights_are_trained_and_kept")
class Detached(Sines):
    """Its phases get no gradient."""

    def forward(self, values):
        return torch.sin(values.reshape(-1, 1) * torch.arange(1, 5) + self.phases.detach())


@MUTANTS.fault("test_its_weights_are_trained_and_kept")
class Unsaved(Sines):
    """Multiples that are drawn are no part of its state."""

    def __init__(self):
        super().__init__()
        self.multiples = torch.rand(4)

    def forward(self, values):
        return torch.sin(values.reshape(-1, 1) * self.multiples + self.phases)


@MUTANTS.fault("test_its_weights_are_trained_and_kept")
class Clamping(Sines):
    """Clamps the batch in place."""

    def forward(self, values):
        return super().forward(values.clamp_(-1, 1))


@MUTANTS.fault("test_its_weights_are_trained_and_kept")
class Running(Sines):
    """Keeps the mean of what it was trained on where no state is saved."""

    mean = 0.0

    def forward(self, values):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * float(values.mean())
        return super().forward(values - self.mean)


@MUTANTS.fault("test_its_weights_are_trained_and_kept")
class Dropping(Sines):
    """Drops columns by numbers of Python's own."""

    def forward(self, values):
        found = super().forward(values)
        keep = torch.tensor([random.random() < 0.7 for _ in range(4)])
        return found * keep if self.training else found


@MUTANTS.fault("test_it_reads_the_column_row_by_row")
class Doubled(Sines):
    """Gives doubles, which no layer after it takes."""

    def forward(self, values):
        return super().forward(values).double()


@hookimpl
def distcore_make_member(kind, name):
    made = MUTANTS.named(name)
    return made and made()
