"""Features that are predicted, with a fault each: a class of a few."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
from tests.mutants.harness import Mutants

from distcore_core.contracts import Column, FeatureBase
from distcore_core.errors import DataError
from distcore_core.hooks import hookimpl
from distcore_testing import FeatureSuite


def values(self):
    names = ["red", "green", "blue", "grey"]
    rows = [None if row % 13 == 0 else names[row * row % 7 % 4] for row in range(300)]
    return pa.array(rows).dictionary_encode()


DISTCORE_API = (1, 0)
MUTANTS = Mutants("features", FeatureSuite, {"values": values, "roles": ("input", "output")})


@MUTANTS.sound
class Classes(FeatureBase):
    """A class, by the order of the names; 0 stands for what was never seen."""

    raw, missing, options, default_metric = "category", "fill_with_const", None, "accuracy"

    def __init__(self, name):
        self.name = name

    def partial(self, values):
        return Counter(value for value in values.to_pylist() if value is not None)

    def merge(self, left, right):
        return left + right

    def finish(self, state):
        if not state:
            raise DataError(f"Column {self.name!r} has no value in any row.")
        return {"labels": ["<UNK>", *sorted(state)]}

    def column(self, metadata):
        return Column(name=self.name, dtype="int32")

    def labels(self, metadata):
        return metadata["labels"]

    def output_shape(self, metadata):
        return (len(metadata["labels"]),)

    def code(self, value, labels):
        return labels.index(value) if value in labels else 0

    def encode(self, values, metadata):
        codes = [self.code(value, metadata["labels"]) for value in values.to_pylist()]
        return pa.array(codes, pa.int32())

    def network(self):
        return self

    def encoder(self, metadata):
        import torch

        class Encoder(torch.nn.Module):
            output_size = 3

            def __init__(self):
                super().__init__()
                self.table = torch.nn.Embedding(len(metadata["labels"]), 3)

            def forward(self, codes):
                return self.table(codes)

        return Encoder()

    def decoder(self, metadata, input_size):
        import torch

        return torch.nn.Linear(input_size, len(metadata["labels"]))

    def loss(self, logits, target, metadata):
        from torch.nn import functional

        return functional.cross_entropy(logits, target.long(), reduction="none")

    def metrics(self, metadata):
        import torchmetrics

        class Micro(torchmetrics.MeanMetric):
            def update(self, output, target):
                super().update((output.argmax(1) == target).float())

        class Loss(torchmetrics.MeanMetric):
            def update(metric, output, target):
                super().update(self.loss(output.clamp_min(1e-30).log(), target, metadata))

        return {"accuracy": Micro(), "loss": Loss()}

    def output(self, logits, metadata):
        return logits.softmax(-1)

    def predictions(self, output, metadata):
        name, labels = self.name, metadata["labels"]
        columns = {f"{name}_predictions": [labels[code] for code in output.argmax(1)]}
        columns |= {f"{name}_probabilities_{each}": output[:, at] for at, each in enumerate(labels)}
        columns[f"{name}_probability"] = output.max(1)
        arrays = {key: pa.array(column) for key, column in columns.items()}
        arrays[f"{name}_predictions"] = arrays[f"{name}_predictions"].cast(pa.string())
        return pa.record_batch(arrays)


@MUTANTS.fault("test_unseen_values_are_encoded_or_refused_by_name", quick=True)
class Brittle(Classes):
    """A value that was never seen ends in a ValueError."""

    def code(self, value, labels):
        return 0 if value is None else labels.index(value)


@MUTANTS.fault("test_a_dictionary_of_its_own_in_each_partition_changes_nothing")
class Trusting(Classes):
    """Takes the codes of the source's dictionary for its own."""

    def finish(self, state):
        return {"labels": ["<UNK>", *sorted(state)]} if state else super().finish(state)

    def partial(self, values):
        return Counter(values.dictionary.to_pylist()) if len(values) else Counter()


@MUTANTS.fault("test_an_encoder_reads_codes_of_unseen_and_of_missing_values")
class Beyond(Classes):
    """The code of a value that was never seen is one that its encoder has no row for."""

    def code(self, value, labels):
        return labels.index(value) if value in labels else len(labels)


@MUTANTS.fault("test_what_it_predicts_are_the_values_again", quick=True)
class Rotated(Classes):
    """Decodes to the class beside the right one."""

    def predictions(self, output, metadata):
        return super().predictions(np.roll(output, 1, axis=1), metadata)


@MUTANTS.fault("test_what_it_predicts_are_the_values_again")
class Mislabelled(Classes):
    """Names the probabilities by the labels in another order."""

    def predictions(self, output, metadata):
        found = super().predictions(output, metadata)
        columns = dict(zip(found.schema.names, found.columns, strict=True))
        names = [name for name in columns if "_probabilities_" in name]
        swapped = dict(zip(names, [columns[name] for name in reversed(names)], strict=True))
        return pa.record_batch({**columns, **swapped})


@MUTANTS.fault("test_its_metrics_begin_afresh_and_add_up_over_batches")
class Kept(Classes):
    """Makes its metrics once, so that each evaluation goes on with the one before."""

    kept: dict = {}  # noqa: RUF012

    def metrics(self, metadata):
        if not self.kept:
            self.kept.update(super().metrics(metadata))
        return self.kept


@MUTANTS.fault("test_its_metrics_begin_afresh_and_add_up_over_batches")
class Averaging(Classes):
    """Its accuracy is the mean of the batches', however many rows they have."""

    def metrics(self, metadata):
        import torchmetrics

        class OfBatches(torchmetrics.MeanMetric):
            def update(self, output, target):
                super().update((output.argmax(1) == target).float().mean())

        return {"accuracy": OfBatches()}


@MUTANTS.fault("test_its_network_reads_or_predicts_a_batch")
class Mean(Classes):
    """The loss of a row is a share of its batch's."""

    def loss(self, logits, target, metadata):
        return super().loss(logits, target, metadata) / len(target)


@MUTANTS.fault("test_what_its_loss_asks_for_is_what_it_predicts")
class Rising(Classes):
    """A loss that falls when the logits are worse."""

    def loss(self, logits, target, metadata):
        return super().loss(-logits, target, metadata)


@MUTANTS.fault("test_what_its_loss_asks_for_is_what_it_predicts")
class Shifted(Classes):
    """Its loss counts the classes from 1."""

    def loss(self, logits, target, metadata):
        return super().loss(logits.roll(1, 1), target, metadata)


@MUTANTS.fault("test_its_network_reads_or_predicts_a_batch")
class Untidy(Classes):
    """Its decoder writes what it needs into the metadata."""

    def decoder(self, metadata, input_size):
        metadata["input_size"] = input_size
        return super().decoder(metadata, input_size)


@MUTANTS.fault("test_classes_of_any_name_and_number_are_predicted_as_they_are")
class Ascii(Classes):
    """A class keeps of its name what ASCII has."""

    def predictions(self, output, metadata):
        plain = [each.encode("ascii", "replace").decode() for each in metadata["labels"]]
        return super().predictions(output, {**metadata, "labels": plain})


@MUTANTS.fault("test_classes_of_any_name_and_number_are_predicted_as_they_are")
class Stripped(Classes):
    """Decodes to names without the blanks around them."""

    def predictions(self, output, metadata):
        found = super().predictions(output, metadata)
        at = found.schema.get_field_index(f"{self.name}_predictions")
        plain = [each.strip() for each in found.column(at).to_pylist()]
        return found.set_column(at, f"{self.name}_predictions", pa.array(plain, pa.string()))


@MUTANTS.fault("test_statistics_do_not_depend_on_the_partition_or_the_order")
class Frequent(Classes):
    """Classes stand by how often they are; of those that are as often, the first seen is first."""

    def finish(self, state):
        if not state:
            return super().finish(state)
        return {"labels": ["<UNK>", *(label for label, _ in state.most_common())]}


@MUTANTS.fault("test_classes_of_any_name_and_number_are_predicted_as_they_are")
class Eight(Classes):
    """Codes are kept in eight bits, so that class 256 is class 0."""

    def code(self, value, labels):
        return super().code(value, labels) % 256


@hookimpl
def distcore_make_feature(name, column):
    made = MUTANTS.named(name)
    return made and made(column)
