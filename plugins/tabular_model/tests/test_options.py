"""Options: Ludwig's names and defaults; what is unknown, wrong, or known and not carried out is
told apart."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from distcore_core.config.issues import validate
from distcore_core.errors import ConfigError
from distcore_tabular.options_models import model_of

KINDS = [("number", "input"), ("number", "output"), ("binary", "input"), ("binary", "output")]
KINDS += [("category", "input"), ("category", "output")]


def options(kind: str, role: str, values: Any = None) -> Any:
    model = model_of("features", kind, role)
    assert model is not None
    return validate(model, values or {}, "f")


def issue(kind: str, role: str, values: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        options(kind, role, values)
    assert len(caught.value.issues) == 1, caught.value
    return str(caught.value.issues[0])


@pytest.mark.parametrize(
    ("kind", "role", "preprocessing"),
    [
        (
            "number",
            "input",
            {
                "missing_value_strategy": "fill_with_const",
                "fill_value": 0.0,
                "normalization": "zscore",
            },
        ),
        ("number", "output", {"missing_value_strategy": "drop_row", "normalization": None}),
        (
            "binary",
            "input",
            {"missing_value_strategy": "fill_with_false", "fallback_true_label": None},
        ),
        ("binary", "output", {"missing_value_strategy": "drop_row"}),
        (
            "category",
            "input",
            {
                "missing_value_strategy": "fill_with_const",
                "fill_value": "<UNK>",
                "most_common": 10000,
            },
        ),
        ("category", "output", {"missing_value_strategy": "drop_row", "lowercase": False}),
    ],
)
def test_defaults_are_ludwigs(kind: str, role: str, preprocessing: dict[str, Any]) -> None:
    made = options(kind, role)
    for name, value in preprocessing.items():
        assert getattr(made.preprocessing, name) == value
    if role == "input":
        assert made.encoder.type == {"category": "dense"}.get(kind, "passthrough")
    else:
        assert made.loss.weight == 1.0
        assert made.decoder.num_fc_layers == 0


def test_losses_and_decoders_by_default() -> None:
    assert options("number", "output").loss.type == "mean_squared_error"
    assert options("binary", "output").loss.type == "binary_weighted_cross_entropy"
    assert options("category", "output").loss.type == "softmax_cross_entropy"
    assert options("category", "output").top_k == 3
    assert options("binary", "output").threshold == 0.5
    assert options("category", "input").encoder.embedding_size == 50


def test_a_type_alone_and_a_mapping_without_a_type() -> None:
    assert options("number", "input", {"encoder": "dense"}).encoder.output_size == 256
    assert options("category", "input", {"encoder": {"embedding_size": 16}}).encoder.type == "dense"
    assert options("number", "output", {"loss": {"weight": 2.0}}).loss.type == "mean_squared_error"
    assert options("category", "input", {"encoder": None}).encoder.type == "dense"


def test_ple_asks_the_statistics_for_its_bins() -> None:
    assert options("number", "input").preprocessing.quantiles is None
    ple = options("number", "input", {"encoder": "ple"})
    assert (ple.encoder.num_bins, ple.encoder.output_size, ple.encoder.activation) == (
        64,
        256,
        None,
    )
    assert ple.preprocessing.quantiles == 64
    asked = {"encoder": {"type": "ple", "num_bins": 8}, "preprocessing": {"quantiles": 5}}
    assert options("number", "input", asked).preprocessing.quantiles == 8
    asked["encoder"] = {"type": "dense"}
    assert options("number", "input", asked).preprocessing.quantiles == 5


def test_older_spellings() -> None:
    made = options(
        "number",
        "input",
        {"preprocessing": {"missing_value_strategy": "backfill", "normalization": "none"}},
    )
    assert (made.preprocessing.missing_value_strategy, made.preprocessing.normalization) == (
        "bfill",
        None,
    )
    assert (
        options("category", "input", {"preprocessing": {"fill_value": 0}}).preprocessing.fill_value
        == "0"
    )


@pytest.mark.parametrize(
    ("kind", "role", "values", "said"),
    [
        (
            "number",
            "input",
            {"preprocesing": {}},
            "f.preprocesing: unknown option 'preprocesing'; did you mean 'prep",
        ),
        (
            "category",
            "input",
            {"encoder": {"embedding_sise": 3}},
            "f.encoder.embedding_sise: unknown option",
        ),
        (
            "number",
            "input",
            {"encoder": {"type": "dens"}},
            "f.encoder.type: unknown type 'dens'; did you mean 'dense'?",
        ),
        (
            "number",
            "input",
            {"encoder": {"type": "periodic"}},
            "f.encoder: type 'periodic' is known in Ludwig, but not carried out",
        ),
        (
            "number",
            "input",
            {"preprocessing": {"normalization": "zscor"}},
            "(did you mean 'zscore'?)",
        ),
        (
            "number",
            "input",
            {"preprocessing": {"outlier_strategy": "drop_row"}},
            "known in Ludwig, but not carried out",
        ),
        (
            "number",
            "input",
            {"preprocessing": {"fill_value": float("inf")}},
            "should be a finite number",
        ),
        (
            "number",
            "input",
            {"tied": "y"},
            "f.tied: known in Ludwig, but not carried out here; leave it out (only null",
        ),
        ("number", "output", {"clip": [3, 1]}, "clip must be [low, high] with low < high"),
        (
            "number",
            "output",
            {"clip": [-5, -1], "preprocessing": {"normalization": "log1p"}},
            "clip must end above -1, as all predictions with the normalization log1p lie there",
        ),
        ("number", "output", {"loss": {"type": "huber", "delta": 0}}, "f.loss.delta"),
        ("number", "output", {"loss": {"type": "mse"}}, "f.loss.type: unknown type 'mse'"),
        ("number", "output", {"loss": {"weight": -1}}, "f.loss.weight"),
        (
            "binary",
            "output",
            {"calibration": True},
            "f.calibration: known in Ludwig, but not carried out",
        ),
        ("binary", "output", {"threshold": 1.5}, "f.threshold"),
        ("binary", "output", {"dependencies": ["a"]}, "f.dependencies: known in Ludwig"),
        (
            "binary",
            "output",
            {"decoder": "mlp_classifier"},
            "'mlp_classifier' is known in Ludwig, but not carried out",
        ),
        (
            "binary",
            "input",
            {"preprocessing": {"missing_value_strategy": "fill_with_const"}},
            "needs fill_value",
        ),
        (
            "category",
            "output",
            {"loss": {"type": "corn"}},
            "type 'corn' is known in Ludwig, but not carried out",
        ),
        ("category", "output", {"loss": {"class_similarities_temperature": 1}}, "known in Ludwig"),
        (
            "category",
            "output",
            {"loss": {"class_weights": {"a": "-1"}}},
            "f.loss.class_weights: weights must be",
        ),
        (
            "category",
            "output",
            {"loss": {"class_weights": {"a": -1}}},
            "f.loss.class_weights: weights must be",
        ),
        (
            "category",
            "input",
            {"encoder": {"type": "sparse", "embedding_initializer": "ones"}},
            "f.encoder.embedding_initializer: known in Ludwig, but not carried out",
        ),
        (
            "category",
            "output",
            {"loss": {"class_weights": [1, float("inf")]}},
            "f.loss.class_weights: weights must be finite and at least 0, not inf",
        ),
        (
            "category",
            "output",
            {"loss": {"robust_lambda": float("nan")}},
            "f.loss.robust_lambda: should be a finite number",
        ),
        ("category", "output", {"loss": {"class_weights": 3}}, "f.loss.class_weights: should be"),
        ("category", "output", {"top_k": 0}, "f.top_k"),
        ("category", "input", {"preprocessing": {"most_common": 0}}, "f.preprocessing.most_common"),
        ("category", "output", {"decoder": {"fc_norm": "ghost"}}, "'ghost' is known in Ludwig"),
    ],
)
def test_a_mistake_says_where_and_what(kind: str, role: str, values: Any, said: str) -> None:
    assert said in issue(kind, role, values)


@pytest.mark.parametrize(("kind", "role"), KINDS)
def test_options_survive_json_and_have_a_schema(kind: str, role: str) -> None:
    made = options(kind, role)
    assert options(kind, role, json.loads(made.model_dump_json())) == made
    schema = type(made).model_json_schema()
    assert schema["additionalProperties"] is False
    assert "preprocessing" in schema["properties"]


def test_what_belongs_to_others_is_found_and_what_is_nobodys_is_not() -> None:
    assert model_of("models", "tabular", "") is not None
    assert model_of("features", "text", "input") is not None
    assert model_of("features", "number", "sideways") is None
    assert model_of("backends", "local") is None


def test_the_data_half_imports_neither_torch_nor_pandas() -> None:
    script = """
import sys
import numpy as np
from distcore_data.arrow import from_numpy, strings
from distcore_tabular.features import make
from distcore_tabular.options_models import model_of
for kind, values in [
    ("number", from_numpy(np.array([1.0, 2.0, 4.0]))),
    ("binary", strings(["yes", "no", "no"]).dictionary_encode()),
    ("category", strings(["a", "b", "a"]).dictionary_encode()),
]:
    for role in ("input", "output"):
        feature = make(kind, "x", role, model_of("features", kind, role)())
        metadata = feature.finish(feature.merge(feature.partial(values), feature.partial(values)))
        feature.encode(values, metadata)
        feature.column(metadata)
        feature.network()
print([name for name in ("torch", "pandas", "torchmetrics") if name in sys.modules])
"""
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"
