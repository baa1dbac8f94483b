"""Features that predict several numbers of a row, with a fault each: a point of the plane."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from tests.mutants.harness import Mutants

from distcore_core.contracts import Column, FeatureBase
from distcore_core.errors import DataError
from distcore_core.hooks import hookimpl
from distcore_testing import FeatureSuite


def values(self):
    return pa.array([None if row % 9 == 0 else f"{row / 100};{row % 7}" for row in range(300)])


DISTCORE_API = (1, 0)
MUTANTS = Mutants("features", FeatureSuite, {"values": values, "roles": ("input", "output")})


@MUTANTS.sound
class Points(FeatureBase):
    """A text `x;y` as two numbers."""

    raw, missing, options, default_metric = "string", "fill_with_const", None, "error"

    def __init__(self, name):
        self.name = name

    def partial(self, values):
        return len(self.points(values.drop_null()))

    def merge(self, left, right):
        return left + right

    def finish(self, state):
        if not state:
            raise DataError(f"Column {self.name!r} has no value in any row.")
        return {"rows": state}

    def column(self, metadata):
        return Column(name=self.name, dtype="float32", width=2)

    def output_shape(self, metadata):
        return (2,)

    def points(self, values):
        try:
            rows = [[float(each) for each in text.split(";")] for text in values.to_pylist()]
            return np.array(rows, np.float32).reshape(-1, 2)
        except ValueError as error:
            raise DataError(f"Column {self.name!r}: write x;y ({error}).") from error

    def encode(self, values, metadata):
        points = self.points(values.fill_null("0;0"))
        return pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), 2)

    def network(self):
        return self

    def encoder(self, metadata):
        import torch

        encoder = torch.nn.Identity()
        encoder.output_size = 2
        return encoder

    def decoder(self, metadata, input_size):
        import torch

        return torch.nn.Linear(input_size, 2)

    def loss(self, logits, target, metadata):
        return (logits - target).square().sum(1)

    def metrics(self, metadata):
        import torchmetrics

        class Distance(torchmetrics.MeanMetric):
            def update(self, output, target):
                super().update((output - target).norm(dim=1))

        return {"error": Distance()}

    def output(self, logits, metadata):
        return logits

    def predictions(self, output, metadata):
        texts = [f"{x};{y}" for x, y in output.tolist()]
        return pa.record_batch({f"{self.name}_predictions": pa.array(texts, pa.string())})


@MUTANTS.fault("test_what_it_predicts_are_the_values_again")
class Swapped(Points):
    """Decodes to `y;x`."""

    def predictions(self, output, metadata):
        return super().predictions(output[:, ::-1], metadata)


@MUTANTS.fault("test_what_its_loss_asks_for_is_what_it_predicts", quick=True)
class First(Points):
    """Its loss looks at the first number alone."""

    def loss(self, logits, target, metadata):
        return (logits - target)[:, 0].square()


@hookimpl
def distcore_make_feature(name, column):
    made = MUTANTS.named(name)
    return made and made(column)
