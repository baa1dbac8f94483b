"""The hook specs of events: what a run tells whoever listens to it; one may be answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distcore_core.hooks import PROJECT, hookspec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@hookspec
def run_started(
    command: str, config: Mapping[str, Any], directory: Path | None, address: str | None
) -> None:
    """A command begins: its data are read and checked (`cache_written` came before, if one was
    built), its folder is made. Called in the process that the user started.

    Args:
        config: As resolved, without credentials.
        directory: The experiment's folder; None if the command has none.
        address: Of the bucket that the folder is copied to; None if it stays on this machine.

    `preprocess` has looked at no data yet, `predict` and `evaluate` have opened the model alone:
    the config is what it knows of its own, directory where results will lie; it need not exist."""


@hookspec
def cache_written(key: str, directory: str, rows: Mapping[str, int], seconds: float) -> None:
    """A cache was built and committed. Not called for a hit.

    Args:
        key: Of the cache.
        directory: The folder or address of all caches.
        rows: Of each split.
        seconds: That it took."""


@hookspec
def epoch_finished(
    epoch: int, step: int, metrics: Mapping[str, Any], directory: Path | None
) -> str | None:
    """An evaluation round ended. Called in rank 0.

    Args:
        epoch: How many epochs have begun.
        step: Updates of the weights so far.
        metrics: {"training" | "validation": {output feature: {metric: value or None}}}.
        directory: The experiment's folder, as in `run_started`, which rank 0 of a worker group does
            not hear; or None.

    Returns:
        Why training should end here, with its best weights and a checkpoint; None: go on."""


@hookspec
def checkpoint_saved(step: int, directory: Path) -> None:
    """A checkpoint is whole on disk. Called in rank 0, once it is: checkpoints are written beside
    training, so `epoch_finished` of the same step may come before.

    Args:
        step: Updates of the weights that are in it.
        directory: The checkpoint."""


@hookspec
def trial_finished(name: str, record: Mapping[str, Any], directory: Path) -> None:
    """A trial of a search ended: finished, stopped early or failed. Called in the process that the
    user started.

    Args:
        record: {"parameters", "state", "score", "rounds", "seconds", "error", …}.
        directory: The trial's folder."""


@hookspec
def predictions_written(path: Path, rows: int) -> None:
    """Predictions are whole on disk.

    Args:
        path: Their file or folder.
        rows: How many."""


@hookspec
def results_written(command: str, directory: Path) -> None:
    """The results of `train`, `experiment` or `hyperopt` are whole in their folder. Called in the
    process that the user started.

    Args:
        command: Which one.
        directory: The results.

    What a listener writes there is one of them: if they go to a bucket, it is put there with the
    others."""


@hookspec
def run_finished(command: str, directory: Path | None, error: BaseException | None) -> None:
    """The command ended, well or not. Called in the process that the user started.

    Args:
        error: How; None: well.
        directory: None if the command has no folder, or ended before it was made; `run_started` was
            then not called."""


EVENTS = tuple(name for name, each in vars().copy().items() if hasattr(each, f"{PROJECT}_spec"))
"""Their names."""
