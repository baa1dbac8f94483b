"""The JSON Schema of what is installed, and the reference made from it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from distcore.config import load_config, resolve
from distcore.config.schema import json_schema, reference_markdown
from distcore_core.registry.manager import Plugins

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*/*.yaml"))
LUDWIG_STYLE = """
model_type: ecd
input_features:
  - {name: n, type: number, column: m, preprocessing: {normalization: minmax}, encoder: {type: dense, num_layers: 2}}
  - {name: c, type: category, encoder: {type: dense, embedding_size: 8}}
  - {name: b, type: binary}
  - {name: t, type: text, encoder: {type: embed}, preprocessing: {tokenizer: space}}
  - {name: s, type: set}
output_features:
  - {name: y, type: number, loss: {type: mean_absolute_error, weight: 2}}
  - {name: k, type: category, decoder: {num_fc_layers: 1}}
combiner: {type: concat, fc_layers: [{output_size: 8}]}
defaults: {number: {preprocessing: {missing_value_strategy: fill_with_mean}, loss: {type: mean_squared_error}}}
preprocessing: {split: {type: fixed}, csv: {delimiter: ";"}}
trainer: {batch_size: auto, optimizer: {type: sgd, momentum: 0.9}, learning_rate_scheduler: {decay: cosine}}
backend:
  type: local
  cache_format: parquet
  processor: {type: local, parallelism: 2}
  trainer: {num_workers: 2}
  loader: {fully_executed: false}
"""


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json_schema(Plugins())


@pytest.fixture(scope="module")
def valid(schema: dict[str, Any]) -> Any:
    """A function that says whether a config fits the schema."""
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema).is_valid


def references(value: Any) -> list[str]:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    found = (
        [value["$ref"]] if isinstance(value, dict) and isinstance(value.get("$ref"), str) else []
    )
    return found + [each for part in inside for each in references(part)]


def test_it_is_json_and_every_reference_leads_somewhere(schema: dict[str, Any]) -> None:
    assert json.loads(json.dumps(schema)) == schema
    assert schema["$schema"].endswith("2020-12/schema")
    found = references(schema)
    assert len(found) > 20
    assert {each.removeprefix("#/$defs/") for each in found} <= set(schema["$defs"])


def test_it_knows_what_is_installed(schema: dict[str, Any]) -> None:
    types = {
        role: schema["properties"][role]["items"]["properties"]["type"]["enum"]
        for role in ("input_features", "output_features")
    }
    assert set(types["input_features"]) >= {"number", "binary", "category", "text", "set"}
    assert set(types["output_features"]) >= {"number", "binary", "category"}
    assert "text" not in types["output_features"], "a plugin that refuses a role does not offer it"


def test_the_examples_fit(valid: Any) -> None:
    assert EXAMPLES
    for path in EXAMPLES:
        assert valid(yaml.safe_load(path.read_text())), path


def test_a_config_that_uses_much_of_it_fits_and_is_read(valid: Any) -> None:
    resolve(load_config(LUDWIG_STYLE), Plugins(), {"trainer": "local", "loader": "packed"})
    assert valid(yaml.safe_load(LUDWIG_STYLE))


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("trainer", {"epochz": 3}),
        ("trainer", {"batch_size": 0}),
        ("trainer", {"optimizer": {"type": "adm"}}),
        ("trainer", {"optimizer": {"type": "adam", "momentum": 1}}),
        ("combiner", {"type": "tabnet"}),
        ("combiner", {"num_fc_layer": 1}),
        ("preprocessing", {"split": {"type": "randm"}}),
        ("backend", {"type": "local", "procesor": "local"}),
        ("backend", {"processor": {"type": "local", "paralelism": 2}}),
        ("backend", {"trainer": "dpd"}),
        ("input_features", [{"name": "a", "type": "number", "encodr": {}}]),
        ("input_features", [{"name": "a", "type": "numbr"}]),
        ("input_features", [{"type": "number"}]),
        ("input_features", []),
        ("output_features", [{"name": "a", "type": "text"}]),
        ("defaults", {"number": {"preprocesing": {}}}),
        ("modl", {}),
    ],
)
def test_what_is_refused_does_not_fit(section: str, value: Any, valid: Any) -> None:
    assert not valid({**yaml.safe_load(LUDWIG_STYLE), section: value})


def test_a_seed_has_the_range_that_is_read(valid: Any) -> None:
    config = yaml.safe_load(LUDWIG_STYLE)
    seeds = (-1, 0, (1 << 63) - 1, 1 << 63)
    assert [valid(config | {"random_seed": seed}) for seed in seeds] == [False, True, True, False]


def test_a_broken_plugin_is_left_out_with_a_note(
    tmp_path: Path, distribution: Callable[..., Path]
) -> None:
    distribution(
        tmp_path, "bad-one", "raise RuntimeError('no libfoo')", kind="processors", entry="bad"
    )
    code = """
import json
from distcore_core.registry.manager import Plugins
from distcore.config.schema import json_schema
print(json.dumps(json_schema(Plugins())))
"""
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=600
    )
    schema = json.loads(done.stdout)
    assert "processors bad (bad-one 1.0)" in schema["$comment"]
    assert "no libfoo" in schema["$comment"]
    assert '"bad"' not in json.dumps(schema["properties"])


def test_the_reference_names_every_option_of_the_trainer_with_its_default() -> None:
    from distcore_torch.train_options import TrainerOptions

    text = reference_markdown(Plugins())
    rows = {
        match[1]
        for match in re.finditer(r"^\| `(\w+)` \| [^|]+ \| `?[^|]*`? \| .+ \|$", text, re.MULTILINE)
    }
    assert set(TrainerOptions.model_fields) <= rows
    assert "| `batch_size` | integer ≥ 1 or `auto` | `auto` |" in text
    assert "| `lanes` | integer ≥ 1, ≤ 65536 | `16` |" in text
    assert "### input_features (category)" in text
    assert f"integer ≥ 0, ≤ {(1 << 63) - 1}; default `42`." in text
    assert reference_markdown(Plugins()) == text


def test_the_reference_has_a_page_for_every_section_that_has_options() -> None:
    title, sections, titles = "", [], set()
    for line in reference_markdown(Plugins()).splitlines():
        if line.startswith("#"):
            title = line.lstrip("# ")
            titles.add(re.sub(r" \([^()]*\)$", "", title))
        elif row := re.match(r"\| `(\w+)` \| (?:[^|]* or )?section(?: or null)? \|", line):
            sections.append(f"{title}.{row[1]}")
    assert len(sections) > 20
    assert set(sections) <= titles
    assert "hyperopt.search_alg" in sections


def test_an_option_that_is_not_carried_out_says_so_in_the_reference() -> None:
    text = reference_markdown(Plugins())
    for row in (
        "`vocab_file` | `null` | `null` | Not carried out: only null.",
        "`should_embed` | `true` | `true` | Not carried out: only true.",
        '`representation` | `dense` | `dense` | Not carried out: only "dense".',
        "`tied` | `null` | `null` | Not carried out: only null.",
    ):
        assert f"| {row} |" in text


def test_the_reference_says_what_a_block_takes_and_the_variable_that_adds_to_it() -> None:
    (row,) = re.findall(r"^\| `block` \|.*$", reference_markdown(Plugins()), re.MULTILINE)
    for named in ("`hdf5`", "`caches:hdf5`", "`distcore-hdf5`"):
        assert named in row
    assert "DISTCORE_BLOCK" in row
