"""Features with a fault each: a number less the middle of its column's range."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from tests.mutants.harness import Mutants

from distcore_core.contracts import Column, FeatureBase
from distcore_core.errors import DataError
from distcore_core.hooks import hookimpl
from distcore_testing import FeatureSuite


def values(self):
    return pa.array([None if row % 9 == 0 else row**0.5 for row in range(300)])


LARGEST = 3e38
"""About what fits into a float32."""

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
        if state[0] > state[1]:
            raise DataError(f"Column {self.name!r} has no value in any row.")
        return {"middle": (state[0] + state[1]) / 2}

    def column(self, metadata):
        return Column(name=self.name, dtype="float32")

    def encode(self, values, metadata):
        plain = values.fill_null(metadata["middle"]).to_numpy() - metadata["middle"]
        return pa.array(plain.clip(-LARGEST, LARGEST).astype(np.float32))

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
        return {"middle": state[0] / max(1, state[1])}


@MUTANTS.fault(
    "test_sums_do_not_depend_on_the_partition_or_the_order",
    values=lambda self: pa.array([None if row % 7 == 0 else row * 1.5 for row in range(300)]),
)
class SummingDoubles(Sound):
    """A mean whose sum is rounded as float64, which sums of halves are not."""

    def partial(self, values):
        plain = values.drop_null().to_numpy()
        return float(plain.sum()), len(plain)

    def merge(self, left, right):
        return left[0] + right[0], left[1] + right[1]

    def finish(self, state):
        return {"middle": state[0] / max(1, state[1])}


@MUTANTS.fault("test_a_large_partition_is_like_many_small_ones")
class Sampling(Sound):
    """Looks at the first 10,000 rows of a partition alone."""

    def partial(self, values):
        return super().partial(values.slice(0, 10_000))


@MUTANTS.fault("test_a_large_partition_is_like_many_small_ones")
class Short(Sound):
    """Row 65,536 of a partition and those after it are encoded as the first ones."""

    def encode(self, values, metadata):
        encoded = super().encode(values, metadata)
        return encoded.take(pa.array(np.arange(len(values)) % 65_536))


@MUTANTS.fault("test_another_column_of_the_type_changes_nothing", quick=True)
class Sharing(Sound):
    """The ranges of all columns are in one list, a default of an argument."""

    def __init__(self, name, ranges=[]):  # noqa: B006 - the fault
        super().__init__(name)
        self.ranges = ranges

    def partial(self, values):
        found = super().partial(values)
        self.ranges.append(found)
        return found

    def finish(self, state):
        for each in self.ranges:
            state = self.merge(state, each)
        return super().finish(state)


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
        return {**super().finish(state), "range": state}


@MUTANTS.fault("test_unseen_values_are_encoded_or_refused_by_name", quick=True)
class Overflowing(Sound):
    """A value out of the range of float32 becomes infinite."""

    def encode(self, values, metadata):
        plain = values.fill_null(metadata["middle"]).to_numpy() - metadata["middle"]
        with np.errstate(over="ignore"):
            return pa.array(plain.astype(np.float32))


@MUTANTS.fault("test_a_column_without_any_value_or_of_one_is_encoded_or_refused_by_name")
class Dividing(Sound):
    """Divides by the range, which is 0 of a column of one value."""

    def finish(self, state):
        return {**super().finish(state), "range": state[1] - state[0]}

    def encode(self, values, metadata):
        plain = super().encode(values, metadata).to_numpy()
        with np.errstate(all="ignore"):
            return pa.array((plain / np.float32(metadata["range"])).astype(np.float32))


@MUTANTS.fault("test_a_column_without_any_value_or_of_one_is_encoded_or_refused_by_name")
class Careless(Sound):
    """A column without any value ends in an error of Python's."""

    def finish(self, state):
        if state[0] > state[1]:
            raise ZeroDivisionError("division by zero")
        return super().finish(state)


@MUTANTS.fault("test_what_was_encoded_before_changes_nothing")
class Learning(Sound):
    """Goes on learning the range while it encodes."""

    def encode(self, values, metadata):
        encoded = super().encode(values, metadata)
        if len(values) > values.null_count:
            metadata["middle"] = max(metadata["middle"], np.nanmean(values.to_numpy(False)))
        return encoded


@MUTANTS.fault("test_what_was_encoded_before_changes_nothing")
class Keeping(Sound):
    """Encodes by the metadata of whatever it fitted last."""

    def finish(self, state):
        self.kept = super().finish(state)
        return self.kept

    def encode(self, values, metadata):
        return super().encode(values, getattr(self, "kept", metadata))


@MUTANTS.fault("test_partitions_without_any_value_change_nothing")
class Nulled(Sound):
    """A partition of missing values alone counts as one of zeros."""

    def partial(self, values):
        plain = values.drop_null().to_numpy()
        if not len(plain):
            return (np.inf, -np.inf) if not len(values) else (-100.0, -100.0)
        return float(plain.min()), float(plain.max())


@MUTANTS.fault("test_another_process_with_other_hashes_finds_the_same")
class Hashing(Sound):
    """Adds what Python's hash of a text is."""

    def finish(self, state):
        return {**super().finish(state), "salt": hash(self.name) % 100}


@MUTANTS.fault("test_its_network_reads_or_predicts_a_batch")
class Normalising(Sound):
    """Its encoder normalises by the rows of the batch."""

    def encoder(self, metadata):
        import torch

        class Encoder(torch.nn.Module):
            output_size = 1

            def forward(self, values):
                return (values - values.mean())[:, None] if len(values) else values[:, None]

        return Encoder()


@MUTANTS.fault("test_its_network_reads_or_predicts_a_batch")
class Constant(Sound):
    """Its encoder reads every row alike."""

    def encoder(self, metadata):
        encoder = super().encoder(metadata)
        encoder.register_forward_hook(lambda module, given, hidden: hidden * 0)
        return encoder


@hookimpl
def distcore_make_feature(name, column):
    made = MUTANTS.named(name)
    return made and made(column)
