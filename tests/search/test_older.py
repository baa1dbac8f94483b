"""Other spellings of the hyperopt section: what Ludwig upgrades itself, and what its examples
write."""

import textwrap

import pytest

from distcore.config.yaml_document import parse
from distcore.search.section import read_section
from distcore_core.errors import ConfigError

HEAD = """\
input_features:
  - {name: x0, type: number}
output_features:
  - {name: y, type: binary}
  - {name: test.y, type: binary}
"""
SPACE = "parameters: {trainer.epochs: {space: randint, lower: 1, upper: 4}}"


def read(section):
    return read_section(
        parse(
            f"{HEAD}hyperopt:\n{textwrap.indent(textwrap.dedent(section), '  ')}\n  {SPACE}",
            "c.yaml",
        )
    )


@pytest.mark.parametrize(
    ("metric", "split", "feature", "name"),
    [
        ("validation.combined.loss", "validation", "combined", "loss"),
        ("train.y.loss", "train", "y", "loss"),
        ("y.roc_auc", "validation", "y", "roc_auc"),
        ("test.loss", "test", "combined", "loss"),
        ("test.y.accuracy", "validation", "test.y", "accuracy"),
        ("test.test.y.accuracy", "test", "test.y", "accuracy"),
    ],
)
def test_a_metric_may_name_its_split_and_output_feature(metric, split, feature, name):
    section = read(f"metric: {metric}")
    found = section.options
    assert (found.split, found.output_feature, found.metric) == (split, feature, name)
    assert any(metric in note for note in section.notes)


def test_what_the_metric_says_may_be_said_again_but_not_otherwise():
    found = read("metric: training.y.loss\nsplit: train\noutput_feature: y").options
    assert (found.split, found.output_feature, found.metric) == ("train", "y", "loss")
    with pytest.raises(
        ConfigError,
        match=r"line 8: hyperopt.metric: .* says split 'test', but split is 'validation'",
    ):
        read("goal: minimize\nmetric: test.combined.loss\nsplit: validation")
    with pytest.raises(ConfigError, match="write metric: loss alone"):
        read("metric: validation.combined.loss\noutput_feature: y")


def test_a_mistake_in_what_the_metric_says_has_its_line():
    with pytest.raises(ConfigError, match=r"line 8: .*'z' is no output feature"):
        read("goal: minimize\nmetric: validation.z.loss")
    with pytest.raises(ConfigError, match="combined has the metric loss alone"):
        read("metric: validation.combined.accuracy")


def test_the_sampler_of_older_ludwigs_is_taken_apart():
    section = read(
        """
        sampler:
          type: ray
          search_alg: {type: random}
          num_samples: 7
          scheduler: {type: async_hyperband, max_t: 9}
        executor: {type: ray}
        """
    )
    assert section.options.search_alg.type == "random"
    assert section.options.executor.model_extra == {
        "num_samples": 7,
        "scheduler": {"type": "async_hyperband", "max_t": 9},
    }
    assert any("sampler.num_samples" in note for note in section.notes)


def test_what_is_at_its_place_already_stays():
    section = read(
        """
        search_alg: {type: variant_generator}
        sampler: {num_samples: 7}
        executor: {type: ray, search_alg: optuna, num_samples: 3}
        """
    )
    assert section.options.search_alg.type == "variant_generator"
    assert section.options.executor.model_extra == {"num_samples": 3}
    assert sum("was left out" in note for note in section.notes) >= 2


@pytest.mark.parametrize(
    ("executor", "left"),
    [
        ("serial", {"max_concurrent_trials": 1}),
        ("{type: serial, num_samples: 2}", {"num_samples": 2, "max_concurrent_trials": 1}),
        ("{type: parallel, num_workers: 3}", {"max_concurrent_trials": 3}),
    ],
)
def test_executors_from_before_ray_become_the_one_that_is_there(executor, left):
    section = read(f"executor: {executor}")
    assert section.options.executor.type is None
    assert section.options.executor.model_extra == left
    assert any("older Ludwigs" in note for note in section.notes)


def test_todays_spellings_leave_no_note():
    assert read("goal: minimize\nmetric: loss\nexecutor: {type: local, num_samples: 2}").notes == ()


@pytest.mark.parametrize(
    ("outputs", "section", "said"),
    [
        ("[{name: y, type: binary}]", "metric: test.loss, split: [test]", "split is .'test'."),
        ("5", "metric: y.loss", "output_features"),
        ("[{name: [y], type: binary}]", "metric: y.loss", "output_features"),
    ],
)
def test_a_metric_beside_values_of_wrong_types(outputs, section, said):
    """A TypeError hid what was wrong."""
    text = f"input_features: [{{name: x, type: number}}]\noutput_features: {outputs}\n"
    with pytest.raises(ConfigError, match=said):
        read_section(parse(f"{text}hyperopt: {{{section}, {SPACE}}}", "c.yaml"))
