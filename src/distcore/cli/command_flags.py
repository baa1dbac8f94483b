"""The options of each command."""

from __future__ import annotations

import argparse

from distcore.cli import flags
from distcore.workflow.skips import (
    SKIP_EVAL_STATS,
    SKIP_HYPEROPT_STATISTICS,
    SKIP_LOG,
    SKIP_PREDICTIONS,
    SKIPS,
)


def train(parser: argparse.ArgumentParser) -> None:
    """Of `train`."""
    flags.config(parser)
    flags.data(parser)
    flags.output(parser)
    group = parser.add_argument_group("model")
    flags.flag(
        group,
        "model_load_path",
        "-mlp",
        metavar="DIR",
        help="start from the weights of this model, or of a .safetensors file",
    )
    flags.flag(
        group,
        "model_resume_path",
        "-mrp",
        metavar="DIR",
        help="go on with the run in this experiment folder",
    )
    flags.gpus(group)
    flags.profile(parser)
    flags.skip(parser, [name for name in SKIPS if name != SKIP_HYPEROPT_STATISTICS])
    command = parser.prog.rpartition(" ")[2]
    flags.examples(
        parser,
        f"{command} config.yaml data.csv",
        f"{command} config.yaml data.csv --set trainer.epochs=3 --set trainer.learning_rate=0.01",
        f"{command} -c config.yaml --training_set train.csv --validation_set valid.csv --test_set "
        "test.csv",
        f"{command} config.yaml data.csv --backend ray --model_resume_path results/experiment_run",
    )


def model(parser: argparse.ArgumentParser) -> None:
    """A saved model and the rows it is asked about."""
    group = parser.add_argument_group("model")
    flags.flag(
        group,
        "model_path",
        "-m",
        metavar="DIR",
        help="the model folder, or the experiment's folder; --model_path may be left out",
    )
    flags.flag(group, "trust", action="store_true", help="run the model's own class and extensions")
    flags.flag(group, "batch_size", "-bs", type=int, metavar="N", help="rows of a batch")
    flags.flag(group, "gpus", "-g", metavar="LIST", help="GPUs to use; -1 for none")
    flags.flag(
        group,
        "backend",
        "-b",
        metavar="NAME",
        help="where to run (default: what is detected, else local)",
    )
    flags.flag(group, "logging_level", "-l", default="info", metavar="LEVEL")
    flags.flag(
        group,
        "output_directory",
        "-od",
        default="results",
        metavar="DIR",
        help="folder or address; default: results",
    )
    flags.flag(
        group,
        "credentials",
        metavar="FILE",
        help="JSON: what the bucket of model or results is opened with",
    )
    flags.profile(parser)
    data = parser.add_argument_group("data")
    flags.flag(data, "dataset", metavar="PATH", help="the rows to read; --dataset may be left out")
    flags.flag(
        data,
        "data_format",
        metavar="FORMAT",
        help=flags.DATA_FORMAT,
    )


def predict(parser: argparse.ArgumentParser) -> None:
    """Of `predict`."""
    model(parser)
    group = parser.add_argument_group("predictions")
    flags.flag(
        group,
        "output_file",
        "-o",
        metavar="FILE",
        help="FILE.csv or FILE.parquet; default: predictions.parquet in --output_directory",
    )
    flags.flag(
        group,
        "keep",
        "-k",
        action="append",
        default=[],
        metavar="COLUMN",
        help="a column of the dataset to put before the predictions, such as a key; may be given "
        "again",
    )
    flags.flag(group, "overwrite", action="store_true", help="replace predictions that are there")
    flags.skip(parser, [SKIP_PREDICTIONS, SKIP_LOG])
    flags.examples(
        parser,
        "predict results/experiment_run new.csv --output_file new_predictions.csv --keep id",
        "grep -v test new.csv | distcore predict -m results/experiment_run --dataset -",
    )


def evaluate(parser: argparse.ArgumentParser) -> None:
    """Of `evaluate`."""
    model(parser)
    group = parser.add_argument_group("results")
    flags.flag(group, "overwrite", action="store_true", help="replace results that are there")
    flags.skip(parser, [SKIP_PREDICTIONS, SKIP_EVAL_STATS, SKIP_LOG])
    flags.examples(parser, "evaluate results/experiment_run test.csv")


def preprocess(parser: argparse.ArgumentParser) -> None:
    """Of `preprocess`."""
    flags.config(parser)
    flags.data(parser)
    flags.profile(parser)
    flags.examples(parser, "preprocess config.yaml data.csv")


def plan(parser: argparse.ArgumentParser) -> None:
    """Of `plan`."""
    flags.config(parser)
    flags.data(parser)
    flags.flag(parser, "json", action="store_true", help="print JSON")
    flags.flag(parser, "gpus", "-g", metavar="LIST", help="GPUs to use; -1 for none")
    group = parser.add_argument_group("many workers")
    flags.flag(
        group,
        "workers",
        type=int,
        metavar="N",
        help="say what a step would cost among 1, 2, 4, … N workers",
    )
    flags.flag(
        group,
        "bandwidth",
        type=float,
        metavar="GBIT",
        help="of the network of each of them, in Gbit/s (default: as measured on the loopback)",
    )
    flags.flag(
        group,
        "latency",
        type=float,
        metavar="US",
        help="of a message, in microseconds (default: as measured on the loopback)",
    )
    flags.examples(
        parser,
        "plan config.yaml data.csv",
        "plan config.yaml data.csv --backend ray --json",
        "plan config.yaml data.csv --workers 64 --bandwidth 10 --latency 50",
    )


def init(parser: argparse.ArgumentParser) -> None:
    """Of `init`."""
    flags.data(parser)
    flags.flag(
        parser,
        "model",
        choices=("network", "trees"),
        default="network",
        help="what to train: a neural network, or gradient-boosted trees (needs distcore-lightgbm)",
    )
    flags.flag(
        parser,
        "target",
        "-t",
        required=True,
        action="append",
        metavar="COLUMN",
        help="what to predict; may be given again",
    )
    flags.flag(
        parser, "output", "-o", metavar="FILE", help="where to write; default: standard output"
    )
    flags.examples(
        parser,
        "init data.csv --target price --output config.yaml",
        "init --training_set train.csv --test_set test.csv --target price --model trees",
    )


def plugins(parser: argparse.ArgumentParser) -> None:
    """Of `plugins`."""
    parser.add_argument(
        "action",
        nargs="?",
        choices=("lock",),
        help="lock: write names, versions and hashes of what is installed; with DISTCORE_LOCK "
        "naming that file, nothing else is imported as a plugin",
    )
    flags.flag(parser, "output", metavar="FILE", help="where the lock goes; default: distcore.lock")
    flags.flag(parser, "json", action="store_true", help="print JSON, an object a row")
    flags.flag(
        parser,
        "timeout",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="deadline for one plugin's import",
    )
    flags.examples(parser, "plugins", "plugins --json", "plugins lock --output distcore.lock")


def doctor(parser: argparse.ArgumentParser) -> None:
    """Of `doctor`."""
    flags.flag(parser, "json", action="store_true", help="print JSON")
    flags.flag(
        parser,
        "calibrate",
        action="store_true",
        help="measure this machine in about a minute, so that `distcore plan` says how long and "
        "how much",
    )
    flags.examples(parser, "doctor", "doctor --calibrate")


def diff(parser: argparse.ArgumentParser) -> None:
    """Of `diff`."""
    for name, what in (("one", "a run's folder or address"), ("other", "the other run's")):
        parser.add_argument(name, metavar=name.upper(), help=what)
    _records(parser, "runs", "info")
    flags.examples(parser, "diff results/experiment_run results/experiment_run_1")


def verify(parser: argparse.ArgumentParser) -> None:
    """Of `verify`."""
    parser.add_argument("run_folder", metavar="RUN", help="a run's folder or address")
    flags.flag(
        parser, "dataset", metavar="PATH", help="where its data are now; default: where they were"
    )
    for each in ("training_set", "validation_set", "test_set"):
        flags.flag(parser, each, metavar="PATH", help="the same, of a split that was given")
    flags.flag(
        parser,
        "steps",
        metavar="FROM:TO",
        help="replay from the checkpoint of a step, and compare until another",
    )
    flags.flag(
        parser, "backend", "-b", metavar="NAME", help="where to replay it; default: as the run"
    )
    _records(parser, "run", "warning")
    flags.examples(
        parser, "verify results/experiment_run", "verify results/experiment_run --steps 200:300"
    )


def _records(parser: argparse.ArgumentParser, whose: str, level: str) -> None:
    """What a command takes that reads what runs left."""
    help = f"JSON: what the bucket of the {whose} is opened with"
    flags.flag(parser, "credentials", metavar="FILE", help=help)
    flags.flag(parser, "json", action="store_true", help="print JSON")
    flags.flag(parser, "logging_level", "-l", default=level, metavar="LEVEL")


def schema(parser: argparse.ArgumentParser) -> None:
    """Of `schema`."""
    flags.flag(
        parser, "output", "-o", metavar="FILE", help="where to write; default: standard output"
    )
    flags.examples(parser, "schema --output schema.json")


def completion(parser: argparse.ArgumentParser) -> None:
    """Of `completion`."""
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="whose script to print")
    flags.examples(
        parser,
        "completion bash > ~/.local/share/bash-completion/completions/distcore",
        'completion zsh > "${fpath[1]}/_distcore"',
        "completion fish > ~/.config/fish/completions/distcore.fish",
    )
