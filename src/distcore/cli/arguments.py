"""From the command line's words to the library's arguments."""

from __future__ import annotations

import logging
import sys
from argparse import Namespace
from typing import Any

from distcore_core.errors import UserError
from distcore_data.printable import printable


def config_of(arguments: Namespace) -> Any:
    """The config's path, or its text as a document with lines; with what `--set` changes; None
    if none is given."""
    if arguments.config and arguments.config_str:
        raise UserError("Both --config and --config_str were given. Give one of them.")
    given = arguments.config
    if arguments.config_str:
        from distcore.config.yaml_document import parse

        given = parse(arguments.config_str, "--config_str")
    if not arguments.set:
        return given
    if given is None and getattr(arguments, "model_resume_path", None):
        raise UserError(
            "--set changes a config: give the one that the run was begun with (--config) as well."
        )
    from distcore.config import document_of
    from distcore.config.overrides import override

    return override(document_of(given), arguments.set)


def data_of(arguments: Namespace) -> dict[str, Any]:
    """The data arguments as keywords. Raises UserError if nothing, or too much, is given."""
    given = [
        name for name in ("training_set", "validation_set", "test_set") if getattr(arguments, name)
    ]
    if arguments.dataset and given:
        raise UserError(
            f"Both --dataset and --{given[0]} were given. Give one dataset to be split, or the "
            "sets, not both."
        )
    names = ("training_set", "validation_set", "test_set", "data_format")
    return {"dataset": dataset_of(arguments), **{name: getattr(arguments, name) for name in names}}


def dataset_of(arguments: Namespace) -> Any:
    """The dataset's path; of `-` that of a copy of standard input, which is gone when this
    process ends."""
    if arguments.dataset != "-":
        return arguments.dataset
    from distcore.cli.standard_input import spooled

    return spooled()


def skips_of(arguments: Namespace) -> frozenset[str]:
    """The `skip_save_…` flags that are set."""
    return frozenset(
        name for name, value in vars(arguments).items() if name.startswith("skip_save_") and value
    )


RUN = (
    "backend",
    "random_seed",
    "gpus",
    "output_directory",
    "experiment_name",
    "model_name",
    "model_resume_path",
)


def run_of(arguments: Namespace) -> dict[str, Any]:
    """Config, data and whatever else `train`, `experiment` and `hyperopt` are all given, as
    keywords."""
    from distcore.workflow.arguments import NAMES, check

    check({name: getattr(arguments, name) for name in NAMES})  # before standard input is read
    return {
        "config": config_of(arguments),
        **data_of(arguments),
        **{name: getattr(arguments, name) for name in RUN},
        "skip": skips_of(arguments),
        "view": shown(arguments.logging_level),
    }


def set_up_logging(level: str) -> None:
    """Plain lines on standard error. Raises UserError for a level that does not exist."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise UserError(
            f"There is no logging level {level!r}. Levels: critical, error, warning, info, debug."
        )
    logger = logging.getLogger("distcore")
    logger.setLevel(number)
    handler = _ToStandardError()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.handlers[:] = [handler]
    logger.propagate = False


class _ToStandardError(logging.Handler):
    """Writes to what standard error is at that moment: lines come above the bars while these are
    drawn."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            # One write: the thread that draws progress may write before `print` ends its line.
            sys.stderr.write(printable(self.format(record), keep="\n\t") + "\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001 - what every handler does with what goes wrong in it
            self.handleError(record)


def shown(level: str) -> str:
    """How to draw progress under a logging level: nothing when only errors are wanted."""
    return "none" if level.lower() in ("critical", "error", "warning") else "auto"
