"""What every loss and metric of the tabular model must hold: a row by itself, and sums that do not
depend on how they are cut."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from distcore_testing.feature_networks import descended, right_output
from distcore_testing.feature_rows import as_json
from distcore_testing.member_values import OfFeature, process_stays


class LossSuite(OfFeature):
    """Subclass with `name` (`number.huber`), and `options` if needed; `values()` as in `OfFeature`.

    row_wise: set it to False for a loss of which only the mean over a batch has a meaning.
    """

    section, role = "loss", "output"
    row_wise = True

    def test_it_is_a_number_of_each_row_with_a_gradient(self) -> None:
        """float32 [B], whatever is beside a row; metadata and target stay as they are."""
        import torch

        feature, metadata, batch = self.fitted()
        network, target = feature.network(), batch["column"].clone()
        before = as_json(metadata)
        logits = _logits(network, metadata, batch).requires_grad_()
        given = logits.detach().clone()
        with process_stays():
            losses = network.loss(logits, batch["column"], metadata)
        assert losses.equal(network.loss(logits, batch["column"], metadata)), (
            "the second time the loss is another"
        )
        assert losses.shape == (batch.rows,)
        assert losses.dtype == torch.float32
        assert torch.isfinite(losses).all()
        losses.sum().backward()
        assert logits.grad is not None
        assert torch.isfinite(logits.grad).all()
        assert (logits.grad.reshape(batch.rows, -1).abs().sum(1) > 0).float().mean() > 0.5
        if self.row_wise:
            few = network.loss(logits[5:9], batch["column"][5:9], metadata)
            assert torch.allclose(losses[5:9], few, rtol=1e-4, atol=1e-6), "rows are not apart"
        assert as_json(metadata) == before, "it changes the metadata"
        assert batch["column"].equal(target), "it changes the target"
        assert logits.equal(given), "it changes the logits"

    def test_large_logits_and_equal_ones_have_finite_losses(self) -> None:
        import torch

        feature, metadata, batch = self.fitted()
        network = feature.network()
        some = _logits(network, metadata, batch)
        for logits in (some * 0, some * 1e4, torch.full_like(some, 50.0)):
            given = logits.clone().requires_grad_()
            losses = network.loss(given, batch["column"], metadata)
            assert torch.isfinite(losses).all()
            losses.sum().backward()
            assert given.grad is not None
            assert torch.isfinite(given.grad).all()

    def test_descending_it_ends_at_the_values(self) -> None:
        feature, metadata, batch = self.fitted()
        network, codes = feature.network(), batch["column"]
        logits = descended(network, metadata, codes)
        found = network.output(logits, metadata).numpy()
        right = right_output(feature, metadata, codes.numpy())
        if feature.labels(metadata) is None:
            alike = np.abs(found - right) <= 0.1 * right.std()
        elif found.ndim == 1:
            alike = (found > 0.5) == (right > 0.5)
        else:
            alike = found.argmax(1) == right.argmax(1)
        assert alike.mean() >= 0.9


class MetricSuite(OfFeature):
    """Subclass with `name` (`number.bias`), and `options` if needed; `values()` as in `OfFeature`.

    best: what a right output scores, or None if it has no best.
    """

    section, role = "metrics", "output"
    best: float | None = None

    def given(self) -> dict[str, Any]:
        """The feature's options."""
        short = self.name.partition(".")[2]
        return {"metrics": [{"type": short, **self.options} if self.options else short]}

    def evaluated(self, seed: int = 1) -> tuple[Any, Any, Any]:
        """(what makes a fresh metric, some output, its target)."""
        feature, metadata, batch = self.fitted()
        network, short = feature.network(), self.name.partition(".")[2]
        output = network.output(_logits(network, metadata, batch, seed), metadata)
        return lambda: network.metrics(metadata)[short], output, batch["column"]

    def test_it_does_not_depend_on_batches_or_on_evaluations_before(self) -> None:
        fresh, output, target = self.evaluated()
        whole = _score(fresh(), [(output, target)])
        assert np.isfinite(whole)
        others = [self.evaluated(seed)[1] for seed in (2, 3, 4)]
        found = [_score(fresh(), [(other, target)]) for other in others]
        edges = (0, 7, 8, 40, len(target))
        parts = [(output[start:stop], target[start:stop]) for start, stop in pairwise(edges)]
        assert _score(fresh(), parts) == pytest.approx(whole, rel=1e-4, abs=1e-6)
        assert _score(fresh(), parts[::-1]) == pytest.approx(whole, rel=1e-4, abs=1e-6)
        assert set(found) != {whole}, "it does not look at the output"

    def test_it_changes_nothing_but_its_states(self) -> None:
        """Other metrics are given the same output and target, and may be asked before it and
        after; whoever asks twice is told the same."""
        fresh, output, target = self.evaluated()
        given, metric = (output.clone(), target.clone()), fresh()
        with process_stays():
            metric.update(output, target)
            found = [float(metric.compute())]
        assert output.equal(given[0]), "it changes the output"
        assert target.equal(given[1]), "it changes the target"
        metric._computed = None  # what torchmetrics keeps until the next update
        assert [float(metric.compute())] == found, "its value changes its states"

    def test_it_is_as_new_after_a_reset(self) -> None:
        """A training keeps its metrics from round to round."""
        fresh, output, target = self.evaluated()
        metric = fresh()
        whole = _score(metric, [(output, target)])
        metric.reset()
        _score(metric, [(self.evaluated(2)[1], target)])
        metric.reset()
        assert _score(metric, [(output, target)]) == whole

    def test_states_of_several_ranks_are_merged(self) -> None:
        """Each rank adds its own rows; rank 0's metric is given what all have added."""
        from distcore_torch.training.merging import MergedState

        fresh, output, target = self.evaluated()
        whole = _score(fresh(), [(output, target)])
        ranks = []
        for start, stop in ((0, 30), (30, 31), (31, len(target))):
            metric = fresh()
            metric.update(output[start:stop], target[start:stop])
            ranks.append(metric)
        merged = MergedState(ranks[0]._reductions)
        for metric in ranks:
            merged.add({name: getattr(metric, name) for name in metric._reductions})
        found = fresh()
        merged.into(found)
        found._update_count = 1
        assert _merged(found) == pytest.approx(whole, rel=1e-4, abs=1e-6), (
            "what it adds up is not in the states of `add_state`"
        )

    def test_a_right_output_is_best(self) -> None:
        import torch

        if self.best is None:
            pytest.skip("it has no best")
        fresh, output, target = self.evaluated()
        feature, metadata, batch = self.fitted()
        right = torch.from_numpy(right_output(feature, metadata, batch["column"].numpy()))
        found = _score(fresh(), [(right, target)])
        assert found == pytest.approx(self.best, abs=1e-3)
        assert abs(_score(fresh(), [(output, target)]) - self.best) > abs(found - self.best)


def _logits(network: Any, metadata: Any, batch: Any, seed: int = 1) -> Any:
    import torch

    torch.manual_seed(seed)
    with torch.no_grad():
        return network.decoder(metadata, 5)(torch.randn(batch.rows, 5))


def _merged(metric: Any) -> float:
    """What it makes of the states of all ranks."""
    try:
        return float(metric.compute())
    except Exception as error:
        apart = [name for name, reduction in metric._reductions.items() if reduction is None]
        raise AssertionError(
            f"{type(error).__name__} of the ranks' merged states: {error}. Those without "
            f"`dist_reduce_fx` ({', '.join(apart) or 'none'}) come as one tensor with a row a rank"
        ) from error


def _score(metric: Any, parts: Any) -> float:
    for output, target in parts:
        metric.update(output, target)
    return float(metric.compute())
