"""The public functions say their arguments, to people, editors and whoever mistypes one."""

import dataclasses
import inspect
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import distcore
from distcore.workflow.requests import AnswerRequest, TrainRequest
from distcore_core.errors import UserError
from distcore_testing import data

OF_CONFIGS = ["train", "experiment", "preprocess", "hyperopt", "plan"]
FUNCTIONS = [*OF_CONFIGS, "predict", "evaluate", "load", "verify", "diff"]
NO_PLACES = [3, b"", []]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_editor_sees_every_argument_by_name(name):
    parameters = inspect.signature(getattr(distcore, name)).parameters
    assert len(parameters) >= 3
    assert not {each.kind for each in parameters.values()} & {
        inspect.Parameter.VAR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    }


@pytest.mark.parametrize(
    ("name", "request_type", "absent"),
    [
        ("train", TrainRequest, set()),
        ("experiment", TrainRequest, set()),
        ("predict", AnswerRequest, set()),
        ("evaluate", AnswerRequest, {"output_file", "keep"}),
    ],
)
def test_arguments_are_those_of_the_request_with_the_same_defaults(name, request_type, absent):
    """`config` and what else must be given has no default in one of them."""
    parameters = inspect.signature(getattr(distcore, name)).parameters
    fields = {each.name: each.default for each in dataclasses.fields(request_type)}
    assert fields.keys() - {"command"} - absent == parameters.keys()
    given = {
        key: each.default
        for key, each in parameters.items()
        if each.default is not inspect.Parameter.empty
    }
    assert {key: fields[key] for key in given} == given


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_mistyped_argument_gets_the_nearest(name):
    function = getattr(distcore, name)
    known = list(inspect.signature(function).parameters)
    word = known[-1]
    with pytest.raises(
        TypeError, match=rf"distcore\.{name} has no argument '{word}z'\. Did you mean '{word}'\?"
    ):
        function("anything", **{f"{word}z": 1})
    with pytest.raises(TypeError, match=rf"has no argument 'qqqq'\. It has: {known[0]}, "):
        function("anything", qqqq=1)


@pytest.mark.parametrize(
    ("function", "word", "said"),
    [
        (distcore.train, "seed", r"Did you mean 'random_seed'\?"),
        (distcore.experiment, "epochs", r"It is the config's, as trainer\.epochs\."),
        (distcore.train, "sample_ratio", r"It is the config's, as preprocessing\.sample_ratio\."),
        (distcore.predict, "epochs", "It has: model_path, "),
    ],
)
def test_what_other_libraries_call_so_is_told_with_its_place(function, word, said):
    with pytest.raises(TypeError, match=f"has no argument '{word}'. {said}"):
        function(**{word: 3})


@pytest.mark.parametrize(
    ("skip", "said"),
    [
        (
            {"skip_save_modle"},
            "skip: there is no 'skip_save_modle'. Did you mean 'skip_save_model'",
        ),
        (["qqqq"], "skip: there is no 'qqqq'. There are: skip_save_training_description, "),
        ([3], "skip: there is no 3."),
        ("skip_save_model", "skip should be a collection of names, such as {'skip_save_model'}"),
        (None, "skip should be a collection of names"),
        ({"skip_save_model": False}, "skip should be a collection of names"),
    ],
)
@pytest.mark.parametrize("name", ["train", "experiment", "predict", "evaluate", "hyperopt"])
def test_what_is_not_to_be_saved_is_no_other_word(name, skip, said):
    """It was passed over, and the model, say, was saved; a search took a text for its letters."""
    with pytest.raises(UserError) as caught:
        getattr(distcore, name)("anything", "anywhere", skip=skip)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("place", [None, *NO_PLACES])
@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("load", "model_path"),
        ("predict", "model_path"),
        ("evaluate", "model_path"),
        ("verify", "run"),
        ("diff", "one"),
        ("diff", "other"),
        ("train", "output_directory"),
        ("hyperopt", "output_directory"),
        ("predict", "output_directory"),
    ],
)
def test_what_is_no_path_is_told_as_such(name, argument, place, tmp_path):
    given = {key: tmp_path for key in ("model_path", "one") if key in parameters_of(name)}
    given |= {key: "data.csv" for key in ("dataset", "other") if key in parameters_of(name)}
    given |= {"config": {}} if "config" in parameters_of(name) else {}
    with pytest.raises(UserError, match=re.escape(f"{argument} is {place!r}, and no path or")):
        getattr(distcore, name)(**{**given, argument: place})


@pytest.mark.parametrize("place", NO_PLACES)
@pytest.mark.parametrize("argument", ["model_load_path", "model_resume_path"])
def test_a_place_that_may_be_left_out_is_left_out_by_none_alone(argument, place):
    """An empty list was passed over, and the run began from the beginning."""
    with pytest.raises(UserError, match=re.escape(f"{argument} is {place!r}, and no path or")):
        distcore.train({}, "data.csv", **{argument: place})


@pytest.mark.parametrize("name", ["train", "experiment", "hyperopt"])
def test_a_run_goes_on_without_a_config_as_the_command_does(name, tmp_path):
    with pytest.raises(UserError, match=f"{re.escape(str(tmp_path))} holds no "):
        getattr(distcore, name)(dataset="data.csv", model_resume_path=tmp_path)
    with pytest.raises(UserError, match=r"No config was given\."):
        getattr(distcore, name)(dataset="data.csv")


@pytest.mark.parametrize("config", NO_PLACES)
@pytest.mark.parametrize("name", OF_CONFIGS)
def test_what_is_no_config_is_told_as_such(name, config):
    with pytest.raises(UserError, match=re.escape(f"The config is {config!r}. Give the path of")):
        getattr(distcore, name)(config, "data.csv")


@pytest.mark.parametrize("name", ["load", "predict", "evaluate", "verify", "diff"])
def test_a_folder_that_is_no_run_is_told_as_such(name, tmp_path):
    others = {"dataset": "data.csv"} if name in ("predict", "evaluate") else {}
    others |= {"other": tmp_path} if name == "diff" else {}
    with pytest.raises(UserError, match=f"{re.escape(str(tmp_path))} holds no "):
        getattr(distcore, name)(tmp_path, **others)


@pytest.mark.parametrize("word", ["../x", "a/b", "/tmp/x", "..", "a\\b", "a\0b", None, 3])
@pytest.mark.parametrize("argument", ["experiment_name", "model_name"])
@pytest.mark.parametrize("name", ["train", "experiment", "hyperopt"])
def test_results_have_a_name_in_the_output_directory(name, argument, word):
    """`../x` made a folder beside it. Told before the config and the data, which are not there."""
    with pytest.raises(UserError, match=f"{argument} .*(no name of a folder|no name)"):
        getattr(distcore, name)("nowhere.yaml", "nowhere.csv", **{argument: word})


@pytest.mark.parametrize("argument", ["--experiment_name", "--model-name"])
@pytest.mark.parametrize("command", ["train", "experiment", "hyperopt"])
def test_the_command_line_has_read_nothing_by_then(command, argument, tmp_path):
    words = [command, "nowhere.yaml", "-", argument, "../x", "--output_directory", "results"]
    (tmp_path / "rows").write_text("a,b\n1,2\n")
    with (tmp_path / "rows").open("rb") as rows:
        done = subprocess.run(
            [sys.executable, "-m", "distcore", *words],
            cwd=tmp_path,
            stdin=rows,
            capture_output=True,
            text=True,
        )
        assert os.lseek(rows.fileno(), 0, os.SEEK_CUR) == 0, "standard input was read"
    assert done.returncode == 2
    assert "name '../x' is no name of a folder in the output directory" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["rows"]


def parameters_of(name):
    return inspect.signature(getattr(distcore, name)).parameters


@pytest.mark.parametrize(
    ("argument", "value", "said"),
    [
        ("trust", "no", r"trust is 'no'\. Give True or False"),
        ("overwrite", "false", r"overwrite is 'false'\. Give True or False"),
        ("view", "non", r"view: there is no 'non'\. Did you mean 'none'\?"),
        ("view", 3, r"view: there is no 3\. There are: interactive, "),
        ("data_format", 3, r"data_format is 3, and no name of a format"),
        ("backend", 3, r"backend is 3, and no name of a backend"),
        ("keep", "id", r"keep is 'id', and no list of columns"),
        ("keep", 3, r"keep is 3, and no list of columns"),
        ("output_directory", "a\0b", r"output_directory 'a\\x00b' holds a NUL"),
    ],
)
def test_a_value_of_another_kind_is_an_error_that_names_the_argument(argument, value, said):
    """A word such as "no" was taken for True, an unknown view for lines; the rest ended in Python's
    own errors."""
    with pytest.raises(UserError, match=said):
        distcore.predict("results/none", {"a": [1]}, **{argument: value})


@pytest.mark.parametrize("steps", [3, (), (1,), "ab", (0, 1, 2), (None, 3), (-1, None), {}])
def test_steps_are_a_pair(steps):
    with pytest.raises(UserError, match="and no pair of steps"):
        distcore.verify("results/none", steps=steps)


def test_a_config_that_names_no_file_and_a_backend_that_is_no_name():
    with pytest.raises(UserError, match="is no path"):
        distcore.train("a\0b", {"a": [1]})
    with pytest.raises(UserError, match="Give its name, and its options in the config's section"):
        distcore.plan(data.config("cache"), {"a": [1]}, backend={"type": "local"})


def test_a_seed_may_be_numpys(tmp_path):
    """It was trained with, and then could not be written down."""
    config = data.config(str(tmp_path / "cache"))
    given = {"random_seed": np.int64(3), "output_directory": tmp_path, "view": "none"}
    outcome = distcore.train(config, data.table(100), **given)
    assert json.loads((outcome.directory / "description.json").read_text())["random_seed"] == 3


def test_a_name_of_predictions_that_is_too_long_is_told(tmp_path):
    """240 bytes are a name, but leave no room for that of the file on its way there."""
    for length in (240, 300):
        name = tmp_path / f"{'a' * length}.csv"
        request = AnswerRequest(
            command="predict", model_path=tmp_path, dataset="a.csv", output_file=name
        )
        with pytest.raises(UserError, match=r"^--output_file .*: file name too long\. Give"):
            _ = request.file_name
