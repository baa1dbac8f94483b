"""Decoders of numbers with a fault each: a linear layer."""

from __future__ import annotations

import torch
from tests.mutants.harness import Mutants

from distcore_core.hooks import hookimpl
from distcore_testing import DecoderSuite

DISTCORE_API = (1, 0)
MUTANTS = Mutants("tabular.decoders", DecoderSuite, prefix="number.")


@MUTANTS.sound
class Linear(torch.nn.Module):
    """One layer."""

    def __init__(self, input_size):
        super().__init__()
        self.layer = torch.nn.Linear(input_size, 1)

    def forward(self, hidden):
        return self.layer(hidden).squeeze(-1)


@MUTANTS.fault("test_it_gives_logits_row_by_row", quick=True)
class Normed(Linear):
    """Logits of a row are less the batch's mean."""

    def forward(self, hidden):
        found = super().forward(hidden)
        return found - found.mean()


@MUTANTS.fault("test_it_gives_logits_row_by_row")
class Columned(Linear):
    """Logits of numbers are a column, so that a loss is of every pair of rows."""

    def forward(self, hidden):
        return self.layer(hidden)


@MUTANTS.fault("test_it_learns_what_its_input_tells")
class Saturated(Linear):
    """Logits end at one standard deviation."""

    def forward(self, hidden):
        return super().forward(hidden).clamp(-0.3, 0.3)


@MUTANTS.fault("test_its_weights_are_trained_and_kept")
class Idle(Linear):
    """Has weights that nothing depends on."""

    def __init__(self, input_size):
        super().__init__(input_size)
        self.other = torch.nn.Linear(input_size, 1)


@MUTANTS.fault("test_its_weights_are_trained_and_kept")
class Levelling(Linear):
    """Adds the mean of what it was trained on, which no state keeps."""

    level = 0.0

    def forward(self, hidden):
        found = super().forward(hidden)
        if self.training:
            self.level = 0.9 * self.level + 0.1 * float(found.detach().mean())
        return found + self.level


@hookimpl
def distcore_make_member(kind, name, context):
    made = MUTANTS.named(name)
    return made and made(context["input_size"])
