"""The run ledger: what the weights were, step by step, in a file that outlives the run.

<results>/ledger.jsonl, a line of JSON each, sealed with a digest of itself:
  {"step": 0, "run": {…}}
      the run began here, or went on, and with what (`facts.py`)
  {"step": 20, "weights": "1f…"}
      fingerprint of all weights and buffers after 20 steps
  {"step": 20, "weights": "1f…", "optimizer": "ab…"}
      at a checkpoint also that of the optimizer's state

Rank 0 writes it, and forces it to disk before a checkpoint of the same step counts. A run that goes
on from a checkpoint drops the lines of later steps and writes them again.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from distcore_core.contracts import JSON
from distcore_core.errors import CheckpointError
from distcore_core.io.atomic import write_file
from distcore_data.os_errors import explained
from distcore_data.seals import append, read_bounded, sealed, unsealed

LEDGER = "ledger.jsonl"
"""The file in a results folder."""

MOST_BYTES = 1 << 30
"""Of a ledger that is read: several million lines."""

ADVICE = "choose another --output_directory"

log = logging.getLogger("distcore")


class Entry(NamedTuple):
    """One line. weights, optimizer: fingerprints in hexadecimal, "" if the line has none. run: see
    `facts.py`."""

    step: int
    weights: str = ""
    optimizer: str = ""
    run: JSON | None = None

    def as_json(self) -> JSON:
        """As it is written."""
        parts = {"weights": self.weights, "optimizer": self.optimizer, "run": self.run}
        return {"step": self.step, **{name: each for name, each in parts.items() if each}}


class Flaw(NamedTuple):
    """A line that is not as it was written. line: from 1 on. torn: the last one, cut short by a
    kill."""

    line: int
    why: str
    torn: bool = False


class Ledger:
    """The writing side. Entries wait in memory until `write`, which another thread may call.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()  # as the saver's, in whose thread it is written
        self._waiting: list[Entry] = []
        self._last = -1

    def begin(self, step: int, run: JSON) -> JSON | None:
        """Go on after a step, or begin at 0: drop what an earlier attempt wrote of later steps.

        Returns:
            What the run went on with until now, as its last line of that kind says; None if there
            is none.

        Raises:
            CheckpointError: The file cannot be read or written.
        """
        kept: list[Entry] = []
        if step and self.path.exists():
            with explained(self.path.parent, "the ledger", CheckpointError, advice=ADVICE):
                entries, flaws = read_ledger(self.path)
            kept = [each for each in entries if each.step <= step]
            for flaw in flaws:
                if not flaw.torn:
                    log.warning("%s, line %d, is damaged (%s) and left out.", self.path, *flaw[:2])
        before = next((each.run for each in reversed(kept) if each.run), None)
        if run != before:
            kept.append(Entry(step, run=run))
        self._last = max((each.step for each in kept if each.weights), default=-1)
        with explained(self.path.parent, "the ledger", CheckpointError, advice=ADVICE):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_file(self.path, b"".join(_lines(kept)))
        return before

    def add(self, step: int, weights: str, optimizer: str = "") -> None:
        """What the weights are after a step. A second entry of a step says something only with
        `optimizer`."""
        if step > self._last or optimizer:
            self._last = step
            if self._waiting and self._waiting[-1].step == step:
                self._waiting.pop()
            self._waiting.append(Entry(step, weights, optimizer))

    def waiting(self) -> list[Entry]:
        """The entries that are not written yet, which the caller has from now on."""
        taken, self._waiting = self._waiting, []
        return taken

    def write(self, entries: Iterable[Entry]) -> None:
        """Append entries and force them to disk. Raises CheckpointError if the disk is full."""
        content = b"".join(_lines(entries))
        if content:
            with explained(self.path.parent, "the ledger", CheckpointError, advice=ADVICE):
                append(self.path, content, force=True)


def _lines(entries: Iterable[Entry]) -> Iterator[bytes]:
    return (sealed(each.as_json(), line=True) for each in entries)


def read_ledger(path: Path) -> tuple[list[Entry], list[Flaw]]:
    """The entries of a ledger in the order of the file, and the lines that are not as they were
    written.

    A step that has two entries, because a checkpoint came later, is one, with both fingerprints.
    Raises FileNotFoundError if there is none, OSError as the system gave it, or for a pipe and for
    more than 1 GiB."""
    entries: list[Entry] = []
    flaws: list[Flaw] = []
    try:
        content = read_bounded(path, MOST_BYTES)
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error)) from None
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        try:
            entry = _entry(unsealed(line))
        except (ValueError, KeyError, TypeError) as error:
            flaws.append(Flaw(number, str(error), torn=not line.endswith(b"\n")))
            continue
        last = entries[-1] if entries else None
        if last is not None and last.step == entry.step and last.weights == entry.weights != "":
            entries[-1] = entry
        else:
            entries.append(entry)
    return entries, flaws


def _entry(found: JSON) -> Entry:
    step = found["step"]
    if not isinstance(step, int) or not all(
        isinstance(found.get(each, ""), str) for each in ("weights", "optimizer")
    ):
        raise ValueError("it is no line of a ledger")
    return Entry(step, found.get("weights", ""), found.get("optimizer", ""), found.get("run"))
