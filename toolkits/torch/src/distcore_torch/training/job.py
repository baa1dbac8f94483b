"""What a `TrainJob` means to the torch trainer: its options, where its checkpoints are, where
its model goes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from distcore_core.contracts import JSON, TrainJob
from distcore_core.registry.manager import environment_plugins
from distcore_data.stores.run_sync import CHECKPOINTS

if TYPE_CHECKING:
    from distcore_torch.train_options import TrainerOptions

OPENER = "distcore_torch.training.open_job:open_job"
"""`TrainJob.opener` of every job, as text: whoever makes the job must not load torch."""


def train_options(job: TrainJob) -> TrainerOptions:
    """The `trainer` section of the job's config."""
    from distcore_torch.train_options import options_model

    given = job.config.get("trainer", {})
    return options_model(given, environment_plugins(job.plugins_block)).model_validate(given)


def model_of(job: TrainJob) -> JSON:
    """The config's model: {"type", "options"}, the combiner among these."""
    section = dict(job.config["model"])
    kind, combiner = section.pop("type"), job.config.get("combiner")
    return {
        "type": kind,
        "options": section if combiner is None else {**section, "combiner": combiner},
    }


def own_checkpoints(job: TrainJob) -> Path | None:
    """The folder of the checkpoints that the job keeps; None: it keeps none."""
    return job.directory / CHECKPOINTS if job.save_checkpoints and job.directory else None


def checkpoints_of(directory: Path) -> Path:
    """The folder of checkpoints: the one in an experiment's folder, or the folder itself."""
    from distcore_torch.training.checkpoint import list_checkpoints

    inner = directory / CHECKPOINTS
    return inner if inner.is_dir() or not list_checkpoints(directory) else directory


def output_folder(job: TrainJob) -> Path:
    """Where the model goes; a temporary folder if nothing is to be saved."""
    return job.directory or Path(tempfile.mkdtemp(prefix="distcore-model-"))
