"""How far a run is: a handful of fields that the work sets and that whoever draws it reads from
another thread.

The training loop stores a number; it never formats, prints or waits. The app's `ProgressView`
draws.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

Scores = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Round:
    """An evaluation round. Pickles, and is a line of `training_log.jsonl` (`dataclasses.asdict`).

    evaluation: its number, from 1. epoch: how many are done, of `epochs`. step: updates so far.
    metrics: {split: {output feature: {metric: value or None}}}. scored: the evaluation that these
        are of, if not of this one.
    split, feature, metric: whose `value` (None: not finite) picks the best round, if any does.
    best, best_evaluation: the best so far; None before there is one, or if the last is kept.
    patience_left: so many more without a better one end the training; None: it does not stop early.
    seconds: since training began in this process. unit: what epochs are called.
    """

    evaluation: int
    epoch: float
    epochs: float
    step: int
    metrics: Scores
    split: str
    feature: str
    metric: str
    value: float | None
    best: float | None
    best_evaluation: int | None
    patience_left: int | None
    seconds: float
    unit: str = "epoch"
    scored: int | None = None


class Stage(NamedTuple):
    """One that has ended. share: of its total that was done; 1 if nobody knew the total."""

    name: str
    rows: int
    seconds: float
    share: float


class Progress:
    """The stage under way.

    stage: "preprocess", "train", "evaluate", …; done and total count `unit`s ("rows", "steps", …),
        of which `first` were done before it began.
    loss: the last loss, a float or a tensor that the drawing thread reads.
    note: anything short to be shown behind the bar.
    stop: whoever looks on (a progress channel that heard of a ctrl-C elsewhere) asks training to
        save a checkpoint and end; text: why, if whoever asks goes on from there by itself.
    rounds: those of the training so far, each told by `tell`; on_round: who is called with each,
        and must not raise.
    """

    def __init__(self) -> None:
        self.stage = ""
        self.unit = "rows"
        self.done = self.first = 0
        self.total: int | None = None
        self.loss: Any = None
        self.note = ""
        self.stop: bool | str = False
        self.rows_per_unit: float = 1
        self.started = time.monotonic()
        self.stages_finished: list[Stage] = []
        self.rounds: list[Round] = []
        self.on_round: list[Callable[[Round], Any]] = []

    def begin(
        self, stage: str, total: int | None = None, unit: str = "rows", rows_per_unit: float = 0
    ) -> None:
        """A stage starts; the one before, if any, ends. rows_per_unit: 0 if nobody knows."""
        self.end()
        self.stage, self.total, self.unit = stage, total, unit
        self.rows_per_unit = rows_per_unit or float(unit == "rows")
        self.done, self.first, self.loss, self.note = 0, 0, None, ""
        self.started = time.monotonic()

    def end(self) -> None:
        """The stage under way is done."""
        if self.stage:
            share = min(1.0, self.done / self.total) if self.total else 1.0
            rows = round((self.done - self.first) * self.rows_per_unit)
            seconds = time.monotonic() - self.started
            self.stages_finished.append(Stage(self.stage, rows, seconds, share))
        self.stage = ""

    def tell(self, found: Round) -> None:
        """An evaluation round has ended."""
        self.rounds.append(found)
        for listener in self.on_round:
            listener(found)
