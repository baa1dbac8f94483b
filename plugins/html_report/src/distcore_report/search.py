"""The report of a search: score by trial, by parameter and by round, and the table of trials."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from distcore_core.contracts import JSON
from distcore_data import charts
from distcore_data.figures import number, parameter, several

MAX_CURVES = len(charts.COLOURS)
"""So many trials' rounds are drawn, the best ones; more lines cannot be told apart."""


def sections(statistics: JSON) -> Iterator[str]:
    """The parts of the report of hyperopt_statistics.json."""
    objective, trials = statistics["objective"], statistics["hyperopt_results"]
    what = _what(objective, objective["split"])
    count = several(len(trials), "trial")
    yield f'<p class="soft">{escape(objective["goal"])} {escape(what)}; {count}</p>'
    scored = [each for each in trials if each["metric_score"] is not None]
    if scored:
        yield '<h2>Trials</h2><div class="row">'
        yield _progress(scored, objective, what)
        yield from _parameters(scored, what)
        yield _curves(scored, objective)
        yield "</div>"
    yield _table(trials, objective)
    yield (
        "<h2>The "
        f"search</h2><pre>{escape(json.dumps(statistics['hyperopt_config'], indent=2))}</pre>"
    )


def _what(objective: JSON, split: str) -> str:
    return f"{objective['metric']} of {objective['feature']} ({split} split)"


def _progress(trials: Sequence[JSON], objective: JSON, what: str) -> str:
    """Each trial's score in the order they were begun, and the best so far."""
    pick = max if objective["goal"] == "maximize" else min
    begun = sorted(trials, key=lambda each: each["trial"])
    points = [(float(number + 1), float(each["metric_score"])) for number, each in enumerate(begun)]
    best = [
        (x, pick(value for _, value in points[: index + 1])) for index, (x, _) in enumerate(points)
    ]
    return charts.scatter({"trial": points}, "trial", what, line=best, line_name="best so far")


def _parameters(trials: Sequence[JSON], what: str) -> Iterator[str]:
    """Score over the value of each parameter that is a number in every trial."""
    for name in trials[0]["parameters"]:
        values = [each["parameters"].get(name) for each in trials]
        if len(set(map(str, values))) > 1 and all(_is_number(value) for value in values):
            points = [
                (float(value), float(each["metric_score"]))
                for value, each in zip(values, trials, strict=True)
            ]
            yield charts.scatter({"trial": points}, name, what)


def _curves(trials: Sequence[JSON], objective: JSON) -> str:
    """The rounds of the best trials. Those of the test split are of the validation split: it is
    scored once."""
    split = "validation" if objective["split"] == "test" else objective["split"]
    series = {}
    for each in trials[:MAX_CURVES]:
        values = (
            each["training_stats"]
            .get(split, {})
            .get(objective["feature"], {})
            .get(objective["metric"], [])
        )
        points = charts.by_round(values)
        if points:
            series[each["trial"]] = points
    title = _what(objective, split)
    if len(trials) > MAX_CURVES:
        title += f", the best {MAX_CURVES} of {len(trials):,} trials"
    return charts.lines(series, "evaluation", title) if series else ""


def _table(trials: Sequence[JSON], objective: JSON) -> str:
    names = list(dict.fromkeys(name for each in trials for name in each["parameters"]))
    head = ("trial", "state", objective["metric"], "rounds", "seconds", *names)
    rows = [
        (
            each["trial"],
            f"{each['state']}: {each['error']}" if each.get("error") else each["state"],
            "–" if each["metric_score"] is None else number(each["metric_score"], 6),
            "–" if each["rounds"] is None else str(each["rounds"]),
            "–" if each["seconds"] is None else f"{each['seconds']:.1f}",
            *(parameter(each["parameters"].get(name)) for name in names),
        )
        for each in trials
    ]
    return charts.html_table(rows, head)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
