"""A run once more, from its receipt: from the start, or from one of its checkpoints."""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distcore.workflow.initial_weights import INITIAL, check_weights
from distcore.workflow.receipt import BEGUN_WITH
from distcore.workflow.skips import SKIP_LOG, SKIP_PROGRESS, SKIP_REPORT
from distcore_core.contracts import JSON
from distcore_core.errors import DataError, DistcoreError, UserError
from distcore_data.model_folder import model_place
from distcore_data.run_files import DESCRIPTION, RECEIPT
from distcore_data.stores import Credentials, given_credentials
from distcore_data.stores.run_sync import CHECKPOINTS

SETS = ("dataset", "training_set", "validation_set", "test_set")
NOT_SAVED = frozenset({SKIP_REPORT, SKIP_LOG, SKIP_PROGRESS})


def replay(
    folder: Path,
    receipt: JSON,
    scratch: Path,
    data: Mapping[str, Any],
    steps: tuple[int, int | None] | None,
    backend: str | None,
    view: str,
    credentials: Any,
) -> Path:
    """Train again, from the start or from a checkpoint; the folder of its results."""
    from distcore.interface import train

    start, resume = None, None
    config = _config(receipt, backend, scratch)
    if steps is not None:
        resume = _begun(folder, scratch, steps[0])
        # What a schedule makes of a step depends on how many there are; then the replay goes on to
        # the end.
        if steps[1] is not None and _constant(config):
            config["trainer"]["train_steps"] = steps[1]
    elif initial := receipt.get(BEGUN_WITH):
        opened_with = given_credentials(credentials)
        start = _started_from(initial, folder, opened_with)
        if opened_with is not None:
            config["backend"]["cache_credentials"] = dict(opened_with.options)
    found = train(
        config,
        **_data(receipt, data),
        random_seed=receipt["random_seed"],
        backend=backend,
        output_directory=scratch / "results",
        model_load_path=start,
        model_resume_path=resume,
        skip=NOT_SAVED,
        view=view,
    )
    return Path(found.directory)


def _config(receipt: JSON, backend: str | None, scratch: Path) -> JSON:
    config: JSON = copy.deepcopy(receipt["config"])
    for name in ("extensions", "hyperopt"):
        config.pop(name, None)
    section = config["backend"]
    if not Path(_spelled(str(receipt["data"].get("cache", "")))).exists():
        section["cache_dir"] = str(scratch / "cache")
    if backend is not None:
        # Options of another backend and its trainer mean nothing here; the loader deals the rows.
        config["backend"] = {
            name: section[name]
            for name in ("cache_dir", "cache_format", "loader")
            if name in section
        }
    elif not receipt["exact"] and receipt["workers"] > 1:
        section["trainer"] = {
            "type": receipt["trainer"],
            **section.get("trainer", {}),
            "num_workers": receipt["workers"],
        }
    return config


def refuse_mixed(receipt: JSON, first: int, last: int | None) -> None:
    """Raise UserError if the steps that are to be replayed were not all computed by the number of
    workers that the receipt tells of: a run that is not exact went on with another one."""
    asked = {run.get("workers") for run in starts_within(receipt, first, last).values()}
    if not receipt["exact"] and asked - {receipt["workers"]}:
        course = ", ".join(
            f"{run.get('workers')} after step {step}" for step, run in receipt["starts"].items()
        )
        raise UserError(
            "The run cannot be replayed as a whole, because it is not exact and went on with "
            f"another number of workers: {course}. Replay steps that were all computed by "
            f"{receipt['workers']}, from a checkpoint that is still there: --steps FROM:TO."
        )


def starts_within(receipt: JSON, first: int, last: int | None) -> dict[int, JSON]:
    """What the steps that are replayed were computed with (`read_run`)."""
    starts: dict[int, JSON] = receipt["starts"]
    begun = max((step for step in starts if step <= first), default=first)
    return {
        step: run for step, run in starts.items() if step >= begun and (last is None or step < last)
    }


def _constant(config: JSON) -> bool:
    schedule = config["trainer"].get("learning_rate_scheduler") or {}
    return not schedule.get("decay") and not schedule.get("warmup_fraction")


def _begun(folder: Path, scratch: Path, step: int) -> Path:
    """A copy of the run as it was at a checkpoint."""
    from distcore_torch.training.checkpoint import list_checkpoints, step_of

    there = {step_of(each): each for each in list_checkpoints(folder / CHECKPOINTS)}
    if step not in there:
        known = f"those of steps {', '.join(map(str, sorted(there)))}" if there else "none"
        raise UserError(
            f"The run has no checkpoint of step {step}; it has {known}. Give --steps FROM:TO."
        )
    begun = scratch / "results" / "begun"
    shutil.copytree(there[step], begun / CHECKPOINTS / there[step].name)
    for name in (DESCRIPTION, RECEIPT):
        shutil.copy(folder / name, begun / name)
    return begun


def _started_from(initial: JSON, folder: Path, credentials: Credentials | None) -> str | Path:
    """Where the weights are that the run began with. Raises UserError if they are there no more."""
    recorded = str(initial["path"])
    place: str | Path = folder / INITIAL if recorded == INITIAL else _spelled(recorded)
    why = "they are others now."
    try:
        if check_weights(model_place(place, credentials))[0] == initial["sha256"]:
            return place
    except (DistcoreError, OSError) as error:
        why = f"{str(error).rstrip('.')}."
    raise UserError(
        f"The run cannot be replayed, because it began with the weights of {place}, and those "
        f"cannot be had: {why} Put them back there, or replay from a checkpoint: --steps FROM:TO."
    )


def _data(receipt: JSON, given: Mapping[str, Any]) -> dict[str, Any]:
    """Where the data are, of which those that are given are elsewhere than they were."""
    found = {name: each for name, each in given.items() if each is not None}
    if "dataset" in found:
        return found
    for name in SETS:
        where = receipt["data"].get(name)
        if not where or name in found or (name == "dataset" and found):
            continue
        where = _spelled(where)
        if not _is_there(where):  # nor is a frame, which is called "… in memory"
            raise UserError(
                f"The run's data, {where}, are not there to be read again. Say where they are: "
                f"--{name} PATH."
            )
        found[name] = where
    return found


def _spelled(recorded: str) -> str:
    """A path of a receipt as this process spells it, whose locale may be another than the run's."""
    if "://" in recorded:
        return recorded
    try:
        os.fsencode(recorded)
    except UnicodeEncodeError:
        return os.fsdecode(recorded.encode("utf-8", "surrogateescape"))
    return recorded


def _is_there(where: str) -> bool:
    """Whether a path, or a pattern of paths, leads anywhere; what is remote is asked when it is
    read."""
    from distcore_data.sources.fetch import existing, is_pattern, is_url, local_path
    from distcore_data.sources.parquet_files import parquet_files

    if is_url(where):
        return True
    path = local_path(where)
    try:
        return bool(parquet_files(path, where) if is_pattern(path) else existing(path))
    except DataError:
        return False
