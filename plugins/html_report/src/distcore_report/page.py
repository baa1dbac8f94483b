"""report.html: one self-contained file made from the JSON files of an experiment's folder."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from distcore_core.contracts import JSON
from distcore_core.errors import UserError
from distcore_core.io.seals import read_sealed
from distcore_core.io.temporaries import sweep
from distcore_core.io.vouched import read_vouched
from distcore_report import charts
from distcore_report.search import STATISTICS, sections

LEFT_OUT = "The report is made without it; take it from a backup, or run the command that wrote it again."

MAX_CLASSES = 30
"""A confusion matrix of more classes is a file to load, not a table to read."""

log = logging.getLogger("distcore")


def write_report(directory: Path, output: str | Path | None = None) -> Path:
    """Write the report of an experiment's folder; returns its path.

    Raises UserError where the folder holds no experiment."""
    from distcore_core.io.atomic import write_file

    path = Path(output) if output else directory / "report.html"
    sweep(path.parent, path.name)
    write_file(path, render(directory).encode())
    return path


def render(directory: Path) -> str:
    """The report as HTML. Parts whose file is absent (skipped on purpose) are left out.

    So is, with a warning and a line in the report, what is damaged or was changed by hand."""
    files = _Files(directory)
    search = files.part(STATISTICS, sections)
    summary = files.part("description.json", _summary)
    scores = files.part("test_statistics.json", _scores)
    curves = files.part("training_statistics.json", _curves)
    diagnostics = files.part("test_diagnostics.json", _diagnostics)
    description = files.part("description.json", _description)
    if not (search or summary or scores or curves):
        if files.troubles:
            raise UserError("\n".join(files.troubles))
        raise UserError(
            f"{directory} holds no experiment: there is no description.json. "
            "Give the folder that `distcore train` wrote."
        )
    for each in files.troubles:
        log.warning("%s", each)
    title = escape(directory.resolve().name)
    troubles = [f'<p class="soft">{escape(each)}</p>' for each in files.troubles]
    parts = [f"<h1>{title}</h1>", *troubles, *search, *summary, *scores, *curves, *diagnostics, *description]
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{style()}</style></head><body>\n'
        f"{body}\n</body></html>\n"
    )


class _Files:
    """The files of the folder that are whole. troubles: what is said of those that are not, each once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.troubles: list[str] = []

    def part(self, name: str, drawn: Callable[[JSON], Iterator[str]]) -> list[str]:
        """What is drawn of a file; nothing where it is absent, or cannot be used."""
        path = self.directory / name
        try:
            return list(drawn(_read(path))) if path.exists() else []
        except UserError as error:
            found = str(error)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
            found = f"{path} is none that this version of distcore wrote ({error!r}). {LEFT_OUT}"
        if found not in self.troubles:
            self.troubles.append(found)
        return []


def style() -> str:
    """The page's CSS; colours follow the reader's light or dark setting."""
    return resources.files("distcore_report").joinpath("style.css").read_text()


def _read(path: Path) -> JSON:
    """A file of the folder. Raises UserError where it was changed after it was written, or is damaged."""
    if path.name in (STATISTICS, "description.json"):
        return read_sealed(path, LEFT_OUT)
    found: JSON = read_vouched(path, LEFT_OUT)
    return found


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
