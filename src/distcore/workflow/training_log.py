"""training_log.jsonl: a line of JSON an evaluation round, sealed, written while the run goes on."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from distcore_core.contracts import ResultsStore
from distcore_core.io.atomic import write_file
from distcore_core.progress import Progress, Round
from distcore_data.seals import read_lines, sealed

NAME = "training_log.jsonl"

log = logging.getLogger("distcore")


@contextmanager
def training_log(
    progress: Progress, directory: Path | None, begun: ResultsStore | None = None
) -> Iterator[None]:
    """Write each round that `progress` is told into the folder until the block ends.

    Args:
        progress: Of the run.
        directory: None: nothing is written.
        begun: The bucket that has the rounds of a run that is gone on with.
    """
    if directory is None:
        yield
        return
    if begun is not None:
        with suppress(FileNotFoundError):
            begun.get_file(NAME, directory / NAME)
    writer = _Writer(directory / NAME)
    progress.on_round.append(writer.write)
    try:
        yield
    finally:
        progress.on_round.remove(writer.write)


class _Writer:
    """Appends; what a resumed run does again, or workers that were started again, is dropped. A
    full disk costs the log, not the run."""

    def __init__(self, path: Path) -> None:
        self.path, self._last_step, self._failed = path, math.inf, False

    def write(self, found: Round) -> None:
        """One line."""
        if self._failed:
            return
        try:
            if found.step <= self._last_step and self.path.exists():
                kept = [each for each in read_lines(self.path) if each["step"] < found.step]
                write_file(self.path, b"".join(sealed(each, line=True) for each in kept))
            self._last_step = found.step
            with self.path.open("ab") as file:
                file.write(sealed(asdict(found), line=True))
        except OSError as error:
            self._failed = True
            log.warning("%s cannot be written and ends here: %s.", self.path, error.strerror)
