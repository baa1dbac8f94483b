"""docs/quality.md, from what a run of the suite found: no number in it was written by hand.

python -m bench.quality.table        writes it again from bench/quality/results.json
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from bench.quality.datasets import SHARES, SUITE, Dataset

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "quality.md"
METRIC = {"binary": "ROC AUC", "classes": "accuracy", "number": "RMSE"}
COLUMNS = {
    "lightgbm": "LightGBM",
    "sklearn": "scikit-learn",
    "bare": "bare config",
    "init": "`init`",
}
HEAD = """\
# What untuned configs reach
Written by `make quality`; no number here was written by hand. Real datasets that packages of the registry ship, at most {rows:,} rows
of each, {train:.0%} to train on, {validation:.0%} to validate, {test:.0%} to test; the mean of {seeds} splits. `bare config`: names and types of the
features, and nothing else. `init`: the config that `distcore init` writes, as it comes. LightGBM and scikit-learn (histogram gradient
boosting): their defaults, on the training rows. In brackets: CPU seconds of one fit with its predictions, and the process's peak in MB
(that of distcore has torch in it). RMSE: smaller is better.

| dataset | metric | {titles} | `init` behind LightGBM |
|---|---|{rules}---|
"""


def write(found: dict[str, Any]) -> None:
    """Write the page."""
    PAGE.write_text(page(found), encoding="utf-8")


def page(found: dict[str, Any]) -> str:
    lines, behind = [], {"bare": [], "init": []}
    for dataset in SUITE:
        results = found["datasets"].get(dataset.name)
        if not results:
            continue
        cells = [_cell(dataset, results.get(method)) for method in COLUMNS]
        for method, distances in behind.items():
            distances.append(distance(dataset, results, method))
        lines.append(
            f"| {dataset.name} ({dataset.origin}) | {METRIC[dataset.kind]} | {' | '.join(cells)} | "
            f"{_percent(behind['init'][-1])} |"
        )
    head = HEAD.format(
        **SHARES,
        rows=found["rows"],
        seeds=found["seeds"],
        titles=" | ".join(COLUMNS.values()),
        rules="---|" * len(COLUMNS),
    )
    absent = [each.name for each in SUITE if each.name not in found["datasets"]]
    parts = ["\n".join(lines), *(_summary(name, each) for name, each in behind.items())]
    if absent:
        parts.append(f"In the suite, but not in this run: {', '.join(absent)}.")
    return head + "\n\n".join(parts) + "\n"


def distance(dataset: Dataset, results: dict[str, Any], method: str) -> float | None:
    """Percent by which a method is behind LightGBM; below 0: it is ahead."""
    ours, theirs = (_mean(results.get(each)) for each in (method, "lightgbm"))
    if ours is None or theirs is None:
        return None
    return 100 * (ours / theirs - 1) if dataset.kind == "number" else 100 * (theirs - ours) / theirs


def _mean(result: dict[str, Any] | None, of: str = "score") -> float | None:
    return (
        None
        if not result or "error" in result
        else statistics.mean(each[of] for each in result["seeds"])
    )


def _cell(dataset: Dataset, result: dict[str, Any] | None) -> str:
    score, seconds = _mean(result), _mean(result, "cpu_seconds")
    if score is None or result is None:
        return "failed" if result else "not run"
    shown = f"{score:.4g}" if dataset.kind == "number" else f"{score:.3f}"
    return f"{shown} ({seconds:.1f} s, {result['peak_mb']} MB)"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:+.1f} %"


def _summary(method: str, distances: list[float | None]) -> str:
    known = sorted(each for each in distances if each is not None)
    if not known:
        return ""
    return (
        f"{COLUMNS[method]} against LightGBM on {len(known)} datasets: median "
        f"{statistics.median(known):+.1f} %, best {known[0]:+.1f} %, worst {known[-1]:+.1f} % "
        "(above 0: behind)."
    )


if __name__ == "__main__":
    write(json.loads((HERE / "results.json").read_text()))
