"""What the report draws of a test split, of rows that can be counted by hand."""

from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from distcore_torch import diagnostics
from distcore_torch.diagnostics import Classes, Diagnostics, Residuals


def filled(length, **values):
    """Zeros but for some places: `filled(10, at3=1)`."""
    found = [0] * length
    for place, value in values.items():
        found[int(place.removeprefix("at"))] = value
    return found


def test_of_two_classes_the_second_ones_probability_is_drawn():
    drawn = Classes(["no", "yes"])
    output = np.array([0.0, 0.125, 0.125, 0.875, 1.0], np.float32)
    drawn.update(output, np.array([0, 0, 1, 1, 1]), (output >= 0.5).astype(np.int8))
    assert drawn.as_json() == {
        "labels": ["no", "yes"],
        "confusion": [[2, 0], [1, 2]],
        "calibration": {
            "expected": filled(10, at1=0.125, at8=0.875, at9=1),
            "observed": filled(10, at1=0.5, at8=1, at9=1),
            "counts": filled(10, at0=1, at1=2, at8=1, at9=1),
        },
        "thresholds": {
            "negatives": filled(200, at0=1, at25=1),
            "positives": filled(200, at25=1, at175=1, at199=1),
        },
    }


def test_of_more_classes_the_highest_probability_is_drawn():
    drawn = Classes(["a", "b", "c"])
    output = np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0, 0, 1]], np.float32)
    drawn.update(output, np.array([0, 0, 2]), output.argmax(1))
    assert drawn.as_json() == {
        "labels": ["a", "b", "c"],
        "confusion": [[1, 1, 0], [0, 0, 0], [0, 0, 1]],
        "calibration": {
            "expected": filled(10, at5=0.5, at9=1),
            "observed": filled(10, at5=0.5, at9=1),
            "counts": filled(10, at5=2, at9=1),
        },
    }


@pytest.mark.parametrize("matrix_classes", [1000, 1])
@pytest.mark.parametrize("several", [False, True])
def test_rows_without_a_finite_probability_are_not_drawn(monkeypatch, several, matrix_classes):
    """NaN as a whole number is the smallest, and ended the evaluation after a whole training."""
    monkeypatch.setattr(diagnostics, "MATRIX_CLASSES", matrix_classes)
    output = np.array([0.25, np.nan, 0.75, np.nan], np.float32)
    if several:
        output = np.stack([1 - output, output], 1)
        output[3, 0] = 0.5
    target, told = np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0])
    drawn, wanted = Classes(["no", "yes"]), Classes(["no", "yes"])
    drawn.update(output, target, told)
    wanted.update(output[[0, 2]], target[[0, 2]], told[[0, 2]])
    assert drawn.as_json() == wanted.as_json()
    nothing = Classes(["no", "yes"])
    nothing.update(output[[1, 3]], target[[1, 3]], told[[1, 3]])
    assert nothing.as_json() == Classes(["no", "yes"]).as_json()


@pytest.mark.parametrize("values", [[1e15], [1e17, 1e17], [1.0, 1.0 + 2**-52, 1.0]])
def test_residuals_with_no_double_between_them_are_one_bin(values):
    drawn = Residuals()
    drawn.update(np.array(values), np.zeros(len(values)))
    assert drawn.as_json()["residuals"] == {
        "edges": [min(values), max(values)],
        "counts": [len(values)],
    }


def test_residuals_are_predictions_less_truths_of_the_first_rows(monkeypatch):
    monkeypatch.setattr(diagnostics, "SAMPLE", 4)
    drawn, behind = Residuals(), Residuals()
    drawn.update(np.array([3.0, np.inf]), np.array([1.0, 1.0]))
    behind.update(np.array([0.0, 4.0, 90.0]), np.array([1.0, 4.0, 0.0]))
    drawn.add(behind.state())
    found = drawn.as_json()
    edges, counts = found["residuals"]["edges"], found["residuals"]["counts"]
    assert (edges[0], edges[-1], sum(counts)) == (-1.0, 2.0, 3)
    assert [counts[place] for place in (0, 13, -1)] == [1, 1, 1]
    assert found["pairs"] == [[1.0, 3.0], [1.0, 0.0], [4.0, 4.0], [0.0, 90.0]]


@pytest.mark.parametrize("ratings", [0, 5])
def test_pairs_are_of_all_rows_however_they_come(ratings):
    """They were the first thousand: of a table in the order of its prices, the cheapest."""
    target = np.arange(30_000.0)
    target = target // (30_000 // ratings) if ratings else target
    output = target + 1
    whole, batches, all_pieces = Residuals(), Residuals(), Residuals()
    whole.update(output, target)
    for start in range(0, 30_000, 700):
        batches.update(output[start : start + 700], target[start : start + 700])
    for start in range(0, 30_000, 10_000):
        piece = Residuals()
        piece.update(output[start : start + 10_000], target[start : start + 10_000])
        all_pieces.add(piece.state())
    [one, other, pieces] = [each.as_json()["pairs"] for each in (whole, batches, all_pieces)]
    assert one == other
    for pairs in (one, pieces):
        assert len(pairs) == diagnostics.PAIRS
        assert pairs == sorted(pairs)  # in the order of the rows
        counts, _ = np.histogram([truth for truth, _ in pairs], 5, (0, target[-1]))
        assert (np.abs(counts - 200) < 60).all()  # of 200, by chance: 12.6


def test_rows_that_are_not_drawn_cost_no_sort(monkeypatch):
    """Each batch of a long evaluation sorted the thousand that are kept."""
    drawn = Residuals()
    target = np.arange(100.0)
    for _ in range(1000):
        drawn.update(target, target)
    monkeypatch.setattr(np, "argsort", sorts := Mock(side_effect=np.argsort))
    for _ in range(100):
        drawn.update(target, target)
    assert 0 < sorts.call_count < 80  # a hundred times a hundredth of a hundred rows: 63


def test_pairs_of_few_rows_are_all(monkeypatch):
    monkeypatch.setattr(diagnostics, "PAIRS", 3)
    drawn = Residuals()
    for rows in (0, 1, 2):
        drawn.update(np.zeros(rows), np.arange(rows, dtype=np.float64))
    assert drawn.as_json()["pairs"] == [[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]]
    drawn.update(np.zeros(100), np.ones(100))
    assert len(drawn.as_json()["pairs"]) == 3


def test_residuals_of_no_rows_are_none():
    """One row without an error was drawn."""
    assert not any(Residuals().as_json()["residuals"]["counts"])


def test_rows_whose_class_the_model_does_not_know_are_not_drawn():
    feature = SimpleNamespace(name="y", network=lambda: None, labels=lambda metadata: "abc")
    drawn = Diagnostics(SimpleNamespace(outputs=[feature], metadata={"y": {}}))
    output = np.eye(3, dtype=np.float32)[[0, 1, 2]]
    drawn.update({"y": output}, {"y": np.array([1, -1, 2], np.int32)})
    assert drawn.as_json()["y"]["confusion"] == [[0, 0, 0], [1, 0, 0], [0, 0, 1]]
