"""Small SVG charts: text in, text out, nothing to load, so that one HTML file is enough.

A chart library would draw these too, but costs half a second to import (matplotlib) or megabytes of
script in every report (plotly); a run that takes four seconds should not wait for its picture.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise

from distcore_data.figures import number
from distcore_data.printable import printable

WIDTH, HEIGHT = 420, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 10, 34
MOST_POINTS = 4 * (WIDTH - LEFT - RIGHT)
"""Of a line: four in each column of pixels. With 20,000 rounds a report was 12 MB of dots."""

SHORT = 8
"""Characters of a label that the margins have room for."""

COLOURS = tuple(f"var(--c{number})" for number in range(8))
Point = tuple[float, float]


class Frame:
    """Maps data to the drawing area; draws axes with round ticks. x and y: (lowest, highest) of
    the data."""

    def __init__(self, x: Point, y: Point, x_label: str, y_label: str = "") -> None:
        self.x_ticks = ticks(*x)
        self.y_ticks = ticks(*y)
        self.x = (min(x[0], self.x_ticks[0]), max(x[1], self.x_ticks[-1]))
        self.y = (min(y[0], self.y_ticks[0]), max(y[1], self.y_ticks[-1]))
        self.labels = (x_label, y_label)
        self.x_labels, self.y_labels = _labels(self.x_ticks), _labels(self.y_ticks)
        self.left = LEFT + 6 * max(0, max(map(len, self.y_labels)) - SHORT + 2 * bool(y_label))

    def at(self, x: float, y: float) -> Point:
        """Pixel position of a data point."""
        across = (x - self.x[0]) / ((self.x[1] - self.x[0]) or 1)
        up = (y - self.y[0]) / ((self.y[1] - self.y[0]) or 1)
        return self.left + across * (WIDTH - self.left - RIGHT), HEIGHT - BOTTOM - up * (
            HEIGHT - TOP - BOTTOM
        )

    def svg(self, marks: Sequence[str], title: str) -> str:
        """The whole chart: grid, axes, then the marks."""
        parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">']
        left, right = self.left, WIDTH - RIGHT
        for value, label in zip(self.y_ticks, self.y_labels, strict=True):
            y = self.at(self.x[0], value)[1]
            parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
        # Of long labels not all stand beside one another.
        every = 2 if max(map(len, self.x_labels)) > SHORT else 1
        for value, label in list(zip(self.x_ticks, self.x_labels, strict=True))[::every]:
            x = self.at(value, self.y[0])[0]
            parts.append(
                f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{label}</text>'
            )
        middle = (left + right) / 2
        parts.append(
            f'<text x="{middle}" y="{HEIGHT - 4}" '
            f'text-anchor="middle">{escape(self.labels[0])}</text>'
        )
        if self.labels[1]:
            parts.append(
                f'<text transform="translate(12,{HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
                f"{escape(self.labels[1])}</text>"
            )
        return "".join([*parts, *marks, "</svg>"])


def by_round(values: Sequence[float | None]) -> list[Point]:
    """The points of a curve: a value a round, from 1; None where a round has none."""
    return [(float(at + 1), float(value)) for at, value in enumerate(values) if value is not None]


def lines(
    series: Mapping[str, Sequence[Point]], x_label: str, title: str, y_label: str = ""
) -> str:
    """One line with dots a series, each point with its value on hover; a legend below. A series
    without points keeps its colour.

    series: by x. Of one with more than MOST_POINTS the chart has what can be told apart."""
    points = [point for each in series.values() for point in each if math.isfinite(point[1])]
    if not points:
        return ""
    frame = Frame(_range(x for x, _ in points), _range(y for _, y in points), x_label, y_label)
    marks, legend = [], []
    for colour, (name, each) in zip(_colours(len(series)), series.items(), strict=True):
        finite = [point for point in each if math.isfinite(point[1])]
        if not finite:
            continue
        finite = _thinned(frame, finite)
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (frame.at(*point) for point in finite))
        marks.append(f'<polyline points="{path}" style="stroke:{colour}"/>')
        for point in finite:
            marks.append(_dot(frame, name, point, colour, 2.5))
        legend.append(f'<span><i style="background:{colour}"></i>{escape(name)}</span>')
    key = f'<div class="legend">{"".join(legend)}</div>'
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>{frame.svg(marks, title)}{key}</figure>"
    )


def _thinned(frame: Frame, points: list[Point]) -> list[Point]:
    """The points, or of more than MOST_POINTS the first, the last, the lowest and the highest in
    each column of pixels: they give the line of all."""
    if len(points) <= MOST_POINTS:
        return points
    columns: dict[int, list[Point]] = {}
    for point in points:
        columns.setdefault(int(frame.at(*point)[0]), []).append(point)
    kept = []
    for each in columns.values():
        heights = [y for _, y in each]
        places = {0, heights.index(min(heights)), heights.index(max(heights)), len(each) - 1}
        kept += [each[place] for place in sorted(places)]
    return kept


def _dot(frame: Frame, name: str, point: Point, colour: str, radius: float) -> str:
    """A point of a series, with its value on hover."""
    x, y = frame.at(*point)
    hover = f"{escape(name)}: {number(point[1], 6)} at {number(point[0])}"
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" '
        f'style="fill:{colour}"><title>{hover}</title></circle>'
    )


def scatter(
    series: Mapping[str, Sequence[Point]],
    x_label: str,
    title: str,
    line: Sequence[Point] = (),
    line_name: str = "",
) -> str:
    """Dots without lines between them, each with its value on hover; line: one drawn through
    them."""
    points = [point for each in (*series.values(), line) for point in each]
    if not points:
        return ""
    frame = Frame(_range(x for x, _ in points), _range(y for _, y in points), x_label)
    marks = []
    if line:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (frame.at(*point) for point in line))
        marks.append(
            f'<polyline points="{path}" '
            f'style="stroke:{COLOURS[1]}"><title>{escape(line_name)}</title></polyline>'
        )
    for colour, (name, each) in zip(_colours(len(series)), series.items(), strict=True):
        for point in each:
            marks.append(_dot(frame, name, point, colour, 3.5))
    key = (
        '<div class="legend"><span><i '
        f'style="background:{COLOURS[1]}"></i>{escape(line_name)}</span></div>'
    )
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>{frame.svg(marks, title)}"
        f"{key if line else ''}</figure>"
    )


def bars(edges: Sequence[float], counts: Sequence[float], x_label: str, title: str) -> str:
    """A histogram: counts[i] between edges[i] and edges[i + 1]."""
    frame = Frame((edges[0], edges[-1]), (0.0, max([*counts, 1])), x_label, "rows")
    marks = []
    told = [*pairwise(_labels(edges))]
    for (left, right), (low, high), count in zip(pairwise(edges), told, counts, strict=True):
        (x0, y0), (x1, y1) = frame.at(left, 0), frame.at(right, count)
        hover = f"{low} to {high}: {count:,} rows"
        marks.append(
            f'<rect x="{x0:.1f}" y="{y1:.1f}" width="{max(x1 - x0 - 1, 0.5):.1f}" '
            f'height="{max(y0 - y1, 0):.1f}">'
            f"<title>{hover}</title></rect>"
        )
    return f"<figure><figcaption>{escape(title)}</figcaption>{frame.svg(marks, title)}</figure>"


def calibration(
    expected: Sequence[float], observed: Sequence[float], counts: Sequence[int], title: str
) -> str:
    """Observed frequency over predicted probability, beside the diagonal of a calibrated model."""
    series = {
        "model": [
            point
            for point, count in zip(zip(expected, observed, strict=True), counts, strict=True)
            if count
        ],
        "calibrated": [(0.0, 0.0), (1.0, 1.0)],
    }
    return lines(series, "predicted probability", title, "observed frequency")


def html_table(rows: Iterable[Sequence[str]], head: Sequence[str] = (), named: bool = False) -> str:
    """Cells of text; those that are numbers stand to the right. named: a row begins with its
    name."""
    top = f"<tr>{''.join(_cell(each, True) for each in head)}</tr>" if head else ""
    body = "".join(
        f"<tr>{''.join(_cell(each, named and not at) for at, each in enumerate(row))}</tr>"
        for row in rows
    )
    return f'<div class="wide"><table>{top}{body}</table></div>'


def _cell(text: str, is_name: bool) -> str:
    text = printable(text, keep="\n")
    if is_name:
        return f"<th>{escape(text)}</th>"
    right = text[:1].isdigit() or text == "–" or (text[:1] == "-" and text[1:2].isdigit())
    return f"<td{' class=number' if right else ''}>{escape(text)}</td>"


def heat_table(labels: Sequence[str], counts: Sequence[Sequence[int]], title: str) -> str:
    """A confusion matrix: rows are truth, columns are predictions, shaded by the share of the
    row."""
    head = "".join(f"<th>{escape(label)}</th>" for label in labels)
    body = []
    for label, row in zip(labels, counts, strict=True):
        total = sum(row) or 1
        cells = "".join(
            f'<td style="--share:{count / total:.3f}" title="{count / total:.1%} of '
            f'{escape(label)}">{count:,}</td>'
            for count in row
        )
        body.append(f"<tr><th>{escape(label)}</th>{cells}</tr>")
    return (
        f"<figure><figcaption>{escape(title)} (rows: truth, columns: predicted)</figcaption>"
        f'<table class="heat"><tr><th></th>{head}</tr>{"".join(body)}</table></figure>'
    )


def no_heat_table(classes: int) -> str:
    """What stands in place of a confusion matrix that is too large to be looked at."""
    return f"<p>{classes} classes: the confusion matrix is in test_diagnostics.json.</p>"


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers that cover [low, high]: steps of 1, 2 or 5 times a power of ten; one value
    is in the middle."""
    if not high > low:
        around = abs(low) / 2 or 0.5
        low, high = low - around, low + around
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [index * step for index in range(first, last + 1)]


def _labels(values: Sequence[float]) -> list[str]:
    """The numbers of ticks, in as many digits as tell them apart."""
    labels: list[str] = []
    for digits in range(4, 18):
        labels = [number(each, digits) for each in values]
        if len(set(labels)) == len(values):
            break
    return labels


def _range(values: object) -> Point:
    found = list(values)  # type: ignore[call-overload]
    return min(found), max(found)


def _colours(count: int) -> list[str]:
    return [COLOURS[index % len(COLOURS)] for index in range(count)]
