"""Checkpoints of a boosting: the trees so far, how each forest stands, the curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from distcore_core.contracts import JSON
from distcore_core.errors import DifferentRun
from distcore_data.stores.run_sync import CHECKPOINTS
from distcore_torch import tell_checkpoint
from distcore_torch.training import checkpoint
from distcore_torch.training.job import checkpoints_of, own_checkpoints
from distcore_torch.training.state import check_identity, identity
from distcore_trees.options import HOW_LONG

if TYPE_CHECKING:
    from distcore_torch.training.open_job import Opened
    from distcore_trees.boosting import Growing
    from distcore_trees.options import TreeOptions


@dataclass(frozen=True)
class Before:
    """What a checkpoint holds. trees: of each output feature, in their order."""

    trees: Sequence[bytes]
    standings: Sequence[Any]
    statistics: JSON


class Checkpoints:
    """Those of one run, in its folder and its bucket; its listeners hear of each.

    bound: `BoundTrainer.bound`."""

    def __init__(self, opened: Opened, options: TreeOptions, bound: JSON) -> None:
        job = opened.job
        self._opened, self._job, self._options, self._bound = opened, job, options, bound
        self._folder = own_checkpoints(job)

    def save(self, rounds: int, forests: Sequence[Growing], statistics: JSON) -> None:
        """Save one, unless none are kept."""
        trees = [each.forest.content() for each in forests]
        if self._folder is None or not rounds:
            return
        tensors = {
            str(number): torch.frombuffer(bytearray(each), dtype=torch.uint8)
            for number, each in enumerate(trees)
        }
        state = {
            "identity": self._identity(),
            "standings": [vars(each.standing) for each in forests],
            "statistics": statistics,
        }
        if self._job.mirror is not None:  # what tells of the run up to here
            self._job.mirror.put_files(self._folder.parent)
        path = checkpoint.save(self._folder, rounds, tensors, state)
        if self._job.mirror is not None:
            checkpoint.copy_to(self._job.mirror, path)
        tell_checkpoint(self._opened, rounds, path)

    def newest(self, outputs: int) -> Before | None:
        """The newest whole one of the run that is gone on with; None if this is a new run.

        Raises:
            CheckpointError: There is none.
            DifferentRun: It is of another config or other data, or behind where this one ends.
        """
        resume = self._job.resume
        if resume is None:
            return None
        if self._job.mirror is not None:
            checkpoint.copy_newest_from(self._job.mirror, resume / CHECKPOINTS)
        with checkpoint.told_as_there(self._job.mirror, resume):
            found = checkpoint.load_newest(checkpoints_of(resume))
            self._check(found)
        trees = [found.tensors[str(number)].numpy().tobytes() for number in range(outputs)]
        return Before(trees, found.state["standings"], found.state["statistics"])

    def _check(self, found: checkpoint.Checkpoint) -> None:
        """Raise DifferentRun if this run cannot go on from it."""
        saved, ours = found.state["identity"], self._identity()
        check_identity(saved, ours, found.path)
        if found.step > self._options.num_boost_round:
            raise DifferentRun(
                f"The checkpoint {found.path} has {found.step} rounds, and num_boost_round is "
                f"{self._options.num_boost_round}. Give as many at least, or start a new run."
            )

    def _identity(self) -> JSON:
        """What must be the same if a run is gone on with."""
        bound = {name: self._bound[name] for name in self._bound.keys() - set(HOW_LONG)}
        return identity(self._job, 0, bound)
