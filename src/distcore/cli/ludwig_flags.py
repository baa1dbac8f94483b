"""Flags of Ludwig's command line that are none of ours."""

from __future__ import annotations

import argparse
from collections.abc import Container, Sequence
from typing import Any

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
    "model_load_path": (
        ["-mlp"],
        "train and experiment start from a model's weights; predict and evaluate read a model with "
        "--model_path",
    ),
}
"""Flags of Ludwig that it would be wrong to pass over: what is so instead."""

COMMANDS = {
    "init_config": "`distcore init` writes a config",
    "render_config": "`distcore plan` shows what a config comes to",
    "visualize": "`distcore report` draws a run, and `distcore compare` several",
    "collect_summary": "`distcore.load(…).predictor.module` is the network, from Python",
    "collect_weights": "`distcore.load(…).predictor.module` is the network, from Python",
    "collect_activations": "`distcore.load(…).predictor.module` is the network, from Python",
    "serve": "`distcore.load(…).predict(…)` predicts, from Python",
    "check_install": "`distcore doctor` checks the machine and the plugins",
}
"""Commands of Ludwig that are none of ours: what does their work."""


def not_carried_out(words: Sequence[str], known: Container[str]) -> str | None:
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


class Nothing(argparse.Action):
    """A flag that may be given and changes nothing."""

    def __call__(self, *_: Any) -> None: ...
