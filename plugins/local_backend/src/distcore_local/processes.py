"""How many processes the trainer `local` takes for exact training, whose bits do not depend on it.

It begins in the command's own process. A thread looks at how long the first steps take, and asks
training to stop if several processes would save more than starting them costs, counting only steps
that are sure to come: early stopping may end a run. Training then goes on from the checkpoint of
that step. So a run is no slower than in one process.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distcore_torch.training.heartbeat import COMPUTING, LOADING, heartbeat

if TYPE_CHECKING:
    from distcore_core.progress import Progress
    from distcore_torch.train_options import TrainerOptions
    from distcore_torch.training.plan import TrainPlan

LOOK_SECONDS = 0.1
"""Between two looks at how far training is."""

WARM_STEPS = 10
"""The first ones try ways through the network, and are not counted."""

MEASURED_SECONDS = 0.5
"""How long steps are measured, and at least as many of them as WARM_STEPS."""

SHARED = 0.86
OWN_SECONDS = 900e-6
"""Of a long step, what processes share; and of a step what each does by itself: Python around the
kernels, the optimizer's update, waiting for the others, their sums. Of ten networks and sizes of
batches (1.5 to 35 ms a step) eight took less in two processes than these say, two 1 and 3 % more,
none of which these would have moved to its loss."""

START_SECONDS = 4.0
"""Until several processes have begun (seen: two), with a margin; as much has to be saved."""


@dataclass(frozen=True)
class Length:
    """How long a run will be. patience: of early stopping, in rounds of steps_per_round, or 0."""

    total_steps: int
    steps_per_round: int
    patience: int

    @classmethod
    def of(cls, plan: TrainPlan, options: TrainerOptions) -> Length:
        """Of a run of these options."""
        return cls(plan.total_steps, plan.steps_per_round, max(0, options.early_stop))

    def sure(self, step: int) -> int:
        """Steps that follow this one whatever the scores."""
        end = self.patience * self.steps_per_round if self.patience else self.total_steps
        return max(0, min(end, self.total_steps) - step)


def sharing(parts: int, most: int) -> int:
    """The fewest processes, of at most so many, that make the largest share of the parts
    smallest."""
    largest = -(-parts // min(most, parts))
    return -(-parts // largest)


def saved_seconds(step_seconds: float, parts: int, processes: int) -> float:
    """A step's, if so many processes make it in place of one."""
    largest = -(-parts // processes)
    return step_seconds * SHARED * (1 - largest / parts) - OWN_SECONDS


class Pace:
    """Within `with Pace(…)`, training in this process is watched, and stopped if it should go on
    in several.

    Args:
        progress: Of the training.
        length: Of the run.
        parts: `trainer.parts`.
        several: Processes that it may go on in.

    Attributes:
        processes: How many to go on in; 1 until that is decided, and if this one is to go on.
    """

    def __init__(self, progress: Progress, length: Length, parts: int, several: int) -> None:
        self._progress, self._length, self._parts = progress, length, parts
        self._several, self.processes = several, 1
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="distcore-pace", daemon=True)

    def __enter__(self) -> Pace:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        if self.processes > 1:  # what was asked of this training is not asked of the next
            self._progress.stop = False

    def _watch(self) -> None:
        begun = self._wait_for(1)
        warm, before = self._wait_for(begun + WARM_STEPS), _seconds_of_steps()
        while not self._over.wait(LOOK_SECONDS):
            seconds, step = _seconds_of_steps() - before, int(self._progress.done)
            if seconds >= MEASURED_SECONDS and step - warm >= WARM_STEPS:
                self._decide(step, seconds / (step - warm))
                return

    def _wait_for(self, step: int) -> int:
        """The step that training is at, once it is at least this one, or over."""
        while not (self._progress.stage == "train" and int(self._progress.done) >= step):
            if self._over.wait(LOOK_SECONDS):
                break
        return int(self._progress.done)

    def _decide(self, step: int, step_seconds: float) -> None:
        saved = saved_seconds(step_seconds, self._parts, self._several)
        if saved * self._length.sure(step) > START_SECONDS:
            self.processes = self._several
            self._progress.stop = f"Going on in {self.processes} processes: the same bits, sooner."


def _seconds_of_steps() -> float:
    """That this process has spent in training steps so far, evaluations left out."""
    spent = heartbeat().pulse.seconds
    return spent[LOADING] + spent[COMPUTING]
