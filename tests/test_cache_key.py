"""A cache's key goes by what its bytes depend on, and by nothing else."""

import hashlib
from types import SimpleNamespace
from typing import ClassVar

from pydantic import BaseModel

from distcore.config import load_config, resolve
from distcore.workflow.prepare import data_options, data_part
from distcore_core.registry.manager import Plugins
from distcore_data.cache.manifest import digest_of
from distcore_data.features import Features


def test_a_cache_goes_by_the_options_that_its_features_encode_by():
    """threshold, clip and top_k made another; an encoder did where no `preprocessing` was given."""
    inputs = [
        {"name": "age", "type": "number", "encoder": {"type": "dense", "output_size": 3}},
        {"name": "city", "type": "category", "encoder": {"type": "sparse"}},
        {"name": "words", "type": "text", "encoder": {"type": "embed", "dropout": 0.5}},
    ]
    outputs = [
        {"name": "price", "type": "number", "clip": [0, 9], "loss": {"weight": 2.0}},
        {"name": "bought", "type": "binary", "threshold": 0.3, "decoder": {"type": "regressor"}},
        {"name": "kind", "type": "category", "top_k": 2, "loss": {"weight": 2.0}},
    ]
    plain = [{"name": each["name"], "type": each["type"]} for each in inputs + outputs]
    nothing = data_of(plain[:3], plain[3:])
    assert data_of(inputs, outputs) == nothing
    outputs[2]["loss"] = {"class_weights": {"a": 1.0, "b": 2.0}}
    inputs[1]["preprocessing"] = {"lowercase": True}
    inputs[0]["encoder"] = {"type": "ple", "num_bins": 7}
    found = [each["options"] for each in data_of(inputs, outputs)["features"]]
    assert [each for each in found if each] == [
        {"preprocessing": {"quantiles": 7}},
        {"preprocessing": {"lowercase": True}},
        {"class_weights": {"a": 1.0, "b": 2.0}},
    ]


def data_of(inputs, outputs):
    given = {"input_features": inputs, "output_features": outputs}
    config = resolve(load_config(given), Plugins())
    return data_part(config, Features.of(config.as_json(), Plugins()))


def test_a_key_is_the_digest_of_one_spelling():
    """Of another one all caches would be built again."""
    spelled = '{"a":[1.5,null],"größe":true}'.encode()
    assert digest_of({"größe": True, "a": (1.5, None)}) == hashlib.sha256(spelled).hexdigest()


def test_a_cache_goes_by_all_options_of_a_feature_that_names_none():
    """It may encode by its encoder or its loss."""
    given = {"preprocessing": {}, "encoder": {"type": "dense"}, "loss": "hinge", "threshold": 0.5}
    assert data_options(given, SimpleNamespace(**given)) == given


def test_a_model_that_is_pydantics_own_may_name_options_beside_the_data():
    """As docs/plugins.md has it; only those of models derived from ours were looked at."""

    class Plain(BaseModel):
        beside_data: ClassVar[tuple[str, ...]] = ("decoder",)
        decoder: str = "mean"
        offset: float = 0.0

    given = {"decoder": "sum", "offset": 90.0}
    assert data_options(given, Plain(**given)) == {"offset": 90.0}
