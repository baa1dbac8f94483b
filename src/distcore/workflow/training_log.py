"""training_log.jsonl: a line of JSON an evaluation round, written while the run goes on."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from distcore_core.contracts import JSON, ResultsStore
from distcore_core.io.atomic import write_file
from distcore_core.progress import Progress, Round

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


def read_log(path: Path) -> list[JSON]:
    """The rounds of a log, in order; [] if there is none. A line that a kill cut short is left
    out."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [each for each in found if isinstance(each, dict)]


class _Writer:
    """Appends; the first line drops what a resumed run does again. A full disk costs the log,
    not the run."""

    def __init__(self, path: Path) -> None:
        self.path, self._begun, self._failed = path, False, False

    def write(self, found: Round) -> None:
        """One line."""
        if self._failed:
            return
        try:
            if not self._begun and self.path.exists():
                kept = [each for each in read_log(self.path) if each.get("step", 0) < found.step]
                write_file(self.path, "".join(json.dumps(each) + "\n" for each in kept).encode())
            self._begun = True
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(found)) + "\n")
        except OSError as error:
            self._failed = True
            log.warning("%s cannot be written and ends here: %s.", self.path, error.strerror)
