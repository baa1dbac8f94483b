"""What `predict` and `evaluate` may not replace where their results come: a run's, the dataset, and
whatever is there."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from distcore.workflow.results import PREDICTIONS
from distcore_core.errors import DataError, UserError
from distcore_data.run_files import (
    DESCRIPTION,
    ENDED,
    MODEL_JSON,
    RECEIPT,
    SUMMARY,
    TEST_STATISTICS,
    TRAINING_LOG,
    TRAINING_STATISTICS,
)
from distcore_data.stores.run_sync import CHECKPOINTS, MODEL, STARTED, Mirror
from distcore_data.temporaries import is_being_written
from distcore_torch.training.ledger import LEDGER

OF_A_RUN = (
    *(DESCRIPTION, RECEIPT, TRAINING_LOG, LEDGER, STARTED, ENDED),
    *(TRAINING_STATISTICS, SUMMARY, f"{MODEL}/{MODEL_JSON}"),
)
"""What runs alone write. A run may be told to leave out any of it."""

TEST_PREDICTIONS = "test_predictions.parquet"
"""An evaluation's predictions, if others are there."""

log = logging.getLogger("distcore")


class Place:
    """What lies where a command's results are to come, before any comes: a bucket is asked once.

    folder: the place, or on this machine what stands for it."""

    def __init__(self, folder: Path, mirror: Mirror | None) -> None:
        self.folder, self._mirror = folder, mirror

    @cached_property
    def _names(self) -> set[str]:
        assert self._mirror is not None
        return set(self._mirror.store.list())

    def has(self, name: str) -> bool:
        """Whether a file, folder or link of the name is there, be it one that leads nowhere."""
        if self._mirror is not None:
            return name in self._names
        path = self.folder / name
        return path.exists() or path.is_symlink()

    def is_being_written(self, name: str) -> bool:
        """Whether another command of this machine is at it. Of a bucket it is not known."""
        return self._mirror is None and is_being_written(self.folder / name)

    def shown(self, name: str) -> str:
        """Its path or address, for messages."""
        return str(self.folder / name) if self._mirror is None else self._mirror.store.where(name)

    def sign_of_a_run(self) -> str | None:
        """The name of something that only a run writes, if it is there."""
        checkpoint = f"{CHECKPOINTS}/step-"
        if self._mirror is None:
            saved = any(self.folder.glob(f"{checkpoint}*"))
        else:
            saved = any(name.startswith(checkpoint) for name in self._names)
        return next(filter(self.has, OF_A_RUN), CHECKPOINTS if saved else None)


def predictions_of_evaluation(place: Place, overwrite: bool) -> str:
    """The file for the predictions of an evaluation that writes its statistics, too: one of its own
    beside those of `predict`, so that both may stand in one folder."""
    if place.has(TEST_PREDICTIONS):
        return TEST_PREDICTIONS
    if overwrite or not place.has(PREDICTIONS) or place.has(TEST_STATISTICS):
        return PREDICTIONS
    log.info(
        "The evaluation's predictions go to %s, because %s is there and stays.",
        TEST_PREDICTIONS,
        PREDICTIONS,
    )
    return TEST_PREDICTIONS


def tell_what_stays(written: Sequence[str], place: Place) -> None:
    """Warn, where an evaluation leaves out some of its files, of those of an earlier one that lie
    beside what it writes."""
    earlier = [name for name in (TEST_STATISTICS, TEST_PREDICTIONS) if place.has(name)]
    if earlier == [TEST_STATISTICS] and place.has(PREDICTIONS):
        earlier.append(PREDICTIONS)
    for name in written and sorted(set(earlier) - set(written)):
        log.warning("%s stays: it is of an earlier evaluation, not of this one.", place.shown(name))


def refuse_beside_another(names: Sequence[str], place: Place) -> None:
    """Raise UserError, before any work, if another command writes one of the files now: only one
    of the two could leave it."""
    for name in filter(place.is_being_written, names):
        raise UserError(
            f"{place.shown(name)} is being written by another command. Wait for its end, or give "
            "another --output_directory."
        )


def refuse_to_overwrite(
    names: Sequence[str], place: Place, command: str, asked_for: bool = False
) -> None:
    """Raise UserError, before any work, if one of the files that the command would write lies there
    already; where that is asked for, if a folder does."""
    for name in filter(place.has, names):
        path = place.folder / name
        folder, gone = path.is_dir(), path.is_symlink() and not path.exists()
        if asked_for and not folder:
            continue
        what = "is a link that leads nowhere" if gone else "exists"
        file = "--output_file or " if command == "predict" else ""
        raise UserError(
            f"{place.shown(name)} {'is a folder' if folder else f'{what} and was left as it is'}. "
            f"Give another {file}--output_directory{'' if folder else ', or --overwrite'}."
        )


def refuse_to_replace(name: str, place: Place, dataset: str | Path) -> None:
    """Raise UserError, before any work, if the predictions would take the place of what they are
    of, or of one of its files."""
    from distcore_data.sources.fetch import is_url, local_path
    from distcore_data.sources.parquet_files import parquet_files

    path, shown = place.folder / name, place.shown(name)
    files: list[Path] = []
    if shown == str(path) and path.exists() and not is_url(str(dataset)):
        with suppress(DataError):  # told by who reads it
            files = parquet_files(local_path(dataset), str(dataset))
    if shown == str(dataset) or any(path.samefile(each) for each in files):
        what = "the dataset itself" if len(files) < 2 else f"a file of the dataset {dataset}"
        raise UserError(f"{shown} is {what}. Give another --output_file or --output_directory.")
    if shown == str(path):
        refuse_among_rows(path, dataset, "--output_file")


def refuse_among_rows(path: Path, dataset: object, option: str) -> None:
    """Raise UserError, before any work, if whoever reads the dataset next, a folder or pattern of
    Parquet files, would read predictions in that place as rows of it. option: what helps beside
    another folder."""
    from distcore_data.sources.fetch import is_url, local_path
    from distcore_data.sources.parquet_files import would_be_read

    if not isinstance(dataset, str | Path) or is_url(str(dataset)):
        return
    if would_be_read(path, local_path(dataset)):
        raise UserError(
            f"{path} would be a file of the dataset {dataset}, and the predictions be read as its "
            f"rows from then on. Give an --output_directory outside of it, or {option}."
        )


def refuse_a_run(place: Place, command: str) -> None:
    """Raise UserError, before any work, if the folder is a run's: what an evaluation finds, and
    predictions, have the names of what the run found of its test split, or finds once it goes on.
    Where a run ended without such, predictions may come."""
    sign = place.sign_of_a_run()
    found = place.has(PREDICTIONS) or not place.has(f"{MODEL}/{MODEL_JSON}")
    if sign is not None and (command == "evaluate" or found):
        raise UserError(
            f"{place.shown(sign)} is a run's, and its results were left as they are. Give another "
            "--output_directory."
        )
