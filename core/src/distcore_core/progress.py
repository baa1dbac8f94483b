"""How far a run is: a handful of fields that the work sets and that whoever draws it reads from another thread.

The training loop stores a number; it never formats, prints or waits. `ProgressView` (progress_view.py) draws.
"""

from __future__ import annotations

import time
from typing import Any


class Progress:
    """The stage under way.

    stage: "preprocess", "train", "evaluate", "predict", …; done and total count `unit`s ("rows", "steps", …).
    loss: the last loss, a float or a tensor that the drawing thread reads.
    note: anything short to be shown behind the bar.
    stop: whoever looks on (a progress channel that heard of a ctrl-C elsewhere) asks training to save a checkpoint and
        end; text: why, where whoever asks goes on from there by itself.
    """

    def __init__(self) -> None:
        self.stage = ""
        self.unit = "rows"
        self.done = 0
        self.total: int | None = None
        self.loss: Any = None
        self.note = ""
        self.stop: bool | str = False
        self.rows_per_unit = 1
        self.started = time.monotonic()
        self.stages_finished: list[tuple[str, int, float]] = []

    def begin(self, stage: str, total: int | None = None, unit: str = "rows", rows_per_unit: int = 1) -> None:
        """A stage starts; the one before, if any, ends."""
        self.end()
        self.stage, self.total, self.unit, self.rows_per_unit = stage, total, unit, rows_per_unit
        self.done, self.loss, self.note = 0, None, ""
        self.started = time.monotonic()

    def end(self) -> None:
        """The stage under way is done."""
        if self.stage:
            self.stages_finished.append((self.stage, self.done * self.rows_per_unit, time.monotonic() - self.started))
        self.stage = ""
