"""Metrics by Ludwig's names, against scikit-learn, and the same for any share of the rows a
worker has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as sk
import torch

from distcore_tabular import class_metrics, metrics
from distcore_tabular.features import make
from distcore_tabular.options_models import model_of

ROWS = 300
PLAIN = {
    "normalization": None,
    "mean": 0.0,
    "std": 1.0,
    "shift": 0.0,
    "scale": 1.0,
    "standard": {"mean": 0.0, "std": 1.0},
}
"""Of a number whose codes, standard deviations and own units are the same."""


def network(kind: str, **options: Any) -> Any:
    model = model_of("features", kind, "output")
    assert model is not None
    return make(kind, "y", "output", model.model_validate(options)).network()


def scored(
    found: dict[str, Any], output: torch.Tensor, target: torch.Tensor, batches: int = 4
) -> dict[str, float]:
    for some, wanted in zip(output.chunk(batches), target.chunk(batches), strict=True):
        for metric in found.values():
            metric.update(some, wanted)
    return {name: metric.compute().item() for name, metric in found.items()}


def test_number_metrics_are_scikit_learns() -> None:
    random = np.random.default_rng(0)
    target = random.normal(1000.0, 1.0, ROWS)
    output = target + random.normal(0.0, 0.5, ROWS)
    found = scored(network("number").metrics(PLAIN), torch.tensor(output), torch.tensor(target))
    mse = sk.mean_squared_error(target, output)
    expected = {
        "loss": mse,
        "mean_squared_error": mse,
        "mean_absolute_error": sk.mean_absolute_error(target, output),
        "root_mean_squared_error": mse**0.5,
        "root_mean_squared_percentage_error": np.mean(((output - target) / target) ** 2) ** 0.5,
        "mean_absolute_percentage_error": sk.mean_absolute_percentage_error(target, output),
        "r2": sk.r2_score(target, output),
    }
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-5), name


@pytest.mark.parametrize("kind", ["root_mean_squared_error", "root_mean_squared_percentage_error"])
def test_the_loss_of_a_root_does_not_depend_on_the_batches(kind: str) -> None:
    torch.manual_seed(0)
    output, target = torch.randn(ROWS), torch.randn(ROWS) + 3.0
    made = network("number", loss={"type": kind})
    whole = scored(made.metrics(PLAIN), output, target, batches=1)
    parts = scored(made.metrics(PLAIN), output, target, batches=7)
    assert parts["loss"] == pytest.approx(whole["loss"], rel=1e-6)
    assert whole["loss"] == pytest.approx(made.loss(output, target, PLAIN).mean().item(), rel=1e-5)
    assert whole["loss"] == pytest.approx(whole[kind], rel=1e-5)


def test_r2_of_two_rows_is_a_number() -> None:
    metric = metrics.R2()
    metric.update(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0]))
    assert metric.compute().item() == 0.5


def test_r2_of_rows_that_spread_little_beside_the_column_is_scikit_learns() -> None:
    """One wrong value of 1e7 elsewhere makes the column's standard deviation."""
    random = np.random.default_rng(0)
    target = random.normal(10, 1, 200).astype(np.float32)
    near = (target + random.normal(0, 0.1, 200)).astype(np.float32)
    for output in (np.full(200, 12, np.float32), near, target):
        metric = metrics.R2(mean=5010.0, std=2.2e5)
        for part in range(2):
            metric.update(*(torch.tensor(each[part::2]) for each in (output, target)))
        assert metric.compute().item() == pytest.approx(sk.r2_score(target, output), rel=1e-6)


def test_r2_of_many_rows_far_from_the_columns_mean() -> None:
    """Their spread was within the rounding of as many additions, of which there were a few."""
    random = np.random.default_rng(0)
    target = torch.tensor(random.normal(1000, 0.01, 1_000_000))
    metric = metrics.R2()
    for part in target.split(65_536):
        metric.update(part + 0.001, part)
    assert metric.compute().item() == pytest.approx(0.99, abs=1e-3)


@pytest.mark.parametrize(("output", "found"), [(0.7, 1.0), (0.8, 0.0)])
@pytest.mark.parametrize("std", [1.0, 1e7])
def test_r2_of_targets_that_are_all_alike(output: float, found: float, std: float) -> None:
    metric = metrics.R2(mean=0.1, std=std)
    for _ in range(3000):
        metric.update(torch.full((7,), output), torch.full((7,), 0.7))
    assert metric.compute().item() == found


def test_r2_of_one_row_is_nan() -> None:
    metric = metrics.R2()
    metric.update(torch.ones(1), torch.ones(1))
    assert torch.isnan(metric.compute())


def test_binary_metrics_are_scikit_learns() -> None:
    random = np.random.default_rng(1)
    target = random.random(ROWS) < 0.3
    output = np.clip(random.random(ROWS) * 0.6 + 0.3 * target, 0, 1).astype(np.float32)
    made = network("binary", threshold=0.4)
    found = scored(
        made.metrics({}), torch.tensor(output), torch.tensor(target, dtype=torch.float32)
    )
    predicted = output >= np.float32(0.4)
    expected = {
        "loss": sk.log_loss(target, output.astype(float)),
        "accuracy": sk.accuracy_score(target, predicted),
        "precision": sk.precision_score(target, predicted),
        "recall": sk.recall_score(target, predicted),
        "specificity": sk.recall_score(~target, ~predicted),
        "roc_auc": sk.roc_auc_score(target, output),
    }
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-5), name


def test_a_probability_at_the_threshold_is_true() -> None:
    found = scored(
        network("binary").metrics({}), torch.tensor([0.5, 0.5]), torch.tensor([1.0, 1.0]), batches=1
    )
    assert (found["accuracy"], found["recall"]) == (1.0, 1.0)


def test_category_metrics_are_scikit_learns() -> None:
    random = np.random.default_rng(2)
    target = random.integers(0, 5, ROWS)
    logits = torch.tensor(random.normal(size=(ROWS, 5)) + np.eye(5)[target], dtype=torch.float32)
    made = network("category", top_k=2)
    metadata = {"vocab_size": 5, "class_weights": None}
    output = made.output(logits, metadata)
    found = scored(made.metrics(metadata), output, torch.tensor(target, dtype=torch.int32))
    predicted, probabilities = output.argmax(1).numpy(), output.numpy()
    second = np.argsort(-probabilities, 1)[:, :2]
    hits = [np.mean([label in row for row in second[target == label]]) for label in range(5)]
    expected = {
        "loss": sk.log_loss(target, probabilities),
        "accuracy": sk.balanced_accuracy_score(target, predicted),
        "accuracy_micro": sk.accuracy_score(target, predicted),
        "roc_auc": sk.roc_auc_score(target, probabilities, multi_class="ovr"),
        "hits_at_k": np.mean(hits),
    }
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-5), name


def test_metrics_say_which_way_is_better() -> None:
    """Early stopping reads it."""
    category = {"vocab_size": 100, "class_weights": None}
    higher = {
        "accuracy",
        "accuracy_micro",
        "precision",
        "recall",
        "specificity",
        "roc_auc",
        "hits_at_k",
        "r2",
    }
    for kind, metadata in (("number", PLAIN), ("binary", {}), ("category", category)):
        for name, metric in network(kind).metrics(metadata).items():
            assert bool(metric.higher_is_better) == (name in higher), name


def test_hits_at_k_needs_more_classes_than_k() -> None:
    assert "hits_at_k" not in network("category", top_k=3).metrics(
        {"vocab_size": 3, "class_weights": None}
    )


def test_roc_auc_of_many_classes_is_close_to_the_exact_one() -> None:
    torch.manual_seed(3)
    target = torch.randint(0, 9, (2000,))
    output = (torch.randn(2000, 9) * 2 + torch.eye(9)[target]).softmax(1)
    exact, binned = class_metrics.ClassRocAuc(9), class_metrics.BinnedRocAuc(9)
    for metric in (exact, binned):
        scored({"roc_auc": metric}, output, target)
    assert binned.compute().item() == pytest.approx(exact.compute().item(), abs=2e-4)


@pytest.mark.parametrize("kind", [class_metrics.ClassRocAuc, class_metrics.BinnedRocAuc])
@pytest.mark.parametrize("present", [[0, 1, 2], [1, 3], [2], []])
def test_roc_auc_is_of_the_classes_that_there_are_rows_of(kind: Any, present: list[int]) -> None:
    """A rare one may be in no row of a small split, with few classes as with many."""
    torch.manual_seed(4)
    target = torch.tensor(present, dtype=torch.long).repeat(40)
    output = (torch.randn(len(target), 4) * 2 + torch.eye(4)[target]).softmax(1)
    unknown = torch.full((3,), metrics.NO_CLASS)
    metric = kind(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        metric.update(torch.cat([output, output.new_ones(3, 4) / 4]), torch.cat([target, unknown]))
        found = metric.compute().item()
    expected = float("nan")
    if len(present) > 1:
        areas = [sk.roc_auc_score(target == label, output[:, label]) for label in present]
        expected = float(np.mean(areas))
    assert found == pytest.approx(expected, abs=2e-3, nan_ok=True)


def test_binned_counts_do_not_depend_on_which_classes_are_counted_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor on how many rows a batch has, and so on how many workers there are: torch's logit of
    values that lie apart differs in the last bit from that of neighbours."""
    torch.manual_seed(7)
    output = torch.rand(500, 33).pow(6)
    seen: list[torch.Tensor] = []
    real = torch.Tensor.logit
    monkeypatch.setattr(
        torch.Tensor, "logit", lambda values, eps: seen.append(found := real(values, eps)) or found
    )
    for values in (500, 16 * 500, 1 << 20):
        monkeypatch.setattr(class_metrics, "PART_VALUES", values)
        class_metrics.BinnedRocAuc(33).update(output, torch.zeros(500, dtype=torch.long))
        whole = torch.cat(seen, 1)
        assert whole.shape == output.shape
        assert torch.equal(whole, output.logit(1e-9))
        seen.clear()


def test_counts_of_many_classes_are_there_once_and_only_once_there_are_rows() -> None:
    """torchmetrics keeps a copy of what a metric begins with, and each reset made another."""
    metric = class_metrics.BinnedRocAuc(5000)
    sizes = []
    for _ in range(2):
        metric.update(torch.rand(2, 5000).softmax(1), torch.tensor([0, 1]))
        sizes.append(metric.all.numel())
        assert int(metric.all.sum()) == 10_000
        metric.reset()
        sizes.append(metric.all.numel() + sum(each.numel() for each in metric._defaults.values()))
    assert sizes == [5000 * class_metrics.BINS, 0] * 2


def test_confident_and_wrong_has_a_finite_loss() -> None:
    found = scored(
        network("binary").metrics({}), torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), batches=1
    )
    assert found["loss"] == pytest.approx(27.6, abs=0.1)


WORKERS = """
import json, os, sys
import torch
import torch.distributed as dist
from distcore_tabular import metrics
from test_data import cases

rank = 0 if os.fork() else 1
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=2)
found = {}
for kind, (made, output, target) in cases(metrics).items():
    # All rows, unevenly; the second of the cases leaves rank 1 with none.
    for name, metric in made.items():
        for case, cut in (("uneven", 70), ("none", len(target))):
            metric.reset()
            part = slice(0, cut) if rank == 0 else slice(cut, None)
            if len(target[part]):
                metric.update(output[part], target[part])
            found[f"{kind} {name} {case}"] = metric.compute().item()
if rank == 0:
    print(json.dumps(found))
dist.destroy_process_group()
if rank == 0:
    assert os.wait()[1] == 0
"""

CASES = """
import torch

def cases(metrics):
    torch.manual_seed(0)
    loss = lambda output, target: (output.reshape(len(target), -1)[:, 0] - target).abs()
    value, number = torch.randn(100), torch.randn(100)
    label, codes = (torch.rand(100) < 0.4).float(), torch.randint(0, 4, (100,), dtype=torch.int32)
    fresh = lambda makers: {name: make() for name, make in makers.items()}
    return {
        "number": (fresh(metrics.number(loss, True)), value, number),
        "binary": (fresh(metrics.binary(0.5, loss)), value.sigmoid(), label),
        "category": (fresh(metrics.category(4, 2, loss)), torch.randn(100, 4).softmax(1), codes),
        "many": ({"roc_auc": metrics.BinnedRocAuc(4)}, torch.randn(100, 4).softmax(1), codes),
    }
"""


def test_metrics_are_the_same_for_any_share_of_the_rows_a_worker_has(tmp_path: Any) -> None:
    """Two real processes, of which one imported all that both need; also if one of them has no row
    at all."""
    (tmp_path / "test_data.py").write_text(CASES)
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    command = [sys.executable, "-W", "ignore", "-c", WORKERS, str(tmp_path / "meet")]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    scope: dict[str, Any] = {}
    exec(CASES, scope)
    for kind, (made, output, target) in scope["cases"](metrics).items():
        for name, metric in made.items():
            metric.update(output, target)
            for case in ("uneven", "none"):
                expected = metric.compute().item()
                assert found[f"{kind} {name} {case}"] == pytest.approx(expected, rel=1e-5), (
                    kind,
                    name,
                    case,
                )


@pytest.mark.parametrize("unknown", [0, 1, 50])
@pytest.mark.parametrize("top_k", [1, 2, 6])
@pytest.mark.parametrize("digits", [4, 1])  # with one there are ties
def test_accuracy_of_classes_has_the_counts_of_torchmetrics(
    unknown: int, top_k: int, digits: int
) -> None:
    torch.manual_seed(5)
    output, target = torch.randn(50, 7).softmax(1).round(decimals=digits), torch.arange(50) % 7
    target[:unknown] = metrics.NO_CLASS
    common: Any = {"num_classes": 7, "ignore_index": metrics.NO_CLASS, "validate_args": False}
    ours = (
        class_metrics.HitsAtK(top_k=top_k, **common)
        if top_k > 1
        else class_metrics.ClassAccuracy(**common)
    )
    theirs = metrics.MulticlassAccuracy(top_k=top_k, **common)
    for each in (ours, theirs):
        for rows in (slice(0, 20), slice(20, 50)):
            each.update(output[rows], target[rows])
    for name, state in theirs.metric_state.items():
        assert torch.equal(ours.metric_state[name], state)
    assert ours.compute() == theirs.compute()


def test_an_update_of_many_classes_makes_nothing_of_the_size_of_all_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The square of 20,000 classes is 3.2 GB, and their binned counts are 160 MB: each made anew
    for some fifty rows. What is made of the values on the way is made of some rows at once."""
    classes, rows = 2000, 40
    torch.manual_seed(6)
    output, target = torch.randn(rows, classes).softmax(1), torch.arange(rows)
    made = metrics.category(classes, 3, torch.nn.functional.cross_entropy)
    names = ("accuracy", "roc_auc", "hits_at_k")
    whole, parts = ([made[name]() for name in names] for _ in range(2))
    for each in (*whole, *parts, *whole):
        each.update(output, target)
    monkeypatch.setattr(class_metrics, "PART_VALUES", 4 * classes)
    with torch.profiler.profile(profile_memory=True) as profile:
        for each in parts:
            each.update(output, target)
    most = max(event.cpu_memory_usage for event in profile.events())
    assert 0 < most < rows * classes * 8
    for one, other in zip(whole, parts, strict=True):
        for name, state in one.metric_state.items():
            assert torch.equal(other.metric_state[name], state)
