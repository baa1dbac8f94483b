"""The backend `horovod` in horovodrun's elastic mode: training goes on from its last checkpoint as
ranks come and go.

A checkpoint is the commit: it holds the position (epoch, step), and a rank of any group goes on
from there with its share of the same global batches. If hosts are added, training stops at the next
step, saves one, and goes on.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import Rank, Resources, TrainJob, WorkerGroup
from distcore_core.errors import Stopped, UserError
from distcore_core.progress import Progress
from distcore_horovod.backend import Joined
from distcore_horovod.launcher import launched
from distcore_torch.signals import signal_received
from distcore_torch.training.job import own_checkpoints

if TYPE_CHECKING:
    from distcore_horovod.elastic import Changes, ElasticProcessGroup

STOPPED = "stopped"
"""What a rank's part gives if training stopped at a checkpoint, as it was asked to."""


def refuse(kind: str, options: Any) -> None:
    """Raise UserError, before any work, if the plugin (of this kind) does not go with an elastic
    launcher."""
    here = launched()
    if here is None or not here.elastic:
        return
    if kind == "processors":
        raise UserError(
            "backend.processor horovod does not go with horovodrun's elastic mode: its ranks hold "
            "the rows between two passes. Leave out backend.processor: rank 0 then prepares the "
            "data alone."
        )
    if kind == "trainers" and options.op != "average":
        raise UserError(
            f"backend.trainer.op {options.op} does not go with horovodrun's elastic mode: its "
            "gradients would change with the number of ranks. Leave it out."
        )


class Elastic(Joined):
    """Rank 0 runs the command, as without elasticity; after a loss its orders are given again."""

    defaults: Mapping[str, str] = {"processor": "local", "loader": "packed", "trainer": "horovod"}
    process_group: ElasticProcessGroup

    def resources(self) -> Resources:
        """Of the machines that are there now."""
        self._resources = None
        return super().resources()

    def progress_channel(self, progress: Progress) -> Watched:
        """Rank 0 trains in the process that draws."""
        return Watched(progress, self.process_group.changes)

    def taken_over(self) -> Path | str | None:
        """Where the run lies that a lost leader began with this call. Raises UserError if it
        cannot be seen."""
        if not self.process_group.inherited:
            return None
        directory = self.process_group.inherited.pop(0).directory
        if isinstance(directory, Path) and not directory.is_dir():
            raise UserError(
                f"The process that led has begun the run in {directory}, which is not seen from "
                "here. Give an --output_directory on storage that all hosts share."
            )
        return directory

    def run_group(self, group: WorkerGroup) -> list[Any]:
        """Run the function in all ranks that are there, from its last checkpoint whenever they have
        changed.

        Raises what a rank's part raised: only the loss of a rank is survived."""
        group = self._planned(group)
        while True:
            if self.process_group.changes.told:
                self.process_group.meet_again()
            found = self.process_group.everywhere(run_elastic_part, group)
            if STOPPED not in found:
                return found
            if not self.process_group.changes.told:
                raise Stopped("", signal_received() or signal.SIGINT)

    def _planned(self, group: WorkerGroup) -> WorkerGroup:
        """The group, with batches for the number of ranks that its run was begun with. Raises
        UserError if it could not go on."""
        if not group.arguments or not isinstance(group.arguments[0], TrainJob):
            return group
        job = group.arguments[0]
        if job.trainer.name != "horovod":
            raise UserError(
                f"backend.trainer {job.trainer.name} cannot lose a rank. Under horovodrun's "
                "elastic mode leave out backend.trainer, or name horovod."
            )
        if own_checkpoints(job) is None:
            raise UserError(
                "horovodrun's elastic mode goes on from checkpoints, and none are kept. Leave out "
                "--skip_save_progress."
            )
        known = [run.planned for run in self.process_group.runs if run.directory == job.home]
        job = replace(job, planned_workers=known[0] if known else group.ranks)
        return replace(group, arguments=(job, *group.arguments[1:]))


def run_elastic_part(process_group: ElasticProcessGroup, group: WorkerGroup) -> Any:
    """This rank's part of the worker group. Raises Broken if ranks must meet again."""
    from horovod.common.exceptions import HorovodInternalError

    from distcore_horovod.elastic import Run
    from distcore_horovod.process_group import Broken
    from distcore_horovod.worker_group import says_why, surroundings

    job = group.arguments[0] if group.arguments else None
    if isinstance(job, TrainJob):
        process_group.begins(Run(job.home, job.planned_workers))
    rank = Rank(
        index=process_group.rank,
        world=process_group.size,
        local_rank=process_group.launched.local_rank,
    )
    try:
        with says_why(process_group), surroundings(rank, process_group, group):
            return group.function(rank, *group.arguments)
    except HorovodInternalError as error:
        raise Broken from error
    except KeyboardInterrupt:
        return STOPPED
    except Exception as error:
        raise process_group.failed_here(error) from error


class Watched:
    """A progress channel and its reporter in one: the progress that training reports to is the
    one that is drawn."""

    def __init__(self, progress: Progress | None, changes: Changes | None) -> None:
        self._progress, self._changes = progress, changes

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing was opened."""

    def __reduce__(self) -> tuple[Any, ...]:
        """In the other ranks nothing is drawn."""
        return (Watched, (None, None))

    @property
    def reporter(self) -> Watched:
        """What rank 0 reports through."""
        return self

    @contextmanager
    def reporting(self) -> Iterator[Progress]:
        """The progress, which is asked to stop if the launcher's hosts change."""
        if self._progress is None or self._changes is None:
            yield Progress()
            return
        self._changes.watch(self._progress)
        try:
            yield self._progress
        finally:
            self._changes.watch(None)
