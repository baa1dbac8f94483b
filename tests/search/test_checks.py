"""What a search warns of before it begins."""

from types import SimpleNamespace

import pytest

from distcore.config.yaml_document import parse
from distcore.search.checks import (
    tell_of_other_losses,
    tell_of_validation_rows,
    tell_what_is_kept,
)
from distcore.search.section import check_candidates, read_section
from distcore_core.registry.manager import Plugins
from distcore_search.objective import Objective

CONFIG = """\
input_features: [{name: x, type: number}]
output_features: [{name: y, type: number}, {name: z, type: category}]
hyperopt: {parameters: {trainer.epochs: {space: randint, lower: 1, upper: 9}, PARAMETER}}
"""


@pytest.mark.parametrize(
    ("field", "metric", "split", "told"),
    [
        (None, "loss", "validation", "best by trainer.validation_metric: loss."),
        ("z", None, "validation", "best by trainer.validation_field: z."),
        ("y", "accuracy", "validation", "trainer.validation_field: y and trainer.validation_me"),
        (None, None, "validation", ""),
        ("y", "roc_auc", "validation", ""),
        (None, "loss", "test", ""),
    ],
)
def test_weights_of_another_metric_than_the_search_s_are_told(field, metric, split, told, caplog):
    """The config of `distcore init` names the loss: the model of a search for the best roc_auc had
    another one than its score, and nothing said so."""
    plain = SimpleNamespace(validation_field=None, validation_metric=None)
    trainer = SimpleNamespace(validation_field=field, validation_metric=metric)
    tell_what_is_kept(Objective("y", "roc_auc", "maximize", split), [plain, trainer])
    assert told in caplog.text
    assert bool(told) == bool(caplog.text)


@pytest.mark.parametrize(
    ("split", "rows", "told"), [("training", 9, True), ("training", 0, False), ("test", 9, False)]
)
def test_a_ranking_by_training_rows_with_weights_by_others_is_told(split, rows, told, caplog):
    """The model was of another round than the one that its trial had won with, in silence."""
    tell_of_validation_rows(Objective("y", "loss", "minimize", split), rows)
    assert ("ranked by their last training loss of y" in caplog.text) == told


@pytest.mark.parametrize(
    ("parameter", "feature", "metric", "told"),
    [
        ("z.loss.class_weights: {space: choice, categories: [null, [1, 2]]}", "z", "loss", True),
        ("z.loss.weight: {space: uniform, lower: 0.5, upper: 2}", "combined", "loss", True),
        ("z.loss.weight: {space: uniform, lower: 0.5, upper: 2}", "z", "accuracy", False),
        ("z.loss.weight: {space: uniform, lower: 0.5, upper: 2}", "y", "loss", False),
        ("z.decoder.num_fc_layers: {space: randint, lower: 0, upper: 3}", "z", "loss", False),
    ],
)
def test_losses_that_are_not_the_same_are_told(parameter, feature, metric, told, caplog):
    """The trial whose loss weighs least was the best one, in silence."""
    section = read_section(parse(CONFIG.replace("PARAMETER", parameter), "c.yaml"))
    configs = check_candidates(section, Plugins(), "local", {"trainer": "local"})
    tell_of_other_losses(Objective(feature, metric, "minimize"), configs)
    assert ("Trials are ranked by their" in caplog.text) == told
