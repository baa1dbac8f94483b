"""Options that several commands share. Every flag may be spelt with underscores (Ludwig's way) or
dashes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from distcore.cli import ludwig_flags
from distcore.workflow.skips import (
    NEVER_SAVED,
    SKIP_EVAL_STATS,
    SKIP_HYPEROPT_STATISTICS,
    SKIP_LOG,
    SKIP_MODEL,
    SKIP_PREDICTIONS,
    SKIP_PROCESSED_INPUT,
    SKIP_PROGRESS,
    SKIP_TRAINING_DESCRIPTION,
    SKIP_TRAINING_STATISTICS,
    SKIPS,
)


def flag(parser: Any, name: str, *short: str, **options: Any) -> None:
    """Add `--some_name` and `--some-name` as one option."""
    dashed = name.replace("_", "-")
    parser.add_argument(
        *short, f"--{name}", *([f"--{dashed}"] if dashed != name else []), dest=name, **options
    )


def examples(parser: argparse.ArgumentParser, *lines: str) -> None:
    """End the help with commands to copy; each begins with what comes behind `distcore`, or is
    piped into it."""
    commands = (line if " | distcore " in line else f"distcore {line}" for line in lines)
    parser.epilog = "\n".join(["examples:", *(f"  {each}" for each in commands)])


def config(parser: argparse.ArgumentParser) -> None:
    """What every command that has a config takes."""
    group = parser.add_argument_group("config")
    flag(group, "config", "-c", metavar="FILE", help="the YAML config; --config may be left out")
    flag(group, "config_str", "-cs", metavar="YAML", help="the config as text")
    flag(
        group,
        "set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="set one option of the config, such as trainer.epochs=3; may be given again",
    )
    flag(group, "backend", "-b", metavar="NAME", help="where to run; overrides the config")
    flag(
        group,
        "random_seed",
        "-rs",
        type=int,
        metavar="N",
        help="seed of every random number (default: 42)",
    )
    flag(
        group,
        "logging_level",
        "-l",
        default="info",
        metavar="LEVEL",
        help="critical, error, warning, info or debug",
    )


def data(parser: argparse.ArgumentParser) -> None:
    """The dataset, or the sets of a given split."""
    group = parser.add_argument_group("data")
    flag(
        group,
        "dataset",
        metavar="PATH",
        help="dataset to be split: csv, tsv, parquet, json lines, feather; path, URL or - "
        "(standard input)",
    )
    flag(group, "training_set", metavar="PATH", help="training set, if the split is given")
    flag(group, "validation_set", metavar="PATH", help="validation set")
    flag(group, "test_set", metavar="PATH", help="test set")
    flag(
        group,
        "data_format",
        metavar="FORMAT",
        help=DATA_FORMAT,
    )


def output(parser: argparse.ArgumentParser) -> None:
    """Where the results go."""
    group = parser.add_argument_group("results")
    flag(
        group,
        "output_directory",
        "-od",
        default="results",
        metavar="DIR",
        help="folder or address; default: results",
    )
    flag(group, "experiment_name", default="experiment", metavar="NAME")
    flag(group, "model_name", default="run", metavar="NAME")


def gpus(parser: Any) -> None:
    """Which GPUs, of commands that train."""
    flag(parser, "gpus", "-g", metavar="LIST", help="GPUs to use, such as 0 or 0,1; -1 for none")


def profile(parser: argparse.ArgumentParser) -> None:
    """Of commands that work for a while."""
    flag(
        parser,
        "profile",
        action="store_true",
        help="say where the time went, and write it as COMMAND.speedscope.json",
    )


def skip(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """The named `skip_save_…` flags, and Ludwig's for what is never written."""
    group = parser.add_argument_group("what not to save")
    for name, what in SKIPS.items():
        if name in names:
            short = SHORT.get(name, ())
            flag(group, name, *short, action="store_true", help=f"do not save {what}")
    hidden = argparse.SUPPRESS
    for name in NEVER_SAVED:
        options = {"action": ludwig_flags.Nothing, "nargs": 0, "default": hidden, "help": hidden}
        flag(group, name, *SHORT[name], **options)


DATA_FORMAT = (
    "auto (default), csv, tsv, parquet, jsonl, feather, or what is installed (distcore plugins)"
)

SHORT = {
    SKIP_TRAINING_DESCRIPTION: ["-sstd"],
    SKIP_TRAINING_STATISTICS: ["-ssts"],
    SKIP_MODEL: ["-ssm"],
    SKIP_PROGRESS: ["-ssp"],
    SKIP_LOG: ["-ssl"],
    SKIP_PROCESSED_INPUT: ["-sspi"],
    SKIP_PREDICTIONS: ["-sstp"],
    SKIP_EVAL_STATS: ["-sstes", "-sses"],
    SKIP_HYPEROPT_STATISTICS: ["-sshs"],
    "skip_save_unprocessed_output": ["-ssuo"],
    "skip_save_k_fold_split_indices": ["-skfsi"],
}
"""Ludwig's other spellings of what is not to be saved."""
