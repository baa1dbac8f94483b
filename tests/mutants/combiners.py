"""Combiners with a fault each: a layer over all columns."""

from __future__ import annotations

import torch
from tests.mutants.harness import Mutants

from distcore_core.hooks import hookimpl
from distcore_testing import CombinerSuite

DISTCORE_API = (1, 0)
MUTANTS = Mutants("tabular.combiners", CombinerSuite)


@MUTANTS.sound
class Layer(torch.nn.Module):
    """Linear, then tanh."""

    output_size = 6

    def __init__(self, input_size, sizes):
        super().__init__()
        self.sizes = sizes
        self.layer = torch.nn.Linear(input_size, 6)

    def forward(self, columns):
        return self.layer(columns).tanh()


@MUTANTS.fault("test_it_combines_row_by_row", quick=True)
class Attending(Layer):
    """Rows of a batch attend to each other."""

    def forward(self, columns):
        found = super().forward(columns)
        return torch.softmax(found @ found.T, 1) @ found


@MUTANTS.fault("test_it_looks_at_every_input")
class Forgetful(Layer):
    """Leaves the last input out."""

    def forward(self, columns):
        width = columns.shape[1] - list(self.sizes.values())[-1]
        return (columns[:, :width] @ self.layer.weight[:, :width].T + self.layer.bias).tanh()


@MUTANTS.fault("test_its_weights_are_trained_and_kept")
class Unsaved(Layer):
    """A drawn projection is no part of its state."""

    def __init__(self, input_size, sizes):
        super().__init__(input_size, sizes)
        self.projection = torch.randn(6, 6)

    def forward(self, columns):
        return super().forward(columns) @ self.projection


@MUTANTS.fault("test_its_weights_are_trained_and_kept")
class Clamping(Layer):
    """Clamps its input in place, which other modules may read."""

    def forward(self, columns):
        with torch.no_grad():
            columns.clamp_(-0.5, 0.5)
        return super().forward(columns)


@hookimpl
def distcore_make_member(kind, name, context):
    made = MUTANTS.named(name)
    return made and made(**context)
