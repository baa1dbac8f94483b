"""The quality suite on two datasets: it runs, `init` is not far behind, and its page is what its
results say."""

import json
from pathlib import Path

import pytest
from bench.quality import table
from bench.quality.datasets import SUITE
from bench.quality.methods import reached
from bench.quality.run import RESULTS, measured

ROOT = Path(__file__).parents[1]


def named(name):
    return next(each for each in SUITE if each.name == name)


@pytest.mark.system
@pytest.mark.parametrize(("name", "most"), [("iris", 10.0), ("diabetes", 10.0)])
def test_init_is_not_far_behind_lightgbm(name, most):
    results = {
        method: {"seeds": reached(named(name), method, 1, 1000)} for method in ("lightgbm", "init")
    }
    assert table.distance(named(name), results, "init") < most


@pytest.mark.system
def test_a_process_tells_scores_seconds_and_memory():
    found = measured(named("iris"), "sklearn", 1, 1000)
    assert 0.8 < found["seeds"][0]["score"] <= 1.0
    assert found["seeds"][0]["cpu_seconds"] >= 0
    assert found["peak_mb"] > 10


def test_a_method_that_fails_is_told_and_stops_nothing():
    found = measured(named("iris"), "nothing", 1, 1000)
    assert found == {"error": "KeyError: 'nothing'"}
    results = {
        "iris": {
            "init": found,
            "lightgbm": {"seeds": [{"score": 0.9, "cpu_seconds": 1.0}], "peak_mb": 9},
        }
    }
    page = table.page({"rows": 100, "seeds": 1, "datasets": results})
    assert (
        "| iris (scikit-learn) | accuracy | 0.900 (1.0 s, 9 MB) | not run | not run | failed |  |"
        in page
    )


def test_the_page_is_what_the_results_say():
    assert (ROOT / "docs" / "quality.md").read_text(encoding="utf-8") == table.page(
        json.loads(RESULTS.read_text())
    )


def test_there_are_at_least_twelve_datasets_of_packages():
    assert len({each.name for each in SUITE}) == len(SUITE) >= 12
