"""The run to go on with (`--model_resume_path`): whether one was begun there, and by which
config."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_core.errors import UserError
from distcore_data.run_files import DESCRIPTION
from distcore_data.seals import damaged, read_bounded, unsealed
from distcore_data.stores.run_sync import CHECKPOINTS, Mirror

if TYPE_CHECKING:
    from distcore.config import RunConfig
    from distcore_data.stores import Credentials

NO_RUN = (
    f"there is no {DESCRIPTION} and no {CHECKPOINTS}/. Give the experiment's folder, such as "
    "results/experiment_run"
)

CHANGED = (
    "Take it from a backup, or give the config that the run was begun with (--config): "
    "a config that was changed by hand is given like any other."
)


def config_to_resume(config: Any, resume: Path | str | None) -> RunConfig:
    """The config, or if none is given that of the run to go on with.

    Raises UserError if the folder holds no run, or what it was begun with is damaged."""
    from distcore.config import load_config

    if config is not None or resume is None:
        given = load_config(config)
        if resume is not None and not _was_begun(resume, given.backend.credentials):
            raise UserError(f"{resume} holds no run to go on with: {NO_RUN}.")
        return given
    try:
        description = (
            read_bounded(resume / DESCRIPTION)
            if isinstance(resume, Path)
            else Mirror.at(resume).store.read(DESCRIPTION)
        )
        return load_config(unsealed(description)["config"])
    except (FileNotFoundError, NotADirectoryError):
        if _was_begun(resume, None):
            raise UserError(
                f"{resume} has no {DESCRIPTION}, and so no config to go on with. Give the one that "
                "the run was begun with: --config."
            ) from None
        raise UserError(f"{resume} holds no run to go on with: {NO_RUN}.") from None
    except (OSError, ValueError, KeyError) as error:
        raise UserError(damaged(f"{resume}/{DESCRIPTION}", error, CHANGED)) from None


def _was_begun(place: Path | str, credentials: Credentials | None) -> bool:
    """Whether a run was begun in a folder, or at an address: its description may be left out."""
    if isinstance(place, Path):
        return any(os.path.exists(place / name) for name in (DESCRIPTION, CHECKPOINTS))
    there = Mirror.at(place, credentials).store.list()
    return any(name.partition("/")[0] in (DESCRIPTION, CHECKPOINTS) for name in there)
