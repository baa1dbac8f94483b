"""The folder of a search: fresh or to go on with, held by one, and of the same search."""

import copy

import pytest

from distcore.search.folders import folder_to_resume, held_folder, refuse_another
from distcore_core.errors import UserError
from distcore_data.run_files import SEARCH

MINE = {
    "cache": "k1",
    "random_seed": 42,
    "trainer": None,
    "config": {
        "trainer": {"epochs": 2},
        "backend": {"type": "local"},
        "hyperopt": {"metric": "loss", "executor": {"num_samples": 3}},
    },
}


def changed(path, value):
    made = copy.deepcopy(MINE)
    *parts, last = path.split(".")
    inner = made
    for part in parts:
        inner = inner[part]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return made


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("cache", "k2", "the data or how they are prepared"),
        ("random_seed", 7, "random_seed"),
        ("config.trainer.epochs", 3, "trainer"),
        ("config.trainer", None, "trainer"),
        ("config.combiner", {"type": "concat"}, "combiner"),
        ("config.hyperopt.metric", "accuracy", "hyperopt.metric"),
        ("config.hyperopt.metric", None, "hyperopt.metric"),
        ("config.hyperopt.goal", "maximize", "hyperopt.goal"),
    ],
)
def test_another_search_is_refused_by_what_differs(tmp_path, path, value, named):
    other = changed(path, value)
    for before, mine in ((MINE, other), (other, MINE)):
        with pytest.raises(UserError, match=rf"is another one: {named} differ\."):
            refuse_another(before, mine, tmp_path)


def test_other_versions_of_what_encodes_are_named(tmp_path):
    before, mine = ({**MINE, "cache": "a" * 28 + rest * 12} for rest in "bc")
    with pytest.raises(UserError, match=r"one: the versions that encode the data differ\."):
        refuse_another(before, mine, tmp_path)


def test_the_option_of_another_trainer_is_named(tmp_path):
    trees = {"type": "lightgbm", "num_leaves": 31}
    before = {**MINE, "trainer": trees}
    refuse_another(before, {**MINE, "trainer": {**trees, "brought_later": None}}, tmp_path)
    for mine, said in (
        ({**trees, "num_leaves": 8}, r"one: backend\.trainer\.num_leaves was 31 and is 8\. Go on"),
        (
            None,
            r"one: backend\.trainer was lightgbm and is one of torch's that make the same steps\.",
        ),
        ({"type": "xgboost"}, r"one: backend\.trainer was lightgbm and is xgboost\. Go on"),
    ):
        with pytest.raises(UserError, match=said):
            refuse_another(before, {**MINE, "trainer": mine}, tmp_path)
    other = {**changed("random_seed", 7), "trainer": trees}
    with pytest.raises(
        UserError, match=r"one: random_seed differ; backend\.trainer was one of torch's"
    ):
        refuse_another(MINE, other, tmp_path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("config.backend", {"type": "ray"}),
        ("config.extensions", [{"type": "report"}]),
        ("config.plugins", {"search_path": "x"}),
        ("config.hyperopt.executor", {"num_samples": 9}),
    ],
)
def test_where_and_how_long_a_search_runs_may_change(tmp_path, path, value):
    refuse_another(MINE, changed(path, value), tmp_path)
    older = {"cache": None, "random_seed": 42, "config": MINE["config"]}  # noted no more
    refuse_another(older, MINE, tmp_path)


def test_a_fresh_folder_is_held_by_one_search_and_gone_if_nothing_was_begun(tmp_path):
    place = (tmp_path, "hyperopt", "run")
    with held_folder(None, *place) as fresh:
        assert fresh == tmp_path / "hyperopt_run"
        with (
            pytest.raises(UserError, match="Another search is running in"),
            held_folder(fresh, *place),
        ):
            pass
        assert fresh.exists()
    assert not fresh.exists()
    with held_folder(None, *place):
        (fresh / SEARCH).touch()
    assert (fresh / SEARCH).exists()


def test_a_search_is_gone_on_with_where_there_is_one(tmp_path):
    there, place = tmp_path / "hyperopt_run", (tmp_path, "hyperopt", "run")
    assert folder_to_resume(*place, None, True) is None
    with pytest.raises(UserError, match=r"hyperopt_run holds no search to go on with"):
        folder_to_resume(*place, there, None)
    there.mkdir()
    (there / SEARCH).touch()
    assert folder_to_resume(*place, None, True) == folder_to_resume(*place, there, None) == there
    assert folder_to_resume(*place, None, None) is None
