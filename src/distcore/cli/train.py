"""Commands that run something: experiment, train, preprocess, evaluate, predict."""

from __future__ import annotations

import logging
from argparse import Namespace
from typing import Any

from distcore.cli.arguments import (
    config_of,
    data_of,
    dataset_of,
    run_of,
    set_up_logging,
    shown,
    skips_of,
)
from distcore.workflow.profile import profiled
from distcore_core.errors import UserError

log = logging.getLogger("distcore")


def experiment(arguments: Namespace) -> int:
    """Train, then evaluate and predict the test split."""
    with profiled("experiment", arguments.profile):
        return _fit(arguments, "experiment")


def train(arguments: Namespace) -> int:
    """Preprocess and fit a model."""
    with profiled("train", arguments.profile):
        return _fit(arguments, "train")


def preprocess(arguments: Namespace) -> int:
    """Build the cache and stop."""
    with profiled("preprocess", arguments.profile):
        from distcore import interface

        set_up_logging(arguments.logging_level)
        cache = interface.preprocess(
            config_of(arguments),
            **data_of(arguments),
            backend=arguments.backend,
            random_seed=arguments.random_seed,
            view=shown(arguments.logging_level),
        )
        print(cache.where)
    return 0


def evaluate(arguments: Namespace) -> int:
    """Metrics of a model on a dataset."""
    with profiled("evaluate", arguments.profile):
        from distcore import interface

        statistics = interface.evaluate(
            **_model(arguments, "evaluate"), overwrite=arguments.overwrite, skip=skips_of(arguments)
        )
    print_scores(statistics, last="SCORE")
    return 0


def predict(arguments: Namespace) -> int:
    """Predictions of a model on a dataset."""
    with profiled("predict", arguments.profile):
        from distcore import interface

        asked = {name: getattr(arguments, name) for name in ("output_file", "keep", "overwrite")}
        path = interface.predict(**_model(arguments, "predict"), **asked, skip=skips_of(arguments))
    print(path if path is not None else "Predictions were computed and, as asked, not saved.")
    return 0


def _fit(arguments: Namespace, command: str) -> int:
    from distcore import interface

    set_up_logging(arguments.logging_level)
    outcome = getattr(interface, command)(
        **run_of(arguments), model_load_path=arguments.model_load_path
    )
    if outcome.test_statistics is not None:
        from distcore.workflow.shown import scores_note, split_scores

        print_scores(outcome.test_statistics, split_scores(outcome))
        if note := scores_note(outcome):
            print(note)
    print(outcome.directory)
    if outcome.report is not None:
        log.info("Report: %s", outcome.report)
    return 0


def _model(arguments: Namespace, command: str) -> dict[str, Any]:
    """Arguments of `interface.predict` and `interface.evaluate`.

    Raises UserError if no model or no dataset is given."""
    needed = {"model_path": "model (--model_path)", "dataset": "dataset (--dataset)"}
    missing = [what for name, what in needed.items() if getattr(arguments, name) is None]
    if missing:
        raise UserError(
            f"No {' and no '.join(missing)} was given. Write `distcore {command} MODEL DATASET`, "
            f"such as `distcore {command} results/experiment_run new.csv`."
        )
    set_up_logging(arguments.logging_level)
    where = ("model_path", "data_format", "output_directory", "credentials")
    names = (*where, "batch_size", "backend", "gpus", "trust")
    given = {name: getattr(arguments, name) for name in names}
    return {**given, "dataset": dataset_of(arguments), "view": shown(arguments.logging_level)}


def print_scores(
    statistics: dict[str, Any], splits: dict[str, Any] | None = None, last: str = "TEST"
) -> None:
    """One line a metric: output feature, metric, and the numbers.

    Args:
        statistics: {output feature: {metric: number}} of the test split, or of a whole dataset.
        splits: {output feature: {metric: {split: number}}} of the others.
        last: What stands above those of `statistics`.
    """
    from distcore_data.table import table

    known = splits or {}
    beside = [
        split
        for split in ("training", "validation")
        if any(split in numbers for metrics in known.values() for numbers in metrics.values())
    ]
    rows = []
    for output, metrics in (statistics or known).items():
        for metric in metrics:
            value = statistics.get(output, {}).get(metric)
            if value is None or isinstance(value, int | float):
                others = known.get(output, {}).get(metric, {})
                numbers = [others.get(split) for split in beside]
                rows.append((output, metric, *map(_number, [*numbers, value])))
    print(table([("OUTPUT", "METRIC", *map(str.upper, beside), last), *rows]))


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.6g}"
