"""What results show of themselves in a notebook: a headline, curves, a confusion matrix; and
figures to ask for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from distcore_core.contracts import JSON
from distcore_core.errors import UserError
from distcore_data import charts
from distcore_data.figures import number, partly_scored
from distcore_data.printable import printable
from distcore_data.run_files import SUMMARY, TEST_DIAGNOSTICS

if TYPE_CHECKING:
    from distcore_data.artifact import Artifact

KINDS = ("curves", "confusion", "importance", "residuals")

MOST_CLASSES = 100
"""Of more, a notebook shows no confusion matrix of its own: a thousand have a million cells."""

MOST_TRIALS = 20
"""Of a search, a notebook shows the best ones; `trials` has them all."""

COLOURS = ("#2563eb", "#ea7317", "#0f9d6c", "#b0308f", "#7a5af0", "#0891b2", "#b45309", "#be123c")
SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
STYLE = (
    "<style>.distcore svg text{font-size:11px;fill:currentColor;opacity:.75}.distcore svg "
    ".grid{stroke:#8884}.distcore svg polyline{fill:none;stroke-width:1.8}.distcore svg "
    "rect{fill:var(--c0)}.distcore .row{display:flex;flex-wrap:wrap;gap:1rem}.distcore "
    "figure{margin:0;width:400px;max-width:100%}.distcore figcaption{font-weight:600}.distcore "
    ".legend span{margin-right:1rem;font-size:.85rem}.distcore .legend "
    "i{display:inline-block;width:10px;height:10px;margin-right:5px}.distcore .heat "
    "td{background:rgba(37,99,235,calc(var(--share)*.45))}.distcore{"
    + "".join(f"--c{number}:{colour};" for number, colour in enumerate(COLOURS))
    + "}</style>"
)


class Outcome(Protocol):
    """What is shown: the part of `distcore.Outcome` that figures are made of."""

    @property
    def directory(self) -> Path | str: ...

    @property
    def training_statistics(self) -> JSON: ...

    @property
    def report(self) -> Path | str | None: ...


@dataclass(frozen=True)
class Figure:
    """A drawing: `spec` is Vega-Lite 5 as a dict (`altair.Chart.from_dict` takes it), `html` our
    own."""

    spec: JSON
    html: str

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {printable(self.spec['title'])}>"

    def _repr_html_(self) -> str:
        return f'<div class="distcore">{STYLE}{self.html}</div>'


def figure(outcome: Outcome, kind: str, metric: str | None) -> Figure:
    """The figure `kind` of KINDS of a run. Raises UserError if there is no such figure."""
    if kind == "curves":
        return _curves(outcome, metric)
    if kind not in KINDS:
        raise UserError(f"There is no figure {kind!r}. Figures: {', '.join(KINDS)}.")
    if isinstance(outcome.directory, Path) and not outcome.directory.is_dir():
        raise UserError(
            f"{outcome.directory}: there is no such folder in {Path.cwd()}. Go back to the folder "
            "that the run was started in (os.chdir), or bring its results back."
        )
    found = next(iter(_figures(outcome, kind)), None)
    if found is None:
        raise UserError(
            f"{outcome.directory} has nothing for a figure {kind!r}: `experiment` leaves most of "
            "them."
        )
    return found


def html_of(outcome: Outcome) -> str:
    """Headline, curves and confusion matrix of a run."""
    said = (headline(outcome), scores_note(outcome))
    parts = [*(f"<p>{escape(each)}</p>" for each in said if each), '<div class="row">']
    try:
        parts.append(_curves(outcome, "loss").html)
        watched = _summary(outcome).get("best", {}).get("metric")
        parts += [_curves(outcome, watched).html] if watched not in (None, "loss") else []
    except UserError:
        pass
    parts += [each.html for each in _figures(outcome, "confusion")]
    return "".join(
        [
            f'<div class="distcore">{STYLE}',
            *parts,
            f"</div><p>{escape(str(outcome.report or ''))}</p></div>",
        ]
    )


def headline(outcome: Outcome) -> str:
    """A line: `accuracy of species 0.948718 (training 0.991701, validation 0.960526, 0.333333
    without inputs), best evaluation 2 of 7; results/experiment_run`."""
    summary = _summary(outcome)
    found, best, parts = summary.get("headline"), summary.get("best", {}), []
    if found and found["value"] is not None:
        splits = summary["scores"].get(found["target"], {}).get(found["metric"], {})
        beside = [
            f"{split} {number(splits[split], 6)}"
            for split in ("training", "validation")
            if splits.get(split) is not None
        ]
        if found["baseline"] is not None:
            beside.append(f"{number(found['baseline'], 6)} without inputs")
        parts.append(
            f"{found['metric']} of {printable(found['target'])} {number(found['value'], 6)}"
            + (f" ({', '.join(beside)})" if beside else "")
        )
    if best.get("evaluation"):
        what = summary.get("counted", "evaluation")
        parts.append(f"best {what} {best['evaluation']} of {summary['evaluations']}")
    return f"{', '.join(parts)}; {outcome.directory}" if parts else str(outcome.directory)


def html_of_model(model: Artifact) -> str:
    """What a model reads and predicts, and how well it did when it was trained."""
    rows = [(each["role"], each["name"], each["type"]) for each in model.manifest["features"]]
    best = model.manifest.get("extra", {}).get("best", {})
    value = best.get("value")
    said = (
        ""
        if value is None
        else f"<p>{escape(best['feature'])}: {escape(best['metric'])} {number(value, 6)}</p>"
    )
    return f"<div>{said}{charts.html_table(rows, ('role', 'feature', 'type'))}</div>"


def html_of_search(directory: Path, table: Sequence[Sequence[str]]) -> str:
    """The best trials of a search. table: its head, and a row a trial, best first."""
    kept, more = table[: MOST_TRIALS + 1], len(table) - 1 - MOST_TRIALS
    rows = charts.html_table(kept[1:], kept[0])
    said = f"; {more} more in its trials" if more > 0 else ""
    return f"<div><p>{escape(f'{directory}{said}')}</p>{rows}</div>"


# ------------------------------------------------------------------ figures


def _curves(outcome: Outcome, metric: str | None) -> Figure:
    """A metric by evaluation, a line a split; without one named, the one that picked the best
    round."""
    statistics = outcome.training_statistics
    best = _summary(outcome).get("best", {})
    wanted = metric or best.get("metric") or "loss"
    outputs = {
        output for each in statistics.values() for output, found in each.items() if wanted in found
    }
    if not outputs:
        known = sorted(
            {name for each in statistics.values() for found in each.values() for name in found}
        )
        raise UserError(f"No evaluation has a metric {wanted!r}. Metrics: {', '.join(known)}.")
    output = best.get("feature") if best.get("feature") in outputs else sorted(outputs)[0]
    series = {
        split: charts.by_round(each.get(output, {}).get(wanted, []))
        for split, each in statistics.items()
    }
    title = f"{output}: {wanted}"
    rows = [
        {"evaluation": x, wanted: y, "split": split}
        for split, each in series.items()
        for x, y in each
    ]
    encoding = {
        "x": {"field": "evaluation", "type": "quantitative"},
        "y": {"field": wanted, "type": "quantitative", "scale": {"zero": False}},
        "color": {"field": "split", "type": "nominal"},
    }
    return Figure(
        _spec(title, {"type": "line", "point": True}, rows, encoding),
        charts.lines(series, "evaluation", title),
    )


def _figures(outcome: Outcome, kind: str) -> Iterator[Figure]:
    if kind == "importance":
        found = _summary(outcome).get("importance")
        if found and "left_out" in found:
            raise UserError(found["left_out"])
        if found:
            yield _bars(found["inputs"])
        return
    for output, each in _read(outcome, TEST_DIAGNOSTICS).items():
        if kind == "confusion" and "labels" in each:
            yield _confusion(f"Confusion matrix of {output}", each)
        if kind == "residuals" and "residuals" in each:
            edges, counts = each["residuals"]["edges"], each["residuals"]["counts"]
            rows = [
                {"from": low, "to": high, "rows": count}
                for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
            ]
            encoding = {
                "x": {
                    "field": "from",
                    "type": "quantitative",
                    "bin": "binned",
                    "title": "prediction − truth",
                },
                "x2": {"field": "to"},
                "y": {"field": "rows", "type": "quantitative"},
            }
            title = f"Residuals of {output}"
            yield Figure(
                _spec(title, "bar", rows, encoding),
                charts.bars(edges, counts, "prediction − truth", title),
            )


def _confusion(title: str, found: JSON) -> Figure:
    labels, counts = found["labels"], found.get("confusion")
    if counts is not None:
        cells = [
            (truth, told, count)
            for truth, row in enumerate(counts)
            for told, count in enumerate(row)
        ]
    else:  # of many classes, those that were met
        met = found["confusion_cells"]
        cells = list(zip(met["truth"], met["predicted"], met["rows"], strict=True))
    rows = [
        {"truth": labels[truth], "predicted": labels[told], "rows": count}
        for truth, told, count in cells
    ]
    encoding = {
        "x": {"field": "predicted", "type": "nominal"},
        "y": {"field": "truth", "type": "nominal"},
        "color": {"field": "rows", "type": "quantitative"},
    }
    html = (
        charts.no_heat_table(len(labels))
        if counts is None or len(labels) > MOST_CLASSES
        else charts.heat_table(labels, counts, title)
    )
    return Figure(_spec(title, "rect", rows, encoding), html)


def _bars(inputs: Sequence[Mapping[str, Any]]) -> Figure:
    encoding = {
        "x": {"field": "worse_by", "type": "quantitative"},
        "y": {"field": "input", "type": "nominal", "sort": "-x"},
    }
    rows = [(each["input"], number(each["worse_by"])) for each in inputs]
    title = "What the inputs are worth"
    html = charts.html_table(rows, ("input", "metric worse by"))
    return Figure(_spec(title, "bar", [dict(each) for each in inputs], encoding), html)


def _spec(title: str, mark: Any, rows: list[JSON], encoding: JSON) -> JSON:
    return {
        "$schema": SCHEMA,
        "title": title,
        "data": {"values": rows},
        "mark": mark,
        "encoding": encoding,
    }


def split_scores(outcome: Outcome) -> JSON:
    """{output feature: {metric: {split: number}}} of the model that is kept; {} if the run has no
    summary."""
    found: JSON = _summary(outcome).get("scores", {})
    return found


def scores_note(outcome: Outcome) -> str:
    """Of how many rows they are, if not of all."""
    return partly_scored(_summary(outcome))


def _summary(outcome: Outcome) -> JSON:
    return _read(outcome, SUMMARY)


def _read(outcome: Outcome, name: str) -> JSON:
    """A file of the run's folder; {} if it is in a bucket, or is not there."""
    try:
        found = json.loads(Path(outcome.directory, name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
