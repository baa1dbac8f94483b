"""distcore-tabular holds what every feature and every model must hold."""

from typing import ClassVar

import pyarrow as pa
import pytest

from distcore_testing import FeatureSuite, ModelSuite, PluginSuite

WORDS = ("sun", "moon", "", "sun moon", "the quick brown fox", None, "Über café", "a,b")


def numbers(rows=300):
    return pa.array([None if row % 11 == 0 else (row * 37 % 101) / 7 - 3 for row in range(rows)])


def categories(names, rows=300):
    return pa.array(
        [None if row % 13 == 0 else names[row * row % len(names)] for row in range(rows)]
    ).dictionary_encode()


def texts(rows=300):
    return pa.array([WORDS[row * 5 % len(WORDS)] for row in range(rows)])


@pytest.mark.parametrize("feature", ["number", "binary", "category", "text", "set", "date"])
class TestPluginOfFeatures(PluginSuite):
    kind = "features"

    @pytest.fixture(autouse=True)
    def _named(self, feature):
        self.name = feature


class TestPluginOfModels(PluginSuite):
    kind, name = "models", "tabular"


class TestNumber(FeatureSuite):
    name, roles = "number", ("input", "output")

    def values(self):
        return numbers()


@pytest.mark.parametrize("normalization", ["minmax", "iq"])
@pytest.mark.parametrize("missing", ["fill_with_mean", "fill_with_mode"])
class TestNumberNormalised(FeatureSuite):
    name, roles = "number", ("input", "output")

    @pytest.fixture(autouse=True)
    def _chosen(self, normalization, missing):
        self.options = {
            "preprocessing": {"normalization": normalization, "missing_value_strategy": missing}
        }

    def values(self):
        return numbers()


class TestBinary(FeatureSuite):
    name, roles = "binary", ("input", "output")

    def values(self):
        return categories(["yes", "no"])


class TestCategory(FeatureSuite):
    name, roles = "category", ("input", "output")

    def values(self):
        return categories(["red", "green", "blue", "Rosé"])


class TestCategoryCut(FeatureSuite):
    """Rare values left out, missing ones filled."""

    name, roles = "category", ("input", "output")
    options: ClassVar = {
        "preprocessing": {"most_common": 2, "missing_value_strategy": "fill_with_mode"}
    }

    def values(self):
        return categories(["red", "green", "blue", "Rosé", "red"])


class TestText(FeatureSuite):
    name = "text"

    def values(self):
        return texts()


class TestTextOfCharacters(FeatureSuite):
    name = "text"
    options: ClassVar = {
        "preprocessing": {"tokenizer": "characters", "lowercase": True, "max_sequence_length": 8},
        "encoder": {"type": "embed"},
    }

    def values(self):
        return texts()


class TestSet(FeatureSuite):
    name = "set"
    options: ClassVar = {"preprocessing": {"tokenizer": "comma"}}

    def values(self):
        return texts()


class Dates(FeatureSuite):
    name = "date"

    def values(self):
        days = [f"{1960 + row % 90}-{row % 12 + 1:02}-{row * 7 % 28 + 1:02}" for row in range(300)]
        texts = [f"{day} {row % 24:02}:{row % 60:02}" for row, day in enumerate(days)]
        return pa.array(
            [None if row % 17 == 0 else text for row, text in enumerate(texts)]
        ).dictionary_encode()


class TestDate(Dates):
    """As it comes."""


class TestDateInWaves(Dates):
    """Missing dates filled, and the other encoder."""

    options: ClassVar = {
        "preprocessing": {"fill_value": "1999-12-31 06:30", "datetime_format": "%Y-%m-%d %H:%M"},
        "encoder": {"type": "wave", "num_fc_layers": 2, "norm": "layer"},
    }


class TestTabular(ModelSuite):
    name = "tabular"
    options: ClassVar = {
        "combiner": {"type": "concat", "num_fc_layers": 2, "output_size": 16, "dropout": 0.1}
    }


class TestModule(ModelSuite):
    """A class of the user's that reads every column by name."""

    name = "module"
    options: ClassVar = {"class": "nets:Net", "options": {"width": 8}}

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _importable(cls, tmp_path_factory):
        folder = tmp_path_factory.mktemp("code")
        (folder / "nets.py").write_text(NET)
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(folder))
            yield


NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.names = [each.name for each in features.inputs if features.columns[each.name].dtype == "float32"]
        self.classes = features.metadata["k"]["vocab_size"]
        self.layers = nn.Sequential(nn.Linear(len(self.names), width), nn.ReLU(), nn.Linear(width, 2 + self.classes))

    def forward(self, batch):
        out = self.layers(batch.block(self.names))
        return {"y": out[:, 0], "z": out[:, 1], "k": out[:, 2:]}
"""
