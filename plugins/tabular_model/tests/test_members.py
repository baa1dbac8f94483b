"""The plugin's own encoders, decoders, losses, metrics, combiners and tokenizers hold what every one
of others must hold."""

from typing import ClassVar

import pytest

from distcore_core.registry.manager import Plugins
from distcore_tabular.roles import COMBINER, DECODER, ENCODER, METRIC
from distcore_testing import (
    CombinerSuite,
    DecoderSuite,
    EncoderSuite,
    LossSuite,
    MetricSuite,
    TokenizerSuite,
)

BEST = {"accuracy": 1.0, "accuracy_micro": 1.0, "roc_auc": 1.0, "r2": 1.0, "hits_at_k": None}
BEST |= {"precision": 1.0, "recall": 1.0, "specificity": 1.0}


def ours(role):
    return pytest.mark.parametrize("member", Plugins().names(f"tabular.{role}"))


class Named:
    @pytest.fixture(autouse=True)
    def _named(self, member):
        self.name = member


@ours("encoders")
class TestEncoders(Named, EncoderSuite):
    """Each with the options of its defaults."""


@ours("decoders")
class TestDecoders(Named, DecoderSuite):
    """Each with the options of its defaults."""


@ours("losses")
class TestLosses(Named, LossSuite):
    """A root is of a batch."""

    @pytest.fixture(autouse=True)
    def _rooted(self, member):
        self.row_wise = ".root_" not in member


@ours("metrics")
class TestMetrics(Named, MetricSuite):
    """Errors are best at 0; what a loss is at its best depends on the loss."""

    @pytest.fixture(autouse=True)
    def _best(self, member):
        short = member.partition(".")[2]
        self.best = None if short == "loss" else BEST.get(short, 0.0)


@ours("tokenizers")
class TestTokenizers(Named, TokenizerSuite):
    """Each with the options of its defaults."""


class TestConcat(CombinerSuite):
    name = "concat"
    options: ClassVar = {"num_fc_layers": 2, "output_size": 8}


class Half:
    """A member whose author left a part of it out."""

    parameters = state_dict = update = compute = reset = None


@pytest.mark.parametrize(
    ("role", "lacks"),
    [
        (ENCODER, ["output_size"]),
        (COMBINER, ["output_size"]),
        (DECODER, []),
        (METRIC, ["metric_state"]),
    ],
)
def test_what_a_member_lacks_is_known_before_it_is_called(role, lacks):
    assert role.lacks(Half()) == lacks
