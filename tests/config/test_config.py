"""Configs in two passes: Ludwig's spellings old and new, every mistake at once with its line, no
secret written."""

import json
import pickle
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore.config import RunConfig, load_config, resolve, with_overrides
from distcore.config.yaml_document import parse
from distcore_core.config.issues import without_passwords
from distcore_core.errors import ConfigError, UserError
from distcore_core.registry.manager import Plugins

SMALL = """
input_features:
  - {name: age, type: number}
  - {name: city, type: category}
output_features:
  - {name: target, type: binary}
"""
DEFAULTS = {"processor": "local", "trainer": "local", "loader": "packed"}


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return Plugins()


def read(text: str, more: str = "") -> RunConfig:
    """A whole config from text: both passes."""
    return resolve(
        load_config(parse(textwrap.dedent(text) + textwrap.dedent(more), "a.yaml")),
        Plugins(),
        DEFAULTS,
        "local",
    )


def told(text: str, more: str = "") -> list[str]:
    """The mistakes of a config, each as one line."""
    with pytest.raises(ConfigError) as caught:
        read(text, more)
    return [str(issue) for issue in caught.value.issues]


# ------------------------------------------------------------------ shapes


def test_a_small_config_has_ludwigs_defaults() -> None:
    config = read(SMALL)
    assert [(each.name, each.type, each.column, each.role) for each in config.input_features] == [
        ("age", "number", "age", "input"),
        ("city", "category", "city", "input"),
    ]
    assert [each.name for each in config.output_features] == ["target"]
    assert (config.model.type, config.model.options, config.random_seed) == ("tabular", {}, 42)
    assert (config.backend.type, config.backend.cache_format.type, config.backend.cache_dir) == (
        None,
        "parquet",
        None,
    )
    assert (config.backend.processor, config.backend.trainer, config.backend.loader) == (
        None,
        None,
        None,
    )
    assert (config.notes, config.extensions, config.plugins_block, config.hyperopt) == (
        (),
        (),
        (),
        None,
    )


def test_sources_of_all_kinds_give_the_same_config(tmp_path: Path, plugins: Plugins) -> None:
    import yaml

    path = tmp_path / "c.yaml"
    path.write_text(SMALL)
    (tmp_path / "c.json").write_text(json.dumps(yaml.safe_load(SMALL), indent="\t"))
    sources: list[Any] = [
        path,
        str(path),
        tmp_path / "c.json",
        yaml.safe_load(SMALL),
        SMALL,
        parse(SMALL),
        load_config(path),
    ]
    assert all(load_config(source) == load_config(path) for source in sources)


def test_what_is_written_as_json_is_read_back_and_resolves_to_the_same(plugins: Plugins) -> None:
    config = read(
        SMALL,
        """
        combiner: {type: concat, fc_layers: [{output_size: 8, dropout: 0.5}, {}], activation: tanh}
        defaults: {number: {preprocessing: {normalization: minmax}}, category: {encoder: {type: sparse}}}
        trainer: {optimizer: {type: adamw, betas: [0.8, 0.9]}, gradient_clipping: null}
        backend: {type: local, cache_dir: /tmp/c, trainer: {num_workers: 2}, loader: {lanes: 8}}
        random_seed: 7
        hyperopt: {parameters: {trainer.learning_rate: {space: uniform, lower: 0.1, upper: 0.2}}}
        """,
    )
    text = json.dumps(config.as_json())
    again = resolve(load_config(json.loads(text)), plugins, DEFAULTS)
    assert again == config
    assert again.as_json() == config.as_json()
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301 - our own bytes


def test_options_not_given_stay_not_given() -> None:
    """A layer without a dropout takes the stack's; writing its default out would change the
    network."""
    config = read(SMALL, "combiner: {fc_layers: [{output_size: 8}], dropout: 0.3}\n")
    assert config.model.options["combiner"]["fc_layers"] == [{"output_size": 8}]


def test_overrides_of_the_command_line() -> None:
    config = load_config(SMALL, backend="local", random_seed=3)
    assert (config.backend.type, config.random_seed) == ("local", 3)
    assert with_overrides(config, random_seed=0).random_seed == 0
    for seed in (-1, 1 << 63):
        with pytest.raises(UserError, match=rf"--random_seed should be a whole number .* {seed}"):
            load_config(SMALL, random_seed=seed)
    assert load_config(config, backend="ray").backend.type == "ray"


def test_a_config_cannot_be_changed_by_accident() -> None:
    config = read(SMALL)
    with pytest.raises(AttributeError):
        config.random_seed = 3  # type: ignore[misc]


# ------------------------------------------------------------------ Ludwig's spellings

TITANIC = """
input_features:
  - name: Pclass
    type: category
  - name: Sex
    type: category
  - name: Age
    type: number
    preprocessing:
      missing_value_strategy: fill_with_mean
      normalization: zscore
  - name: fare_paid
    column: Fare
    type: number
output_features:
  - name: Survived
    type: binary
    fc_layers: [{output_size: 50}]
"""

OLD = """
ludwig_version: "0.4"
input_features:
  - {name: x, type: numerical}
  - {name: review, type: text, level: word, encoder: parallel_cnn, num_filters: 16,
     preprocessing: {word_tokenizer: space, word_most_common: 100}}
  - {name: kind, type: category, encoder: sparse}
  - {name: color, type: category, representation: dense, embedding_size: 8}
output_features:
  - {name: y, type: numerical, loss: mean_absolute_error,
     num_fc_layers: 2, output_size: 32, dropout: 0.1, weight_regularization: null}
  - {name: z, type: category, loss: {type: softmax_cross_entropy, class_weights: 1}}
combiner: {type: concat, num_fc_layers: 2, fc_size: 64, fc_layers: [{fc_size: 5}]}
preprocessing:
  force_split: true
  split_probabilities: [0.6, 0.2, 0.2]
  numerical: {missing_value_strategy: fill_with_const, fill_value: 2}
  category: {most_common: 5}
training:
  epochs: 2
  eval_batch_size: 0
  decay: true
  decay_rate: 0.9
  reduce_learning_rate_on_plateau: 2
  reduce_learning_rate_on_plateau_patience: 5
  learning_rate_warmup_epochs: 2
  increase_batch_size_on_plateau_max: 512
  type: trainer
"""


def test_flat_options_of_a_decoder_find_their_section() -> None:
    config = read(TITANIC)
    assert config.output_features[0].options == {
        "decoder": {"type": "regressor", "fc_layers": [{"output_size": 50}]}
    }
    assert config.input_features[3].column == "Fare"
    assert len(config.notes) == 1


def test_spellings_from_before_ludwig_0_5() -> None:
    config = read(OLD)
    x, review, kind, color = config.input_features
    assert x.type == "number"
    assert x.options["preprocessing"] == {
        "missing_value_strategy": "fill_with_const",
        "fill_value": 2.0,
    }
    assert review.options["encoder"] == {"type": "parallel_cnn", "num_filters": 16}
    assert review.options["preprocessing"] == {"tokenizer": "space", "most_common": 100}
    assert kind.options == {"encoder": {"type": "sparse"}, "preprocessing": {"most_common": 5}}
    assert color.options["encoder"]["embedding_size"] == 8
    y, z = config.output_features
    assert y.options["decoder"] == {
        "type": "regressor",
        "num_fc_layers": 2,
        "fc_output_size": 32,
        "fc_dropout": 0.1,
    }
    assert y.options["loss"] == {"type": "mean_absolute_error"}
    assert "class_weights" not in z.options["loss"]
    assert config.model.options["combiner"]["output_size"] == 64
    assert config.model.options["combiner"]["fc_layers"] == [{"output_size": 5}]
    assert config.preprocessing.split.probabilities == (0.6, 0.2, 0.2)
    trainer = config.trainer
    assert (trainer.epochs, trainer.eval_batch_size, trainer.max_batch_size) == (2, None, 512)
    schedule = trainer.learning_rate_scheduler
    assert (schedule.decay, schedule.decay_rate, schedule.reduce_on_plateau) == (
        "exponential",
        0.9,
        2,
    )
    assert (schedule.reduce_on_plateau_patience, schedule.warmup_evaluations) == (5, 2)


def test_every_older_spelling_leaves_a_note_with_its_line() -> None:
    notes = read(OLD).notes
    assert "line 4: the feature type `numerical` is an older spelling of `number`" in notes
    assert "line 19: `training` is an older spelling of `trainer`" in notes
    assert len(set(notes)) == len(notes) > 10


@pytest.mark.parametrize(
    ("flat", "expected"),
    [
        ("", {"use_bias": False, "fc_use_bias": False}),
        ("decoder: {fc_use_bias: true}, ", {"use_bias": False, "fc_use_bias": True}),
        ("decoder: {use_bias: true}, ", {"use_bias": True, "fc_use_bias": False}),
    ],
)
def test_a_flat_option_that_a_decoder_knows_of_both_its_layers_is_of_both(flat, expected) -> None:
    """As in Ludwig. A decoder without fully connected layers had it nowhere."""
    config = read(
        f"""
        input_features: [{{name: a, type: number}}]
        output_features: [{{name: z, type: number, {flat}use_bias: false}}]
    """
    )
    found = config.output_features[0].options["decoder"]
    assert {name: found[name] for name in expected} == expected
    (note,) = [each for each in config.notes if "output_features.use_bias" in each]
    assert note.count("`output_features.decoder.") == [*expected.values()].count(False)


@pytest.mark.parametrize(
    ("backend", "said"),
    [
        ("{type: local, trainer: {strategy: fsdp}}", "Ludwig's strategy 'fsdp' is not carried out"),
        ("{type: local, preprocessor_kwargs: {num_cpu: 2}}", "backend.processor has what there is"),
        ("{type: local, procesor: local}", "did you mean 'processor'?"),
    ],
)
def test_what_ludwig_has_of_a_backend_and_nobody_here_is_told(backend, said) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        read(SMALL, f"backend: {backend}\n")
    assert len(caught.value.issues) == 1


def test_a_flat_option_of_many_features_is_noted_once_with_its_first_line() -> None:
    flat = """
        input_features:
          - {name: a, type: category}
          - {name: b, type: category, embedding_size: 4}
          - {name: c, type: category, embedding_size: 5}
        output_features: [{name: t, type: binary}]
    """
    (note,) = [each for each in read(flat).notes if "embedding_size" in each]
    assert note.startswith("line 4: `input_features.embedding_size` is an older spelling of")


def test_stratify_in_its_old_place() -> None:
    split = read(
        SMALL, "preprocessing: {stratify: target, split_probabilities: [0.5, 0.25, 0.25]}\n"
    ).preprocessing.split
    assert (split.type, split.column, split.probabilities) == (
        "stratify",
        "target",
        (0.5, 0.25, 0.25),
    )
    split = read(
        SMALL, "preprocessing: {stratify: null, force_split: null, split_probabilities: null}\n"
    ).preprocessing.split
    assert split.type == "random"


def test_words_that_ludwigs_examples_still_use() -> None:
    config = read(
        SMALL,
        "trainer: {optimizer: {type: adamw, lr: 0.01}, learning_rate_scheduler: {type: cosine}}\n",
    )
    assert (config.trainer.learning_rate, config.trainer.learning_rate_scheduler.decay) == (
        0.01,
        "cosine",
    )
    both = read(SMALL, "trainer: {optimizer: {type: adamw, lr: 0.01}, learning_rate: 0.5}\n")
    assert both.trainer.learning_rate == 0.5
    assert both.notes == (
        "line 7: `trainer.optimizer.lr` was left out, for `trainer.learning_rate` is given too",
    )
    layer = read(SMALL, "combiner: {type: concat, fc_layers: [{fc_size: 3, output_size: 4}]}\n")
    assert layer.model.options["combiner"]["fc_layers"] == [{"output_size": 4}]
    assert layer.notes == (
        "line 7: `combiner.fc_layers.fc_size` was left out, for `combiner.fc_layers.output_size` "
        "is given too",
    )


def test_names_that_yaml_takes_for_something_else_are_the_text_that_was_written() -> None:
    config = read("""
        input_features:
          - {name: yes, type: number}
          - {name: 007, type: number}
          - {name: 1e5, type: number}
          - {name: a, column: 2020-01-31, type: number}
        output_features: [{name: 3.0, type: number}]
        """)
    assert [each.column for each in config.input_features] == ["yes", "007", "1e5", "2020-01-31"]
    assert config.output_features[0].name == "3.0"


def test_a_section_written_as_null_is_no_section() -> None:
    nulls = "".join(
        f"{name}: null\n"
        for name in (
            "combiner",
            "trainer",
            "preprocessing",
            "defaults",
            "backend",
            "hyperopt",
            "model",
            "plugins",
            "extensions",
        )
    )
    assert read(SMALL, nulls) == read(SMALL)


# ------------------------------------------------------------------ defaults


def test_defaults_lie_under_a_features_own_options() -> None:
    config = read("""
        input_features:
          - {name: a, type: number}
          - {name: b, type: number, preprocessing: {normalization: minmax}}
          - {name: c, type: category, encoder: {type: sparse}}
          - {name: d, type: category, encoder: {embedding_size: 3}}
        output_features:
          - {name: t, type: number}
          - {name: u, type: number, loss: {type: mean_absolute_error}}
        defaults:
          number:
            preprocessing: {missing_value_strategy: fill_with_mean, normalization: zscore}
            loss: {type: huber, delta: 2}
          category:
            encoder: {type: dense, embedding_size: 8, dropout: 0.1}
        """)
    a, b, c, d = config.input_features
    assert a.options == {
        "preprocessing": {"missing_value_strategy": "fill_with_mean", "normalization": "zscore"}
    }
    assert b.options["preprocessing"] == {
        "missing_value_strategy": "fill_with_mean",
        "normalization": "minmax",
    }
    assert c.options == {"encoder": {"type": "sparse"}}, (
        "a section of another type replaces the default whole"
    )
    assert d.options["encoder"] == {"type": "dense", "embedding_size": 3, "dropout": 0.1}
    t, u = config.output_features
    assert t.options == {"loss": {"type": "huber", "delta": 2}}, (
        "as in Ludwig, outputs take no default preprocessing"
    )
    assert u.options == {"loss": {"type": "mean_absolute_error"}}


def test_a_mistake_in_defaults_is_told_once_where_it_stands() -> None:
    assert told(
        SMALL, "defaults:\n  number:\n    preprocessing:\n      normalisation: zscore\n"
    ) == [
        "line 10: defaults.number.preprocessing.normalisation: "
        "unknown option 'normalisation'; did you mean 'normalization'?"
    ]


def test_defaults_of_types_that_no_feature_has_are_looked_at_too() -> None:
    nubmer, of_set = "nubmer: {encoder: {type: dense}}", "set: {encoder: {type: embedd}}"
    assert told(SMALL, f"defaults: {{{nubmer}, {of_set}}}\n") == [
        "line 7: defaults.nubmer: there is no feature type 'nubmer'; did you mean 'number'?",
        "line 7: defaults.set.encoder.type: should be 'embed' (did you mean 'embed'?); got 'embedd'",
    ]
    assert told(SMALL, "preprocessing:\n  spilt: {type: random}\n") == [
        "line 8: preprocessing.spilt: there is no feature type 'spilt'; did you mean 'split'?"
    ]
    assert read(SMALL, "defaults: {image: {encoder: {type: vit}}}\n") == read(SMALL)


# ------------------------------------------------------------------ backend


def test_the_backend_is_a_word_or_a_section() -> None:
    assert (
        read(SMALL, "backend: local\n").backend == read(SMALL, "backend: {type: local}\n").backend
    )


def test_older_spellings_in_the_backend() -> None:
    new = read(
        SMALL,
        "backend: {type: local, cache_format: parquet, processor: {type: local, parallelism: 3}}\n",
    )
    old = read(
        SMALL,
        "backend: {type: local, data_format: parquet, engine: {type: local, parallelism: 3}}\n",
    )
    assert old == new
    assert len(old.notes) == 2
    assert read(SMALL, "backend: {trainer: {strategy: ddp}}\n").backend.trainer.type == "ddp"  # type: ignore[union-attr]
    assert read(
        SMALL, "backend: {trainer: {strategy: {type: ddp}, num_workers: 2}}\n"
    ).backend.trainer.options == {"num_workers": 2}  # type: ignore[union-attr]


def test_a_section_without_a_type_is_the_backends_default() -> None:
    config = read(SMALL, "backend: {trainer: {num_workers: 2}, loader: {fully_executed: false}}\n")
    assert config.backend.trainer is not None
    assert (config.backend.trainer.type, config.backend.trainer.options) == (
        "local",
        {"num_workers": 2},
    )
    assert told(SMALL, "backend:\n  trainer:\n    num_worker: 2\n") == [
        "line 9: backend.trainer.num_worker: unknown option 'num_worker'; did you mean "
        "'num_workers'?"
    ]


def test_credentials_are_read_and_never_written(tmp_path: Path) -> None:
    secret = "s3cr3t-4711"
    (tmp_path / "creds.json").write_text(json.dumps({"key": secret}))
    spellings = [f"{{key: {secret}}}", str(tmp_path / "creds.json")]
    configs = [read(SMALL, f"backend: {{cache_credentials: {each}}}\n") for each in spellings]
    configs.append(read(SMALL, f"backend: {{credentials: {{cache: {{key: {secret}}}}}}}\n"))
    for config in configs:
        assert config.backend.cache_credentials == {"key": secret}
        assert secret not in json.dumps(config.as_json()) + repr(config) + str(config.notes)
        assert pickle.loads(pickle.dumps(config)).backend.cache_credentials == {"key": secret}  # noqa: S301 - our own bytes


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "the file cannot be read"),
        ("{key: 4711", "the file is not JSON"),
        ('["4711"]', "should be a mapping, or the path"),
    ],
)
def test_credentials_that_cannot_be_read_are_not_shown(
    content: str | None, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "creds.json"
    if content is not None:
        path.write_text(content)
    (only,) = told(SMALL, f"backend:\n  cache_credentials: {path}\n")
    assert only.startswith(f"line 8: backend.cache_credentials: {said}")
    assert "4711" not in only


@pytest.mark.parametrize(
    "path",
    ["backend: {cache_dir: URL}", "hyperopt: {storage: URL}", "trainer: {validation_field: URL}"],
)
def test_a_password_in_a_url_is_refused_and_not_repeated(path: str) -> None:
    issues = told(SMALL, path.replace("URL", "s3://me:s3cr3t@bucket/x") + "\n")
    assert "holds a password in a URL" in "".join(issues)
    assert "s3cr3t" not in "".join(issues)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:s3cr3t@host/f", "https://me:***@host/f"),
        ("https://me:s3/cr3t@host/f", "https://me:***@host/f"),
        ("https://me:s3@cr3t@host/f", "https://me:***@host/f"),
        ("https://me@corp:s3/cr3t@host/f", "https://me@corp:***@host/f"),
        ("https://:s3cr3t@host", "https://:***@host"),
        ("https://me:4711@host", "https://me:***@host"),
        ("postgresql://me::pw@host/db", "postgresql://me:***@host/db"),
        ("s3://arn:secret@b", "s3://arn:***@b"),
        ("https://me,x:1,pw@host/f", "https://me,x:***@host/f"),
        (f"https://me:{'s3cr3t' * 400}@host/f", "https://me:***@host/f"),
        ("zip://*.csv::https://me:s3/cr3t@host/f", "zip://*.csv::https://me:***@host/f"),
        ("https://host:8080/f@v2.csv", None),
        ("zip://*.csv::https://host/f@v2.csv", None),
        ("zip://*.csv::simplecache::https://host/f@v2.csv", None),
        ("zip://*.csv::/data/me@home/f.zip", None),
        ("http://[2001:db8::1]:8080/a@b.csv", None),
        ("mongodb://me@h1:1,h2:2/db?x=a@b", None),
        ("abfs://container@account/a:b", None),
        ("s3://arn:aws:s3:eu:1:accesspoint/x@y", None),
        ("https://host:8080/f and me:s3@x", None),
    ],
)
def test_a_password_in_a_url_is_found_whatever_it_holds(url: str, shown: str | None) -> None:
    assert without_passwords(f"see {url}, me@host") == f"see {shown or url}, me@host"
    issues = told(SMALL, f"hyperopt: {{storage: '{url}'}}\nno_such_section: 1\n")
    assert ("holds a password in a URL" in "".join(issues)) == (shown is not None)


def test_passwords_are_looked_for_in_a_long_text_in_little_time() -> None:
    for each in ("://a:", "x@", "://,", "a::", "://[", "://arn:"):
        text = each * (400_000 // len(each))
        begun = time.process_time()
        without_passwords(text)
        without_passwords(f"://{text}@")
        assert time.process_time() - begun < 5


# ------------------------------------------------------------------ mistakes


def test_of_very_many_mistakes_the_first_are_told_and_how_many_more() -> None:
    options = "".join(f"  x{each:03d}: 1\n" for each in range(300))
    with pytest.raises(ConfigError) as caught:
        read(SMALL, f"trainer:\n{options}")
    assert len(caught.value.issues) == 300
    first, *told, last = str(caught.value).splitlines()
    assert first.endswith("300 mistakes")
    assert len(told) == 100
    assert "x099" in told[-1]
    assert last == "  and 200 more"


@pytest.mark.parametrize("number", [2**63, 10**400])
def test_whole_numbers_of_more_than_64_bits_are_told(number: int) -> None:
    """Some options met them as an OverflowError in the work, others were used."""
    [said] = told(SMALL, f"preprocessing: {{sample_size: {number}}}")
    assert "preprocessing.sample_size: should be " in said
    assert len(said) < 150


def test_a_boolean_is_no_number_wherever_it_stands() -> None:
    """pydantic reads true as 1. Each option here takes numbers, by each way a model says so."""
    text = """\
        input_features:
          - name: a
            type: number
            preprocessing: {outlier_threshold: true}
            encoder: {type: dense, fc_layers: [{output_size: 3}, {output_size: true}]}
        output_features:
          - {name: t, type: binary, preprocessing: {fill_value: true}, loss: {weight: false}}
        combiner: {type: concat, num_fc_layers: on}
        preprocessing: {sample_ratio: true, split: {type: random, probabilities: [true, 0, 0]}}
        trainer: {epochs: true, use_mixed_precision: true, optimizer: {betas: [false, 0.5]}}
        backend:
          loader: {type: packed, lanes: true, fully_executed: true}
          trainer: {type: ddp, num_workers: true, resources_per_worker: {CPU: true}}
        """
    said = "should be a number, not a boolean; got "
    assert told(text) == [
        f"line {line}: {path}: {said}{value}"
        for line, path, value in [
            (4, "input_features[0].preprocessing.outlier_threshold", True),
            (5, "input_features[0].encoder.fc_layers[1].output_size", True),
            (7, "output_features[0].loss.weight", False),
            (8, "combiner.num_fc_layers", True),
            (9, "preprocessing.sample_ratio", True),
            (9, "preprocessing.split.probabilities[0]", True),
            (10, "trainer.epochs", True),
            (10, "trainer.optimizer.betas[0]", False),
            (12, "backend.loader.lanes", True),
            (13, "backend.trainer.num_workers", True),
            (13, "backend.trainer.resources_per_worker.CPU", True),
        ]
    ]


def test_every_mistake_of_both_passes_is_told_at_once_in_the_order_of_lines() -> None:
    text = """\
        input_features:
          - {name: a, type: numbr}
          - name: b
            type: number
            preprocessing: {normalization: zscor}
            encoder: {type: dens}
          - {name: a, type: category, encoderr: {}}
        output_features:
          - {name: t, type: binary, decoder: {fc_layer: []}}
        combinr: {type: concat}
        trainer:
          batch_size: 0
          learning_rate: -1
          optimizer: {type: admw}
        backend:
          processor: {type: local, paralelism: 2}
          trainer: dpd
        """
    issues = told(text)
    assert [int(each.split(":")[0].removeprefix("line ")) for each in issues] == [
        2,
        5,
        6,
        7,
        7,
        9,
        10,
        12,
        13,
        14,
        16,
        17,
    ]
    for near in (
        "'number'",
        "'zscore'",
        "'dense'",
        "'encoder'",
        "'fc_layers'",
        "'combiner'",
        "'adamw'",
        "'parallelism'",
        "'ddp'",
    ):
        assert near in "\n".join(issues)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "output_features: [{name: t, type: binary}]\n",
            "input_features: is required; give a list of input features",
        ),
        (
            "input_features: [{name: t, type: binary}]\n",
            "output_features: is required; give a list of output features",
        ),
        (
            "input_features: []\noutput_features: [{name: t, type: binary}]\n",
            "line 1: input_features: is empty",
        ),
        (
            "input_features: {name: a}\noutput_features: [{name: t, type: binary}]\n",
            "line 1: input_features: is a mapping",
        ),
        (
            "input_features: [age]\noutput_features: [{name: t, type: binary}]\n",
            "line 1: input_features[0]: should be a mapping such as",
        ),
        (
            "input_features: [{type: number}]\noutput_features: [{name: t, type: binary}]\n",
            "line 1: input_features[0].name: is required",
        ),
        (
            "input_features:\n- {name: a}\noutput_features: [{name: t, type: binary}]\n",
            "line 2: input_features[0].type: is required",
        ),
        (
            "input_features:\n"
            "- {name: '', type: number}\n"
            "output_features: [{name: t, type: binary}]\n",
            "line 2: input_features[0].name: is empty",
        ),
        (
            "input_features:\n"
            "- {name: [a], type: number}\n"
            "output_features: [{name: t, type: binary}]\n",
            "should be text, not a list",
        ),
        (
            SMALL + "model_type: gbm\n",
            "line 7: model_type: model_type gbm was removed from Ludwig; leave it out, and name "
            "lightgbm in backend.trainer.type",
        ),
        (
            SMALL + "model_type: llm\nbase_model: x\n",
            "line 7: model_type: model_type 'llm' is not carried out here",
        ),
        (
            SMALL + "preset: high_quality\n",
            "line 7: preset: Ludwig's presets are not carried out here",
        ),
        (
            SMALL + "trainr: null\n",
            "line 7: trainr: unknown option 'trainr'; did you mean 'trainer'?",
        ),
        (
            SMALL + "trainer: [1]\n",
            "line 7: trainer: should be a mapping (`key: value` lines), not a list",
        ),
        (
            SMALL + "random_seed: -1\n",
            "line 7: random_seed: should be a whole number from 0 to 2**63 - 1, not -1",
        ),
        (
            SMALL + "plugins: {blocked: [x]}\n",
            "line 7: plugins.blocked: unknown option 'blocked'; did you mean 'block'?",
        ),
        (
            SMALL + "extensions: [tensorbord]\n",
            "line 7: extensions[0].type: No installed plugin offers extension 'tensorbord'",
        ),
        (
            SMALL + "trainer: {validation_field: tagret}\n",
            "line 7: trainer.validation_field: 'tagret' is no output feature; there are: target",
        ),
        (
            SMALL + "trainer: {validation_field: combined, validation_metric: accuracy}\n",
            "should be loss if validation_field is combined",
        ),
        (
            SMALL + "combiner: {type: tabnet}\n",
            "line 7: combiner.type: 'tabnet' is known in Ludwig",
        ),
        (
            SMALL + "combiner: {type: concat, num_fc_layer: 2}\n",
            "line 7: combiner.num_fc_layer: unknown option",
        ),
        (
            SMALL + "model: {type: modul}\n",
            "line 7: model.type: No installed plugin offers model 'modul'. Did you mean 'module'?",
        ),
        (
            SMALL + "backend: {type: spark}\n",
            "line 7: backend.type: No installed plugin offers backend 'spark'",
        ),
        (
            SMALL + "backend: {type: local, cachedir: x}\n",
            "line 7: backend.cachedir: unknown option 'cachedir'",
        ),
        (
            SMALL + "backend: {cache_format: parket}\n",
            "line 7: backend.cache_format.type: No installed plugin offers cache format 'parket'. "
            "Did you mean",
        ),
        (SMALL + "backend: {processor: 3}\n", "line 7: backend.processor: should be a mapping"),
    ],
)
def test_one_mistake_and_what_is_said(text: str, said: str) -> None:
    assert any(said in each for each in told(text)), told(text)


def feature(more: str) -> str:
    return (
        "input_features:\n"
        f"- {{name: a, type: {more}}}\n"
        "output_features:\n"
        "- {name: t, type: binary}\n"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            feature("image"),
            "line 2: input_features[0].type: Ludwig's feature type 'image' needs a plugin that is "
            "not installed",
        ),
        (
            feature("number, tied: t"),
            "line 2: input_features[0].tied: Ludwig's `tied` encoders are not carried out here",
        ),
        (
            feature("number, active: false"),
            "line 2: input_features[0].active: Ludwig's `active` is not carried out here",
        ),
        (
            feature("number, unknown: 1"),
            "line 2: input_features[0].unknown: unknown option 'unknown'",
        ),
        (
            feature("number, normalization: zscore"),
            "line 2: input_features[0].normalization: unknown option 'normalization' here; it "
            "belongs into `preprocessing`: write preprocessing: {normalization: …}",
        ),
        (
            feature("number, preprocessing: {type: zscore}"),  # a section that has no types
            "line 2: input_features[0].preprocessing.type: unknown option 'type'; known: ",
        ),
        (
            feature("number, encoder: {output_size: 8}"),  # passthrough has no fc_layers
            "line 2: input_features[0].encoder.output_size: unknown option 'output_size'; known: ",
        ),
        (
            feature("number").replace("binary}", "category, class_weights: {x: 2}}"),
            "output_features[0].class_weights: unknown option 'class_weights' here; it belongs "
            "into `loss`",
        ),
        (
            SMALL + "trainer: {amsgrad: true}\n",
            "line 7: trainer.amsgrad: unknown option 'amsgrad' here; it belongs into `optimizer`",
        ),
        (feature("text, encoder: bert"), "line 2: input_features[0].encoder"),
        (
            SMALL + "  - {name: age, type: number}\n",
            "line 7: output_features[1].name: the name 'age' is also in line 3",
        ),
        (
            SMALL + "  - {name: 1, type: number}\n  - {name: '1', type: number}\n",
            "names are unique over inputs and outputs",
        ),
        (
            SMALL + "  - {name: combined, column: t, type: number}\n",
            "line 7: output_features[1].name: 'combined' is the name of all outputs' loss in the "
            "metrics",
        ),
        (SMALL + "  - {name: x, type: text}\n", "outputs are number, binary, category"),
    ],
)
def test_mistakes_in_features(text: str, said: str) -> None:
    assert any(said in each for each in told(text)), told(text)


def test_ludwigs_own_marks_on_a_feature_are_accepted() -> None:
    config = read(feature("number, active: true, tied: null, proc_column: a_xyz"))
    assert config.input_features[0].options == {}


def test_a_dict_has_paths_and_no_lines() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(
            {
                "input_features": [{"name": "a", "type": "number"}],
                "output_features": [],
                "trainer": {"epochs": 0},
            }
        )
    assert [str(each).split(": ")[0] for each in caught.value.issues] == [
        "output_features",
        "trainer.epochs",
    ]


@pytest.mark.parametrize("name", ["two\nlines.yaml", "{braces}.yaml"])
def test_a_files_name_that_looks_like_text_is_a_files_name(tmp_path, monkeypatch, name) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(SMALL)
    assert load_config(name).input_features == load_config(SMALL).input_features


def test_text_on_the_command_line_is_called_by_its_flag() -> None:
    with pytest.raises(ConfigError, match=r"--config_str: 1 mistake\n  line 7: trainr"):
        load_config(parse(SMALL + "trainr: {}\n", "--config_str"))


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-3, 3)
        | st.sampled_from(["number", "adam", "local", "x", "1e-3"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "name",
                        "encoder",
                        "preprocessing",
                        "optimizer",
                        "number",
                        "split",
                        "trainer",
                        "strategy",
                        "learning_rate_scheduler",
                        "lr",
                        "decay",
                        "fc_layers",
                        "bias",
                        "cache",
                        "credentials",
                        "block",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ),
    st.sampled_from(
        [
            "input_features",
            "output_features",
            "preprocessing",
            "combiner",
            "trainer",
            "training",
            "defaults",
            "backend",
            "model",
            "plugins",
            "extensions",
            "random_seed",
            "hyperopt",
        ]
    ),
)
@settings(max_examples=60, deadline=None)
def test_whatever_stands_in_a_section_is_a_config_or_a_config_error(
    value: Any, section: str
) -> None:
    base = {
        "input_features": [{"name": "a", "type": "number"}],
        "output_features": [{"name": "t", "type": "binary"}],
    }
    try:
        config = load_config({**base, section: value})
        resolve(config, SHARED, DEFAULTS, "local")
    except ConfigError as error:
        found = error.issues
    else:
        found = config.as_json()
    assert found


SHARED = Plugins()


def test_pass_one_imports_of_plugins_what_knows_older_spellings_and_nothing_heavy() -> None:
    """Also for a config that names a backend, a trainer and features: those are pass two's."""
    code = f"""
import sys
from distcore.config import load_config
config = load_config({SMALL!r} + "training: {{epochs: 2}}\\nbackend: {{type: local, trainer: ddp, data_format: hdf5}}\\n")
assert config.trainer.epochs == 2 and config.backend.cache_format.type == "hdf5"
toolkits = ("distcore_core", "distcore_data", "distcore_search", "distcore_torch")
heavy = {{"numpy", "pandas", "pyarrow", "torch", "ray", "dask", "distributed", "modin", "horovod", "tensorflow"}}
print([name for name in sys.modules if name.startswith("distcore_") and not name.startswith(toolkits)])
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    light = ["distcore_tabular", "distcore_tabular.plugin", "distcore_tabular.ludwig_upgrade"]
    assert done.stdout == f"{light}\n[]\n", done.stderr


def test_a_wide_config_is_read_in_reasonable_work() -> None:
    """1,000 columns with defaults: places are followed by walking what moves, never by scanning
    all of them."""
    features = "".join(f"  - {{name: c{number}, type: number}}\n" for number in range(1000))
    defaults = "defaults: {number: {preprocessing: {normalization: minmax}}}\n"
    config = read(
        f"input_features:\n{features}output_features:\n  - {{name: t, type: binary}}\n{defaults}"
    )
    assert len(config.input_features) == 1000
    assert config.input_features[999].options == {"preprocessing": {"normalization": "minmax"}}


def test_features_that_say_the_same_are_told_each_and_share_nothing() -> None:
    more = "  - {name: u, type: number, preprocessing: {normalization: minmax}}\n"
    more += more.replace("name: u", "name: v")
    config = read(SMALL + more)
    u, v = config.output_features[-2:]
    assert u.options == v.options == {"preprocessing": {"normalization": "minmax"}}
    u.options["preprocessing"]["normalization"] = "zscore"
    assert v.options == {"preprocessing": {"normalization": "minmax"}}
    wrong = told(SMALL + more.replace("normalization", "normalisation"))
    assert [line.split(":")[0] for line in wrong] == ["line 7", "line 8"]
    assert all("did you mean 'normalization'?" in line for line in wrong)


def test_a_backend_of_the_command_line_is_told_by_its_flag_and_where_it_belongs() -> None:
    """The error pointed at line 4 of a config that says nothing of a backend."""
    read = load_config(SMALL, backend="dask")
    with pytest.raises(ConfigError) as error:
        resolve(read, Plugins())
    assert "--backend: No installed plugin offers backend 'dask'" in str(error.value)
    assert "There is a processor 'dask': that is named in backend.processor." in str(error.value)
    assert "line" not in str(error.value)
