"""Evaluation rounds of a trial as JSON lines: written in rank 0 by an extension, followed by who
watches the trial.

Each line holds its own digest, so that none is changed unseen.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from distcore_core.contracts import JSON
from distcore_core.errors import UserError
from distcore_core.hooks import hookimpl
from distcore_data.base_options import Options
from distcore_data.seals import append, damaged, refuse_special, sealed, unsealed

log = logging.getLogger("distcore")


class RoundsOptions(Options):
    """`extensions: [{type: rounds, path: …}]`."""

    path: str = Field(
        description="The file, one line of JSON an evaluation round: step, epoch, seconds, metrics."
    )
    until: int | None = Field(None, description="The step whose evaluation ends training.")


class Rounds:
    """The extension `rounds`. A line is one write: a reader sees it whole or, torn by a kill,
    passes it over."""

    def __init__(self, options: RoundsOptions) -> None:
        self.path, self.until = Path(options.path), options.until
        self.started = time.monotonic() - seconds_of(Follower(self.path).new())

    @hookimpl
    def epoch_finished(self, epoch: int, step: int, metrics: Mapping[str, Any]) -> str | None:
        seconds = round(time.monotonic() - self.started, 3)
        found = {"step": step, "epoch": epoch, "seconds": seconds, "metrics": metrics}
        try:
            add_round(self.path, found)
        except OSError as error:  # the answer is worth more than the line
            log.warning("%s lacks the round of step %d: %s.", self.path, step, error)
        over = self.until is not None and step >= self.until
        return "The search had stopped this trial here." if over else None


def add_round(path: Path, found: JSON) -> None:
    """Write the line of a round: {"step", "epoch", "seconds", "metrics"}."""
    path.parent.mkdir(parents=True, exist_ok=True)
    append(path, sealed(found, line=True))


@dataclass(frozen=True)
class Round:
    """number: 1, 2, … over all attempts at the trial. seconds: that it had been trained for, in all
    of them."""

    number: int
    step: int
    seconds: float
    metrics: Mapping[str, Any]


PASSED_OVER = "%s, line %d, is damaged or was cut short by a kill (%s). This round is passed over."
_told: set[tuple[Path, int]] = set()
"""Lines of which that was said: several parts of a search read the same file."""


class Follower:
    """New rounds of a file since the last look; a step that a resumed trial evaluates again is not
    new.

    A line that is not as it was written is passed over, with a warning."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = self._line = 0
        self._last = Round(0, 0, 0.0, {})

    def new(self) -> Iterator[Round]:
        """What was added. The file need not be there yet. Raises UserError for what is no file."""
        try:
            refuse_special(self.path)
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                text = file.read()
        except FileNotFoundError:
            return
        except (IsADirectoryError, ValueError) as error:
            advice = "Remove it and go on: the trial's next rounds are written anew."
            raise UserError(damaged(self.path, error, advice)) from None
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            self._line += 1
            try:
                found = unsealed(line + b"\n")
            except ValueError as error:
                if line:
                    self._pass_over(error)
                continue
            if found["step"] > self._last.step:
                self._last = Round(
                    self._last.number + 1, found["step"], found["seconds"], found["metrics"]
                )
                yield self._last

    def _pass_over(self, why: object, more: int = 0) -> None:
        """Say so of the last line that was read, or of the one `more` lines behind it; once a
        process."""
        line = (self.path.absolute(), self._line + more)
        if line not in _told:
            _told.add(line)
            log.warning(PASSED_OVER, self.path, line[1], why)


def rounds_of(path: Path) -> list[Round]:
    """All rounds of a file that nobody writes any more; a last line that was cut short is told
    too."""
    follower = Follower(path)
    rounds = list(follower.new())  # which refuses a pipe, at which _ends_torn would wait
    if _ends_torn(path):
        follower._pass_over("it does not end", more=1)
    return rounds


def seconds_of(rounds: Iterable[Round]) -> float:
    """How long a trial had been trained for by its last round; 0.0 without one."""
    return max((each.seconds for each in rounds), default=0.0)


def _ends_torn(path: Path) -> bool:
    """Whether the last line was cut short."""
    try:
        with open(path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:  # not there, or empty
        return False
