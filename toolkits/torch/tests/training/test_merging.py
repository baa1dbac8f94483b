"""States of parts of the rows, merged: the bits do not tell the order of the parts, nor how many
there were."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics.utilities import dim_zero_cat, dim_zero_max, dim_zero_sum

from distcore_data.encoding.exactsum import exact_sum, total
from distcore_torch import diagnostics
from distcore_torch.diagnostics import PAIRS, SAMPLE, Classes, Residuals
from distcore_torch.training.merging import MergedState


class Metric:
    pass


def merged(states, reductions):
    state = MergedState(reductions)
    for each in states:
        state.add(each)
    metric = Metric()
    state.into(metric)
    return vars(metric)


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=6), st.randoms())
def test_sums_have_the_same_bits_in_any_order_and_are_rounded_once(values, random):
    shuffled = random.sample(values, len(values))
    for parts in (values, shuffled):
        states = [{"sum": torch.tensor([value, 1.0], dtype=torch.float64)} for value in parts]
        found = merged(states, {"sum": dim_zero_sum})["sum"]
        assert found.dtype == torch.float64
        assert found.tolist() == [total(values), float(len(values))]


def test_whole_numbers_and_other_reductions():
    states = [
        {
            "count": torch.tensor([[2**62 - number, 1]]),
            "best": torch.tensor(float(number)),
            "kept": torch.tensor([number]),
            "rows": [torch.tensor([number, number])],
        }
        for number in (0, 2, 1)
    ]
    found = merged(
        states[1:],
        {"count": dim_zero_sum, "best": dim_zero_max, "kept": None, "rows": dim_zero_cat},
    )
    assert found["count"].tolist() == [[2**63 - 3, 2]]
    assert found["best"] == 2
    assert found["kept"].tolist() == [[2], [1]]
    assert [each.tolist() for each in found["rows"]] == [[2, 2], [1, 1]]


def test_one_part_is_as_it_is():
    state = torch.tensor(0.1, dtype=torch.float32)
    assert merged([{"x": state}], {"x": dim_zero_sum})["x"] is state


@pytest.mark.parametrize(
    "values", [[math.inf, 1.0], [math.inf, -math.inf], [1e308, 1e308], [math.nan]]
)
def test_sums_that_are_not_finite_are_floating_points(values):
    found, wanted = total(values), sum(values)
    assert found == wanted or (math.isnan(found) and math.isnan(wanted))


def test_arrays_keep_shape_and_type():
    parts = [
        np.full((2, 3), 0.1, np.float32),
        np.full((2, 3), 1e9, np.float32),
        np.full((2, 3), -1e9, np.float32),
    ]
    for order in itertools.permutations(parts):
        found = exact_sum(order)
        assert found.dtype == np.float32
        assert found.shape == (2, 3)
        assert (found == np.float32(0.1)).all()


def test_drawings_of_pieces_are_those_of_the_whole():
    rng = np.random.default_rng(1)
    probability, truth = rng.random(5_000, np.float32), rng.integers(0, 2, 5_000)
    whole, edges = Classes(["no", "yes"]), [0, 7, 2_000, 2_000, 5_000]
    told = (probability >= 0.3).astype(np.int8)
    whole.update(probability, truth, told)
    results = []
    for cuts in (list(itertools.pairwise(edges)), list(itertools.pairwise(edges))[::-1]):
        joined = Classes(["no", "yes"])
        for start, stop in cuts:
            part = Classes(["no", "yes"])
            part.update(probability[start:stop], truth[start:stop], told[start:stop])
            joined.add(part.state())
        results.append(joined.as_json())
    assert results[0] == results[1]
    assert results[0]["confusion"] == whole.as_json()["confusion"]
    assert results[0]["calibration"]["counts"] == whole.as_json()["calibration"]["counts"]
    assert results[0]["calibration"]["expected"] == pytest.approx(
        whole.as_json()["calibration"]["expected"]
    )


def test_of_many_classes_only_the_cells_that_were_met_are_kept(monkeypatch):
    """The confusion matrix of 20,000 classes took 3 GB, in memory and in the file, for any rows."""
    rng = np.random.default_rng(1)
    output, truth = rng.random((900, 7), np.float32), rng.integers(0, 7, 900)
    labels = [str(each) for each in range(7)]

    def drawn(cuts):
        joined = Classes(labels)
        for start, stop in cuts:
            part = Classes(labels)
            for rows in (slice(start, stop - 2), slice(stop - 2, stop)):
                part.update(output[rows], truth[rows], output[rows].argmax(1))
            joined.add(part.state())
        return joined.as_json()

    matrix = drawn([(0, 900)])["confusion"]
    monkeypatch.setattr(diagnostics, "MATRIX_CLASSES", 6)
    pieces = [(0, 20), (20, 400), (400, 900)]
    found = drawn(pieces)
    cells = found["confusion_cells"]
    assert "confusion" not in found
    assert cells == drawn(pieces[::-1])["confusion_cells"]
    again = np.zeros((7, 7), int)
    again[cells["truth"], cells["predicted"]] = cells["rows"]
    assert again.tolist() == matrix
    assert Classes(labels).as_json()["confusion_cells"]["rows"] == []

    many = Classes(list(map(str, range(100_000))))
    assert sum(each.nbytes for each in many.state().values()) < 10_000  # a matrix has 80 GB
    many.update(np.ones((1, 2), np.float32), np.array([99_999]), np.array([7]))
    assert many.as_json()["confusion_cells"] == {
        "truth": [99_999],
        "predicted": [7],
        "rows": [1],
    }


def test_residuals_of_pieces_are_the_first_of_the_whole():
    """The rows that are drawn from all of them are others, as each piece counts its own."""
    values = np.random.default_rng(2).normal(size=SAMPLE + 1_000)
    whole, joined = Residuals(), Residuals()
    whole.update(values, np.zeros(len(values)))
    for start in range(0, len(values), 300_000):
        part = Residuals()
        part.update(values[start : start + 300_000], np.zeros(len(values[start : start + 300_000])))
        joined.add(part.state())
    assert joined.as_json()["residuals"] == whole.as_json()["residuals"]
    for each in (joined, whole):
        pairs = each.as_json()["pairs"]
        assert len(pairs) == PAIRS
        assert {predicted for _, predicted in pairs} <= set(values)
    assert Residuals().as_json()["residuals"]["counts"]
