"""Features with a fault each: a number less the middle of its column's range."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from tests.mutants.harness import Mutants

from distcore_core.contracts import Column, FeatureBase
from distcore_core.hooks import hookimpl
from distcore_testing import FeatureSuite


def values(self):
    return pa.array([None if row % 9 == 0 else row**0.5 for row in range(300)])


DISTCORE_API = (1, 0)
MUTANTS = Mutants("features", FeatureSuite, {"values": values})


@MUTANTS.sound
class Sound(FeatureBase):
    """A number less the middle of its column's range."""

    raw, missing, options = "number", "fill_with_const", None

    def __init__(self, name):
        self.name = name

    def partial(self, values):
        plain = values.drop_null().to_numpy()
        return (float(plain.min()), float(plain.max())) if len(plain) else (np.inf, -np.inf)

    def merge(self, left, right):
        return min(left[0], right[0]), max(left[1], right[1])

    def finish(self, state):
        return {"middle": (state[0] + state[1]) / 2}

    def column(self, metadata):
        return Column(name=self.name, dtype="float32")

    def encode(self, values, metadata):
        plain = np.nan_to_num(
            values.to_numpy(zero_copy_only=False).astype(float), nan=metadata["middle"]
        )
        return pa.array((plain - metadata["middle"]).astype(np.float32))

    def network(self):
        return self

    def encoder(self, metadata):
        import torch

        class Encoder(torch.nn.Module):
            output_size = 1

            def forward(self, values):
                return values[:, None]

        return Encoder()


@MUTANTS.fault("test_statistics_do_not_depend_on_the_partition_or_the_order", quick=True)
class Summing(Sound):
    """A mean whose sum depends on the order of the rows."""

    def partial(self, values):
        plain = values.drop_null().to_numpy()
        return float(np.float32(plain.sum())), len(plain)

    def merge(self, left, right):
        return float(np.float32(left[0] + right[0])), left[1] + right[1]

    def finish(self, state):
        return {"middle": state[0] / state[1]}


@MUTANTS.fault("test_encoding_is_row_wise_and_as_declared", quick=True)
class Sliced(Sound):
    """A row's code depends on the rows beside it."""

    def encode(self, values, metadata):
        plain = np.nan_to_num(values.to_numpy(zero_copy_only=False).astype(float))
        return pa.array((plain - (plain.mean() if len(plain) else 0.0)).astype(np.float32))


@MUTANTS.fault("test_rows_without_any_value_are_encoded")
class Holed(Sound):
    """Leaves missing values missing."""

    def encode(self, values, metadata):
        return values.cast(pa.float32())


@MUTANTS.fault("test_encoding_is_row_wise_and_as_declared")
class Wide(Sound):
    """Declares another type than it encodes."""

    def encode(self, values, metadata):
        return super().encode(values, metadata).cast(pa.float64())


@MUTANTS.fault("test_metadata_is_json")
class Object(Sound):
    """Metadata that JSON does not give back."""

    def finish(self, state):
        return {"middle": (state[0] + state[1]) / 2, "range": state}


@hookimpl
def distcore_make_feature(name, column):
    made = MUTANTS.named(name)
    return made and made(column)
