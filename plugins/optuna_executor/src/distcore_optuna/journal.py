"""Optuna's journal with a digest and a number in each line: none is changed, lost or repeated
unseen.

A line stays what Optuna writes, {"op_code": …}, with two keys more, which its dashboard passes
over.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from optuna.storages.journal import BaseJournalBackend

from distcore_core.errors import TrainingError, UserError
from distcore_data.os_errors import explained
from distcore_data.seals import append, damaged, refuse_special, sealed, unsealed
from distcore_search.records import ELSEWHERE

log = logging.getLogger("distcore")


class JournalDamaged(Exception):
    """The journal is not as it was written; says why."""


class SealedJournal(BaseJournalBackend):
    """The journal of one search. The search holds its folder and one thread writes, so it needs no
    lock of its own.

    A last line that a kill cut short is dropped, with a warning: its operation is made again.
    Raises UserError for what is no file, JournalDamaged for a link: what is behind it is not ours.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offsets = [0]
        self._waiting: list[dict[str, Any]] | None = None
        if path.is_symlink():
            raise JournalDamaged("it is a link")
        try:
            path.touch()
            refuse_special(path)
            content = path.read_bytes()
        except (IsADirectoryError, ValueError) as error:
            advice = "Remove it and go on: it is made anew from the trials' records."
            raise UserError(damaged(path, error, advice)) from None
        whole = content.rfind(b"\n") + 1
        if whole != len(content):
            log.warning("The last line of %s was cut short by a kill, and is dropped.", path)
            os.truncate(path, whole)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """What is written within the block comes into the file in one piece at its end.

        After an error nothing does, and who has read what was to be written must not go on."""
        self._look_ahead()
        waiting: list[dict[str, Any]] = []
        self._waiting = waiting
        try:
            yield
        finally:
            self._waiting = None
        if waiting:
            self.append_logs(waiting)

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """The operations from that number on; within `whole` those that wait. Raises
        JournalDamaged."""
        if self._waiting is not None:
            yield from self._waiting[log_number_from - len(self._offsets) + 1 :]
            return
        self._look_ahead()
        with self.path.open("rb") as file:
            file.seek(self._offsets[log_number_from])
            for number, line in enumerate(file, log_number_from):
                yield self._operation(number, line)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write operations, all or none, and force them to disk. Raises JournalDamaged, and
        TrainingError if the system refuses."""
        if self._waiting is not None:
            self._waiting += logs
            return
        self._look_ahead()
        first = len(self._offsets) - 1
        lines = [sealed({"line": first + at, **each}, line=True) for at, each in enumerate(logs)]
        with explained(self.path.parent, self.path.name, TrainingError, advice=ELSEWHERE):
            append(self.path, b"".join(lines), force=True)
        self._pass(lines)

    def _look_ahead(self) -> None:
        """Know where each line begins and the last one ends. Raises JournalDamaged if what was
        there is not any more."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            raise JournalDamaged("it is gone") from None
        with file:
            if file.seek(0, os.SEEK_END) < self._offsets[-1]:
                raise JournalDamaged("it was cut short")
            file.seek(self._offsets[-1])
            self._pass(file)

    def _pass(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self._offsets.append(self._offsets[-1] + len(line))

    def _operation(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            found = unsealed(line)
            if found.pop("line") != number:
                raise ValueError("a line before it is missing, or there twice")
        except (ValueError, KeyError) as error:
            raise JournalDamaged(f"line {number + 1}: {error}") from None
        return found
