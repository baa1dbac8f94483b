"""The options of each command. Every flag may be spelt with underscores (Ludwig's way) or
dashes."""

from __future__ import annotations

import argparse
from collections.abc import Container, Sequence
from typing import Any


def flag(parser: Any, name: str, *short: str, **options: Any) -> None:
    """Add `--some_name` and `--some-name` as one option."""
    dashed = name.replace("_", "-")
    parser.add_argument(
        *short, f"--{name}", *([f"--{dashed}"] if dashed != name else []), dest=name, **options
    )


def examples(parser: argparse.ArgumentParser, *lines: str) -> None:
    """End the help with commands to copy."""
    parser.epilog = "\n".join(["examples:", *(f"  distcore {line}" for line in lines)])


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
    for name, (short, what) in SKIPS.items():
        if name in names:
            flag(group, name, *short, action="store_true", help=f"do not save {what}")
    for name, only in NEVER_SAVED.items():
        flag(
            group,
            name,
            only,
            action=_Nothing,
            nargs=0,
            default=argparse.SUPPRESS,
            help=argparse.SUPPRESS,
        )


DATA_FORMAT = (
    "auto (default), csv, tsv, parquet, jsonl, feather, or what is installed (distcore plugins)"
)

SKIPS = {
    "skip_save_training_description": (["-sstd"], "description.json"),
    "skip_save_training_statistics": (["-ssts"], "training_statistics.json and ledger.jsonl"),
    "skip_save_model": (["-ssm"], "the model"),
    "skip_save_progress": (["-ssp"], "checkpoints; a run that is stopped cannot be resumed"),
    "skip_save_log": (["-ssl"], "what extensions log"),
    "skip_save_processed_input": (["-sspi"], "the cache; it is removed when the run ends"),
    "skip_save_predictions": (["-sstp"], "predictions.parquet"),
    "skip_save_eval_stats": (["-sstes", "-sses"], "test_statistics.json"),
    "skip_save_report": ([], "report.html"),
    "skip_save_hyperopt_statistics": (["-sshs"], "hyperopt_statistics.json and the report"),
}

NEVER_SAVED = {"skip_save_unprocessed_output": "-ssuo", "skip_save_k_fold_split_indices": "-skfsi"}
"""Flags of Ludwig that hold without being given."""

NOT_CARRIED_OUT = {
    "training_set_metadata": (
        [],
        "the cache holds the metadata, and is found by the data and the config",
    ),
    "k_fold": (["-kf"], "cross validation is not supported; run an experiment for each split"),
    "eval_split": (
        ["-es"],
        "an experiment evaluates the test split; `distcore evaluate` any other dataset",
    ),
    "split": (["-s"], "the whole dataset is read; give one with the rows that you want"),
    "gpu_memory_limit": (["-gml"], "torch takes what it needs; choose GPUs with --gpus"),
    "disable_parallel_threads": (["-dpt"], "set OMP_NUM_THREADS=1 in the environment"),
    "skip_collect_predictions": (
        ["-scp"],
        "predictions are written as they are made, never collected",
    ),
    "skip_collect_overall_stats": (
        ["-scos"],
        "leave out what you do not want with --skip_save_eval_stats",
    ),
    "generation_config": (["-gc"], "no output generates text"),
    "preprocessing_config": (["-pc"], "give the config with --config"),
    "preprocessing_config_str": (["-pcs"], "give the config with --config_str"),
    "hyperopt_log_verbosity": (["-hlv"], "use --logging_level"),
}
"""Flags of Ludwig that it would be wrong to pass over: what is so instead."""


def not_carried_out(words: Sequence[str], known: Container[str] = ()) -> str | None:
    """What to say of the first word that is such a flag; None: there is none. known: options that
    the command has.

    Asked before argparse reads the words, which takes `-gml` for `-g ml`. They are no options of
    the parsers, because making a dozen for each command takes milliseconds of every start."""
    reasons = {
        spelling: why
        for name, (short, why) in NOT_CARRIED_OUT.items()
        for spelling in (*short, f"--{name}", f"--{name.replace('_', '-')}")
    }
    given = (word.partition("=")[0] for word in words)
    found = next((option for option in given if option in reasons and option not in known), None)
    return None if found is None else f"{found} of Ludwig is not carried out here: {reasons[found]}"


class _Nothing(argparse.Action):
    def __call__(self, *_: Any) -> None: ...


def train(parser: argparse.ArgumentParser) -> None:
    """Of `train`."""
    config(parser)
    data(parser)
    output(parser)
    group = parser.add_argument_group("model")
    flag(
        group, "model_load_path", "-mlp", metavar="DIR", help="start from the weights of this model"
    )
    flag(
        group,
        "model_resume_path",
        "-mrp",
        metavar="DIR",
        help="go on with the run in this experiment folder",
    )
    flag(group, "gpus", "-g", metavar="LIST", help="GPUs to use, such as 0 or 0,1; -1 for none")
    profile(parser)
    skip(parser, [name for name in SKIPS if name != "skip_save_hyperopt_statistics"])
    command = parser.prog.rpartition(" ")[2]
    examples(
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
    flag(
        group,
        "model_path",
        "-m",
        required=True,
        metavar="DIR",
        help="the model folder, or the experiment's folder",
    )
    flag(group, "trust", action="store_true", help="run the model's own class and extensions")
    flag(group, "batch_size", "-bs", type=int, metavar="N", help="rows of a batch")
    flag(group, "gpus", "-g", metavar="LIST", help="GPUs to use; -1 for none")
    flag(
        group,
        "backend",
        "-b",
        metavar="NAME",
        help="where to run (default: what is detected, else local)",
    )
    flag(group, "logging_level", "-l", default="info", metavar="LEVEL")
    flag(
        group,
        "output_directory",
        "-od",
        default="results",
        metavar="DIR",
        help="folder or address; default: results",
    )
    flag(
        group,
        "credentials",
        metavar="FILE",
        help="JSON: what the bucket of model or results is opened with",
    )
    profile(parser)
    data = parser.add_argument_group("data")
    flag(data, "dataset", required=True, metavar="PATH", help="the rows to read")
    flag(
        data,
        "data_format",
        metavar="FORMAT",
        help=DATA_FORMAT,
    )


def predict(parser: argparse.ArgumentParser) -> None:
    """Of `predict`."""
    model(parser)
    group = parser.add_argument_group("predictions")
    flag(
        group,
        "output_file",
        "-o",
        metavar="FILE",
        help="FILE.csv or FILE.parquet; default: predictions.parquet in --output_directory",
    )
    flag(
        group,
        "keep",
        "-k",
        action="append",
        default=[],
        metavar="COLUMN",
        help="a column of the dataset to put before the predictions, such as a key; may be given "
        "again",
    )
    flag(group, "overwrite", action="store_true", help="replace predictions that are there")
    skip(parser, ["skip_save_predictions", "skip_save_log"])
    examples(
        parser,
        "predict --model_path results/experiment_run --dataset new.csv --output_file "
        "new_predictions.csv --keep id",
        "grep -v test new.csv | distcore predict -m results/experiment_run --dataset -",
    )


def evaluate(parser: argparse.ArgumentParser) -> None:
    """Of `evaluate`."""
    model(parser)
    skip(parser, ["skip_save_predictions", "skip_save_eval_stats", "skip_save_log"])
    examples(parser, "evaluate --model_path results/experiment_run --dataset test.csv")


def preprocess(parser: argparse.ArgumentParser) -> None:
    """Of `preprocess`."""
    config(parser)
    data(parser)
    profile(parser)
    examples(parser, "preprocess config.yaml data.csv")


def plan(parser: argparse.ArgumentParser) -> None:
    """Of `plan`."""
    config(parser)
    data(parser)
    flag(parser, "json", action="store_true", help="print JSON")
    flag(parser, "gpus", "-g", metavar="LIST", help="GPUs to use; -1 for none")
    group = parser.add_argument_group("many workers")
    flag(
        group,
        "workers",
        type=int,
        metavar="N",
        help="say what a step would cost among 1, 2, 4, … N workers",
    )
    flag(
        group,
        "bandwidth",
        type=float,
        metavar="GBIT",
        help="of the network of each of them, in Gbit/s (default: as measured on the loopback)",
    )
    flag(
        group,
        "latency",
        type=float,
        metavar="US",
        help="of a message, in microseconds (default: as measured on the loopback)",
    )
    examples(
        parser,
        "plan config.yaml data.csv",
        "plan config.yaml data.csv --backend ray --json",
        "plan config.yaml data.csv --workers 64 --bandwidth 10 --latency 50",
    )


def init(parser: argparse.ArgumentParser) -> None:
    """Of `init`."""
    data(parser)
    flag(
        parser,
        "model",
        choices=("network", "trees"),
        default="network",
        help="what to train: a neural network, or gradient-boosted trees (needs distcore-lightgbm)",
    )
    flag(
        parser,
        "target",
        "-t",
        required=True,
        action="append",
        metavar="COLUMN",
        help="what to predict; may be given again",
    )
    flag(parser, "output", "-o", metavar="FILE", help="where to write; default: standard output")
    examples(
        parser,
        "init --dataset data.csv --target price --output config.yaml",
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
    flag(parser, "output", metavar="FILE", help="where the lock goes; default: distcore.lock")
    flag(parser, "json", action="store_true", help="print JSON, an object a row")
    flag(
        parser,
        "timeout",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="deadline for one plugin's import",
    )
    examples(parser, "plugins", "plugins --json", "plugins lock --output distcore.lock")


def doctor(parser: argparse.ArgumentParser) -> None:
    """Of `doctor`."""
    flag(parser, "json", action="store_true", help="print JSON")
    flag(
        parser,
        "calibrate",
        action="store_true",
        help="measure this machine in about a minute, so that `distcore plan` says how long and "
        "how much",
    )
    examples(parser, "doctor", "doctor --calibrate")


def diff(parser: argparse.ArgumentParser) -> None:
    """Of `diff`."""
    for name, what in (("one", "a run's folder or address"), ("other", "the other run's")):
        parser.add_argument(name, metavar=name.upper(), help=what)
    _records(parser, "runs", "info")
    examples(parser, "diff results/experiment_run results/experiment_run_1")


def verify(parser: argparse.ArgumentParser) -> None:
    """Of `verify`."""
    parser.add_argument("run_folder", metavar="RUN", help="a run's folder or address")
    flag(parser, "dataset", metavar="PATH", help="where its data are now; default: where they were")
    flag(
        parser,
        "steps",
        metavar="FROM:TO",
        help="replay from the checkpoint of a step, and compare until another",
    )
    flag(parser, "backend", "-b", metavar="NAME", help="where to replay it; default: as the run")
    _records(parser, "run", "warning")
    examples(
        parser, "verify results/experiment_run", "verify results/experiment_run --steps 200:300"
    )


def _records(parser: argparse.ArgumentParser, whose: str, level: str) -> None:
    """What a command takes that reads what runs left."""
    help = f"JSON: what the bucket of the {whose} is opened with"
    flag(parser, "credentials", metavar="FILE", help=help)
    flag(parser, "json", action="store_true", help="print JSON")
    flag(parser, "logging_level", "-l", default=level, metavar="LEVEL")


def schema(parser: argparse.ArgumentParser) -> None:
    """Of `schema`."""
    flag(parser, "output", "-o", metavar="FILE", help="where to write; default: standard output")
    examples(parser, "schema --output schema.json")


def completion(parser: argparse.ArgumentParser) -> None:
    """Of `completion`."""
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="whose script to print")
    examples(
        parser,
        "completion bash > ~/.local/share/bash-completion/completions/distcore",
        'completion zsh > "${fpath[1]}/_distcore"',
        "completion fish > ~/.config/fish/completions/distcore.fish",
    )
