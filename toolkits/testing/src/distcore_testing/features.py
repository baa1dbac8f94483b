"""What every feature must hold: statistics that do not depend on partitions, codes that do not
depend on slices."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Mapping
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from distcore_core.contracts import FEATURE, JSON, Feature
from distcore_core.registry.manager import Plugins
from distcore_torch.batch import Layout
from distcore_torch.packing import pack

RAW = {
    "number": pa.types.is_float64,
    "category": pa.types.is_dictionary,
    "string": pa.types.is_string,
}
"""What a source gives for each way of reading a column."""


class FeatureSuite:
    """Subclass with `name` (the type), `roles` it can play, `options` of the feature, and
    `values()`.

    values: a column as a source reads it (number: float64; category: dictionary of strings; string:
    utf8), at least 50 rows, missing values among them. output_options: if an output's options are
    others than an input's.
    """

    name: str
    roles: tuple[str, ...] = ("input",)
    options: Mapping[str, Any] = {}
    output_options: Mapping[str, Any] | None = None

    def values(self) -> pa.Array:
        raise AssertionError("the subclass gives values()")

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Every test is run for each role the feature can play."""
        if "role" in metafunc.fixturenames:
            metafunc.parametrize("role", self.roles, scope="class")

    @pytest.fixture
    def feature(self, role: str) -> Feature:
        return self.make(role)

    def make(self, role: str) -> Feature:
        changed = role == "output" and self.output_options is not None
        options = self.output_options if changed else self.options
        made: Feature = Plugins().make(FEATURE, self.name, options, column="column", role=role)
        return made

    def test_it_reads_what_the_values_are(self, feature: Feature) -> None:
        assert RAW[feature.raw](self.values().type)
        assert feature.name == "column"

    def test_statistics_do_not_depend_on_the_partition_or_the_order(self, feature: Feature) -> None:
        """To the bit: partials are merged in whatever order workers finish, in whatever groups."""
        values = self.values()
        whole = _json(feature.finish(feature.partial(values)))
        for seed in range(5):
            parts = _cut(values, seed)
            random.Random(seed).shuffle(parts)
            partials = [feature.partial(part) for part in parts]
            assert _json(feature.finish(reduce(feature.merge, partials))) == whole
            half = len(partials) // 2
            left, right = (
                reduce(feature.merge, partials[:half]),
                reduce(feature.merge, partials[half:]),
            )
            assert _json(feature.finish(feature.merge(right, left))) == whole

    def test_partials_travel_to_other_processes(self, feature: Feature) -> None:
        # A partial that this very process pickled: nothing is read from disk.
        partial = pickle.loads(pickle.dumps(feature.partial(self.values())))  # noqa: S301
        assert _json(feature.finish(partial)) == _json(
            feature.finish(feature.partial(self.values()))
        )

    def test_metadata_is_json(self, feature: Feature) -> None:
        metadata = feature.finish(feature.partial(self.values()))
        assert json.loads(_json(metadata)) == metadata

    def test_encoding_is_row_wise_and_as_declared(self, feature: Feature) -> None:
        """A row's code depends on that row and the metadata alone, and nothing is left missing."""
        values, metadata = self.values(), self.fitted(feature)
        encoded, column = feature.encode(values, metadata), feature.column(metadata)
        assert column.name == "column"
        assert len(encoded) == len(values)
        assert encoded.null_count == 0
        assert _type_of(encoded) == (column.dtype, column.width)
        for start, stop in ((0, 0), (0, 1), (7, 19), (len(values) - 3, len(values))):
            part = feature.encode(values.slice(start, stop - start), metadata)
            assert part.to_pylist() == encoded.slice(start, stop - start).to_pylist()

    def test_metadata_that_was_saved_encodes_alike(self, feature: Feature, role: str) -> None:
        """A model is opened in another process, from JSON."""
        metadata = self.fitted(feature)
        again = self.make(role).encode(self.values(), json.loads(_json(metadata)))
        assert again.to_pylist() == feature.encode(self.values(), metadata).to_pylist()

    def test_rows_without_any_value_are_encoded(self, feature: Feature) -> None:
        missing = pa.nulls(4, self.values().type)
        assert feature.encode(missing, self.fitted(feature)).null_count == 0

    def test_its_network_reads_or_predicts_a_batch(self, role: str, feature: Feature) -> None:
        metadata, batch = self.batch(feature)
        if role == "input":
            self.check_encoder(feature, metadata, batch)
        else:
            self.check_decoder(feature, metadata, batch)

    def check_encoder(self, feature: Feature, metadata: JSON, batch: Any) -> None:
        """The encoder maps the column to finite [B, output_size]."""
        import torch

        encoder = feature.network().encoder(metadata)
        hidden = encoder(batch["column"])
        assert hidden.shape == (batch.rows, encoder.output_size)
        assert torch.isfinite(hidden).all()

    def check_decoder(self, feature: Feature, metadata: JSON, batch: Any) -> None:
        """Losses of rows that can be learned from, metrics that are numbers, predictions with a
        row for each row."""
        import torch

        network = feature.network()
        hidden = torch.randn(
            batch.rows, 5, generator=torch.Generator().manual_seed(1), requires_grad=True
        )
        logits = network.decoder(metadata, 5)(hidden)
        losses = network.loss(logits, batch["column"], metadata)
        assert losses.shape == (batch.rows,)
        assert torch.isfinite(losses).all()
        losses.sum().backward()
        assert hidden.grad is not None
        assert hidden.grad.abs().sum() > 0
        output = network.output(logits.detach(), metadata)
        for metric in network.metrics(metadata).values():
            metric.update(output, batch["column"])
            assert np.isfinite(float(metric.compute()))
        predictions = network.predictions(output.numpy(), metadata)
        assert predictions.num_rows == batch.rows
        assert "column_predictions" in predictions.schema.names
        assert all(name.startswith("column_") for name in predictions.schema.names)

    def fitted(self, feature: Feature) -> JSON:
        """The metadata of all values."""
        return feature.finish(feature.partial(self.values()))

    def batch(self, feature: Feature) -> tuple[JSON, Any]:
        """(metadata, batch) of the values that are not missing."""
        values = self.values().drop_null()
        metadata = feature.finish(feature.partial(values))
        encoded = pa.record_batch([feature.encode(values, metadata)], names=["column"])
        return metadata, pack(encoded, Layout.of([feature.column(metadata)]))


def _json(metadata: JSON) -> str:
    return json.dumps(metadata, sort_keys=True, allow_nan=False)


def _cut(values: pa.Array, seed: int, pieces: int = 6) -> list[pa.Array]:
    """Slices at random places, empty ones among them."""
    places = np.random.default_rng(seed).integers(0, len(values) + 1, pieces - 1)
    edges = [0, *sorted(int(place) for place in places), len(values)]
    return [values.slice(start, stop - start) for start, stop in pairwise(edges)]


def _type_of(encoded: pa.Array) -> tuple[str, int | None]:
    names = {pa.float32(): "float32", pa.int32(): "int32"}
    if pa.types.is_fixed_size_list(encoded.type):
        return names[encoded.type.value_type], encoded.type.list_size
    if pa.types.is_list(encoded.type):
        return names[encoded.type.value_type], None
    return names[encoded.type], 1
