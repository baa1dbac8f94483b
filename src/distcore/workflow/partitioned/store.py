"""Finished pieces, kept as whole objects beside the output until that is written: a killed run goes
on with them.

<output>/predictions.parts/
  <key>-000012.piece     what was found about piece 12; key: of the model, the dataset, and what was
                         asked. Its own name in a line, so that none is taken for another, and
                         what `packed` gave
  lock                   in a folder: held by the process that works here

In a bucket nothing is locked. Two processes of one key put the same bytes; if one clears away what
the other still wants to read, that one answers those pieces again by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from distcore.workflow.partitioned.packed import Found, unpacked
from distcore_core.errors import DistcoreError, StoreError, TrainingError, UserError
from distcore_data import stores
from distcore_data.locks import locked_if_free
from distcore_data.os_errors import explained
from distcore_data.stores.local import LocalStore
from distcore_torch.prediction_files import ANOTHER_PLACE

FOLDER = "predictions.parts"

log = logging.getLogger("distcore")


class Store:
    """The pieces of one key. done: how many were found or put. Used inside `opened_store`."""

    def __init__(self, files: stores.Store, key: str) -> None:
        self.files = files
        self.key = key
        self.done = 0

    @property
    def place(self) -> str:
        """Where they are, for people."""
        return self.files.where(FOLDER)

    def name(self, index: int) -> str:
        return f"{FOLDER}/{self.key}-{index:06d}.piece"

    def _label(self, index: int) -> bytes:
        return f"{self.name(index)}\n".encode()

    def there(self) -> set[str]:
        """Names of the pieces that are kept."""
        return {
            each
            for each in self.files.list(f"{FOLDER}/")
            if each.startswith(f"{FOLDER}/{self.key}-")
        }

    def get(self, index: int) -> Found | None:
        """What was found about a piece; None if it is not here, or is damaged or another one."""
        try:
            content, label = self.files.read(self.name(index)), self._label(index)
            if not content.startswith(label):
                raise DistcoreError("This is another piece.")
            return unpacked(content[len(label) :])
        except FileNotFoundError:
            return None
        except StoreError:
            raise
        except DistcoreError:
            log.warning(
                "%s is damaged, or of another version or place, so this piece is worked on again.",
                self.files.where(self.name(index)),
            )
            return None

    def put(self, index: int, content: bytes) -> Found:
        """Keep what `packed` gave. Raises TrainingError if the disk is full, DistcoreError for
        damaged bytes."""
        found = unpacked(content)
        with explained(self.place, "the predictions", TrainingError, advice=ANOTHER_PLACE):
            self.files.write(self.name(index), self._label(index) + content)
        self.done += 1
        return found

    def clear(self) -> None:
        """Remove the pieces."""
        self.files.delete(sorted(self.there()))
        self.done = 0


@contextmanager
def opened_store(output: Path, bucket: stores.Store | None, key: str) -> Iterator[Store]:
    """The store beside an output: in the bucket that this goes to, if it goes to one, else in its
    folder.

    There it is for this process alone, and folders that it made are gone if nothing is left in
    them. Raises UserError if another process works there."""
    if bucket is not None:
        store = Store(bucket, key)
        _tell_of_others(store)
        yield store
        return
    folder = output / FOLDER
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    with explained(output, "the predictions", TrainingError, advice=ANOTHER_PLACE):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked_if_free(folder / "lock") as mine:
            if not mine:
                raise UserError(
                    f"Another process is predicting into {output}. Wait for it, or give another "
                    "--output_directory."
                )
            for path in folder.glob(".*.piece.*.tmp"):  # what a killed process was writing
                path.unlink(missing_ok=True)
            store = Store(LocalStore(output), key)
            _tell_of_others(store)
            yield store
    finally:
        with suppress(OSError):  # something lies in it
            for each in made or [folder]:
                each.rmdir()


def _tell_of_others(store: Store) -> None:
    """Say what lies here that will not be used."""
    pieces = [each for each in store.files.list(f"{FOLDER}/") if each.endswith(".piece")]
    others = len(pieces) - len(store.there())
    if others:
        log.info(
            "%s: %d pieces are of other rows, or another model; remove them if you want none.",
            store.place,
            others,
        )
