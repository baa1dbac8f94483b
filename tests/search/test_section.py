"""The hyperopt section: mistakes with their lines and the nearest words, before anything is run."""

import textwrap

import pytest

from distcore.config.yaml_document import parse
from distcore.search.section import check_candidates, read_section
from distcore.search.substitute import substitute, target
from distcore_core.errors import ConfigError
from distcore_core.registry.manager import Plugins

HEAD = """\
input_features:
  - {name: x0, type: number}
  - {name: colour, type: category}
output_features:
  - {name: y, type: binary}
trainer: {epochs: 2}
hyperopt:
  goal: maximize
  metric: roc_auc
  output_feature: y
"""


def read(section, head=HEAD):
    section = read_section(parse(head + textwrap.indent(textwrap.dedent(section), "  "), "c.yaml"))
    return section, check_candidates(section, Plugins(), "local", {"trainer": "local"})


def refused(section, head=HEAD):
    with pytest.raises(ConfigError) as caught:
        read(section, head)
    return str(caught.value)


def test_everything_that_ludwig_names_can_be_searched():
    section, configs = read(
        """
        parameters:
          trainer.learning_rate: {space: LogUniform, lower: 0.0001, upper: 0.1}
          training.batch_size: {space: qrandint, lower: 32, upper: 128, q: 32}
          trainer.optimizer.type: {space: choice, categories: [adam, adamw]}
          combiner.num_fc_layers: {space: randint, lower: 1, upper: 4}
          combiner: {space: choice, categories: [{type: concat}, {type: concat, dropout: 0.1}]}
          x0.preprocessing.normalization: {space: choice, categories: [zscore, minmax]}
          colour.encoder: {space: choice, categories: [{type: dense, embedding_size: 4}, {type: sparse}]}
          y.decoder.fc_layers: {space: choice, categories: [[{output_size: 8}], [{output_size: 8}, {output_size: 4}]]}
          defaults.category.preprocessing.most_common: {space: randint, lower: 5, upper: 9}
          preprocessing.sample_ratio: {space: uniform, lower: 0.5, upper: 1.0}
        """
    )
    assert configs[0].trainer.learning_rate == 0.0001
    assert configs[0].trainer.batch_size == 32
    assert section.options.executor.type is None
    rates = {config.trainer.learning_rate for config in configs}
    assert {0.0001, 0.1} < rates
    assert all(0.0001 <= rate <= 0.1 for rate in rates)
    layers = {config.model.options["combiner"].get("num_fc_layers") for config in configs}
    assert layers == {1, 3}


def test_the_whole_config_is_a_parameter_too():
    _, configs = read(
        """
        parameters:
          ".": {space: choice, categories: [{combiner: {num_fc_layers: 2}}, {trainer: {batch_size: 32}}]}
        """
    )
    assert configs[0].model.options["combiner"]["num_fc_layers"] == 2
    assert configs[1].trainer.batch_size == 32


@pytest.mark.parametrize(
    "names", [["combiner.dropout", "combiner"], ["combiner", "combiner.dropout"]]
)
def test_an_option_wins_over_its_section_whichever_is_named_first(names):
    """So what a trial shows for the option is what it was trained with."""
    values = {"combiner.dropout": 0.5, "combiner": {"type": "concat", "dropout": 0.1}}
    for name, value in ((".", {"combiner": {"dropout": 0.2}}), ("combiner", values["combiner"])):
        parameters = {each: values[each] for each in names} | {name: value}
        made = substitute({"combiner": {"type": "sequence"}}, parameters)
        assert made["combiner"] == {"type": "concat", "dropout": 0.5}


@pytest.mark.parametrize(
    ("section", "line", "words"),
    [
        (
            "parameters: {trainer.batch_size: {space: uniform, lower: 8, upper: 64}}",
            11,
            "cannot be tried: trainer.batch_size: should be a whole number",
        ),
        (
            "parameters: {trainer.learning_rat: {space: uniform, lower: 0.1, upper: 0.2}}",
            11,
            "did you mean 'learning_rate'",
        ),
        (
            "parameters: {trainer.dropuot: {space: uniform, lower: 0.1, upper: 0.2}}",
            11,
            "unknown option 'dropuot'",
        ),
        (
            "parameters: {colur.encoder.type: {space: choice, categories: [dense]}}",
            11,
            "did you mean 'colour'",
        ),
        (
            "parameters: {trainr.epochs: {space: randint, lower: 1, upper: 4}}",
            11,
            "did you mean 'trainer'",
        ),
        ("parameters: {backend.type: {space: choice, categories: [local]}}", 11, "not searched"),
        (
            "parameters: {backend.trainer.type: {space: choice, categories: [local]}}",
            11,
            "Options of the trainer are: backend.trainer.<option>",
        ),
        (
            "parameters: {input_features.x0.type: {space: choice, categories: [number]}}",
            11,
            "begin with the feature's name",
        ),
        (
            "parameters:\n  trainer.epochs:\n    space: randint\n    lower: 0\n    upper: 4",
            14,
            "0 cannot be tried",
        ),
        (
            "parameters:\n  trainer.epochs:\n    space: uniform\n    lower: 1\n    upper: 1.5",
            15,
            "1.5 cannot be tried",
        ),
        (
            "parameters:\n"
            "  colour.encoder.type:\n"
            "    space: choice\n"
            "    categories:\n"
            "      - dense\n"
            "      - dens",
            16,
            "'dens' cannot be tried",
        ),
        (
            "parameters:\n  trainer.epochs: {space: randint, lower: true, upper: 4}",
            12,
            "lower: should be a number, not a boolean",
        ),
        (
            "parameters:\n  trainer.epochs: {space: randnt, lower: 1, upper: 4}",
            12,
            "did you mean 'randint'",
        ),
        (
            "parameters:\n  trainer.epochs: {space: randint, low: 1, upper: 4}",
            12,
            "did you mean 'lower'",
        ),
        (
            "paramters: {trainer.epochs: {space: randint, lower: 1, upper: 4}}",
            11,
            "did you mean 'parameters'",
        ),
        (
            "parameters: {trainer.learning_rate: {space: randn, mean: 0.1, sd: 0.1}}",
            11,
            "cannot be tried",
        ),
        (
            "parameters: {defaults.text.preprocessing.most_common: {space: randint, lower: 5, "
            "upper: 9}}",
            11,
            "changes nothing",
        ),
        ("parameters: {}", 11, "at least 1"),
        (
            "search_alg: {type: ax}\n"
            "parameters: {trainer.epochs: {space: randint, lower: 1, upper: 4}}",
            11,
            "'ax' is not carried",
        ),
        (
            "search_alg: {type: optna}\n"
            "parameters: {trainer.epochs: {space: randint, lower: 1, upper: 4}}",
            11,
            "did you mean 'optuna'",
        ),
        (
            "parameters: {combiner: {space: choice, categories: [{fc_layers: [{output_size: 8}]}]}, "
            "combiner.fc_layers.0.output_size: {space: randint, lower: 4, upper: 9}}",
            11,
            "'fc_layers' is a list, which is searched as a whole",
        ),
        (
            "parameters: {y.name: {space: choice, categories: [y, z]}}",
            11,
            "the metric is of 'y', which is no output feature then",
        ),
    ],
)
def test_a_mistake_is_told_with_its_line(section, line, words):
    said = refused(section)
    assert f"line {line}: " in said
    assert words in said
    assert "not expected" not in said


def test_a_part_of_a_list_has_its_parameters_line():
    head = HEAD.replace("hyperopt:", "combiner: {fc_layers: [{output_size: 8}]}\nhyperopt:")
    name = "combiner.fc_layers.0.output_size"
    said = refused(f"parameters: {{{name}: {{space: randint, lower: 4, upper: 9}}}}", head)
    assert f"line 12: hyperopt.parameters.{name}: 'fc_layers' is a list" in said


def test_all_mistakes_are_told_at_once():
    said = refused(
        """
        parameters:
          trainer.learning_rat: {space: uniform, lower: 0.1, upper: 0.2}
          combiner.num_fc_layers: {space: randint, lower: -1, upper: 4}
        """
    )
    assert "2 mistakes" in said
    assert "line 13" in said
    assert "line 14: hyperopt.parameters.combiner.num_fc_layers.lower: -1 cannot be tried" in said


def test_a_parameter_that_changes_something_in_between_is_searched():
    """Its first and its last value were compared alone."""
    section = "parameters: {x0.encoder: {space: choice, categories: [CATEGORIES]}}"
    values = "{type: passthrough}, {type: dense}, passthrough"
    assert read(section.replace("CATEGORIES", values))
    said = refused(section.replace("CATEGORIES", values.replace("{type: dense}, ", "")))
    assert "changes nothing" in said
    assert read(section.replace("CATEGORIES", "dense"))  # one value is what it is set to


def test_a_trainer_s_options_without_its_type_are_the_backend_s_default_s():
    """They were nobody's: a search of them, or beside them, ended with a trainer named ''."""
    section = """
        parameters:
          {parameter}: {{space: choice, categories: [1, 2]}}
        """
    said = refused(section.format(parameter="backend.trainer.num_workrs"))
    assert "line 13: hyperopt.parameters.backend.trainer.num_workrs.categories[0]: 1 cannot" in said
    assert "did you mean 'num_workers'?" in said
    head = HEAD.replace("hyperopt:", "backend: {trainer: {max_retries: 2}}\nhyperopt:")
    for configs in (
        read(section.format(parameter="backend.trainer.max_retries"))[1],
        read(section.format(parameter="trainer.epochs"), head)[1],
    ):
        assert {each.backend.trainer.type for each in configs} == {"local"}


def test_mistakes_of_the_section_and_of_the_rest_are_told_in_two_goes():
    """What the section names can be looked for in a config that is well."""
    section = """
        split: nowhere
        parameters:
          trainer.learning_rate: {space: uniform, lower: 0.2, upper: 0.1}
          q.encoder: {space: choice, categories: [dense]}
        """
    said = refused(section, HEAD.replace("epochs", "epoch").replace("y\n", "z\n"))
    assert "3 mistakes" in said
    assert "line 6: trainer.epoch: unknown option" in said
    assert "line 12: hyperopt.split: should be" in said
    assert "line 14: hyperopt.parameters.trainer.learning_rate: upper (0.1) should be" in said
    said = refused(section, HEAD.replace("y\n", "z\n"))
    assert "4 mistakes" in said
    assert "line 10: hyperopt.output_feature: 'z' is no output feature" in said
    assert "line 12: hyperopt.split: should be" in said
    assert "line 15: hyperopt.parameters.q.encoder: 'q' is neither a feature nor" in said


@pytest.mark.parametrize("value", ["[1]", "seven", "{parameters: 3}", "{parameters: {3: 4}}"])
def test_a_section_of_another_kind_is_told(value):
    head = HEAD[: HEAD.index("hyperopt:")]
    for text, more in ((head, ""), (head.replace("epochs", "epoch"), "line 6: trainer.epoch: ")):
        with pytest.raises(ConfigError) as caught:
            read_section(parse(f"{text}hyperopt: {value}\n", "c.yaml"))
        assert more in str(caught.value)
        assert "line 7: hyperopt" in str(caught.value)


def test_values_that_do_not_go_together_are_told():
    """A combination that the search could ask for, of which each part is right alone."""
    said = refused(
        """
        parameters:
          trainer.optimizer.type: {space: choice, categories: [sgd, adam]}
          trainer.optimizer.momentum: {space: uniform, lower: 0.0, upper: 0.9}
        """
    )
    assert "line 14" in said
    assert "where trainer.optimizer.type is 'adam'" in said
    assert "unknown option 'momentum'" in said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("output_feature: y", "output_feature: z"), "'z' is no output feature"),
        (("goal: maximize", "goal: maximise"), "minimize"),
        (("output_feature: y", "output_feature: combined"), "combined has the metric loss alone"),
    ],
)
def test_what_is_aimed_at_is_checked(change, words):
    assert words in refused(
        "parameters: {trainer.epochs: {space: randint, lower: 1, upper: 4}}", HEAD.replace(*change)
    )


def test_a_config_without_the_section_says_so():
    with pytest.raises(ConfigError, match="hyperopt: is missing") as caught:
        read_section(parse(HEAD.partition("hyperopt:")[0]))
    assert "line" not in str(caught.value)  # it was that of the first section


# ------------------------------------------------------------------ substitution

BASE = {
    "input_features": [
        {"name": "title", "type": "text"},
        {"name": "a.b", "type": "number", "encoder": "dense"},
    ],
    "output_features": [{"name": "summary", "type": "category"}],
}


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (
            {
                "combiner.type": "tabnet",
                "combiner.fc_layers": [{"output_size": 64}],
                "trainer.learning_rate": 0.1,
            },
            {
                "combiner": {"type": "tabnet", "fc_layers": [{"output_size": 64}]},
                "trainer": {"learning_rate": 0.1},
            },
        ),
        (
            {
                ".": {"combiner": {"num_fc_layers": 2}, "trainer": {"epochs": 3}},
                "trainer": {"learning_rate": 0.1},
            },
            {"combiner": {"num_fc_layers": 2}, "trainer": {"epochs": 3, "learning_rate": 0.1}},
        ),
        (
            {"trainer.epochs": 3, "training": {"epochs": 1, "batch_size": 8}},
            {"trainer": {"epochs": 3, "batch_size": 8}},
        ),
    ],
)
def test_parameters_go_where_ludwig_puts_them(parameters, expected):
    assert substitute(BASE, parameters) == {**BASE, **expected}


def test_a_features_parameters_go_into_the_feature_and_nothing_given_is_changed():
    made = substitute(
        BASE,
        {"title.encoder.type": "bert", "a.b.encoder.num_layers": 2, "summary.decoder.bias": True},
    )
    assert made["input_features"][0]["encoder"] == {"type": "bert"}
    assert made["input_features"][1]["encoder"] == {"type": "dense", "num_layers": 2}
    assert made["output_features"][0]["decoder"] == {"bias": True}
    assert "encoder" not in BASE["input_features"][0]


def test_a_section_of_another_type_replaces_the_one_there_is():
    base = {**BASE, "combiner": {"type": "concat", "num_fc_layers": 3}}
    assert substitute(base, {"combiner": {"type": "other", "size": 1}})["combiner"] == {
        "type": "other",
        "size": 1,
    }
    assert substitute(base, {"combiner": {"dropout": 0.1}})["combiner"] == {
        "type": "concat",
        "num_fc_layers": 3,
        "dropout": 0.1,
    }
    same = substitute(base, {"combiner": {"type": "concat", "dropout": 0.1}})["combiner"]
    assert same == {"type": "concat", "num_fc_layers": 3, "dropout": 0.1}


def test_a_feature_called_like_a_section_is_refused():
    base = {**BASE, "input_features": [{"name": "trainer", "type": "number"}]}
    with pytest.raises(ValueError, match="both a feature and a section"):
        target(base, "trainer.epochs")
    base["input_features"][0]["name"] = "trainer.age"
    assert target(base, "trainer.age.encoder") == ("input_features", 0, "encoder")


def test_of_two_features_the_longer_name_is_meant_and_of_the_backend_its_trainers_options():
    base = {"input_features": [{"name": "a", "type": "number"}, {"name": "a.b", "type": "number"}]}
    assert target(base, "a.b.encoder.type") == ("input_features", 1, "encoder", "type")
    assert target(base, "a.bc.type") == ("input_features", 0, "bc", "type")
    assert target(base, "a.b") == ("input_features", 1)
    assert target(base, "backend.trainer.num_leaves") == ("backend", "trainer", "num_leaves")
    for name in ("processor.memory", "trainer", "trainer.type"):
        with pytest.raises(ValueError, match="says where a model is trained"):
            target(base, f"backend.{name}")


NUMBERED = """\
input_features: [{name: 0x10, type: category}, {name: a, column: 007, type: category}]
output_features: [{name: 1, type: category}, {name: on, type: binary}]
hyperopt:
  goal: maximize
  metric: accuracy
"""
SEARCHED = "  parameters: {0x10.encoder.type: {space: choice, categories: [dense, sparse]}}\n"


@pytest.mark.parametrize(
    ("written", "aimed"), [('"1"', "1"), ("1", "1"), ("on", "on"), ("'on'", "on")]
)
def test_names_of_features_are_texts_as_they_are_written(written, aimed):
    """A name that YAML reads as a number was a TypeError, or unknown."""
    section, configs = read(f"output_feature: {written}\n", NUMBERED + SEARCHED)
    assert section.options.output_feature == aimed
    for config in configs:
        features = (*config.input_features, *config.output_features)
        assert [each.name for each in features] == ["0x10", "a", "1", "on"]
        assert [each.column for each in features] == ["0x10", "007", "1", "on"]
    assert {each.input_features[0].options["encoder"]["type"] for each in configs} == {
        "dense",
        "sparse",
    }


def test_another_name_is_told_beside_names_that_are_numbers():
    said = refused("output_feature: 2\n", NUMBERED + SEARCHED)
    assert "hyperopt.output_feature: '2' is no output feature; known: 1, combined, on" in said
    assert "text" in refused("output_feature: [1]\n", NUMBERED + SEARCHED)
    said = refused("output_feature: null\n", NUMBERED.replace("accuracy", "loss") + SEARCHED)
    assert "output_feature: should be a text" in said


def test_parameters_go_in_the_order_a_search_was_begun_with():
    section, _ = read(
        """
        parameters:
          trainer.batch_size: {space: grid_search, values: [32, 64]}
          combiner.output_size: {space: grid_search, values: [8, 16]}
          colour.encoder.type: {space: grid_search, values: [dense, sparse]}
        """
    )
    before = ("combiner.output_size", "x0.encoder.type", "trainer.batch_size")
    found = section.in_order_of(before)
    order = ["combiner.output_size", "trainer.batch_size", "colour.encoder.type"]
    assert list(found.spaces) == list(found.written["parameters"]) == order
    assert found.spaces == section.spaces
    assert found.written == section.written
