"""Scores: exact row weights, the same over any split of the rows, null if there is no value."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss, mean_absolute_error, roc_auc_score
from torchmetrics import MeanAbsoluteError, MeanMetric

from distcore_core.contracts import Rank
from distcore_core.errors import PluginBroken
from distcore_testing.loops import TinyFeature, TinyFeatures, TinyNet, tiny_batch
from distcore_torch.batch import Batch
from distcore_torch.training.evaluating import evaluate
from distcore_torch.training.scores import Scores


class Together:
    """Ranks of one process, one after another: each keeps its value, the last to ask gets all."""

    def __init__(self, world):
        self.world, self.values = world, []

    def gathers(self, scores):
        """What each rank's `compute` would be given, and rank 0's answer."""
        states = []
        for each in scores:
            stub = _Rank(states)
            with pytest.raises(_Enough):
                each.compute(stub)
        return scores[0].compute(_First(states))


class _Enough(Exception):
    pass


class _Rank:
    rank = Rank()

    def __init__(self, states):
        self.states = states

    def gather(self, value):
        self.states.append(value)
        raise _Enough


class _First:
    rank = Rank()

    def __init__(self, states):
        self.states = states
        self.asked = 0

    def gather(self, value):
        self.asked += 1
        return self.states if self.asked == 1 else [value]


def part(batch, start, stop):
    return Batch(batch.packed[start:stop], batch.layout)


def parts(batch, cuts):
    edges = [0, *cuts, batch.rows]
    return [part(batch, a, b) for a, b in pairwise(edges)]


def net():
    torch.manual_seed(0)
    return TinyNet()


def expected(module, batch):
    """By hand and by scikit-learn, in doubles."""
    module.eval()
    with torch.no_grad():
        logits = {name: each.double().numpy() for name, each in module(batch).items()}
    y, z = batch["y"].double().numpy(), batch["z"].double().numpy()
    probability = 1 / (1 + np.exp(-logits["z"]))
    losses = {"y": ((logits["y"] - y) ** 2).mean(), "z": log_loss(z, probability, labels=[0, 1])}
    return {
        "y": {"loss": losses["y"], "mean_absolute_error": mean_absolute_error(y, logits["y"])},
        "z": {
            "loss": losses["z"],
            "accuracy": accuracy_score(z, probability > 0.5),
            "roc_auc": roc_auc_score(z, probability),
        },
        "combined": {"loss": losses["y"] + losses["z"]},
    }


def flat(scores):
    return {
        (output, name): value for output, found in scores.items() for name, value in found.items()
    }


@pytest.mark.parametrize("cuts", [[], [1], [3, 50, 51], [0, 90], list(range(1, 97))])
def test_scores_are_those_of_the_whole_however_it_is_cut_into_batches(cuts):
    module, batch = net(), tiny_batch(97)
    found = evaluate(module, parts(batch, cuts), Scores(TinyFeatures())).compute()
    assert module.training
    assert flat(found) == pytest.approx(flat(expected(module, batch)), rel=1e-5)


@pytest.mark.parametrize("cuts", [[50], [0, 30], [97], [1, 2, 3]])
def test_scores_over_ranks_are_those_of_the_whole_also_where_a_rank_has_no_rows(cuts):
    module, batch = net(), tiny_batch(97)
    ranks = [
        evaluate(module, parts(each, [each.rows // 2]), Scores(TinyFeatures()))
        for each in parts(batch, cuts)
    ]
    found = Together(len(ranks)).gathers(ranks)
    assert flat(found) == pytest.approx(flat(expected(module, batch)), rel=1e-5)


def test_scores_begin_again_once_they_are_computed():
    """What metrics keep of the rows may be gigabytes, and lay there until the object's end."""
    module, batch = net(), tiny_batch(97)
    scores = Scores(TinyFeatures())
    twice = [evaluate(module, [batch], scores).compute() for _ in range(2)]
    assert twice[0] == twice[1]
    assert all(
        not state.any()
        for each in scores.state().outputs
        for kept in each.metrics.values()
        for state in kept.values()
        if isinstance(state, torch.Tensor)
    )
    assert scores.compute() == {}


def test_no_rows_have_no_metrics(caplog):
    assert Scores(TinyFeatures(), split="validation").compute() == {}
    assert "The validation split has no rows" in caplog.text


def test_one_class_has_no_roc_auc_and_says_so(caplog):
    batch = tiny_batch(60)
    ones = [index for index in range(60) if batch["z"][index] == 1]
    scores = evaluate(
        net(), [Batch(batch.packed[ones], batch.layout)], Scores(TinyFeatures(), split="test")
    )
    found = scores.compute()
    assert found["z"]["roc_auc"] is None
    assert found["z"]["accuracy"] is not None
    assert "The test roc_auc of z has no value: No negative samples" in caplog.text


def test_arrays_of_a_model_without_logits_are_scored_without_a_loss():
    batch = tiny_batch(40)
    outputs = {"y": np.zeros(40, np.float32), "z": np.linspace(0, 1, 40)}
    scores = Scores(TinyFeatures())
    for start in (0, 25):
        stop = 25 if start == 0 else 40
        scores.update(
            {name: each[start:stop] for name, each in outputs.items()}, part(batch, start, stop)
        )
    found = scores.compute()
    assert "loss" not in found["y"]
    assert "combined" not in found
    assert found["y"]["mean_absolute_error"] == pytest.approx(float(batch["y"].abs().mean()))
    assert found["z"]["roc_auc"] == pytest.approx(roc_auc_score(batch["z"].numpy(), outputs["z"]))


def test_rows_of_a_class_that_is_none_are_counted_and_are_in_no_mean(monkeypatch, caplog):
    plain = TinyFeature.loss

    def loss(feature, logits, target, metadata):
        return plain(feature, logits, target.clamp_min(0), metadata) * (target >= 0)

    def labels(feature, metadata):
        return ["no", "yes"] if feature.kind == "binary" else None

    def of(rows, *unknown):
        """Of some rows, and of those of z that have a class."""
        batch = tiny_batch(rows)
        batch["z"][list(unknown)] = -1
        kept = [row for row in range(rows) if row not in unknown]
        return batch, Batch(batch.packed[kept], batch.layout)

    module, features = net(), TinyFeatures()
    batch, known = of(40, 1, 7, 30, 31)
    wanted = evaluate(module, [known], Scores(features)).compute()["z"]
    monkeypatch.setattr(TinyFeature, "labels", labels)
    monkeypatch.setattr(TinyFeature, "loss", loss)
    monkeypatch.setattr(TinyFeature, "metrics", lambda *given: {})
    cut = parts(batch, [20])
    ranks = [Scores(features, split="test") for _ in cut]
    for _ in range(2):
        made = [evaluate(module, [each], scores) for each, scores in zip(cut, ranks, strict=True)]
        assert Together(2).gathers(made)["z"]["loss"] == pytest.approx(wanted["loss"])
        for scores in ranks:
            scores.reset()
    assert caplog.text.count("4 of 40 rows of the test split have a value of z that") == 2
    none, _ = of(2, 0, 1)
    assert evaluate(module, [none], Scores(features)).compute()["z"] == {"loss": None}


@pytest.mark.parametrize(("name", "value"), [("y", math.nan), ("z", math.nan), ("z", math.inf)])
def test_an_output_that_is_not_finite_in_one_row_has_no_metrics(caplog, name, value):
    """A class was taken from it, right in some rows, and torchmetrics took every probability beside
    it for a logit: scores that nothing told from true ones."""
    batch, outputs = tiny_batch(40), {"y": np.zeros(40), "z": np.linspace(0, 1, 40)}

    def of(rows):
        found = Scores(TinyFeatures(), split="test")
        cut = {name: each[rows] for name, each in outputs.items()}
        found.update(cut, Batch(batch.packed[rows], batch.layout))
        return found

    wanted = of(slice(40)).compute()
    outputs[name][33] = value
    for _ in range(2):
        found = Together(2).gathers([of(slice(25)), of(slice(25, 40))])
        assert found == {**wanted, name: dict.fromkeys(wanted[name])}
    told = f"In 1 of 40 rows of the test split the output {name} is not finite, so its metrics have"
    assert caplog.text.count(told) == 2
    scores = of(slice(40))
    scores.reset()
    outputs[name][33] = 0.5
    scores.update(outputs, batch)
    assert None not in scores.compute()[name].values()


def test_what_is_not_finite_in_a_row_of_a_class_that_is_none_is_in_no_metric(monkeypatch):
    class Known(MeanMetric):
        def update(self, output, target):
            super().update(output[target >= 0])

    monkeypatch.setattr(TinyFeature, "labels", lambda *given: ["no", "yes"])
    monkeypatch.setattr(TinyFeature, "metrics", lambda *given: {"mean": Known()})
    batch, scores = tiny_batch(4), Scores(TinyFeatures())
    batch["z"][1] = -1
    batch["y"][:] = 0
    scores.update({"y": np.zeros(4), "z": np.array([0.5, np.nan, 0.5, 0.5])}, batch)
    assert scores.compute() == {"y": {"mean": 0.0}, "z": {"mean": 0.5}}


def test_scores_that_begin_again_are_those_of_new_ones(monkeypatch):
    """With the same metrics, also over two parts of the rows."""
    module, made = net(), []
    metrics = TinyFeature.metrics
    monkeypatch.setattr(
        TinyFeature, "metrics", lambda *given: made.append(given) or metrics(*given)
    )
    kept = [Scores(TinyFeatures()) for _ in range(2)]
    for number, rows in enumerate((97, 60, 3)):
        cut = parts(tiny_batch(rows), [rows // 3])
        new = [evaluate(module, [each], Scores(TinyFeatures())) for each in cut]
        wanted = Together(2).gathers(new)
        del made[:]
        for scores, each in zip(kept, cut, strict=True):
            evaluate(module, [each], scores)
        assert Together(2).gathers(kept) == wanted
        assert bool(made) == (number == 0)
        for scores in kept:
            scores.reset()


def test_a_loaders_buffer_may_be_filled_again_after_a_batch():
    module, batch = net(), tiny_batch(30)
    buffer = torch.empty(10, batch.packed.shape[1], dtype=torch.int32)

    def reused():
        for start in (0, 10, 20):
            buffer.copy_(batch.packed[start : start + 10])
            yield Batch(buffer, batch.layout)
        buffer.zero_()

    found = evaluate(module, reused(), Scores(TinyFeatures())).compute()
    assert flat(found) == pytest.approx(flat(expected(module, batch)), rel=1e-5)


def test_a_loss_that_is_not_finite_is_null_and_stays_json():
    module = net()
    module.last.bias.data.fill_(float("nan"))
    found = evaluate(module, [tiny_batch(8)], Scores(TinyFeatures())).compute()
    assert found["y"]["loss"] is found["combined"]["loss"] is None


def test_torchmetrics_is_imported_only_where_metrics_are_asked_for():
    import subprocess
    import sys

    program = (
        "import sys, torch; from distcore_testing.loops import *; from "
        "distcore_torch.training.scores import Scores\n"
        "scores = Scores(TinyFeatures(), metrics=False)\n"
        "scores.update_logits(TinyNet()(tiny_batch(4)), tiny_batch(4)); assert "
        "scores.compute()['y']['loss'] > 0\n"
        "sys.exit('torchmetrics' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.mark.parametrize(
    ("value", "given"),
    [(torch.zeros(2), r"Tensor of the shape \(2,\)"), ({"a": 1.0}, "dict"), ("good", "str")],
)
def test_a_metric_whose_value_is_no_number_is_told_by_name(monkeypatch, value, given):
    class Odd(MeanAbsoluteError):
        def compute(self):
            return value

    monkeypatch.setattr(TinyFeature, "metrics", lambda self, metadata: {"odd": Odd()})
    with pytest.raises(PluginBroken, match=rf"The validation odd of y is a {given}, and no number"):
        evaluate(TinyNet(), [tiny_batch(32)], Scores(TinyFeatures(), split="validation")).compute()
