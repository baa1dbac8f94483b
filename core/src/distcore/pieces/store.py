"""Finished pieces, kept as whole files beside the output until that is written: a killed run goes on with them.

<output>/predictions.parts/
  <key>-000012.piece     what was found about piece 12; key: of the model, the dataset, and what was asked
  lock                   held by the process that works here
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from distcore.cache.locks import locked_if_free
from distcore.durable import explained, write_file
from distcore.errors import DistcoreError, TrainingError, UserError
from distcore.pieces.packed import Found, unpacked

FOLDER = "predictions.parts"

log = logging.getLogger("distcore")


class Store:
    """The pieces of one key. done: how many were found or put. Used inside `opened_store`."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder = folder
        self.key = key
        self.done = 0

    def path(self, index: int) -> Path:
        return self.folder / f"{self.key}-{index:06d}.piece"

    def get(self, index: int) -> Found | None:
        """What was found about a piece; None where it is not here, or is damaged."""
        try:
            return unpacked(self.path(index).read_bytes())
        except FileNotFoundError:
            return None
        except DistcoreError:
            log.warning("%s is damaged, so this piece is worked on again.", self.path(index))
            return None

    def put(self, index: int, content: bytes) -> Found:
        """Keep what `packed` gave. Raises TrainingError where the disk is full, DistcoreError for damaged bytes."""
        found = unpacked(content)
        advice = "choose another folder with --output_directory"
        with explained(self.folder, "the predictions", TrainingError, advice=advice):
            write_file(self.path(index), content)
        self.done += 1
        return found

    def clear(self) -> None:
        """Remove the pieces."""
        for path in self.folder.glob(f"{self.key}-*.piece"):
            path.unlink(missing_ok=True)


@contextmanager
def opened_store(output: Path, key: str) -> Iterator[Store]:
    """The store beside an output, for this process alone. Folders that it made are gone where nothing is left in them.

    Raises UserError where another process works there."""
    folder = output / FOLDER
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    with explained(output, "the predictions", TrainingError, advice="choose another folder with --output_directory"):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked_if_free(folder / "lock") as mine:
            if not mine:
                raise UserError(
                    f"Another process is predicting into {output}. Wait for it, or give another --output_directory."
                )
            _tidy(folder, key)
            yield Store(folder, key)
    finally:
        with suppress(OSError):  # something lies in it
            for each in made or [folder]:
                each.rmdir()


def _tidy(folder: Path, key: str) -> None:
    """Remove what a killed process was writing, and say what lies here that will not be used."""
    for path in folder.glob(".*.piece.*.tmp"):
        path.unlink(missing_ok=True)
    others = sum(not path.name.startswith(key) for path in folder.glob("*.piece"))
    if others:
        log.info("%s: %d pieces are of other rows, or another model; remove them if you want none.", folder, others)
