"""What a search warns of before it begins."""

from types import SimpleNamespace

import pytest

from distcore.search.checks import tell_what_is_kept
from distcore_search.objective import Objective


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
    trainer = SimpleNamespace(validation_field=field, validation_metric=metric)
    tell_what_is_kept(Objective("y", "roc_auc", "maximize", split), trainer)
    assert told in caplog.text
    assert bool(told) == bool(caplog.text)
