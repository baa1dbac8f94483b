"""The command `compare`: what differs in configs, metrics and curves of runs, in words and on a
page."""

from __future__ import annotations

import json
import re
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from textwrap import shorten
from typing import Any

from distcore_core.errors import UserError
from distcore_data import charts
from distcore_data.figures import counted
from distcore_data.flat_config import ORDER, apart, flattened
from distcore_data.printable import printable
from distcore_data.table import table, width_of
from distcore_report.runs import Run, find_runs
from distcore_report.runs_command import CREDENTIALS, HEADER, row, shown

Rows = list[tuple[str, ...]]
Curve = dict[int, float | None]
FEATURES = ("input_features", "output_features")
SPARKS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 40
MAX_CURVES = len(charts.COLOURS)
"""So many runs are drawn; more lines cannot be told apart."""
WIDE = 120
"""Characters of a line of many runs; columns beyond them follow in a table of their own."""
MOST_OPTIONS = 100
"""So many that differ are shown: those of all features of wide tables are megabytes."""
GIVEN_SETS = "train:"
"""How the digest of data begins that came as separate sets."""
DRAWN = ("random", "stratify")
"""Types of splits that a seed decides, the default first."""
UNIT = re.compile(r"output_features[.[](.+?)]?\.(?:loss(?:\..+)?|preprocessing\.normalization)")
"""Options of an output that decide in which units its loss is."""


class CompareCommand:
    """`distcore compare A B …`."""

    help = "config differences, curves and metrics of several runs"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Its options."""
        parser.add_argument(
            "runs",
            nargs="+",
            metavar="DIR",
            help="a run, a search, or a folder of runs: a path, or an address in a bucket",
        )
        parser.add_argument("--credentials", metavar="FILE", help=CREDENTIALS)
        parser.add_argument(
            "--output", "-o", metavar="FILE", help="the page; default: comparison.html here"
        )
        parser.epilog = (
            "examples:\n  distcore compare results/experiment_run results/experiment_run_1\n"
            "  distcore compare results/hyperopt_run --output trials.html\n"
            "  distcore compare results/experiment_run s3://bucket/results/experiment_run"
        )

    def run(self, arguments: Namespace) -> int:
        """Print the comparison, write the page, and print where it lies."""
        from distcore_core.io.atomic import write_file
        from distcore_report.command import own_page
        from distcore_report.page import document

        runs = several(arguments.runs, arguments.credentials)
        print(printable("\n\n".join(in_words(runs)), keep="\n"))
        path = Path(arguments.output or "comparison.html")
        with own_page(path):
            write_file(path, document("Comparison", [*on_a_page(runs)]).encode())
        print(f"\n{path}")
        return 0


def several(places: Sequence[str], credentials: Any = None) -> list[Run]:
    """The runs in the named folders, each once, in the order that they are found in.

    Args:
        places: Paths or addresses.
        credentials: See `find_runs`.

    Raises:
        UserError: There are fewer than two.
    """
    found: dict[str, Run] = {}
    for place in places:
        for run in find_runs(place, credentials):
            found.setdefault(run.whole_place, run)
    short = Counter(map(_last, found))
    runs = [
        # By its path if another folder has that name too.
        replace(run, name=_last(whole) if short[_last(whole)] == 1 else run.place)
        for whole, run in found.items()
    ]
    if len(runs) < 2:
        raise UserError(
            f"{', '.join(places)}: {'one run, and' if runs else 'no run, but'} two or more are "
            "compared. Name more runs, a folder of runs, or a search."
        )
    return runs


def _last(whole_place: str) -> str:
    return whole_place.rpartition("/")[2]


# ------------------------------------------------------------------ what is compared


def differences(runs: Sequence[Run]) -> Rows:
    """(option, its value in each run) of the options in which their configs differ."""
    flat = [{path: value for path, _, value in flattened(_written(run.config))} for run in runs]
    rows = ((name, [each.get(name) for each in flat]) for name in sorted(set().union(*flat)))
    return [(name, *map(_text, apart(name, values))) for name, values in rows if _differ(values)]


def _differ(values: Sequence[Any]) -> bool:
    return len(set(map(json.dumps, values))) > 1


def _first(found: Rows) -> Rows:
    """Of very many differences the first, those of features last."""
    more = len(found) - MOST_OPTIONS
    if more <= 0:
        return found
    kept = sorted(found, key=lambda each: each[0].startswith(FEATURES))[:MOST_OPTIONS]
    return [*kept, (f"and {more:,} more", *["…"] * (len(found[0]) - 1))]


def units_differ(found: Rows) -> Iterator[str]:
    """A sentence if the losses cannot be compared, by the options that differ."""
    matches = (UNIT.fullmatch(each[0]) for each in found)
    outputs = dict.fromkeys(each[1] for each in matches if each)
    if outputs:
        yield (
            f"The loss of {', '.join(outputs)} is in other units from run to run: compare by "
            "another metric."
        )


def in_doubt(runs: Sequence[Run], found: Rows) -> list[str]:
    """Sentences of what makes scores no fair comparison. found: what differs in the configs."""
    known = [run for run in runs if run.config]
    if len(known) < len(runs):  # every option of a run without its description differs
        found = differences(known)
    return [*rows_differ(known, found), *units_differ(found)]


def rows_differ(runs: Sequence[Run], found: Rows) -> Iterator[str]:
    """A sentence if scores are of other rows from run to run: splits of other sizes or drawn
    otherwise, or, as the digest of a frame is of the columns that a run reads, other data of the
    same features."""
    sizes = {tuple(sorted(run.rows.items())) for run in runs if run.rows}
    features = any(name.startswith(FEATURES) and not name.endswith(ORDER) for name, *_ in found)
    other_data = len({run.data for run in runs if run.data}) > 1 and not features
    if len(sizes) > 1 or other_data or _drawn_otherwise(runs, found):
        yield (
            "The scores are of other rows from run to run: to compare the models, have each "
            "evaluated on one dataset (`distcore evaluate`)."
        )


def _drawn_otherwise(runs: Sequence[Run], found: Rows) -> bool:
    """Whether rows are split or sampled by other options, or by another seed if that counts."""
    names = {name for name, *_ in found}
    split_here = not all(run.data.startswith(GIVEN_SETS) for run in runs)
    options = [run.config.get("preprocessing") or {} for run in runs]
    drawn = any(each.get("sample_size") or each.get("sample_ratio", 1) < 1 for each in options)
    if split_here:
        splits = [each.get("split") or {} for each in options]
        drawn = drawn or any(each.get("type", DRAWN[0]) in DRAWN for each in splits)
    by_options = ("preprocessing.sample_", *["preprocessing.split"] * split_here)
    return (drawn and "random_seed" in names) or any(each.startswith(by_options) for each in names)


def _written(config: Any) -> Any:
    """The config without the extension by which a search hears of its trial's rounds: nobody wrote
    it, and every trial has a path of its own there."""
    given = config.get("extensions") if isinstance(config, dict) else None
    if not isinstance(given, list):
        return config
    kept = [each for each in given if not (isinstance(each, dict) and each.get("type") == "rounds")]
    return {**config, "extensions": kept}


def _text(value: Any) -> str:
    if isinstance(value, list):  # the names of thousands of columns, too
        return shorten(json.dumps(value, ensure_ascii=False), WIDE, placeholder=" …")
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value)


def metrics(runs: Sequence[Run]) -> Rows:
    """(metric, its value in each run): the best validation value, or the last where none is picked,
    then every metric of the test split."""
    rows: Rows = []
    for watched in dict.fromkeys(run.watched for run in runs if run.watched):
        best = [run.best if run.watched == watched else None for run in runs]
        last = [
            next(reversed(run.curve(*watched).values()), None)
            if run.watched == watched and run.best is None
            else None
            for run in runs
        ]
        for kind, values in (("best", best), ("last", last)):
            if any(value is not None for value in values):
                rows.append((" ".join([kind, *watched]), *map(shown, values)))
    names = dict.fromkeys(
        (output, name) for run in runs for output, each in run.test.items() for name in each
    )
    for output, name in names:
        values = [run.test.get(output, {}).get(name) for run in runs]
        if all(value is None or isinstance(value, int | float) for value in values):
            rows.append((f"test {output} {name}", *map(shown, values)))
    return rows


def curves(runs: Sequence[Run]) -> Iterator[tuple[str, dict[str, Curve]]]:
    """(what, {run: its curve}) of the metric that is watched and of the losses, where a run has
    it."""
    watched = dict.fromkeys(run.watched for run in runs if run.watched)
    wanted = dict.fromkeys(
        each
        for split, feature, metric in watched
        for each in (
            (split, feature, metric),
            (split, feature, "loss"),
            ("training", feature, "loss"),
        )
    )
    for split, feature, metric in wanted:
        found = {run.name: run.curve(split, feature, metric) for run in runs}
        if any(map(_known, found.values())):
            yield f"{split} {feature} {metric}", found


def _known(curve: Curve) -> list[float]:
    return [each for each in curve.values() if each is not None]


def _counted(runs: Sequence[Run]) -> str:
    """What the curves are by: rounds, if all the runs grow forests."""
    units = {counted(run.last.get("unit", "")) for run in runs if run.log}
    return units.pop() if len(units) == 1 else "evaluation"


# ------------------------------------------------------------------ in the terminal


def in_words(runs: Sequence[Run]) -> Iterator[str]:
    """The parts, for a terminal."""
    names = tuple(run.name for run in runs)
    yield table([HEADER, *((run.name, *row(run)[1:]) for run in runs)], widest=None)
    found = differences(runs)
    yield _table("CONFIG", names, _first(found)) if found else "The configs are the same."
    if scored := metrics(runs):
        yield "\n\n".join([*in_doubt(runs, found), _table("METRIC", names, scored)])
    for what, series in curves(runs):
        drawn = {name: one for name, one in series.items() if _known(one)}
        values = sorted(each for one in drawn.values() for each in _known(one))
        places = sorted({each for one in drawn.values() for each in one})
        lines = [(name, sparks(one, places, values)) for name, one in drawn.items()]
        span = f"from {shown(values[0])} to {shown(values[-1])}"
        head = f"{printable(what)} by {_counted(runs)}, {span}"
        yield f"{head}\n{table(lines, widest=None)}"


def _table(head: str, names: Sequence[str], rows: Rows) -> str:
    """A few runs are columns. Of many, whichever are fewer are the columns, runs or what is told of
    them, and tables of at most WIDE characters follow one another."""
    lines: Rows = [(head, *names), *rows]
    if len(names) <= 4:
        return table(lines, widest=None)
    columns = [*zip(*lines, strict=True)] if len(rows) > len(names) else [("RUN", *names), *rows]
    first, used = columns[0], 0
    tables: list[Rows] = []
    for column in columns[1:]:
        width = max(map(width_of, column)) + 2
        if not tables or used + width > WIDE:
            tables.append([first])
            used = max(map(width_of, first))
        tables[-1].append(column)
        used += width
    return "\n\n".join(table([*zip(*each, strict=True)], widest=None) for each in tables)


def sparks(curve: Curve, places: Sequence[int], values: Sequence[float]) -> str:
    """A curve as a line of at most SPARK_WIDTH characters; of the values that share one, that which
    is furthest from the median is shown.

    places, values: of all curves that it is compared with, sorted: one character is the same
        stretch of each of them. Between two places of this curve its value goes on."""
    step = -(-len(places) // SPARK_WIDTH)
    low, middle, high = (values[at] for at in (0, len(values) // 2, -1))
    size = (high - low) or 1.0
    line, last, end = "", None, max(curve)
    for start in range(0, len(places), step):
        here = {each: curve[each] for each in places[start : start + step] if each in curve}
        picked = last if places[start] <= end else None
        if here:
            picked = max(_known(here), key=lambda each: abs(each - middle), default=None)
            last = curve[max(here)]
        line += " " if picked is None else SPARKS[round((picked - low) / size * 7)]
    return line.rstrip()


# ------------------------------------------------------------------ on a page


def on_a_page(runs: Sequence[Run]) -> Iterator[str]:
    """The parts, as HTML."""
    names = [run.name for run in runs]
    yield "<h1>Comparison</h1>"
    yield charts.html_table([(run.name, *row(run)[1:]) for run in runs], HEADER)
    yield "<h2>Curves</h2>"
    if len(runs) > MAX_CURVES:
        yield (
            f"<p>Of {len(runs)} runs the first {MAX_CURVES} are drawn, of a search its best ones. "
            "To see others, name them.</p>"
        )
    yield '<div class="row">'
    for what, series in curves(runs):
        points = {  # a run without the curve keeps its colour
            name: [(float(at), float(each)) for at, each in one.items() if each is not None]
            for name, one in list(series.items())[:MAX_CURVES]
        }
        yield charts.lines(points, _counted(runs), what)
    yield "</div>"
    found = differences(runs)
    yield "<h2>Metrics</h2>"
    yield from (f"<p>{escape(each)}</p>" for each in in_doubt(runs, found))
    yield charts.html_table(metrics(runs), ("metric", *names))
    yield "<h2>Config</h2>"
    same = "<p>The configs are the same.</p>"
    yield charts.html_table(_first(found), ("option", *names)) if found else same
