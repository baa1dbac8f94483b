"""When forests are over, what is kept of them and what is told, of values that are given."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from distcore_core.progress import Progress
from distcore_trees.boosting import Boosting, Growing, Standing
from distcore_trees.options import TreeOptions
from distcore_trees.outputs import Output
from distcore_trees.rows import Rows

NAN = float("nan")


class Metric:
    """The mean of the outputs."""

    def __init__(self, higher):
        self.higher_is_better = higher

    def reset(self):
        self.value = NAN

    def update(self, output, target):
        assert len(output) == len(target)
        self.value = output.mean()

    def compute(self):
        return self.value


class Forest:
    """Its outputs are the given values, one a round; it grows while there are some."""

    def __init__(self, values):
        self.values, self.rounds = values, 0

    def grow(self):
        self.rounds += 1
        return self.rounds <= len(self.values)

    def outputs(self, part):
        return np.full(2, self.values[self.rounds - 1], np.float32)


def rows(target=(1, -1, 0)):
    output = Output("y", "category", None, {"class_weights": None})
    return Rows.of(output, np.zeros((3, 2), np.float32), np.array(target), [])


def growing(name, values, watched="loss", weight=1.0, validates=True):
    parts = {"train": rows(), **({"validation": rows()} if validates else {})}
    feature = SimpleNamespace(name=name, loss_weight=weight)
    metrics = {"loss": Metric(False), "auc": Metric(True)}
    return Growing(feature, Forest(values), parts, Standing(), metrics, lambda each: each, watched)


def boosting(forests, **options):
    told = []
    made = TreeOptions.model_validate({"trees_per_evaluation": 50, "num_boost_round": 50} | options)
    job = SimpleNamespace(
        scores=lambda predictor, split: {}, tell_epoch=lambda **each: told.append(each) or ""
    )
    return Boosting(job, made, forests, {}, lambda rounds: told.append(rounds), Progress()), told


def test_a_forest_that_was_over_goes_on_with_more_patience_from_where_it_stood():
    one = growing("one", [5, 6, 4, 3, 3, 3, 2])
    other = growing("other", [9, 8, 7, 6, 6, 6])
    boosting([one, other], early_stopping_rounds=1, num_boost_round=3)[0].run()
    assert (one.standing.rounds, other.standing.rounds) == (2, 3)
    boosting([one, other], early_stopping_rounds=2)[0].run()
    assert one.standing == Standing(rounds=6, best=4, value=3.0)
    assert other.standing == Standing(rounds=6, best=4, value=6.0)
    boosting([one, other], early_stopping_rounds=9)[0].run()
    assert one.standing == Standing(rounds=7, best=7, value=2.0, grown_out=True)
    assert other.standing == Standing(rounds=6, best=4, value=6.0, grown_out=True)


def test_without_validation_rows_no_best_validation_is_told():
    one = growing("one", [5, 6, 7], validates=False)
    found, told = boosting([one], trees_per_evaluation=1)
    found.run()
    assert [each["step"] for each in told[:-1:2]] == [1, 2, 3]
    assert (found.progress.note, one.standing.value) == ("", None)


def test_each_forest_is_over_by_its_own_metric_and_the_model_has_its_best_rounds():
    one = growing("one", [5, 4, 4, 4.5, 1])
    other = growing("other", [0.5, NAN, 0.7, 0.6, 0.8, 0.1, 0.8, 0.9], "auc")
    short = growing("short", [9, 8, 7, 6, 5, 4])  # no split improves anything any more
    found, told = boosting([one, other, short], early_stopping_rounds=2)
    found.run()
    assert one.standing == Standing(rounds=4, best=2, value=4.0)
    assert other.standing == Standing(rounds=7, best=5, value=pytest.approx(0.8))
    assert short.standing == Standing(rounds=6, best=6, value=4.0, grown_out=True)
    assert [found.kept(each) for each in (one, other, short)] == [2, 5, 6]
    assert found.lead is short
    assert told == [7]


def test_without_validation_rows_every_round_is_kept():
    one = growing("one", [5, 6, 7], validates=False)
    found, _ = boosting([one], early_stopping_rounds=2)
    found.run()
    assert one.standing == Standing(rounds=3, best=3, grown_out=True)
    assert found.kept(one) == 3


@pytest.mark.parametrize(("values", "kept"), [([5, 4, 7], 2), ([NAN, NAN, NAN], 3)])
def test_without_patience_it_never_stops_and_the_best_round_is_kept(values, kept):
    one = growing("one", values)
    found, _ = boosting([one], early_stopping_rounds=0)
    found.run()
    assert (one.standing.rounds, found.kept(one)) == (3, kept)


def test_the_forest_that_is_asked_for_is_told_of():
    one, other = growing("one", [5, 4, 4.5]), growing("other", [9, 8, 7])
    found, _ = boosting([one, other])
    found.run()
    assert found.lead is other
    found.forests[0] = replace(one, asked_for=True)
    assert found.lead.feature is one.feature


def test_of_a_forest_that_is_over_while_others_grow_no_patience_is_told():
    """It was 0, as if training had to end, for as long as they grew."""
    one, other = growing("one", [5, 4, 6, 6]), growing("other", [9, 8, 7, 6, 7, 7])
    found, _ = boosting(
        [replace(one, asked_for=True), other], early_stopping_rounds=2, trees_per_evaluation=1
    )
    rounds = []
    found.progress.tell = rounds.append
    found.run()
    found.tell(found.metrics(lambda each, part: each.forest.outputs(part)))
    assert [each.patience_left for each in rounds] == [2, 2, 1, None, None, 0]
    assert {each.feature for each in rounds} == {"one"}


def test_the_combined_loss_is_weighted_and_none_if_one_is_none():
    one, other = growing("one", [2.0, 2.0]), growing("other", [3.0, NAN], weight=4.0)
    found, _ = boosting([one, other])
    for combined in (14.0, None):
        for each in (one, other):
            each.forest.grow()
        metrics = found.metrics(lambda each, part: each.forest.outputs(part))
        assert metrics["training"]["combined"] == {"loss": combined}


def test_rows_without_a_target_are_left_out_and_have_zeros():
    output = Output("y", "category", None, {"class_weights": [1.0, 2.0, 5.0]})
    inputs, target = np.arange(8, dtype=np.float32).reshape(4, 2), np.array([2, -1, 0, 1])
    found = Rows.of(output, inputs, target, [1])
    assert found.inputs.tolist() == [[0, 1], [4, 5], [6, 7]]
    assert (found.target.tolist(), found.weight.tolist()) == ([2, 0, 1], [5, 1, 2])
    one = growing("y", [1.0])
    one.rows["train"] = found
    assert one.whole("train", np.ones((3, 2), np.float32)).tolist() == [
        [1, 1],
        [0, 0],
        [1, 1],
        [1, 1],
    ]
