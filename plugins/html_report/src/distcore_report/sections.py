"""The built-in sections of a report: what a run was, its scores, its curves, and what it found
on the test split."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from distcore_core.contracts import JSON
from distcore_core.contracts.values import COMBINED
from distcore_data import charts
from distcore_data.figures import number
from distcore_data.run_files import (
    DESCRIPTION,
    SEARCH_STATISTICS,
    SUMMARY,
    TEST_DIAGNOSTICS,
    TEST_STATISTICS,
    TRAINING_STATISTICS,
)
from distcore_report import search, summary_sections, thresholds
from distcore_report.summary_sections import MOST_COLUMNS

Figures = dict[tuple[str, str], dict[str, list[charts.Point]]]

MAX_CLASSES = 30
"""A confusion matrix of more classes is a file to load, not a table to read; no more stand in the
table of classes."""


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
        f"({escape(backend['reason'])}); rows: {escape(counts)}; seed "
        f"{description['random_seed']:d}.</p>"
    )


def _scores(test: JSON) -> Iterator[str]:
    if not test:
        return
    yield "<h2>Test split</h2>"
    for output, metrics in test.items():
        rows = [
            (name, "–" if value is None else number(value, 6))
            for name, value in metrics.items()
            if not isinstance(value, dict | list)
        ]
        yield f"<h3>{escape(output)}</h3>{charts.html_table(rows, named=True)}"


def _curves(training: JSON) -> Iterator[str]:
    """One chart for each output and metric, with a line for each split, of one colour in every
    chart."""
    figures: Figures = {}
    for split, outputs in training.items():
        if not isinstance(outputs, Mapping):
            continue
        for output, metrics in outputs.items():
            for metric, values in metrics.items():
                points = charts.by_round(values)
                if points:
                    figures.setdefault((output, metric), {each: [] for each in training})[split] = (
                        points
                    )
    if figures:
        yield '<h2>Learning curves</h2><div class="row">'
        for (output, metric), series in _without_combined(figures).items():
            yield charts.lines(series, "evaluation", f"{output}: {metric}")
        yield "</div>"


def _without_combined(figures: Figures) -> Figures:
    """The charts, but of one output not the loss of all if it says again what that one's says."""
    outputs = {output for output, _ in figures} - {COMBINED}
    if len(outputs) != 1:
        return figures
    [only] = outputs
    return {
        (output, metric): series
        for (output, metric), series in figures.items()
        if output != COMBINED or series != figures.get((only, metric))
    }


def _diagnostics(diagnostics: JSON) -> Iterator[str]:
    for output, each in diagnostics.items():
        yield f'<h2>{escape(output)} on the test split</h2><div class="row">'
        if "confusion" in each:
            labels, confusion = in_natural_order(each["labels"], each["confusion"])
            if len(labels) <= MAX_CLASSES:
                yield charts.heat_table(labels, confusion, "Confusion matrix")
            else:
                yield charts.no_heat_table(len(labels))
            yield from _classes(each["labels"], *_of_matrix(each["confusion"]))
        if "confusion_cells" in each:
            yield charts.no_heat_table(len(each["labels"]))
            counts = _of_cells(len(each["labels"]), each["confusion_cells"])
            yield from _classes(each["labels"], *counts)
        if "thresholds" in each:
            yield from thresholds.drawn(each["thresholds"], each["labels"])
        if "calibration" in each:
            bins = each["calibration"]
            yield charts.calibration(
                bins["expected"], bins["observed"], bins["counts"], "Calibration"
            )
        if "pairs" in each:
            ends = [min(map(min, each["pairs"])), max(map(max, each["pairs"]))]
            points = {"row": [(float(truth), float(told)) for truth, told in each["pairs"]]}
            diagonal = [(end, end) for end in ends]
            title = "Predicted against actual"
            if len(each["pairs"]) < sum(each["residuals"]["counts"]):
                title += f", {len(each['pairs']):,} of the rows"
            yield charts.scatter(points, "truth", title, diagonal, "exact")
        if "residuals" in each:
            yield charts.bars(
                each["residuals"]["edges"],
                each["residuals"]["counts"],
                "prediction − truth",
                "Residuals",
            )
        yield "</div>"


def in_natural_order(
    labels: Sequence[str], confusion: Sequence[Sequence[int]]
) -> tuple[list[str], list[list[int]]]:
    """Classes by number if all are numbers, else by name; they come by frequency."""
    order = _natural(labels)
    return [labels[at] for at in order], [
        [confusion[row][column] for column in order] for row in order
    ]


def _natural(labels: Sequence[str]) -> list[int]:
    try:
        return sorted(range(len(labels)), key=lambda at: float(labels[at]))
    except ValueError:
        return sorted(range(len(labels)), key=lambda at: labels[at].lower())


def _of_matrix(confusion: Sequence[Sequence[int]]) -> tuple[list[int], list[int], list[int]]:
    """Of each class: rows that are told rightly, that have it, that are told it."""
    return (
        [row[at] for at, row in enumerate(confusion)],
        [sum(row) for row in confusion],
        [sum(column) for column in zip(*confusion, strict=True)],
    )


def _of_cells(
    classes: int, cells: Mapping[str, Sequence[int]]
) -> tuple[list[int], list[int], list[int]]:
    """The same, from the cells that were met."""
    right, truth, told = [0] * classes, [0] * classes, [0] * classes
    for row, column, count in zip(cells["truth"], cells["predicted"], cells["rows"], strict=True):
        truth[row] += count
        told[column] += count
        right[row] += count * (row == column)
    return right, truth, told


def _classes(
    labels: Sequence[str], rights: Sequence[int], truths: Sequence[int], tolds: Sequence[int]
) -> Iterator[str]:
    """Precision, recall and F1 of each class in natural order, or of more than MAX_CLASSES of those
    with the most rows."""
    order = _natural(labels)
    most = set(sorted(order, key=lambda at: -truths[at])[:MAX_CLASSES])
    title = "Classes"
    if len(labels) > MAX_CLASSES:
        title += f": the {MAX_CLASSES} of {len(labels):,} with the most rows"
    rows = []
    for at in (each for each in order if each in most):
        label, right, truth, told = labels[at], rights[at], truths[at], tolds[at]
        precision, recall = right / told if told else None, right / truth if truth else None
        f1 = 2 * right / (truth + told) if truth + told else None
        shares = ("–" if each is None else f"{each:.3f}" for each in (precision, recall, f1))
        rows.append([label, *shares, f"{truth:,}"])
    shown = charts.html_table(rows, ["class", "precision", "recall", "F1", "rows"])
    yield f"<figure><figcaption>{title}</figcaption>{shown}</figure>"


def _description(description: JSON) -> Iterator[str]:
    plugins = [
        (each["kind"], each["name"], f"{each['distribution']} {each['version']}")
        for each in description["plugins"]
    ]
    environment = [(name, str(value)) for name, value in description["environment"].items()]
    yield f"<h2>Plugins</h2>{charts.html_table(plugins)}"
    yield f"<h2>Environment</h2>{charts.html_table(environment, named=True)}"
    yield f"<h2>Data</h2><pre>{_text(description['data'])}</pre>"
    yield f"<h2>Resolved config</h2><pre>{_text(_shortened(description['config']))}</pre>"


def _shortened(config: JSON) -> JSON:
    """The config with the first of very many input features alone."""
    inputs = config["input_features"]
    more = len(inputs) - MOST_COLUMNS
    if more <= 0:
        return config
    said = f"and {more:,} more, which description.json has"
    return {**config, "input_features": [*inputs[:MOST_COLUMNS], said]}


def _text(value: Any) -> str:
    return escape(json.dumps(value, indent=2))


SECTIONS: Mapping[str, Section] = {
    "search": Section(SEARCH_STATISTICS, 0, search.sections),
    "headline": Section(SUMMARY, 5, summary_sections.headline),
    "summary": Section(DESCRIPTION, 10, _summary),
    "splits": Section(SUMMARY, 20, summary_sections.scores),
    "scores": Section(TEST_STATISTICS, 20, _scores),
    "curves": Section(TRAINING_STATISTICS, 30, _curves),
    "diagnostics": Section(TEST_DIAGNOSTICS, 40, _diagnostics),
    "importance": Section(SUMMARY, 50, summary_sections.importance),
    "worst": Section(SUMMARY, 55, summary_sections.worst),
    "columns": Section(SUMMARY, 60, summary_sections.columns),
    "resources": Section(SUMMARY, 70, summary_sections.resources),
    "yaml": Section(SUMMARY, 80, summary_sections.users_yaml),
    "description": Section(DESCRIPTION, 90, _description),
}
