"""Every space draws what it says, with its ends where Ray Tune has them, and gives the config
plain values."""

import math
import statistics

import pytest
from pydantic import ValidationError

from distcore_search.space import parse_spaces, values_of
from distcore_search.variants import draw, variants

DRAWS = 4000


def one(**written):
    return parse_spaces({"p": written})["p"]


def drawn(**written):
    space = one(**written)
    return [space.value(space.draw(draw(7, number, "p"))) for number in range(DRAWS)]


@pytest.mark.parametrize(
    ("written", "least", "most"),
    [
        ({"space": "uniform", "lower": -1, "upper": 3}, -1, 3),
        ({"space": "loguniform", "lower": 1e-4, "upper": 1e-1}, 1e-4, 1e-1),
        ({"space": "loguniform", "lower": 1e-4, "upper": 1e-1, "base": 2}, 1e-4, 1e-1),
    ],
)
def test_real_numbers_fill_their_range(written, least, most):
    found = drawn(**written)
    assert least <= min(found)
    assert max(found) <= most
    middle = math.sqrt(least * most) if "log" in written["space"] else (least + most) / 2
    assert 0.45 < sum(each < middle for each in found) / DRAWS < 0.55
    assert {type(each) for each in found} == {float}


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ({"space": "quniform", "lower": 0, "upper": 0.5, "q": 0.1}, {0.0, 0.1, 0.2, 0.3, 0.4, 0.5}),
        ({"space": "qloguniform", "lower": 1, "upper": 3, "q": 1}, {1.0, 2.0, 3.0}),
        ({"space": "randint", "lower": 1, "upper": 4}, {1, 2, 3}),
        ({"space": "int", "lower": 1, "upper": 4}, {1, 2, 3, 4}),
        ({"space": "qrandint", "lower": 32, "upper": 128, "q": 32}, {32, 64, 96, 128}),
        ({"space": "lograndint", "lower": 1, "upper": 5}, {1, 2, 3, 4}),
        ({"space": "qlograndint", "lower": 2, "upper": 8, "q": 2}, {2, 4, 6, 8}),
        ({"space": "choice", "categories": ["a", {"type": "b"}, [1, 2]]}, None),
        ({"space": "categorical", "categories": [True, False]}, {True, False}),
        ({"space": "grid_search", "values": [3, 5]}, {3, 5}),
    ],
)
def test_whole_numbers_steps_and_categories(written, values):
    found = drawn(**written)
    if values is None:
        assert {str(each) for each in found} == {str(each) for each in written["categories"]}
        return
    assert set(found) == values
    if written["space"].endswith("int"):
        assert {type(each) for each in found} == {int}


@pytest.mark.parametrize(
    "written",
    [
        {"space": "lograndint", "upper": 1001},
        {"space": "qlograndint", "upper": 1000, "q": 1},
        {"space": "qloguniform", "upper": 1000, "q": 1},
    ],
    ids=str,
)
def test_a_logarithm_favours_the_small(written):
    found = drawn(lower=1, **written)
    assert 0.4 < sum(each <= 31 for each in found) / DRAWS < 0.6


@pytest.mark.parametrize("name", ["randn", "normal"])
def test_normals(name):
    found = drawn(space=name, mean=2.0, sd=0.5)
    assert statistics.fmean(found) == pytest.approx(2.0, abs=0.05)
    assert statistics.stdev(found) == pytest.approx(0.5, rel=0.05)
    assert all(
        each == round(each * 4) / 4 for each in drawn(space="qrandn", mean=2.0, sd=0.5, q=0.25)
    )


def test_the_ends_of_a_normals_quantiles_are_numbers():
    space = one(space="randn", mean=1.0, sd=2.0)
    least, most = (space.value(space.draw(u)) for u in (0.0, 1.0))
    assert least == pytest.approx(1 - 2 * 4.753, rel=1e-3)
    assert most == pytest.approx(1 + 2 * 4.753, rel=1e-3)
    assert [value for _, value in space.extremes()] == pytest.approx([-5.0, 7.0])


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"space": "uniform", "lower": 2, "upper": 2}, "upper .2. should be larger than lower"),
        ({"space": "loguniform", "lower": 0, "upper": 1}, "greater than 0"),
        ({"space": "lograndint", "lower": 0, "upper": 9}, "larger than 0"),
        (
            {"space": "quniform", "lower": 0, "upper": 1, "q": 0.3},
            r"upper .1. should be a multiple of q .0\.3",
        ),
        ({"space": "choice", "categories": []}, "at least 1"),
        ({"space": "uniform", "lower": 0}, "upper"),
        ({"space": "randint", "lower": 1, "upper": 3, "q": 2}, "q"),
    ],
)
def test_a_space_that_makes_no_sense_is_refused(written, message):
    with pytest.raises(ValidationError, match=message):
        one(**written)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ({"space": "uniform", "lower": 0, "upper": 1}, 0.25),
        ({"space": "uniform", "lower": 0.5, "upper": 1}, 0.5),
        ({"space": "uniform", "lower": 0, "upper": 0.5}, 0.5),
        ({"space": "randint", "lower": 1, "upper": 4}, 3),
        ({"space": "choice", "categories": [{"type": "a"}, {"type": "b"}]}, {"type": "b"}),
        ({"space": "grid_search", "values": ["a", "b"]}, "b"),
        ({"space": "randn", "mean": 1, "sd": 2}, 0.5),
    ],
)
def test_a_value_has_its_raw_value(written, value):
    space = one(**written)
    assert space.value(space.raw(value)) == pytest.approx(value)


def test_a_whole_number_that_is_written_with_a_point_is_one():
    """The config took no 3.0 where it takes a 3."""
    space = one(space="randint", lower=1, upper=4)
    assert repr(space.value(space.raw(3.0))) == "3"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ({"space": "uniform", "lower": 0, "upper": 1}, 1.5),
        ({"space": "randint", "lower": 1, "upper": 4}, 4),
        ({"space": "choice", "categories": ["a"]}, "b"),
        ({"space": "randn"}, "many"),
    ],
)
def test_a_value_that_the_space_has_not_is_refused(written, value):
    with pytest.raises(ValueError, match=r"should be|none of"):
        one(**written).raw(value)


# ------------------------------------------------------------------ variants

SPACES = parse_spaces(
    {
        "a": {"space": "grid_search", "values": ["x", "y"]},
        "b": {"space": "grid_search", "values": [1, 2, 3]},
        "c": {"space": "uniform", "lower": 0, "upper": 1},
    }
)
AXES = {name: space.axis() for name, space in SPACES.items()}


def test_the_grid_is_tried_whole_as_often_as_samples_are_asked():
    found = variants(AXES, 2, seed=1)
    pairs = [(raw["a"], raw["b"]) for raw in found]
    assert pairs == [(a, b) for a in (0, 1) for b in (0, 1, 2)] * 2
    assert len({raw["c"] for raw in found}) == 12


def test_what_is_drawn_may_be_constant_over_the_grid():
    assert len({raw["c"] for raw in variants(AXES, 2, seed=1, constant=True)}) == 2


def test_variants_are_the_same_for_the_same_seed_and_points_come_first():
    assert variants(AXES, 3, seed=1) == variants(AXES, 3, seed=1)
    assert variants(AXES, 3, seed=1)[0]["c"] != variants(AXES, 3, seed=2)[0]["c"]
    found = variants(AXES, 2, seed=1, points=({"a": 1, "c": 0.5},))
    assert [(raw["a"], raw["c"]) for raw in found[:3]] == [(1, 0.5)] * 3
    assert values_of(SPACES, found[0]) == {"a": "y", "b": 1, "c": 0.5}
