"""training_log.jsonl: a line of JSON an evaluation round, sealed, written while the run goes on.
`begun`, the same in each line of one start, says when training began (seconds since 1970)."""

from __future__ import annotations

import errno
import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from distcore_core.contracts import ResultsStore
from distcore_core.progress import Progress, Round
from distcore_data.run_files import TRAINING_LOG
from distcore_data.seals import append, refuse_link, sealed, unsealed

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
            begun.get_file(TRAINING_LOG, directory / TRAINING_LOG)
    writer = _Writer(directory / TRAINING_LOG)
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
        self._told = -math.inf
        self._begun = 0.0

    def write(self, found: Round) -> None:
        """One line."""
        if self._failed:
            return
        try:
            refuse_link(self.path)
            if found.step <= self._last_step and self.path.exists():
                self._drop_from(found.step)
            self._last_step = found.step
            line = {**asdict(found), "begun": self._begun_of(found)}
            append(self.path, sealed(line, line=True))
        except OSError as error:
            self._failed = True
            log.warning("%s cannot be written and ends here: %s.", self.path, error.strerror)

    def _begun_of(self, found: Round) -> float:
        """When the start that the round is of began; workers that are started again begin after
        the round before was told."""
        now = time.monotonic()
        if now - found.seconds > self._told:
            self._begun = round(time.time() - found.seconds, 3)
        self._told = now
        return self._begun

    def _drop_from(self, step: int) -> None:
        """Cut off the lines of that step and of later ones, and one that a kill cut short."""
        if not self.path.is_file():  # to read a pipe may last for ever
            raise OSError(errno.EINVAL, "it is no file")
        end = 0
        with self.path.open("r+b") as file:
            for line in file:
                if not line.endswith(b"\n") or _step_of(line) >= step:
                    break
                end += len(line)
            file.truncate(end)


def _step_of(line: bytes) -> float:
    """Minus infinity of a line that was changed, which whoever reads the log passes over."""
    try:
        step: float = unsealed(line)["step"]
    except (ValueError, KeyError):
        return -math.inf
    return step
