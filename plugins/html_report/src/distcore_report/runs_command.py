"""The command `runs`: a line a run of a folder."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime
from typing import Any

from distcore_data.figures import duration, number
from distcore_data.table import table
from distcore_report.runs import Run, each_run

CREDENTIALS = "JSON: what the bucket is opened with"


class RunsCommand:
    """`distcore runs [DIR]`."""

    help = "list the runs of a folder: metrics, state, duration"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Its options."""
        parser.add_argument(
            "directory",
            nargs="?",
            default="results",
            metavar="DIR",
            help="a folder, or its address in a bucket; default: results",
        )
        parser.add_argument("--credentials", metavar="FILE", help=CREDENTIALS)
        parser.add_argument("--json", action="store_true", help="print JSON, an object a run")
        parser.epilog = (
            "examples:\n  distcore runs\n  distcore runs results/hyperopt_run\n"
            "  distcore runs s3://bucket/results"
        )

    def run(self, arguments: Namespace) -> int:
        """Print them, by name."""
        found = each_run(arguments.directory, arguments.credentials)
        if arguments.json:
            print(json.dumps([as_json(each) for each in found], indent=2))
        else:
            print(table([HEADER, *(row(each) for each in found)], widest=None))
        return 0


HEADER = ("RUN", "STATE", "BEGUN", "TRAINED", "EVALUATIONS", "METRIC", "BEST", "AT", "TEST")


def row(run: Run) -> tuple[str, ...]:
    """The run under HEADER."""
    state = f"{run.state}: {run.error.splitlines()[0][:60]}" if run.error else run.state
    last = run.last
    return (
        run.name,
        state,
        begun(run),
        "-" if run.seconds is None else duration(run.seconds),
        str(last.get("evaluation", "-")),
        " ".join(run.watched[:2]) + " " + run.watched[2] if run.watched else "-",
        shown(run.best),
        str(run.best_evaluation or "-"),
        shown(run.tested),
    )


def as_json(run: Run) -> dict[str, Any]:
    """The run for machines."""
    split, feature, metric = run.watched or (None, None, None)
    return {
        "name": run.name,
        "path": run.place,
        "state": run.state,
        "error": run.error,
        "begun": None if run.begun is None else datetime.fromtimestamp(run.begun, UTC).isoformat(),
        "seconds": run.seconds,
        "evaluations": run.last.get("evaluation", 0),
        "watched": {"split": split, "feature": feature, "metric": metric},
        "best": run.best,
        "best_evaluation": run.best_evaluation,
        "test": run.test,
        "data": run.data,
    }


def begun(run: Run) -> str:
    """When its folder was begun, in local time."""
    if run.begun is None:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(run.begun))


def shown(value: float | None) -> str:
    """A number, or a dash."""
    return "-" if value is None else number(value, 6)
