"""A number target of any size is learned alike, and everything that is told of it is in its own
units."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import distcore

ROWS = 800


def table(scale=1.0, shift=0.0, holes=False):
    random = np.random.default_rng(3)
    x = random.normal(size=(ROWS, 2))
    y = (2.0 * x[:, 0] - x[:, 1] + 0.1 * random.normal(size=ROWS)) * scale + shift
    empty = (np.arange(ROWS) % 10 == 0) & holes
    parts = np.array([0] * 6 + [1] + [2] * 3)[np.arange(ROWS) % 10 - 1]
    columns = {"x0": x[:, 0], "x1": x[:, 1], "y": pa.array(y, mask=empty), "part": parts}
    return pa.table(columns)


def config(tmp_path, **output):
    return {
        "input_features": [{"name": "x0", "type": "number"}, {"name": "x1", "type": "number"}],
        "output_features": [{"name": "y", "type": "number", **output}],
        "preprocessing": {"split": {"type": "fixed", "column": "part"}},
        "trainer": {"epochs": 5, "batch_size": 32, "learning_rate": 0.02},
        "backend": {"type": "local", "cache_dir": str(tmp_path / "cache")},
    }


def scores_and_errors(tmp_path, given, data):
    """(scores of the test split, prediction − truth of its rows, the report's residuals)."""
    folder = tmp_path / "results"
    outcome = distcore.experiment(given, data, output_directory=folder, view="none")
    predicted = pq.read_table(outcome.predictions)["y_predictions"].to_numpy()
    kept = data.filter(data["part"].to_numpy() == 2).drop_null()
    drawings = json.loads((folder / "experiment_run" / "test_diagnostics.json").read_text())
    return (
        outcome.test_statistics["y"],
        predicted - kept["y"].to_numpy(),
        drawings["y"]["residuals"],
    )


@pytest.mark.parametrize("normalization", [None, "zscore", "minmax", "iq", "log1p"])
def test_scores_are_those_of_the_predictions(normalization, tmp_path):
    data = table(scale=100.0, shift=2000.0)
    given = config(tmp_path, preprocessing={"normalization": normalization})
    scores, errors, residuals = scores_and_errors(tmp_path, given, data)
    rmse = np.mean(errors**2) ** 0.5
    assert scores["root_mean_squared_error"] == pytest.approx(rmse, rel=1e-3)
    assert scores["mean_absolute_error"] == pytest.approx(np.abs(errors).mean(), rel=1e-3)
    assert scores["r2"] > 0.9
    assert residuals["edges"][0] == pytest.approx(errors.min(), rel=1e-3)
    assert residuals["edges"][-1] == pytest.approx(errors.max(), rel=1e-3)


@pytest.mark.parametrize(("scale", "shift"), [(1e-6, 0.0), (1e7, 0.0), (0.5, 1e9)])
def test_a_target_of_another_size_is_learned_as_well(scale, shift, tmp_path):
    scores, errors, _ = scores_and_errors(tmp_path, config(tmp_path), table(scale, shift))
    assert scores["r2"] > 0.9
    assert np.std(errors) < 0.3 * 2.2 * scale


def test_rows_without_a_target_are_left_out(tmp_path):
    scores, errors, _ = scores_and_errors(tmp_path, config(tmp_path), table(holes=True))
    assert scores["r2"] > 0.9
    assert np.isfinite(errors).all()


def test_a_constant_target_is_predicted_and_told(tmp_path, caplog):
    """Scores of it are perfect, and a job that goes by them would have taken the model."""
    data = table()
    data = data.set_column(2, "y", pa.array(np.full(ROWS, 16777217.0)))
    scores, errors, _ = scores_and_errors(tmp_path, config(tmp_path), data)
    assert np.abs(errors).max() < 10.0
    assert np.abs(errors).max() / 16777217.0 < 1e-6
    assert scores["root_mean_squared_error"] < 10.0
    told = "Output 'y' is 16777217.0 in every row, so its scores say nothing."
    assert [each[: len(told)] for each in caplog.messages].count(told) == 1


@pytest.mark.parametrize(("scale", "is_told"), [(1e-4, True), (1e-2, False)])
def test_a_target_that_logarithms_bring_too_close_together_is_told(
    scale, is_told, tmp_path, caplog
):
    given = config(tmp_path, preprocessing={"normalization": "log1p"})
    scores, _, _ = scores_and_errors(tmp_path, given, table(scale=scale, shift=1000.0))
    told = "Output 'y': encoded with normalization log1p its values lie so close together"
    assert any(each.startswith(told) for each in caplog.messages) is is_told
    assert (scores["r2"] > 0.9) is not is_told


@pytest.mark.filterwarnings("error:overflow")
def test_an_infinite_prediction_costs_its_row_alone(tmp_path):
    data = table()
    x, part = data["x0"].to_numpy().copy(), data["part"].to_numpy()
    x[np.flatnonzero(part == 2)[:2]] = 1e9, -1e9  # exp of one of them, at least, is infinite
    target = pa.array(np.exp(data["y"].to_numpy()))
    data = data.set_column(0, "x0", pa.array(x)).set_column(2, "y", target)
    given = config(tmp_path, preprocessing={"normalization": "log1p"})
    given["input_features"][0]["preprocessing"] = {"normalization": None}
    outcome = distcore.experiment(given, data, output_directory=tmp_path / "results", view="none")
    predicted = pq.read_table(outcome.predictions)["y_predictions"].to_numpy()
    infinite = np.isinf(predicted).sum()
    assert infinite
    folder = tmp_path / "results" / "experiment_run"
    drawn = json.loads((folder / "test_diagnostics.json").read_text())["y"]["residuals"]
    assert sum(drawn["counts"]) == len(predicted) - infinite
    worst = json.loads((folder / "summary.json").read_text())["worst"]["y"]
    errors = np.sort(np.abs(predicted - target.to_numpy()[part == 2]))[: len(predicted) - infinite]
    assert [each["error"] for each in worst] == pytest.approx(errors[:-11:-1], rel=1e-4)
