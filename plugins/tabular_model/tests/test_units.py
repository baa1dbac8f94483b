"""A number target is learned in standard deviations, and told in its own units, whatever its
normalization."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from distcore_tabular.number import NumberFeature
from distcore_tabular.options import NumberOutputOptions

NORMALIZATIONS = ("zscore", "minmax", "iq", "log1p", None)
random = np.random.default_rng(0)
VALUES = {
    "prices": np.exp(random.normal(4.0, 1.0, 500)),
    "far": 1e9 + random.normal(0.0, 0.5, 500),
    "small": random.normal(3e-6, 1e-7, 500),
}


def fitted(
    values: Any, loss: dict[str, Any] | None = None, **preprocessing: Any
) -> tuple[NumberFeature, Any, torch.Tensor]:
    """(feature, metadata, encoded target)."""
    given = {"preprocessing": preprocessing, **({"loss": loss} if loss else {})}
    made = NumberFeature("y", "output", NumberOutputOptions.model_validate(given))
    array = pa.array(values, pa.float64())
    metadata = made.finish(made.partial(array))
    return made, metadata, torch.from_numpy(made.encode(array, metadata).to_numpy().copy())


def told(made: NumberFeature, metadata: Any, logits: torch.Tensor) -> np.ndarray:
    """What people read of logits [B]."""
    output = made.network().output(logits, metadata).numpy()
    return made.network().predictions(output, metadata).column(0).to_numpy()


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("name", VALUES)
def test_the_loss_is_in_standard_deviations(normalization: str | None, name: str) -> None:
    if (name, normalization) == ("far", "log1p"):
        pytest.skip("logarithms of 1e9 + 0.5 differ by less than float32 tells")
    made, metadata, target = fitted(VALUES[name], normalization=normalization)
    rows = made.network().loss(torch.zeros(len(target)), target, metadata)
    assert rows.mean().item() == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("name", VALUES)
def test_metrics_and_predictions_are_in_the_targets_own_units(
    normalization: str | None, name: str
) -> None:
    if (name, normalization) == ("far", "log1p"):
        pytest.skip("logarithms of 1e9 + 0.5 differ by less than float32 tells")
    values = VALUES[name]
    made, metadata, target = fitted(values, normalization=normalization)
    network = made.network()
    logits = torch.randn(len(values), generator=torch.Generator().manual_seed(1)) * 0.5
    metrics = network.metrics(metadata)
    for metric in metrics.values():
        metric.update(network.output(logits, metadata), target)
    errors = told(made, metadata, logits) - values
    expected = {
        "mean_squared_error": np.mean(errors**2),
        "mean_absolute_error": np.mean(np.abs(errors)),
        "root_mean_squared_error": np.mean(errors**2) ** 0.5,
        "mean_absolute_percentage_error": np.mean(np.abs(errors / np.maximum(values, 1.17e-6))),
        "r2": 1.0 - np.sum(errors**2) / np.sum((values - values.mean()) ** 2),
    }
    for each, value in expected.items():
        assert metrics[each].compute().item() == pytest.approx(value, rel=2e-3), each
    rows = network.loss(logits, target, metadata)
    assert metrics["loss"].compute().item() == pytest.approx(rows.mean().item(), rel=2e-3)


def test_a_target_far_from_zero_keeps_its_digits() -> None:
    """In float32 the numbers next to 1e9 are 64 apart."""
    values = VALUES["far"]
    made, metadata, target = fitted(values)
    logits = torch.from_numpy((values - values.mean()) / values.std(ddof=1)).float()
    assert np.abs(told(made, metadata, logits) - values).max() < 1e-5
    assert len(np.unique(target.numpy())) == len(values)


def test_codes_of_other_targets_are_their_values() -> None:
    _, metadata, target = fitted(VALUES["prices"])
    assert (metadata["shift"], metadata["scale"]) == (0.0, 1.0)
    assert np.array_equal(target.numpy(), VALUES["prices"].astype(np.float32))


@pytest.mark.parametrize("value", [0.0, 16777217.0, -1e30])
def test_a_constant_target_is_predicted_as_it_is(value: float) -> None:
    made, metadata, target = fitted([value] * 9)
    assert told(made, metadata, torch.zeros(9)).tolist() == [value] * 9
    anything = told(made, metadata, torch.linspace(-2.0, 2.0, 9))
    assert np.allclose(anything, value, rtol=1e-6, atol=1e-6)
    assert made.network().loss(torch.zeros(9), target, metadata).abs().max().item() == 0.0


def test_rows_without_a_target_say_nothing_about_the_others() -> None:
    holes = [
        None if number % 3 == 0 else float(value) for number, value in enumerate(VALUES["prices"])
    ]
    for missing in (None, float("nan")):
        values = [missing if each is None else each for each in holes]
        _, metadata, _ = fitted([each for each in holes if each is not None])
        made = NumberFeature("y", "output", NumberOutputOptions.model_validate({}))
        found = made.finish(made.partial(pa.array(values, pa.float64())))
        assert found["standard"] == metadata["standard"]


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_statistics_merge_to_the_same_bits(normalization: str | None) -> None:
    values = pa.array(VALUES["prices"])
    made, metadata, _ = fitted(VALUES["prices"], normalization=normalization)
    parts = [made.partial(values[start : start + 77]) for start in range(0, 500, 77)]
    merged = parts.pop()
    while parts:
        merged = made.merge(merged, parts.pop())
    assert made.finish(merged) == metadata


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_bits_of_a_row_do_not_depend_on_the_rows_beside_it(normalization: str | None) -> None:
    made, metadata, target = fitted(VALUES["prices"], normalization=normalization)
    network = made.network()
    logits = torch.randn(len(target), generator=torch.Generator().manual_seed(2))
    whole = network.output(logits, metadata), network.loss(logits, target, metadata)
    for start in range(0, len(target), 7):
        part = slice(start, start + 7)
        assert torch.equal(network.output(logits[part], metadata), whole[0][part])
        assert torch.equal(network.loss(logits[part], target[part], metadata), whole[1][part])


def test_delta_of_huber_is_in_the_targets_units() -> None:
    """As in Ludwig: 1.0 is one unit of the target, not a standard deviation."""
    values = 100.0 * random.normal(size=500)
    made, metadata, target = fitted(values, loss={"type": "huber", "delta": 50.0})
    std = metadata["standard"]["std"]
    rows = made.network().loss(torch.zeros(500), target, metadata).double() * std**2
    expected = torch.nn.functional.huber_loss(
        torch.full((500,), metadata["mean"]).double(), target.double(), reduction="none", delta=50.0
    )
    assert torch.allclose(rows, expected, rtol=1e-4)


def test_percentages_are_of_the_targets_own_values() -> None:
    loss = {"type": "mean_absolute_percentage_error"}
    made, metadata, target = fitted(VALUES["prices"], loss=loss, normalization="zscore")
    rows = made.network().loss(torch.zeros(500), target, metadata).numpy()
    values = VALUES["prices"]
    assert np.allclose(rows, np.abs(values.mean() - values) / values, rtol=1e-4)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize(
    "name", ["mean_absolute_percentage_error", "root_mean_squared_percentage_error"]
)
def test_a_target_of_zero_is_one_in_percentages(name: str, normalization: str | None) -> None:
    """What rounding leaves of it would be what its error is divided by."""
    values = np.append(np.round(VALUES["prices"]), [0.0] * 20)
    made, metadata, target = fitted(values, loss={"type": name}, normalization=normalization)
    logits = torch.zeros(len(values))
    errors = told(made, metadata, logits) - values
    if name == "mean_absolute_percentage_error":
        rows = np.abs(errors) / np.maximum(values, 1.17e-6)
        expected = rows.mean()
    else:
        rows = np.square(errors / np.where(values == 0.0, 1e-4, values))
        expected = np.sqrt(rows.mean())
    metrics = made.network().metrics(metadata)
    output = made.network().output(logits, metadata)
    for metric in (name, "loss"):
        metrics[metric].update(output, target)
        assert metrics[metric].compute().item() == pytest.approx(expected, rel=1e-3), metric
    found = made.network().loss(logits, target, metadata).mean().item()
    assert found == pytest.approx(expected, rel=1e-3)
