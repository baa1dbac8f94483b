"""Which of two trials, and of a trial's rounds, is better."""

import math

import pytest

from distcore_search.objective import Objective


@pytest.mark.parametrize(("goal", "names"), [("maximize", "ecdba"), ("minimize", "bcdea")])
def test_trials_are_ordered_best_first_equals_by_name_and_those_without_a_score_last(goal, names):
    scores = {"a": None, "d": 0.5, "c": 0.5, "b": -1.0, "e": 2}
    records = [{"name": name, "score": score} for name, score in scores.items()]
    ordered = Objective("y", "m", goal).ordered(records)
    assert "".join(each["name"] for each in ordered) == names


@pytest.mark.parametrize(("goal", "best"), [("maximize", (2.0, 3)), ("minimize", (0.5, 1))])
def test_the_best_round_is_the_first_of_equals_and_finite(goal, best):
    values = [math.nan, 0.5, 0.5, 2, 2.0, None, math.inf, -math.inf, "9"]
    assert Objective("y", "m", goal).best_of(values) == best
    assert Objective("y", "m", goal).best_of([None, math.nan]) == (None, None)
    assert Objective("y", "m", goal).best_of([2, 0.5, 0.5, 2.0], last=True) == (
        (2.0, 3) if goal == "maximize" else (0.5, 1)
    )


@pytest.mark.parametrize(
    ("split", "found"), [("training", 1.0), ("validation", 2.0), ("test", 2.0)]
)
def test_rounds_tell_of_the_split_and_of_the_test_split_by_the_validation_splits(split, found):
    metrics = {"training": {"y": {"m": 1.0}}, "validation": {"y": {"m": 2.0}}}
    objective = Objective("y", "m", "maximize", split)
    assert objective.of_round(metrics) == found
    curves = {name: {"y": {"m": [0.0, value["y"]["m"]]}} for name, value in metrics.items()}
    assert objective.of_statistics(curves) == (found, 1)
    curves["training"]["y"]["m"] += [0.5]
    assert objective.of_statistics(curves) == ((0.5, 2) if split == "training" else (found, 1))
    assert objective.of_round({}) is None


@pytest.mark.parametrize("values", [[0.5, 0.1, math.nan], [0.5, None], []])
def test_a_model_of_the_training_split_without_a_value_has_no_score(values):
    """It had that of a round before, whose weights were not kept."""
    assert Objective("y", "m", "minimize", "training").best_of(values) == (None, None)
