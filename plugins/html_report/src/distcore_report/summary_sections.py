"""Sections drawn of summary.json: headline, scores side by side, inputs, worst rows, columns,
resources, the YAML."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from distcore_core.contracts import JSON
from distcore_core.contracts.values import COMBINED
from distcore_data.charts import html_table
from distcore_data.figures import duration, human_bytes, number, partly_scored
from distcore_data.run_files import SUMMARY

SPLITS = ("training", "validation", "test")
DRIFTED = 0.2
"""From this distance of two distributions on, a column is marked."""

MOST_COLUMNS = 200
"""Of a wide table, so many columns are shown: a page of all is megabytes that nobody reads."""

ALONE = 0.9
"""Of what all inputs are worth: one that has more may follow from what is predicted."""

FAULTLESS, TOGETHER = 0.02, 3
"""Where the model has less than this share of the loss without inputs, so many may, together."""


def headline(summary: JSON) -> Iterator[str]:
    """Target, main metric beside the baseline with a verdict, the same of training and validation,
    rows, time, best evaluation, backend."""
    found, best = summary.get("headline"), summary.get("best", {})
    cells: list[tuple[str, str, str]] = []
    if found is not None:
        value, baseline = found["value"], found["baseline"]
        cells.append((f"{found['metric']} of {found['target']}", _value(value), _verdict(found)))
        splits = summary["scores"].get(found["target"], {}).get(found["metric"], {})
        beside = [each for each in SPLITS[:2] if splits.get(each) is not None]
        if beside:
            values = " · ".join(_value(splits[each]) for each in beside)
            cells.append((" · ".join(beside), values, "the same of the rows it was made with"))
        cells.append(
            (
                "without inputs",
                _value(baseline),
                "a model that knows the target's distribution alone",
            )
        )
        rows = found["rows"]
        cells.append(
            (
                "rows",
                f"{sum(rows.values()):,}",
                ", ".join(f"{n:,} {split}" for split, n in rows.items()),
            )
        )
    if best.get("evaluation"):
        by = f"of {summary['evaluations']}"
        if best.get("metric") and best.get("value") is not None:
            by += f", by {best['metric']} {_value(best['value'])}"
        cells.append((f"best {summary.get('counted', 'evaluation')}", str(best["evaluation"]), by))
    train = [each for each in summary["stages"] if each["name"] == "train"]
    if train:
        seconds = sum(each["seconds"] for each in train)
        since = ", since it was resumed" if summary.get("resumed") else ""
        cells.append(("training", duration(seconds), f"on backend {summary['backend']}{since}"))
    boxes = "".join(
        f"<div><small>{escape(name)}</small><b>{escape(value)}</b><small>{escape(text)}"
        "</small></div>"
        for name, value, text in cells
    )
    yield f'<div class="headline">{boxes}</div>'


def _verdict(found: JSON) -> str:
    if found["better"] is None:
        return "nothing to compare it with"
    return (
        "better than without inputs"
        if found["better"]
        else "no better than without inputs: do not use this model"
    )


def scores(summary: JSON) -> Iterator[str]:
    """A table for each output: a line a metric, a column a split."""
    outputs = summary["scores"]
    if len(outputs) == 2:
        outputs = {name: metrics for name, metrics in outputs.items() if name != COMBINED}
    yield "<h2>Scores</h2>"
    note = f"Of the model that is kept. {partly_scored(summary)}".rstrip()
    yield f'<p class="soft">{escape(note)}</p><div class="row">'
    for output, metrics in outputs.items():
        splits = [split for split in SPLITS if any(split in each for each in metrics.values())]
        rows = [
            [name, *(_value(each.get(split)) for split in splits)] for name, each in metrics.items()
        ]
        yield f"<div><h3>{escape(output)}</h3>{html_table(rows, ['metric', *splits])}</div>"
    yield "</div>"


def importance(summary: JSON) -> Iterator[str]:
    """Bars: by how much the metric is worse if an input is dealt out anew."""
    found = summary.get("importance")
    if found is None:
        return
    yield "<h2>What the inputs are worth</h2>"
    if "left_out" in found:
        yield f'<p class="soft">{escape(found["left_out"])}</p>'
        return
    yield (
        f'<p class="soft">By how much {escape(found["metric"])} of {found["rows"]:,} test rows is '
        "worse if a column's "
        "values are dealt out anew among them.</p>"
    )
    most = max((abs(each["worse_by"]) for each in found["inputs"]), default=0.0) or 1.0
    rows = "".join(
        f"<tr><th>{escape(each['input'])}</th><td>{number(each['worse_by'])}</td>"
        f'<td class="bar"><i style="width:{max(each["worse_by"], 0.0) / most:.0%}"></i></td></tr>'
        for each in found["inputs"]
    )
    yield f'<div class="wide"><table class="bars">{rows}</table></div>'
    yield from _suspects(summary)


def _suspects(summary: JSON) -> Iterator[str]:
    """Names the inputs that have nearly all the worth, if they are few for it."""
    worths = {each["input"]: max(each["worse_by"], 0.0) for each in summary["importance"]["inputs"]}
    whole, share = sum(worths.values()), 0.0
    names: list[str] = []
    for name in sorted(worths, key=lambda each: -worths[each]):
        if share > ALONE or not worths[name]:
            break
        names.append(name)
        share += worths[name] / whole
    if not names or len(worths) <= 2 * len(names):
        return
    if len(names) == 1:
        yield (
            f"<p>{escape(names[0])} has {share:.0%} of it. Look whether it is "
            "known when predictions are made, and does not follow from what is predicted.</p>"
        )
    elif len(names) <= TOGETHER and _is_faultless(summary.get("headline")):
        said = f"{', '.join(names[:-1])} and {names[-1]}"
        yield (
            f"<p>{escape(said)} have {share:.0%} of it, and hardly a row is wrong. Look whether "
            "they are known when predictions are made, and do not follow from what is predicted."
            "</p>"
        )


def _is_faultless(headline: JSON | None) -> bool:
    if not headline or headline["higher_is_better"] or headline["better"] is None:
        return False
    return bool(headline["value"] < FAULTLESS * headline["baseline"])


def worst(summary: JSON) -> Iterator[str]:
    """The rows that the model is furthest from."""
    found = summary.get("worst")
    if not found:
        return
    yield "<h2>Worst test rows</h2>"
    counted = "Row numbers are those of the dataset, from 0."
    if summary.get("given_sets"):
        counted = "Row numbers count on from set to set: training, validation, test; from 0."
    yield f'<p class="soft">{counted}</p><div class="row">'
    for output, rows in found.items():
        cells = [
            [
                f"{each['row']:,}",
                *map(_told, (each["truth"], each["predicted"])),
                _value(each["error"]),
            ]
            for each in rows
        ]
        shown = html_table(cells, ["row", "truth", "predicted", "error"])
        yield f"<div><h3>{escape(output)}</h3>{shown}</div>"
    yield "</div>"


def columns(summary: JSON) -> Iterator[str]:
    """Each column, its missing share and its drift; of very many, those with most of either."""
    found = summary.get("columns")
    if not found:
        return
    yield "<h2>Data</h2>"
    yield (
        "<p class=\"soft\">Drift: how far a split's values lie from the training split's, from 0 "
        f"(the same) to 1 (nothing in common); {DRIFTED} and more is marked, which few rows reach "
        "by chance.</p>"
    )
    if len(found) > MOST_COLUMNS:
        yield (
            f'<p class="soft">Of {len(found):,} columns, the {MOST_COLUMNS} that drift or miss '
            f"most, outputs first; {SUMMARY} has all.</p>"
        )
        found = sorted(found, key=_to_be_seen, reverse=True)[:MOST_COLUMNS]
    rows = []
    for each in found:
        missing = "–" if each["missing"] is None else f"{each['missing']:.1%}"
        drift = [each["drift"].get(split) for split in ("validation", "test")]
        rows.append(
            [each["name"], each["role"], each["type"], missing, *(_drift(one) for one in drift)]
        )
    yield html_table(
        rows, ["column", "role", "type", "missing or unknown", "drift, validation", "drift, test"]
    )


def _to_be_seen(column: JSON) -> tuple[bool, float]:
    """Outputs come first, then what drifts or misses most."""
    return column["role"] == "output", max(column["missing"] or 0.0, *column["drift"].values(), 0.0)


def _drift(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}{' ▲' if value >= DRIFTED else ''}"


def resources(summary: JSON) -> Iterator[str]:
    """Stages with rows, time and rate; the most memory that the process had."""
    rows = [
        [
            each["name"],
            f"{each['rows']:,}",
            duration(each["seconds"]),
            f"{each['rows'] / each['seconds']:,.0f}" if each["seconds"] > 0 else "–",
        ]
        for each in summary["stages"]
    ]
    memory = human_bytes(summary["peak_memory_bytes"])
    yield f"<h2>Time and memory</h2>{html_table(rows, ['stage', 'rows', 'time', 'rows/s'])}"
    note = f"The process that was started had at most {memory} of memory."
    if summary.get("resumed"):
        note += " The run was resumed: these are the stages of its last start."
    yield f'<p class="soft">{note}</p>'


def users_yaml(summary: JSON) -> Iterator[str]:
    """The config as it was written."""
    if summary.get("yaml"):
        yield f"<h2>Config</h2><pre>{escape(summary['yaml'])}</pre>"


def _value(value: Any) -> str:
    return number(value, 6) if isinstance(value, int | float) else "–"


def _told(value: Any) -> str:
    return number(value, 6) if isinstance(value, float) else str(value)
