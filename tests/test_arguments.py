"""The public functions say their arguments, to people, editors and whoever mistypes one."""

import dataclasses
import inspect

import pytest

import distcore
from distcore.workflow.requests import AnswerRequest, TrainRequest
from distcore_core.errors import UserError

FUNCTIONS = ["train", "experiment", "predict", "evaluate", "preprocess", "hyperopt", "plan", "load"]


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
    ],
)
@pytest.mark.parametrize("name", ["train", "experiment", "predict", "evaluate", "hyperopt"])
def test_what_is_not_to_be_saved_is_no_other_word(name, skip, said):
    """It was passed over, and the model, say, was saved; a search took a text for its letters."""
    with pytest.raises(UserError) as caught:
        getattr(distcore, name)("anything", "anywhere", skip=skip)
    assert str(caught.value).startswith(said)
