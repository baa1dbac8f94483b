"""What the network's half of every feature must hold: rows that do not touch each other, metrics
that begin afresh, predictions that are the values again."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from distcore_core.contracts import JSON, Feature
from distcore_core.errors import DataError
from distcore_testing.feature_rows import as_json, encoded_or_refused, with_labels
from distcore_torch.batch import Layout
from distcore_torch.packing import pack

if TYPE_CHECKING:
    import torch

STEPS = 240
"""Of descent, for logits that nothing stands behind."""


class NetworkChecks:
    """The half of `FeatureSuite` that needs torch."""

    decodes = True

    def values(self) -> pa.Array:
        raise NotImplementedError

    def unseen(self) -> pa.Array:
        raise NotImplementedError

    def batch(self, feature: Feature) -> tuple[JSON, Any]:
        """(metadata, batch) of the values that are not missing."""
        values = self.values().drop_null()
        metadata = feature.finish(feature.partial(values))
        return metadata, batch_of(feature, values, metadata)

    # -------------------------------------------------------------- both

    def test_its_network_reads_or_predicts_a_batch(self, role: str, feature: Feature) -> None:
        """And leaves the batch and the metadata as they are."""
        metadata, batch = self.batch(feature)
        before, words = as_json(metadata), batch.packed.clone()
        if role == "input":
            self.check_encoder(feature, metadata, batch)
        else:
            self.check_decoder(feature, metadata, batch)
        assert as_json(metadata) == before, "the network's half changes the metadata"
        assert batch.packed.equal(words), "the network's half changes the batch"

    def test_its_network_is_made_of_saved_metadata_by_the_seed(
        self, role: str, feature: Feature
    ) -> None:
        import torch

        metadata, _ = self.batch(feature)
        made = []
        for told in (metadata, json.loads(as_json(metadata))):
            torch.manual_seed(3)
            network = feature.network()
            part = network.encoder(told) if role == "input" else network.decoder(told, 5)
            made.append(part.state_dict())
        assert list(made[0]) == list(made[1])
        assert all(made[0][name].equal(made[1][name]) for name in made[0])

    # -------------------------------------------------------------- inputs

    def check_encoder(self, feature: Feature, metadata: JSON, batch: Any) -> None:
        """The encoder maps the column to finite [B, output_size], a row by itself, and tells
        rows of different codes apart."""
        import torch

        encoder = feature.network().encoder(metadata)
        hidden = encoder(batch["column"])
        assert hidden.shape == (batch.rows, encoder.output_size)
        assert hidden.dtype == torch.float32, f"it gives {hidden.dtype}"
        assert torch.isfinite(hidden).all()
        encoder.eval()
        with torch.no_grad():
            whole = encoder(batch["column"])
            assert whole.equal(encoder(batch["column"])), "the second time it reads otherwise"
            few = encoder(batch.part(5, 9)["column"])
            assert torch.allclose(whole[5:9], few, atol=1e-5), "a row depends on its batch"
            assert encoder(batch.part(7, 8)["column"]).shape == (1, encoder.output_size)
            assert encoder(batch.part(0, 0)["column"]).shape == (0, encoder.output_size)
        assert len(torch.unique(whole, dim=0)) > 1, "all rows are read alike"

    def test_an_encoder_reads_codes_of_unseen_and_of_missing_values(
        self, role: str, feature: Feature
    ) -> None:
        import torch

        if role != "input":
            pytest.skip("an output has no encoder")
        metadata, _ = self.batch(feature)
        encoder = feature.network().encoder(metadata).eval()
        unseen = self.unseen()
        parts = [unseen.slice(row, 1) for row in range(len(unseen))]
        for values in (*parts, pa.nulls(4, self.values().type)):
            if encoded_or_refused(feature, values, metadata) is not None:
                batch = batch_of(feature, values, metadata)
                hidden = encoder(batch["column"])
                assert hidden.shape == (batch.rows, encoder.output_size)
                assert torch.isfinite(hidden).all()

    # -------------------------------------------------------------- outputs

    def check_decoder(self, feature: Feature, metadata: JSON, batch: Any) -> None:
        """Losses of rows that can be learned from, metrics that are numbers, predictions with a
        row for each row; a row by itself in all of them."""
        import torch

        network, target = feature.network(), batch["column"]
        hidden = torch.randn(
            batch.rows, 5, generator=torch.Generator().manual_seed(1), requires_grad=True
        )
        decoder = network.decoder(metadata, 5)
        logits = decoder(hidden)
        assert logits.shape[0] == batch.rows
        losses = network.loss(logits, target, metadata)
        assert losses.shape == (batch.rows,)
        assert torch.isfinite(losses).all()
        few = network.loss(logits[5:9], target[5:9], metadata)
        assert torch.allclose(losses[5:9], few, rtol=1e-4, atol=1e-6), "a loss depends on its batch"
        losses.sum().backward()
        assert hidden.grad is not None
        assert hidden.grad.abs().sum() > 0
        output = network.output(logits.detach(), metadata)
        assert output.shape == (batch.rows, *feature.output_shape(metadata))
        assert torch.allclose(output[5:9], network.output(logits.detach()[5:9], metadata)), (
            "an output depends on its batch"
        )
        for metric in network.metrics(metadata).values():
            metric.update(output, target)
            assert np.isfinite(float(metric.compute()))
        predictions = network.predictions(output.numpy(), metadata)
        assert predictions.num_rows == batch.rows
        assert "column_predictions" in predictions.schema.names
        assert all(name.startswith("column_") for name in predictions.schema.names)
        some = network.predictions(output.numpy()[5:9], metadata)
        assert some.to_pylist() == predictions.slice(5, 4).to_pylist()
        none = network.predictions(output.numpy()[:0], metadata)
        assert none.num_rows == 0
        assert none.schema.names == predictions.schema.names

    def test_its_metrics_begin_afresh_and_add_up_over_batches(
        self, role: str, feature: Feature
    ) -> None:
        """One evaluation knows nothing of the one before, and its cuts into batches do not
        count."""
        if role != "output":
            pytest.skip("an input has no metrics")
        metadata, batch = self.batch(feature)
        network, target = feature.network(), batch["column"]
        output, other = (some_output(network, metadata, batch, seed) for seed in (1, 2))
        found = scores(network.metrics(metadata), [(output, target)])
        assert feature.default_metric in found
        for values in (output, other):  # whoever evaluated before
            scores(network.metrics(metadata), [(values, target)])
        again = scores(feature.network().metrics(metadata), [(output, target)])
        assert again == found, "metrics keep what they were told in another evaluation"
        kept = network.metrics(metadata)
        scores(kept, [(other, target)])
        for metric in kept.values():
            metric.reset()
        assert scores(kept, [(output, target)]) == found, "a metric is not as new after a reset"
        edges = (0, 7, 8, 40, batch.rows)
        parts = [(output[start:stop], target[start:stop]) for start, stop in pairwise(edges)]
        cut = scores(network.metrics(metadata), parts)
        assert cut == pytest.approx(found, rel=1e-3, abs=1e-5), "a metric depends on the batches"

    def test_what_it_predicts_are_the_values_again(self, role: str, feature: Feature) -> None:
        """An output that is right in every row is decoded to what the column holds."""
        if role != "output" or not self.decodes:
            pytest.skip("it decodes nothing")
        check_right(feature, self.values().drop_null())

    def test_classes_of_any_name_and_number_are_predicted_as_they_are(
        self, role: str, feature: Feature
    ) -> None:
        if role != "output" or not self.decodes or feature.raw != "category":
            pytest.skip("it decodes no classes")
        values = with_labels(self.values().drop_null())
        try:
            feature.finish(feature.partial(values))
        except DataError as error:
            pytest.skip(f"no other classes than those of values() are its own: {error}")
        check_right(feature, values)

    def test_what_its_loss_asks_for_is_what_it_predicts(self, role: str, feature: Feature) -> None:
        """Logits that only descend the loss end at the values: the loss, the output and the
        decoding mean the same classes and the same units."""
        if role != "output" or not self.decodes:
            pytest.skip("it decodes nothing")
        metadata, batch = self.batch(feature)
        network, codes = feature.network(), batch["column"]
        logits = descended(network, metadata, codes)
        output = network.output(logits, metadata).numpy()
        found = network.predictions(output, metadata)["column_predictions"].to_pylist()
        right = right_output(feature, metadata, codes.numpy())
        wanted = network.predictions(right, metadata)["column_predictions"].to_pylist()
        if codes.ndim > 1:  # several numbers, which people may read as one text
            encoded = encoded_or_refused(feature, as_column(feature, found), metadata)
            if encoded is None:  # or as a list of them
                ours, theirs = np.array(found, float), np.array(wanted, float)
            else:
                ours, theirs = np.reshape(pc.list_flatten(encoded), codes.shape), codes.numpy()
            alike = (np.abs(ours - theirs) <= 0.1 * (theirs.std() or 1.0)).all(1)
        elif all(isinstance(each, float) for each in wanted):
            reach = 0.1 * (np.std(wanted) or 1.0)
            alike = np.abs(np.array(found) - np.array(wanted)) <= reach
        else:
            alike = np.array([a == b for a, b in zip(found, wanted, strict=True)])
        assert alike.mean() >= 0.9
        before = scores(network.metrics(metadata), [(network.output(logits * 0, metadata), codes)])
        after = scores(network.metrics(metadata), [(network.output(logits, metadata), codes)])
        if "loss" in after:
            assert after["loss"] < before["loss"], "the metric `loss` rises while the loss falls"


# ------------------------------------------------------------------ parts


def batch_of(feature: Feature, values: pa.Array, metadata: JSON) -> Any:
    """Encoded values as a loader gives them."""
    encoded = pa.record_batch([feature.encode(values, metadata)], names=["column"])
    return pack(encoded, Layout.of([feature.column(metadata)]))


def scores(metrics: Any, parts: list[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, float]:
    """What fresh metrics say of an evaluation in these batches."""
    for metric in metrics.values():
        for output, target in parts:
            metric.update(output, target)
    return {name: float(metric.compute()) for name, metric in metrics.items()}


def some_output(network: Any, metadata: JSON, batch: Any, seed: int) -> torch.Tensor:
    """The output of a network with random weights for random inputs."""
    import torch

    torch.manual_seed(seed)
    hidden = torch.randn(batch.rows, 5)
    with torch.no_grad():
        found: torch.Tensor = network.output(network.decoder(metadata, 5)(hidden), metadata)
    return found


def right_output(feature: Feature, metadata: JSON, codes: np.ndarray) -> np.ndarray:
    """`FeatureNetwork.output` of a network that knows every code [n]."""
    shape = feature.output_shape(metadata)
    if shape == codes.shape[1:]:
        return codes.astype(np.float32)
    output = np.zeros((len(codes), *shape), np.float32)
    known = np.flatnonzero((codes >= 0) & (codes < shape[0]))
    output[known, codes[known]] = 1.0
    return output


def check_right(feature: Feature, values: pa.Array) -> None:
    """An output that is right in every row of a column is decoded to what the column holds."""
    metadata = feature.finish(feature.partial(values))
    codes = batch_of(feature, values, metadata)["column"].numpy()
    output = right_output(feature, metadata, codes)
    predicted = feature.network().predictions(output, metadata)
    check_decoded(feature, metadata, values, codes, predicted["column_predictions"])
    labels = feature.labels(metadata)
    if labels is not None:
        check_probabilities(labels, output, predicted)


def check_decoded(
    feature: Feature, metadata: JSON, values: pa.Array, codes: np.ndarray, decoded: pa.Array
) -> None:
    """What was decoded has the codes that it was decoded from."""
    labels = feature.labels(metadata)
    plain = decoded.to_pylist()
    if labels is not None:
        for value, found in zip(values.to_pylist(), plain, strict=True):
            assert value not in labels or str(found) == value
    one_to_one = {(repr(code), repr(each)) for code, each in zip(codes, plain, strict=True)}
    assert labels is None or len(one_to_one) == len({repr(each) for each in plain})
    encoded = encoded_or_refused(feature, as_column(feature, plain), metadata)
    if encoded is not None:
        reach = 1e-4 * max(1.0, float(np.std(codes.astype(float))))
        found = np.reshape(pc.list_flatten(encoded) if codes.ndim > 1 else encoded, codes.shape)
        assert np.allclose(found, codes, rtol=1e-4, atol=reach)


def as_column(feature: Feature, decoded: list[Any]) -> pa.Array:
    """What was decoded, as a dataset's column would hold it."""
    if feature.raw == "number":
        return pa.array(decoded).cast(pa.float64())
    texts = pa.array([None if each is None else str(each) for each in decoded], pa.string())
    return texts.dictionary_encode() if feature.raw in ("category", "time") else texts


def check_probabilities(labels: Any, output: np.ndarray, predicted: pa.RecordBatch) -> None:
    """Each class has the column of its label."""
    shares = output if output.ndim > 1 else np.stack([1 - output, output], 1)
    assert len(labels) == shares.shape[1]
    for code, label in enumerate(labels):
        column = predicted[f"column_probabilities_{label}"].to_numpy()
        assert np.allclose(column, shares[:, code], atol=1e-6)


def descended(network: Any, metadata: JSON, codes: torch.Tensor) -> torch.Tensor:
    """Logits that have followed the loss's gradient for a while."""
    import torch

    with torch.no_grad():
        shape = network.decoder(metadata, 5)(torch.zeros(len(codes), 5)).shape
    logits = torch.zeros(shape, requires_grad=True)
    reach = max(1.0, float(codes.double().std()))
    optimizer = torch.optim.Adam([logits], lr=reach)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = reach * 1e-3 ** (step / STEPS)
        optimizer.zero_grad()
        network.loss(logits, codes, metadata).sum().backward()
        optimizer.step()
    return logits.detach()
