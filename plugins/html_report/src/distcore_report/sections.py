"""The built-in sections of a report: what a run was, its scores, its curves, and what it found on the test split."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from distcore_core.contracts import JSON
from distcore_data import charts
from distcore_report import search

MAX_CLASSES = 30
"""A confusion matrix of more classes is a file to load, not a table to read."""


@dataclass(frozen=True)
class Section:
    """A section that a function draws."""

    file: str
    order: int
    draw: Callable[[JSON], Iterator[str]]


def _summary(description: JSON) -> Iterator[str]:
    rows = description["data"].get("rows", {})
    counts = ", ".join(f"{count:,} {split}" for split, count in rows.items())
    backend = description["backend"]
    yield (
        f'<p class="soft">{escape(description["command"])} on backend {escape(backend["name"])} '
        f"({escape(backend['reason'])}); rows: {escape(counts)}; seed {description['random_seed']}.</p>"
    )


def _scores(test: JSON) -> Iterator[str]:
    if not test:
        return
    yield "<h2>Test split</h2>"
    for output, metrics in test.items():
        rows = "".join(
            f"<tr><th>{escape(name)}</th><td>{'–' if value is None else charts.number(value, 6)}</td></tr>"
            for name, value in metrics.items()
            if not isinstance(value, dict | list)
        )
        yield f"<h3>{escape(output)}</h3><table>{rows}</table>"


def _curves(training: JSON) -> Iterator[str]:
    """One chart for each output and metric, with a line for each split, of one colour in every chart."""
    figures: dict[tuple[str, str], dict[str, list[charts.Point]]] = {}
    for split, outputs in training.items():
        if not isinstance(outputs, Mapping):
            continue
        for output, metrics in outputs.items():
            for metric, values in metrics.items():
                points = [(float(at + 1), float(value)) for at, value in enumerate(values) if value is not None]
                if points:
                    figures.setdefault((output, metric), {each: [] for each in training})[split] = points
    if figures:
        yield '<h2>Learning curves</h2><div class="row">'
        for (output, metric), series in figures.items():
            yield charts.lines(series, "evaluation", f"{output}: {metric}")
        yield "</div>"


def _diagnostics(diagnostics: JSON) -> Iterator[str]:
    for output, each in diagnostics.items():
        yield f'<h2>{escape(output)} on the test split</h2><div class="row">'
        if "confusion" in each:
            if len(each["labels"]) <= MAX_CLASSES:
                yield charts.heat_table(each["labels"], each["confusion"], "Confusion matrix")
            else:
                yield f"<p>{len(each['labels'])} classes: the confusion matrix is in test_diagnostics.json.</p>"
        if "calibration" in each:
            bins = each["calibration"]
            yield charts.calibration(bins["expected"], bins["observed"], bins["counts"], "Calibration")
        if "residuals" in each:
            yield charts.bars(
                each["residuals"]["edges"], each["residuals"]["counts"], "prediction − truth", "Residuals"
            )
        yield "</div>"


def _description(description: JSON) -> Iterator[str]:
    plugins = "".join(
        f"<tr><td>{escape(each['kind'])}</td><td>{escape(each['name'])}</td>"
        f"<td>{escape(each['distribution'])} {escape(each['version'])}</td></tr>"
        for each in description["plugins"]
    )
    environment = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
        for name, value in description["environment"].items()
    )
    yield f"<h2>Plugins</h2><table>{plugins}</table><h2>Environment</h2><table>{environment}</table>"
    yield f"<h2>Data</h2><pre>{_text(description['data'])}</pre>"
    yield f"<h2>Resolved config</h2><pre>{_text(description['config'])}</pre>"


def _text(value: Any) -> str:
    return escape(json.dumps(value, indent=2))


SECTIONS: Mapping[str, Section] = {
    "search": Section(search.STATISTICS, 0, search.sections),
    "summary": Section("description.json", 10, _summary),
    "scores": Section("test_statistics.json", 20, _scores),
    "curves": Section("training_statistics.json", 30, _curves),
    "diagnostics": Section("test_diagnostics.json", 40, _diagnostics),
    "description": Section("description.json", 90, _description),
}
