"""ROC and precision-recall curves of two classes, and what each threshold on the probability
would give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from distcore_core.contracts import JSON
from distcore_data import charts

STEPS = 20
"""Thresholds of the table: every STEPSth of those that were counted, and the one with the best
F1."""


class Choice(NamedTuple):
    """What comes of calling rows with at least this probability the second class."""

    threshold: float
    precision: float | None
    recall: float
    false_positives: float
    f1: float
    accuracy: float


def choices(counts: JSON) -> list[Choice]:
    """One for each bin of probability. counts: {"negatives", "positives"}: rows of each class by
    bin, ascending."""
    negatives, positives = counts["negatives"], counts["positives"]
    bins, rows = len(positives), sum(positives) + sum(negatives)
    truth, found, wrong = sum(positives), 0, 0
    result = []
    for at in range(bins - 1, -1, -1):
        found, wrong = found + positives[at], wrong + negatives[at]
        told = found + wrong
        result.append(
            Choice(
                at / bins,
                found / told if told else None,
                found / truth if truth else 0.0,
                wrong / (rows - truth) if rows > truth else 0.0,
                2 * found / (truth + told) if truth + told else 0.0,
                (found + rows - truth - wrong) / rows if rows else 0.0,
            )
        )
    return result[::-1]


def drawn(counts: JSON, labels: Sequence[str]) -> Iterator[str]:
    """Both curves and the table."""
    found = choices(counts)
    roc = _thinned([(0.0, 0.0), *((each.false_positives, each.recall) for each in reversed(found))])
    yield charts.lines(
        {"model": roc, "chance": [(0.0, 0.0), (1.0, 1.0)]}, "false positives", "ROC", "recall"
    )
    pr = _thinned([(each.recall, each.precision) for each in found if each.precision is not None])
    yield charts.lines({"model": pr}, "recall", "Precision and recall", "precision")
    best = max(found, key=lambda each: each.f1)
    shown = [each for at, each in enumerate(found) if (at % STEPS == 0 and at) or each is best]
    rows = [
        [
            f"{each.threshold:.3f}{' (best F1)' if each is best else ''}",
            "–" if each.precision is None else f"{each.precision:.3f}",
            *(f"{value:.3f}" for value in (each.recall, each.f1, each.accuracy)),
        ]
        for each in shown
    ]
    head = ["threshold", "precision", "recall", "F1", "accuracy"]
    title = f"From which probability on to say {escape(labels[-1])}"
    yield f"<figure><figcaption>{title}</figcaption>{charts.html_table(rows, head)}</figure>"


def _thinned(points: Sequence[charts.Point]) -> list[charts.Point]:
    """Each point once."""
    return list(dict.fromkeys(points))
